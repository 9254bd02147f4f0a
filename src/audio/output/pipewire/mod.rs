//! The output on PipeWire.
//!
//! ```text
//! handle ── Command ──► own thread: connection, graph, stream (worker.rs)
//!                           │ closes and opens              ▲ wakes (shared.rs)
//!                           ▼                               │
//!                       PipeWire's real-time thread: callback.rs ──► Renderer
//! ```
//!
//! - The stream runs at the graph's own rate and is called in the graph's cycle itself, so nothing between the renderer
//!   and the device resamples or delays in a way that is not reported.
//! - A named device is the only one that is played to: while it is away there is silence, and sound as soon as it is
//!   back. Without a name the session manager decides, that is: the default device, also when it changes, or where the
//!   user moves the stream to.
//! - PipeWire's volume of the stream stays at the user's disposal; Unisono's own volume is applied before.

mod callback;
mod connection;
mod graph;
mod heard;
mod shared;
mod stream;
mod worker;

pub use graph::DUMMY_SINK;

/// What recording a sink shares with playing to it.
pub(crate) mod recording {
    pub(crate) use super::connection::{Client, Note, Notes, wait_until};
    pub(crate) use super::heard::{Cycle, PathLatency};
    pub(crate) use super::shared::PositionCell;
    pub(crate) use super::stream::format_pod;
}

use super::Renderer;
use super::{Device, EVENT_CAPACITY, MAX_CHANNELS, Output, OutputConfig, OutputCounters, OutputError, OutputEvent};
use connection::{Client, Note, Notes, wait_until};
use pipewire as pw;
use shared::Shared;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use worker::{Command, Setup};

/// A server on the same host answers within milliseconds; a host under load may take a second.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Loading PipeWire's modules from a slow disk.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Closing a stream waits for the cycle in progress, that is milliseconds.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// An output on PipeWire.
pub struct PipeWireOutput {
    commands: pw::channel::Sender<Command>,
    events: async_channel::Receiver<OutputEvent>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    finished: mpsc::Receiver<()>,
}

impl PipeWireOutput {
    /// Starts to play what `renderer` renders. Returns before the device runs, also when the sound server or the device
    /// is not there (yet): the events tell.
    ///
    /// # Errors
    /// [`OutputError::Channels`], [`OutputError::Name`], or [`OutputError::Library`] when PipeWire's library cannot be
    /// used at all.
    pub fn open(config: OutputConfig, renderer: Box<dyn Renderer>) -> Result<Self, OutputError> {
        if config.channels == 0 || config.channels > MAX_CHANNELS {
            return Err(OutputError::Channels(config.channels));
        }
        for name in [Some(&config.stream_name), config.device.as_ref()].into_iter().flatten() {
            if name.contains('\0') {
                return Err(OutputError::Name(name.clone()));
            }
        }
        let shared = Arc::new(Shared::new()?);
        let (commands, receiver) = pw::channel::channel();
        let (events, event_receiver) = async_channel::bounded(EVENT_CAPACITY);
        let (started, start) = mpsc::sync_channel(1);
        let (finish, finished) = mpsc::sync_channel(1);
        let home = Arc::new(Mutex::new(Some(renderer)));
        let server = config.server.clone();
        let setup = Setup { config, home, shared: shared.clone(), events, commands: receiver };
        let thread = std::thread::Builder::new()
            .name("audio-output".into())
            .spawn(move || {
                match Client::new(server.as_deref()) {
                    Ok(client) => {
                        let _ = started.send(Ok(()));
                        worker::run(&client, setup);
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
                let _ = finish.send(());
            })
            .map_err(|error| OutputError::Thread(error.to_string()))?;
        start.recv_timeout(START_TIMEOUT).map_err(|_| OutputError::NoAnswer(START_TIMEOUT))??;
        Ok(Self { commands, events: event_receiver, shared, thread: Some(thread), finished })
    }
}

impl Output for PipeWireOutput {
    fn events(&self) -> async_channel::Receiver<OutputEvent> {
        self.events.clone()
    }

    fn set_device(&self, device: Option<String>) {
        if self.commands.send(Command::SetDevice(device)).is_err() {
            tracing::warn!("the audio thread has ended");
        }
    }

    fn counters(&self) -> OutputCounters {
        self.shared.counters()
    }
}

impl Drop for PipeWireOutput {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Stop);
        match self.finished.recv_timeout(STOP_TIMEOUT) {
            Err(mpsc::RecvTimeoutError::Timeout) => {
                tracing::warn!("the audio thread does not end; it is left alone");
            }
            // It said so, or it panicked: either way there is nothing left to wait for.
            Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => {
                if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
                    tracing::error!("the audio thread panicked");
                }
            }
        }
    }
}

/// The devices that are there now, the default one marked. Asks the sound server and waits for its answer.
///
/// # Errors
/// [`OutputError::Unreachable`] or [`OutputError::NoAnswer`] without a server, [`OutputError::Library`].
pub fn list_devices(server: Option<&str>) -> Result<Vec<Device>, OutputError> {
    let client = Client::new(server)?;
    let notes = Notes::default();
    let connection = client.connect(&notes)?;
    wait_until(&client, &notes, ANSWER_TIMEOUT, |note| matches!(note, Note::Ready))?;
    let devices = connection.graph.borrow().devices();
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::output::Block;
    use std::time::Instant;

    struct Silence;

    impl Renderer for Silence {
        fn render(&mut self, block: Block<'_>) {
            block.samples.fill(0.0);
        }
    }

    fn nowhere() -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("no-server").display().to_string();
        (dir, socket)
    }

    #[test]
    fn says_what_is_wrong_with_the_configuration() {
        for channels in [0, 9] {
            let config = OutputConfig { channels, ..OutputConfig::default() };
            let error = PipeWireOutput::open(config, Box::new(Silence)).err();
            assert_eq!(error, Some(OutputError::Channels(channels)));
        }
        let config = OutputConfig { device: Some("a\0b".into()), ..OutputConfig::default() };
        assert_eq!(PipeWireOutput::open(config, Box::new(Silence)).err(), Some(OutputError::Name("a\0b".into())));
    }

    #[test]
    fn without_a_server_it_goes_on_trying_and_stops_at_once() {
        let (_dir, server) = nowhere();
        let config = OutputConfig { server: Some(server), ..OutputConfig::default() };
        let output = PipeWireOutput::open(config, Box::new(Silence)).unwrap();
        let events = output.events();
        for _ in 0..3 {
            let event = events.recv_blocking().unwrap();
            assert!(matches!(event, OutputEvent::Reconnecting { .. }), "{event:?}");
        }
        let before = Instant::now();
        drop(output);
        assert!(before.elapsed() < STOP_TIMEOUT);
        assert_eq!(events.try_iter_all().len(), 0);
    }

    trait Drain {
        fn try_iter_all(&self) -> Vec<OutputEvent>;
    }

    impl Drain for async_channel::Receiver<OutputEvent> {
        /// What is left that is no `Reconnecting`.
        fn try_iter_all(&self) -> Vec<OutputEvent> {
            std::iter::from_fn(|| self.try_recv().ok())
                .filter(|event| !matches!(event, OutputEvent::Reconnecting { .. }))
                .collect()
        }
    }

    #[test]
    fn devices_need_a_server() {
        let (_dir, server) = nowhere();
        let error = list_devices(Some(&server)).unwrap_err();
        assert!(matches!(error, OutputError::Unreachable(_)), "{error}");
        assert!(error.to_string().contains("check that it runs"), "{error}");
    }
}

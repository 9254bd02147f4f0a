//! The engine of one room: commands in, [`EngineEvent`]s out. It runs on a thread of its own and never touches GTK.

mod audio;
mod bus;
pub mod drift;
mod error;
mod event;
mod frame_log;
mod guard;
mod meta;
mod monitor;
mod pipeline;
mod priority;
mod queue;
mod renderer;
mod retry;
mod room;
mod source;
pub mod stats;
pub mod timing;
mod url;
pub mod verdict;
mod video_sink;

pub use error::{EngineError, exit};
pub use event::{
    AudioBackend, AudioOutput, ClockReport, Command, Drift, EngineConfig, EngineEvent, NetworkReport, Notice,
    OutputReport, Status, StreamStatus, SyncPolicy, Transport, VideoOutput,
};
pub use meta::sender_time;
pub use queue::EventReceiver;
pub use url::{Credentials, Secret, StreamUrl, UrlError};

use std::sync::mpsc;

/// A running room. Dropping it ends the room and waits for the TEARDOWN.
pub struct Engine {
    commands: mpsc::Sender<room::Input>,
    events: EventReceiver,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Engine {
    /// Starts a room. GStreamer must have been initialized.
    ///
    /// # Errors
    /// Only what can be said at once: a clock of a later version, a sink that cannot be made, no sound and no picture.
    /// Everything else comes as an event.
    pub fn start(config: EngineConfig) -> Result<Self, EngineError> {
        let (commands, inputs) = mpsc::channel();
        let (sender, events) = queue::channel();
        let room = room::Room::new(config, commands.clone(), inputs, sender)?;
        let thread = std::thread::Builder::new()
            .name("engine".into())
            .spawn(move || room.run())
            .map_err(|error| EngineError::Internal(format!("no thread for the engine: {error}")))?;
        Ok(Self { commands, events, thread: Some(thread) })
    }

    /// Asks the engine to do something; after its end this does nothing.
    pub fn send(&self, command: Command) {
        let _ = self.commands.send(room::Input::Command(command));
    }

    /// A handle for other threads to send commands by.
    pub fn commander(&self) -> Commander {
        Commander(self.commands.clone())
    }

    /// What happens in the engine.
    pub fn events(&self) -> &EventReceiver {
        &self.events
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.send(Command::Quit);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sends commands to an engine.
#[derive(Clone)]
pub struct Commander(mpsc::Sender<room::Input>);

impl Commander {
    /// Asks the engine to do something; after its end this does nothing.
    pub fn send(&self, command: Command) {
        let _ = self.0.send(room::Input::Command(command));
    }
}

#[cfg(test)]
mod tests {
    use super::verdict::{Reason, Verdict};
    use super::*;
    use std::time::Duration;

    /// A status for tests that need any.
    pub(crate) fn status(reconnects: u64) -> Status {
        Status {
            uptime: Duration::from_secs(1),
            verdict: Verdict::Acquiring(Reason::Connecting),
            clock: ClockReport {
                kind: "system",
                address: None,
                synced: true,
                uncertainty: None,
                round_trip: None,
                rate_ppm: None,
            },
            audio: None,
            video: None,
            output: None,
            drift: Drift::default(),
            network: NetworkReport::default(),
            reconnects,
            latency: Duration::from_secs(1),
            headroom_ns: None,
        }
    }
}

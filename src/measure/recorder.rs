//! Records what one PipeWire sink plays, with the driver's scheduled time of every cycle.
//!
//! Which cycle do the samples of a monitor belong to? A sink that drives its graph takes what was rendered for a cycle at
//! the end of it, but its followers, the recorder among them, are started when the cycle starts: they get what the sink
//! took in the cycle before. A sink that follows another driver has run before its recorder, in the same cycle. (Shown
//! by playing to a recorder that is itself the sink: it gets the samples in the cycle for which they were rendered.) So
//! samples from the monitor of a driver are given the time of the cycle before. Each room has its own connection; two
//! monitors in one graph, only one of which can drive, would be a whole cycle apart without this.

use super::recording::{About, Mark, Recording};
use crate::audio::output::OutputError;
use crate::audio::output::pipewire::recording::{
    Client, Cycle, Note, Notes, PathLatency, PositionCell, format_pod, wait_until,
};
use pipewire as pw;
use pw::spa;
use pw::stream::{StreamFlags, StreamListener, StreamRc};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A sink that is suspended starts within some 100 ms.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// The server's answer to a question.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the end is looked for.
const POLL: Duration = Duration::from_millis(20);
/// The shortest cycle that is recorded without running out of marks, frames.
const QUANTUM_MIN: usize = 16;
/// Devices run a little fast, and the last cycle is recorded whole.
const SPARE: Duration = Duration::from_secs(2);
/// The graph may have been at another rate than its settings say; it is opened anew at the true one.
const RATE_TRIES: usize = 3;

/// Why there is no recording.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error(transparent)]
    Server(#[from] OutputError),
    #[error("there is no sink '{0}'; there are: {1}")]
    NoSuchSink(String, String),
    #[error("the sink '{0}' does not run: nothing came from its monitor within {seconds} s", seconds = START_TIMEOUT.as_secs())]
    Silent(String),
    #[error("the rate of the sink '{0}' changes all the time")]
    Rate(String),
}

/// Filled by the real-time thread; nothing in it allocates.
struct Tape {
    samples: Vec<f32>,
    marks: Vec<Mark>,
    /// The last cycle.
    last: Option<Cycle>,
    /// The sink's number in the graph.
    sink: u32,
    position: Arc<PositionCell>,
    state: Arc<State>,
    /// Where it is left when the stream is closed.
    home: Arc<Mutex<Option<Tape>>>,
}

#[derive(Default)]
struct State {
    /// Hz of the graph, once it runs.
    rate: AtomicU32,
    full: AtomicBool,
}

/// Returns its tape when PipeWire lets go of it.
struct Head(Option<Tape>);

impl Drop for Head {
    fn drop(&mut self) {
        if let Some(tape) = self.0.take() {
            let home = tape.home.clone();
            *home.lock().unwrap_or_else(PoisonError::into_inner) = Some(tape);
        }
    }
}

impl Tape {
    fn process(&mut self, stream: &pw::stream::Stream) {
        let Some(mut buffer) = stream.dequeue_buffer() else { return };
        let Some(cycle) = self.position.read() else { return };
        let Some(data) = buffer.datas_mut().first_mut() else { return };
        let (offset, size) = (data.chunk().offset() as usize, data.chunk().size() as usize);
        let Some(bytes) = data.data().and_then(|bytes| bytes.get(offset..offset.checked_add(size)?)) else { return };
        // SAFETY: every bit pattern is a valid f32.
        let (_, samples, _) = unsafe { bytes.align_to::<f32>() };
        self.state.rate.store(cycle.rate, Ordering::Relaxed);
        let time_ns = played_at(&cycle, self.last.replace(cycle), self.sink);
        if self.samples.capacity() - self.samples.len() < samples.len() || self.marks.len() == self.marks.capacity() {
            self.state.full.store(true, Ordering::Release);
            return;
        }
        self.marks.push(Mark { time_ns, first: self.samples.len() as u64 });
        self.samples.extend_from_slice(samples);
    }
}

/// When the samples that a recorder gets in this cycle were due: CLOCK_MONOTONIC, ns. See above.
fn played_at(cycle: &Cycle, last: Option<Cycle>, sink: u32) -> i64 {
    if cycle.driver != sink {
        return cycle.nsec;
    }
    match last {
        Some(last) if last.driver == sink && last.position + u64::from(last.duration) == cycle.position => last.nsec,
        // The first one, or after one that was missed.
        _ => cycle.nsec - i64::from(cycle.duration) * 1_000_000_000 / i64::from(cycle.rate),
    }
}

/// Records the sink for so long; the clock history is left empty.
///
/// # Errors
/// [`RecordError`].
pub fn record(server: Option<&str>, sink: &str, length: Duration) -> Result<Recording, RecordError> {
    let client = Client::new(server)?;
    let notes = Notes::default();
    let connection = client.connect(&notes)?;
    wait_until(&client, &notes, ANSWER_TIMEOUT, |note| matches!(note, Note::Ready))?;
    let (node, hint) = {
        let graph = connection.graph.borrow();
        let Some((node, _)) = graph.sink(sink) else {
            let names: Vec<String> = graph.devices().into_iter().map(|device| device.name).collect();
            return Err(RecordError::NoSuchSink(sink.into(), names.join(", ")));
        };
        (node, graph.rate_hint())
    };
    let latency = connection.latency_of(&client, &notes, node, ANSWER_TIMEOUT)?;
    let mut rate = hint;
    for _ in 0..RATE_TRIES {
        match take(&client, &connection.core, (node, sink), rate, length)? {
            Take::Done(tape) => return Ok(recording(sink, rate, latency, tape)),
            Take::OtherRate(other) => rate = other,
        }
    }
    Err(RecordError::Rate(sink.into()))
}

enum Take {
    Done(Tape),
    OtherRate(u32),
}

fn take(
    client: &Client,
    core: &pw::core::CoreRc,
    (node, sink): (u32, &str),
    rate: u32,
    length: Duration,
) -> Result<Take, RecordError> {
    let failed = |error: pw::Error| RecordError::Server(OutputError::Unreachable(error.to_string()));
    let mut properties = pw::properties::PropertiesBox::new();
    properties.insert(*pw::keys::MEDIA_TYPE, "Audio");
    properties.insert(*pw::keys::MEDIA_CATEGORY, "Capture");
    properties.insert(*pw::keys::NODE_NAME, "unisono-measure");
    properties.insert("stream.capture.sink", "true");
    properties.insert("target.object", sink);
    properties.insert("node.dont-reconnect", "true");
    let stream = StreamRc::new(core.clone(), "unisono measure", properties).map_err(failed)?;

    let (position, state, home) = (Arc::new(PositionCell::default()), Arc::new(State::default()), Arc::default());
    let capacity = ((length + SPARE).as_secs_f64() * f64::from(rate)) as usize;
    let tape = Tape {
        samples: Vec::with_capacity(capacity),
        marks: Vec::with_capacity(capacity / QUANTUM_MIN),
        last: None,
        sink: node,
        position: position.clone(),
        state: state.clone(),
        home: Arc::clone(&home),
    };
    let area = position.clone();
    let control = stream
        .add_local_listener_with_user_data(())
        .io_changed(move |_, (), id, io, size| {
            if id == spa::sys::SPA_IO_Position {
                let whole = size as usize >= size_of::<spa::sys::spa_io_position>();
                // SAFETY: PipeWire tells of the next area, or of none, before it unmaps this one; the guard below takes
                // it away before the stream is destroyed.
                unsafe { area.set(if whole { io.cast() } else { std::ptr::null_mut() }) };
            }
        })
        .register()
        .map_err(failed)?;
    let process = stream
        .add_local_listener_with_user_data(Head(Some(tape)))
        .process(|stream, head| {
            if let Some(tape) = &mut head.0 {
                tape.process(stream);
            }
        })
        .register()
        .map_err(failed)?;
    let running = Running { stream, process: Some(process), control: Some(control), position };

    let format = format_pod(rate, 1)?;
    let pod = spa::pod::Pod::from_bytes(&format)
        .ok_or_else(|| OutputError::Library("the format does not fit into a POD".into()))?;
    running
        .stream
        .connect(
            spa::utils::Direction::Input,
            None,
            StreamFlags::AUTOCONNECT | StreamFlags::MAP_BUFFERS | StreamFlags::RT_PROCESS,
            &mut [pod],
        )
        .map_err(failed)?;

    let deadline = Instant::now() + START_TIMEOUT;
    let mut end = None;
    while end.is_none_or(|end| Instant::now() < end) && !state.full.load(Ordering::Acquire) {
        client.main_loop.loop_().iterate(pw::loop_::Timeout::Finite(POLL));
        match state.rate.load(Ordering::Relaxed) {
            0 if Instant::now() > deadline => return Err(RecordError::Silent(sink.into())),
            0 => {}
            other if other != rate => return Ok(Take::OtherRate(other)),
            _ => drop(end.get_or_insert_with(|| Instant::now() + length)),
        }
    }
    drop(running);
    let tape = home.lock().unwrap_or_else(PoisonError::into_inner).take();
    tape.map(Take::Done).ok_or_else(|| RecordError::Silent(sink.into()))
}

/// A stream that is closed in the right order.
struct Running {
    stream: StreamRc,
    process: Option<StreamListener<Head>>,
    control: Option<StreamListener<()>>,
    position: Arc<PositionCell>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Afterwards no callback runs.
        if let Err(error) = self.stream.disconnect() {
            tracing::debug!(%error, "cannot disconnect the stream");
        }
        drop(self.process.take());
        drop(self.control.take());
        // SAFETY: null is always valid.
        unsafe { self.position.set(std::ptr::null_mut()) };
    }
}

fn recording(room: &str, rate: u32, latency: PathLatency, tape: Tape) -> Recording {
    let about = About {
        room: room.into(),
        rate,
        latency_ns: tape.last.map_or(0, |cycle| latency.ns_at(rate, cycle.duration)),
        boot: boot_id(Path::new("/proc/sys/kernel/random/boot_id")),
        marks: tape.marks,
        ..About::default()
    };
    Recording { about, samples: tape.samples }
}

/// What the kernel calls this boot. A host that hides it gives an empty name, which is its own.
fn boot_id(path: &Path) -> String {
    std::fs::read_to_string(path).map(|id| id.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycle(number: u64) -> Cycle {
        Cycle {
            nsec: 1_000_000_000 + number as i64 * 10_000_000 + 7,
            rate: 48_000,
            duration: 480,
            position: number * 480,
            driver_delay: 0,
            driver: 31,
        }
    }

    #[test]
    fn the_monitor_of_a_driver_is_one_cycle_behind() {
        assert_eq!(played_at(&cycle(5), Some(cycle(4)), 99), cycle(5).nsec);
        assert_eq!(played_at(&cycle(5), Some(cycle(4)), 31), cycle(4).nsec);
        let corrected = Cycle { nsec: cycle(4).nsec + 3_000, ..cycle(4) };
        assert_eq!(played_at(&cycle(5), Some(corrected), 31), corrected.nsec);
        assert_eq!(played_at(&cycle(5), Some(cycle(2)), 31), cycle(4).nsec);
        assert_eq!(played_at(&cycle(5), None, 31), cycle(4).nsec);
    }
}

//! The output's own thread: connects, opens the stream, watches the device, tells what happens.
//!
//! ```text
//!          no server          graph known          device there         first block
//!  start ───────────► wait ◄──────────── connected ───────────► opening ───────────► running
//!                      ▲ back-off                      ▲ refused: back-off   │ rate changed, moved by us
//!                      └─ server lost (from anywhere)  └─────────────────────┘ device vanished
//! ```

use super::callback::RendererHome;
use super::connection::{Client, Connection, Note, Notes};
use super::graph::Graph;
use super::heard::PathLatency;
use super::shared::{Shared, Wake};
use super::stream::{OpenStream, StreamConfig};
use crate::audio::output::{DeviceFormat, OutputConfig, OutputEvent};
use pipewire as pw;
use pw::loop_::Timeout;
use pw::spa::support::system::IoFlags;
use pw::stream::StreamState;
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Between two tries to reach the server or to open the stream: doubled at each failure …
const RETRY_MIN: Duration = Duration::from_millis(100);
/// … up to this. A second, so that sound is back within 3 s of the server's return.
const RETRY_MAX: Duration = Duration::from_secs(1);
/// A session manager links a stream within some 50 ms; after so long without a link it is asked anew.
const LINK_DEADLINE: Duration = Duration::from_secs(3);

/// What the handle asks for.
#[derive(Debug)]
pub(super) enum Command {
    Stop,
    SetDevice(Option<String>),
}

/// What the thread is started with.
pub(super) struct Setup {
    pub config: OutputConfig,
    pub home: RendererHome,
    pub shared: Arc<Shared>,
    pub events: async_channel::Sender<OutputEvent>,
    pub commands: pw::channel::Receiver<Command>,
}

/// Runs until it is stopped.
pub(super) fn run(client: &Client, setup: Setup) {
    let Setup { config, home, shared, events, commands } = setup;
    let notes = Notes::default();
    let orders: Rc<std::cell::RefCell<VecDeque<Command>>> = Rc::default();
    let woken = Rc::new(Cell::new(false));

    let queue = orders.clone();
    let _commands = commands.attach(client.main_loop.loop_(), move |command| queue.borrow_mut().push_back(command));
    let flag = woken.clone();
    let _wake = client.main_loop.loop_().add_io(shared.wake.fd(), IoFlags::IN, move |fd| {
        Wake::clear(*fd);
        flag.set(true);
    });

    let mut worker = Worker {
        client,
        config,
        home,
        shared,
        events,
        notes: notes.clone(),
        stream: None,
        streams: 0,
        connection: None,
        ready: false,
        retry: Retry::default(),
        opened: None,
        told: Told::default(),
    };
    loop {
        worker.advance();
        let timeout = worker.timeout();
        client.main_loop.loop_().iterate(timeout);
        while let Some(command) = pop(&orders) {
            match command {
                Command::Stop => return,
                Command::SetDevice(device) => worker.set_device(device),
            }
        }
        while let Some(note) = pop(&notes) {
            worker.note(note);
        }
        if woken.take() {
            worker.blocks_changed();
        }
    }
}

/// Takes one, without holding the queue: handling it may add others.
fn pop<T>(queue: &std::cell::RefCell<VecDeque<T>>) -> Option<T> {
    queue.borrow_mut().pop_front()
}

/// When to try again.
#[derive(Debug, Default)]
struct Retry {
    failures: u32,
    at: Option<Instant>,
}

impl Retry {
    /// Notes a failure; how long to wait now.
    fn fail(&mut self, now: Instant) -> Duration {
        let delay = RETRY_MIN.saturating_mul(1 << self.failures.min(16)).min(RETRY_MAX);
        self.failures = self.failures.saturating_add(1);
        self.at = Some(now + delay);
        delay
    }

    /// Whether a try is due.
    fn due(&self, now: Instant) -> bool {
        self.at.is_none_or(|at| at <= now)
    }
}

/// What the reader of the events knows already.
#[derive(Debug, Default)]
struct Told {
    /// `Started` was sent for the stream as it is.
    started: bool,
    device: Option<String>,
    quantum: u32,
    latency_ns: i64,
    missed_frames: u64,
    /// That the wanted device is away.
    vanished: bool,
}

struct Worker<'a> {
    client: &'a Client,
    config: OutputConfig,
    home: RendererHome,
    shared: Arc<Shared>,
    events: async_channel::Sender<OutputEvent>,
    notes: Notes,
    // The stream is closed before its connection.
    stream: Option<OpenStream>,
    /// How many streams were opened.
    streams: u64,
    connection: Option<Connection>,
    /// The graph is known.
    ready: bool,
    retry: Retry,
    /// When the stream was opened, until it is linked.
    opened: Option<Instant>,
    told: Told,
}

impl Worker<'_> {
    fn tell(&self, event: OutputEvent) {
        tracing::debug!(?event, "audio output");
        // The oldest is lost when nobody reads; a closed channel means that nobody ever will.
        let _ = self.events.force_send(event);
    }

    /// Does what is due.
    fn advance(&mut self) {
        let now = Instant::now();
        if self.connection.is_none() && self.retry.due(now) {
            match self.client.connect(&self.notes) {
                Ok(connection) => {
                    self.connection = Some(connection);
                    self.ready = false;
                }
                Err(error) => self.try_later(error.to_string()),
            }
        }
        if self.opened.is_some_and(|opened| now >= opened + LINK_DEADLINE) {
            self.close();
            self.try_later("no session manager connected the stream to a device".into());
        }
        self.follow_graph(now);
    }

    /// When something is due next.
    fn timeout(&self) -> Timeout {
        let waits_for_retry = self.connection.is_none() || (self.ready && self.stream.is_none());
        let next = [self.retry.at.filter(|_| waits_for_retry), self.opened.map(|opened| opened + LINK_DEADLINE)];
        let now = Instant::now();
        match next.into_iter().flatten().filter(|at| *at > now).min() {
            // Whole milliseconds, rounded up, so that it does not wake just before.
            Some(at) => Timeout::Finite(at.duration_since(now) + Duration::from_millis(1)),
            None => Timeout::Infinite,
        }
    }

    fn try_later(&mut self, reason: String) {
        let delay = self.retry.fail(Instant::now());
        self.tell(OutputEvent::Reconnecting { reason, delay });
    }

    fn set_device(&mut self, device: Option<String>) {
        if self.config.device != device {
            self.config.device = device;
            self.told.vanished = false;
            self.retry = Retry::default();
            self.close();
        }
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::Ready => self.ready = true,
            Note::Graph | Note::Synced => {}
            Note::Lost(reason) => {
                self.close();
                self.connection = None;
                self.ready = false;
                self.notes.borrow_mut().clear();
                self.try_later(format!("the connection to PipeWire broke: {reason}"));
            }
            Note::Stream(number, _) | Note::Latency(number, _)
                if self.stream.as_ref().is_none_or(|stream| stream.number != number) => {}
            Note::Latency(_, path) => {
                let (rate, quantum) =
                    (self.shared.rate.load(Ordering::Relaxed), self.shared.quantum.load(Ordering::Relaxed));
                // A stream that has not run yet tells its latency with `Started`.
                if self.told.started && path != PathLatency::default() {
                    self.latency_is(path.ns_at(rate, quantum));
                }
            }
            Note::Stream(_, StreamState::Error(reason)) => {
                self.close();
                self.try_later(format!("PipeWire refused the stream: {reason}"));
            }
            Note::Stream(_, StreamState::Unconnected) => {
                self.close();
                self.try_later("PipeWire closed the stream".into());
            }
            Note::Stream(_, StreamState::Paused) => self.stopped(),
            Note::Stream(_, StreamState::Connecting | StreamState::Streaming) => {}
        }
    }

    /// Opens or closes the stream as the graph asks for, and follows where the stream is linked to.
    fn follow_graph(&mut self, now: Instant) {
        let Some(connection) = &self.connection else { return };
        if !self.ready {
            return;
        }
        let graph = connection.graph.clone();
        let graph = graph.borrow();
        let there = match &self.config.device {
            Some(name) => graph.sink(name).is_some(),
            None => graph.has_sinks(),
        };
        if let Some(device) = self.told.device.take_if(|device| !graph.has_node(device)) {
            self.told.started = false;
            self.shared.running.store(false, Ordering::Relaxed);
            self.tell(OutputEvent::DeviceVanished { device: Some(device) });
            self.told.vanished = true;
        }
        if !there {
            self.close();
            if !self.told.vanished {
                self.told.vanished = true;
                self.tell(OutputEvent::DeviceVanished { device: self.config.device.clone() });
            }
            return;
        }
        if self.stream.is_none() && self.retry.due(now) {
            self.open(graph.rate_hint());
        }
        self.follow_links(&graph);
    }

    fn open(&mut self, rate: u32) {
        let Some(connection) = &self.connection else { return };
        let config = StreamConfig {
            target: self.config.device.clone(),
            rate,
            channels: self.config.channels,
            name: self.config.stream_name.clone(),
        };
        self.shared.running.store(false, Ordering::Relaxed);
        self.told.started = false;
        self.streams += 1;
        match OpenStream::open(&connection.core, self.streams, config, &self.home, &self.shared, &self.notes) {
            Ok(stream) => {
                self.stream = Some(stream);
                self.opened = Some(Instant::now());
            }
            Err(error) => self.try_later(error.to_string()),
        }
    }

    fn close(&mut self) {
        self.stream = None;
        self.opened = None;
        self.told.started = false;
        self.shared.running.store(false, Ordering::Relaxed);
    }

    /// Notes which device the stream is linked to.
    fn follow_links(&mut self, graph: &Graph) {
        let Some(node) = self.stream.as_ref().map(OpenStream::node) else { return };
        if graph.is_linked(node) {
            self.opened = None;
        }
        // Between two links there is none for a moment: the last one holds.
        let Some(sink) = graph.target_of(node) else { return };
        if self.told.device.as_ref() == Some(&sink.name) {
            return;
        }
        self.told.vanished = false;
        let before = self.told.device.replace(sink.name.clone());
        if let Some(from) = before {
            self.tell(OutputEvent::Moved { from, to: sink.name.clone() });
        }
        // The next block tells how the device runs.
        self.told.started = false;
        self.shared.running.store(false, Ordering::Release);
    }

    fn stopped(&mut self) {
        self.shared.running.store(false, Ordering::Relaxed);
        if std::mem::take(&mut self.told.started) {
            self.tell(OutputEvent::Stopped);
        }
    }

    fn latency_is(&mut self, latency_ns: i64) {
        if latency_ns != self.told.latency_ns {
            self.told.latency_ns = latency_ns;
            self.tell(OutputEvent::LatencyChanged { latency_ns });
        }
    }

    /// The real-time thread has news.
    fn blocks_changed(&mut self) {
        let Some(stream) = &self.stream else { return };
        if !self.shared.running.load(Ordering::Acquire) {
            return;
        }
        let load = |value: &std::sync::atomic::AtomicU32| value.load(Ordering::Relaxed);
        let (rate, quantum) = (load(&self.shared.rate), load(&self.shared.quantum));
        let latency_ns = self.shared.latency_ns.load(Ordering::Relaxed);
        if rate != stream.config.rate {
            // At another rate PipeWire would resample, 13.6 µs off and without telling.
            self.tell(OutputEvent::RateChanged { rate });
            self.close();
            self.open(rate);
            return;
        }
        let Some(device) = self.told.device.clone() else {
            // It runs before its link is known; `follow_links` asks to be told again.
            return;
        };
        if !self.told.started {
            self.retry = Retry::default();
            self.told = Told { started: true, quantum, latency_ns, vanished: false, ..std::mem::take(&mut self.told) };
            self.told.missed_frames = self.shared.missed_frames.load(Ordering::Relaxed);
            let channels = self.config.channels;
            self.tell(OutputEvent::Started(DeviceFormat { device, rate, channels, quantum, latency_ns }));
            return;
        }
        if quantum != self.told.quantum {
            self.told.quantum = quantum;
            self.tell(OutputEvent::QuantumChanged { quantum });
        }
        self.latency_is(latency_ns);
        let missed = self.shared.missed_frames.load(Ordering::Relaxed);
        let missed_frames = missed.wrapping_sub(std::mem::replace(&mut self.told.missed_frames, missed));
        if missed_frames > 0 {
            self.tell(OutputEvent::Xrun { missed_frames });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_come_quickly_at_first_and_never_stop() {
        let now = Instant::now();
        let mut retry = Retry::default();
        assert!(retry.due(now));
        let delays: Vec<_> = (0..40).map(|_| retry.fail(now)).collect();
        assert_eq!(delays[0], RETRY_MIN);
        assert!(delays.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(delays[39], RETRY_MAX);
        assert!(!retry.due(now) && retry.due(now + RETRY_MAX));
    }
}

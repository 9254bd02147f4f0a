//! Keeps the line between the shared clock and CLOCK_MONOTONIC, on a thread of its own.

use super::filter::{ClockFilter, FilterConfig};
use super::line::{LinePublisher, LineReader, clock_line};
use super::{ClockSpec, Observation, SharedClock, monotonic_ns};
use gst::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Between two lines: a rate that is 10 ppm off makes 2.5 µs meanwhile.
const INTERVAL: Duration = Duration::from_millis(250);
/// A clock of this host is read so often for one exchange, and the tightest reading kept: the others were interrupted.
const READINGS: usize = 8;

struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

/// Publishes the line of one [`SharedClock`] until it is dropped.
pub struct ClockMapping {
    reader: LineReader,
    stop: Arc<Stop>,
    steps: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ClockMapping {
    /// Starts to publish the line of `clock`; it becomes known once the clock has synchronized.
    ///
    /// # Errors
    /// When the host refuses another thread.
    pub fn start(clock: &SharedClock) -> std::io::Result<Self> {
        let (publisher, reader) = clock_line();
        let stop = Arc::new(Stop { stopped: Mutex::new(false), changed: Condvar::new() });
        let steps = Arc::new(AtomicU64::new(0));
        let worker = Worker {
            clock: clock.clone(),
            publisher,
            stop: stop.clone(),
            steps: steps.clone(),
            filter: ClockFilter::new(match clock.spec() {
                ClockSpec::Ntp { .. } | ClockSpec::GstNet { .. } => FilterConfig::default(),
                ClockSpec::System | ClockSpec::Ptp { .. } => FilterConfig::local(),
            }),
            next_observation: 0,
        };
        let thread = std::thread::Builder::new().name("clock-line".into()).spawn(move || worker.run())?;
        Ok(Self { reader, stop, steps, thread: Some(thread) })
    }

    /// The published line.
    pub fn reader(&self) -> LineReader {
        self.reader.clone()
    }

    /// How often the shared clock or CLOCK_MONOTONIC was found to have been stepped.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }
}

impl Drop for ClockMapping {
    fn drop(&mut self) {
        *self.stop.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It waits for nothing but this signal. A panic in it has been printed.
            drop(thread.join());
        }
    }
}

struct Worker {
    clock: SharedClock,
    publisher: LinePublisher,
    stop: Arc<Stop>,
    steps: Arc<AtomicU64>,
    filter: ClockFilter,
    next_observation: u64,
}

impl Worker {
    fn run(mut self) {
        loop {
            self.observe();
            let line = self.filter.line(monotonic_ns());
            self.publisher.publish(line);
            self.steps.store(self.filter.steps(), Ordering::Relaxed);
            let stopped = self.stop.stopped.lock().unwrap_or_else(PoisonError::into_inner);
            let wait = self.stop.changed.wait_timeout_while(stopped, INTERVAL, |stopped| !*stopped);
            if *wait.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
        }
    }

    fn observe(&mut self) {
        let Some(gst) = self.clock.gst() else {
            return;
        };
        match self.clock.spec() {
            ClockSpec::Ntp { .. } | ClockSpec::GstNet { .. } => {
                for seen in self.clock.observations_since(self.next_observation) {
                    self.next_observation = seen.sequence + 1;
                    self.filter.observe(&seen);
                }
            }
            ClockSpec::System | ClockSpec::Ptp { .. } => {
                if let Some(seen) = read_between(&gst) {
                    self.filter.observe(&seen);
                }
            }
        }
    }
}

/// Reads `clock` between two readings of CLOCK_MONOTONIC, as an exchange without a network; the tightest of some.
fn read_between(clock: &gst::Clock) -> Option<Observation> {
    (0..READINGS)
        .filter_map(|_| {
            let (local_send, remote, local_receive) = (monotonic_ns(), clock.time().nseconds(), monotonic_ns());
            let (local_send, local_receive) = (u64::try_from(local_send).ok()?, u64::try_from(local_receive).ok()?);
            let round_trip = local_receive.saturating_sub(local_send);
            Some(Observation { sequence: 0, local_send, local_receive, remote, round_trip })
        })
        .min_by_key(|seen| seen.round_trip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_line_of_the_system_clock_is_the_system_clock() {
        gst::init().unwrap();
        let clock = SharedClock::start(&ClockSpec::System).unwrap();
        let mapping = ClockMapping::start(&clock).unwrap();
        let mut reader = mapping.reader();
        let deadline = Instant::now() + Duration::from_secs(20);
        while reader.latest().is_none() {
            assert!(Instant::now() < deadline, "no line");
            std::thread::sleep(Duration::from_millis(20));
        }
        let gst = clock.gst().unwrap();
        let line = reader.latest().unwrap();
        let error = (0..100)
            .map(|_| {
                let before = monotonic_ns();
                let shared = gst.time().nseconds() as i64;
                (shared - line.shared_at((before + monotonic_ns()) / 2)).abs()
            })
            .min()
            .unwrap();
        assert!(error < 5_000, "{error} ns");
    }
}

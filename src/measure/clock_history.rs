//! The shared clock beside CLOCK_MONOTONIC while a recording runs.

use crate::clock::monotonic_ns;
use gst::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two readings. A disciplined clock changes its rate over seconds.
const INTERVAL: Duration = Duration::from_millis(100);
/// A reading is taken between two of CLOCK_MONOTONIC; the narrowest of so many tries counts, since any of them may be
/// interrupted.
const TRIES: usize = 7;

/// Pairs (CLOCK_MONOTONIC, shared clock), both in ns, the second since 1900; ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClockHistory {
    pairs: Vec<(i64, u64)>,
}

impl ClockHistory {
    /// From readings, in any order.
    pub fn new(mut pairs: Vec<(i64, u64)>) -> Self {
        pairs.sort_unstable();
        pairs.dedup_by_key(|pair| pair.0);
        Self { pairs }
    }

    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The shared clock at a time of CLOCK_MONOTONIC; `None` without readings. Between two readings on the line through
    /// them, outside at the rate of CLOCK_MONOTONIC.
    pub fn shared_at(&self, monotonic_ns: i64) -> Option<u64> {
        let next = self.pairs.partition_point(|pair| pair.0 <= monotonic_ns);
        let (from, to) = match (next.checked_sub(1).and_then(|at| self.pairs.get(at)), self.pairs.get(next)) {
            (Some(from), Some(to)) => (from, to),
            (Some(only), None) | (None, Some(only)) => (only, only),
            (None, None) => return None,
        };
        let elapsed = i128::from(monotonic_ns) - i128::from(from.0);
        let span = i128::from(to.0) - i128::from(from.0);
        let gained = if span == 0 { elapsed } else { elapsed * (i128::from(to.1) - i128::from(from.1)) / span };
        u64::try_from(i128::from(from.1) + gained).ok()
    }
}

/// Reads the shared clock until it is asked for the line.
pub struct ClockReader {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(i64, u64)>>,
}

impl ClockReader {
    /// # Errors
    /// When no thread can be started.
    pub fn start(clock: gst::Clock) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("clock-reader".into()).spawn(move || {
            let mut pairs = Vec::new();
            loop {
                pairs.extend(read(&clock));
                if stopped.load(Ordering::Relaxed) {
                    return pairs;
                }
                std::thread::sleep(INTERVAL);
            }
        })?;
        Ok(Self { stop, thread })
    }

    /// Ends the readings.
    pub fn finish(self) -> ClockHistory {
        self.stop.store(true, Ordering::Relaxed);
        ClockHistory::new(self.thread.join().unwrap_or_default())
    }
}

/// Both clocks at one moment, to some 0.1 µs on an idle host; `None` never happens in practice.
fn read(clock: &gst::Clock) -> Option<(i64, u64)> {
    (0..TRIES)
        .map(|_| {
            let before = monotonic_ns();
            let shared = clock.time().nseconds();
            let after = monotonic_ns();
            (after - before, (before + (after - before) / 2, shared))
        })
        .min_by_key(|(width, _)| *width)
        .map(|(_, pair)| pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_through_its_readings_and_on_beyond_them() {
        let line = ClockHistory::new(vec![(2_000, 12_100), (1_000, 11_000), (3_000, 13_100)]);
        assert_eq!(line.shared_at(1_000), Some(11_000));
        assert_eq!(line.shared_at(1_500), Some(11_550));
        assert_eq!(line.shared_at(2_500), Some(12_600));
        assert_eq!(line.shared_at(500), Some(10_500));
        assert_eq!(line.shared_at(3_500), Some(13_600));
        assert_eq!(ClockHistory::default().shared_at(0), None);
        assert_eq!(ClockHistory::new(vec![(0, 5)]).shared_at(-10), None);
    }

    #[test]
    fn follows_the_system_clock() {
        gst::init().unwrap();
        let clock = crate::clock::SharedClock::start(&crate::clock::ClockSpec::System).unwrap();
        let reader = ClockReader::start(clock.gst().unwrap()).unwrap();
        std::thread::sleep(Duration::from_millis(250));
        let line = reader.finish();
        assert!(line.pairs.len() >= 2);
        let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let now = (unix + crate::clock::NTP_UNIX_OFFSET).as_nanos() as u64;
        let said = line.shared_at(monotonic_ns()).unwrap();
        assert!(said.abs_diff(now) < 50_000_000, "{} ns apart", said.abs_diff(now));
    }
}

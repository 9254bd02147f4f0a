//! What the steered output measures, from the callback to whoever wants to know, without locks.

use crate::published::{Publisher, Subscriber, WORDS, Words, published};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Errors kept for median and percentile: 20 s at a period of 1024 frames, 5 s at 256.
const ERRORS_KEPT: usize = 1024;

/// Why there is sound, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RenderState {
    /// The device has not asked for a block yet.
    #[default]
    Idle,
    /// The shared clock is not known.
    NoClock,
    /// No pipeline has written samples with reference times.
    NoStream,
    /// What is due now is not in the ring: not there yet, gone, or lost.
    Starved,
    /// What is due is played.
    Playing,
}

impl RenderState {
    fn from_word(word: u64) -> Self {
        match word {
            1 => Self::NoClock,
            2 => Self::NoStream,
            3 => Self::Starved,
            4 => Self::Playing,
            _ => Self::Idle,
        }
    }
}

/// Figures as of the last block. Counters count since the renderer was made.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RenderStats {
    pub state: RenderState,
    /// Blocks rendered.
    pub blocks: u64,
    /// Jumps to the due position, beyond the first of each stream.
    pub reseeks: u64,
    /// How often the ring ran dry while a stream was playing.
    pub underruns: u64,
    /// Steps of more than 1 ms in the device's time line.
    pub time_jumps: u64,
    /// The tracked error, s: position ahead (positive: too early) of what is due.
    pub error: f64,
    /// Standard deviation of the reports' jitter, s.
    pub jitter: f64,
    /// The resampler's speed less 1; 1e-6 is 1 ppm.
    pub speed_offset: f64,
    /// How much faster the device runs than the shared clock, as a fraction.
    pub device_drift: f64,
    /// How much slower than nominal the sender samples on the shared clock, as a fraction.
    pub sender_drift: f64,
    /// Seconds of sound in the ring after the position.
    pub headroom: f64,
    /// Whether the servo has settled.
    pub settled: bool,
}

impl Words for RenderStats {
    fn pack(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words[..13].copy_from_slice(&[
            self.state as u64,
            self.blocks,
            self.reseeks,
            self.underruns,
            self.time_jumps,
            self.error.to_bits(),
            self.jitter.to_bits(),
            self.speed_offset.to_bits(),
            self.device_drift.to_bits(),
            self.sender_drift.to_bits(),
            self.headroom.to_bits(),
            self.settled.into(),
            0,
        ]);
        words
    }

    fn unpack(words: &[u64; WORDS]) -> Self {
        Self {
            state: RenderState::from_word(words[0]),
            blocks: words[1],
            reseeks: words[2],
            underruns: words[3],
            time_jumps: words[4],
            error: f64::from_bits(words[5]),
            jitter: f64::from_bits(words[6]),
            speed_offset: f64::from_bits(words[7]),
            device_drift: f64::from_bits(words[8]),
            sender_drift: f64::from_bits(words[9]),
            headroom: f64::from_bits(words[10]),
            settled: words[11] == 1,
        }
    }
}

/// The last measured errors: a slot each, overwritten in turn.
struct Errors {
    /// ns, position ahead of what is due.
    slots: Box<[AtomicI64]>,
    written: AtomicU64,
}

/// The callback's end.
pub(super) struct StatsWriter {
    publisher: Publisher<RenderStats>,
    errors: Arc<Errors>,
}

/// Everyone else's end. Cheap to clone.
#[derive(Clone)]
pub struct StatsReader {
    subscriber: Subscriber<RenderStats>,
    errors: Arc<Errors>,
}

/// Measured errors over the last blocks, in ns; positive is late, as everywhere outside the servo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct ErrorSummary {
    /// Blocks that were measured.
    pub blocks: usize,
    /// Median of the signed error.
    pub median: i64,
    /// The median error's magnitude.
    pub median_abs: i64,
    /// 99 % of the errors are at most so large.
    pub p99_abs: i64,
    /// The largest.
    pub max_abs: i64,
}

pub(super) fn stats() -> (StatsWriter, StatsReader) {
    let (publisher, subscriber) = published(RenderStats::default());
    let slots = (0..ERRORS_KEPT).map(|_| AtomicI64::new(0)).collect();
    let errors = Arc::new(Errors { slots, written: AtomicU64::new(0) });
    (StatsWriter { publisher, errors: errors.clone() }, StatsReader { subscriber, errors })
}

impl StatsWriter {
    pub(super) fn publish(&mut self, stats: RenderStats) {
        self.publisher.publish(stats);
    }

    /// Records one measured error in seconds, ahead positive.
    pub(super) fn record(&mut self, ahead: f64) {
        let written = self.errors.written.load(Ordering::Relaxed);
        let slot = &self.errors.slots[(written % ERRORS_KEPT as u64) as usize];
        slot.store((ahead * 1e9).round() as i64, Ordering::Relaxed);
        self.errors.written.store(written + 1, Ordering::Release);
    }
}

impl StatsReader {
    /// The figures as of the last block.
    pub fn latest(&mut self) -> RenderStats {
        self.subscriber.latest()
    }

    /// How many errors were measured ever: with the same number as last time, nothing was played since.
    pub fn measured(&self) -> u64 {
        self.errors.written.load(Ordering::Acquire)
    }

    /// A summary of the errors measured since there were `since` of them (as [`measured`](Self::measured) said), of the
    /// last 1024 at most; `None` without any. Made for a second's worth.
    pub fn errors_since(&self, since: u64) -> Option<ErrorSummary> {
        let written = self.measured();
        let count = written.saturating_sub(since).min(ERRORS_KEPT as u64);
        let slot = |n: u64| &self.errors.slots[(n % ERRORS_KEPT as u64) as usize];
        let mut late: Vec<i64> = (written - count..written).map(|n| -slot(n).load(Ordering::Relaxed)).collect();
        if late.is_empty() {
            return None;
        }
        late.sort_unstable();
        let median = late[late.len() / 2];
        late.iter_mut().for_each(|error| *error = error.abs());
        late.sort_unstable();
        let at = |percent: usize| late[(late.len() * percent / 100).min(late.len() - 1)];
        Some(ErrorSummary { blocks: late.len(), median, median_abs: at(50), p99_abs: at(99), max_abs: at(100) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summarizes_what_was_recorded_since() {
        let (mut writer, reader) = stats();
        assert_eq!(reader.errors_since(0), None);
        for n in 0..ERRORS_KEPT as i64 + 200 {
            writer.record(n as f64 * 1e-6);
        }
        let since = reader.measured();
        for n in -50..50 {
            writer.record(f64::from(n) * 1e-6);
        }
        let summary = reader.errors_since(since).unwrap();
        assert_eq!((summary.blocks, summary.max_abs), (100, 50_000));
        assert!(summary.median.abs() <= 1_000 && (24_000..=26_000).contains(&summary.median_abs), "{summary:?}");
        assert!(summary.p99_abs >= 49_000);
        assert_eq!(reader.errors_since(0).unwrap().blocks, ERRORS_KEPT);
    }
}

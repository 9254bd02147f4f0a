//! Presentation samples and their summary of each second. Nothing here allocates per frame.

use super::timing::{PlayoutContract, difference};
use crate::clock::NtpTime;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Samples kept between two summaries; a faster stream keeps the first so many of each second.
const SAMPLES_MAX: usize = 512;

/// Where the error of a frame comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorSource {
    /// Taken after the sink's clock wait, or at the steered audio output.
    Measured,
    /// Computed from the timestamps: the sink's own doing is not in it.
    Predicted,
}

/// One frame that was presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PresentationSample {
    /// The sender's capture time, ns since 1900; `None` when the frame carried none.
    pub sender_time: Option<NtpTime>,
    /// When it was presented on the shared clock, ns since 1900.
    pub presented: NtpTime,
}

/// The presentation errors of about one second, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorSummary {
    /// The median of the errors; positive is late.
    pub p50: i64,
    /// 99 % of the errors are at most so far from zero.
    pub p99: i64,
    /// The error farthest from zero, without its sign.
    pub max: i64,
    /// Measured or predicted.
    pub source: ErrorSource,
}

/// What a stream did since it was last asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamSummary {
    /// Frames presented since the start.
    pub frames: u64,
    /// How many of them carried the sender's time.
    pub with_sender_time: u64,
    /// How many were presented later than allowed, or dropped for it.
    pub late: u64,
    /// Frames since the last summary.
    pub frames_now: u64,
    /// How many of those carried the sender's time.
    pub with_sender_time_now: u64,
    /// How many of those were late, or were dropped for it.
    pub late_now: u64,
    /// The sender's time of the last frame, ns since 1900.
    pub sender_time: Option<NtpTime>,
    /// The errors since the last summary; `None` when no frame carried the sender's time.
    pub error: Option<ErrorSummary>,
}

/// Collects the samples of one stream: written by the streaming thread, read once a second by the engine.
pub struct StreamStats {
    source: ErrorSource,
    /// Later than this is late, in ns.
    late_after_ns: i64,
    inner: Mutex<Inner>,
    frames: AtomicU64,
}

struct Inner {
    contract: PlayoutContract,
    errors: Vec<i64>,
    sorted: Vec<i64>,
    frames_now: u64,
    with_sender_time: u64,
    with_sender_time_now: u64,
    late: u64,
    late_now: u64,
    sender_time: Option<NtpTime>,
    log: Option<FrameLog>,
}

/// Called with each sample, on the streaming thread: must neither block nor allocate.
pub type FrameLog = Box<dyn FnMut(&PresentationSample) + Send>;

impl StreamStats {
    /// Statistics of a stream whose frames are late when they are presented more than `late_after_ns` after their time.
    pub fn new(contract: PlayoutContract, source: ErrorSource, late_after_ns: i64) -> Self {
        Self {
            source,
            late_after_ns,
            frames: AtomicU64::new(0),
            inner: Mutex::new(Inner {
                contract,
                errors: Vec::with_capacity(SAMPLES_MAX),
                sorted: Vec::with_capacity(SAMPLES_MAX),
                frames_now: 0,
                with_sender_time: 0,
                with_sender_time_now: 0,
                late: 0,
                late_now: 0,
                sender_time: None,
                log: None,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Plain numbers: whole even after a panic elsewhere.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands every sample to `log` from now on.
    pub fn set_log(&self, log: FrameLog) {
        self.lock().log = Some(log);
    }

    /// Whether errors are measured or predicted.
    pub fn source(&self) -> ErrorSource {
        self.source
    }

    /// Follows a new latency or delay from the next frame on.
    pub fn set_contract(&self, contract: PlayoutContract) {
        self.lock().contract = contract;
    }

    /// Records one frame. Takes a short lock that the engine holds once a second for microseconds; allocates nothing.
    pub fn record(&self, sample: PresentationSample) {
        self.frames.fetch_add(1, Ordering::Relaxed);
        let mut inner = self.lock();
        inner.frames_now += 1;
        if let Some(log) = &mut inner.log {
            log(&sample);
        }
        let Some(sender_time) = sample.sender_time else { return };
        inner.with_sender_time += 1;
        inner.with_sender_time_now += 1;
        inner.sender_time = Some(sender_time);
        let error = inner.contract.presentation_error(sender_time, sample.presented);
        if error > self.late_after_ns {
            inner.late += 1;
            inner.late_now += 1;
        }
        if inner.errors.len() < SAMPLES_MAX {
            inner.errors.push(error);
        }
    }

    /// Counts one buffer of a stream whose errors are measured elsewhere: at the steered audio output.
    pub fn count(&self, sender_time: Option<NtpTime>, late: bool) {
        self.frames.fetch_add(1, Ordering::Relaxed);
        let mut inner = self.lock();
        inner.frames_now += 1;
        if late {
            inner.late += 1;
            inner.late_now += 1;
        }
        if sender_time.is_some() {
            inner.with_sender_time += 1;
            inner.with_sender_time_now += 1;
            inner.sender_time = sender_time;
        }
    }

    /// Counts a frame that was dropped because it came too late to be presented.
    pub fn record_dropped(&self) {
        let mut inner = self.lock();
        inner.late += 1;
        inner.late_now += 1;
    }

    /// The frames presented so far.
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// The frames since the last summary.
    pub fn pending(&self) -> u64 {
        self.lock().frames_now
    }

    /// What happened since the last call.
    pub fn take_summary(&self) -> StreamSummary {
        let mut inner = self.lock();
        let inner = &mut *inner;
        std::mem::swap(&mut inner.errors, &mut inner.sorted);
        inner.errors.clear();
        let summary = StreamSummary {
            frames: self.frames.load(Ordering::Relaxed),
            with_sender_time: inner.with_sender_time,
            late: inner.late,
            frames_now: std::mem::take(&mut inner.frames_now),
            with_sender_time_now: std::mem::take(&mut inner.with_sender_time_now),
            late_now: std::mem::take(&mut inner.late_now),
            sender_time: inner.sender_time,
            error: summarize(&mut inner.sorted, self.source),
        };
        inner.sorted.clear();
        summary
    }
}

/// Percentiles by the nearest rank; `None` of no errors. Sorts in place.
fn summarize(errors: &mut [i64], source: ErrorSource) -> Option<ErrorSummary> {
    if errors.is_empty() {
        return None;
    }
    errors.sort_unstable();
    let p50 = errors[errors.len() / 2];
    errors.sort_unstable_by_key(|error| error.unsigned_abs());
    let rank = (errors.len() * 99).div_ceil(100).max(1) - 1;
    let size = |error: i64| error.saturating_abs();
    Some(ErrorSummary { p50, p99: size(errors[rank]), max: size(errors[errors.len() - 1]), source })
}

/// The smallest of each of the last seconds, over a minute: how much room there was.
#[derive(Debug, Clone)]
pub struct SlidingMinimum {
    seconds: [Option<i64>; 60],
    at: usize,
}

impl Default for SlidingMinimum {
    fn default() -> Self {
        Self { seconds: [None; 60], at: 0 }
    }
}

impl SlidingMinimum {
    /// Adds the smallest value of one second; `None` when there was none.
    pub fn push(&mut self, smallest: Option<i64>) {
        self.seconds[self.at] = smallest;
        self.at = (self.at + 1) % self.seconds.len();
    }

    /// The smallest value of the last minute.
    pub fn smallest(&self) -> Option<i64> {
        self.seconds.iter().flatten().min().copied()
    }
}

/// How long before its presentation a frame was there, in ns; negative: it came too late.
pub fn slack(contract: PlayoutContract, sender_time: NtpTime, arrived: NtpTime) -> i64 {
    difference(contract.presentation_time(sender_time), arrived)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    const CONTRACT: PlayoutContract = PlayoutContract { latency: Duration::from_secs(1), room_delay_ns: 0 };

    fn sample(error: i64) -> PresentationSample {
        PresentationSample {
            sender_time: Some(5_000_000_000),
            presented: 6_000_000_000u64.checked_add_signed(error).unwrap(),
        }
    }

    #[test]
    fn summarizes_a_second_and_starts_over() {
        let stats = StreamStats::new(CONTRACT, ErrorSource::Measured, 20_000);
        for error in 1..=100 {
            stats.record(sample(if error == 100 { -900_000 } else { error * 100 }));
        }
        stats.record(PresentationSample { sender_time: None, presented: 1 });
        stats.record(sample(30_000));
        stats.record_dropped();
        let summary = stats.take_summary();
        assert_eq!((summary.frames, summary.with_sender_time, summary.late), (102, 101, 2));
        let error = summary.error.unwrap();
        assert_eq!((error.p50, error.p99, error.max), (5_000, 30_000, 900_000));
        assert_eq!(summary.sender_time, Some(5_000_000_000));

        let summary = stats.take_summary();
        assert_eq!((summary.frames, summary.frames_now, summary.error), (102, 0, None));
    }

    #[test]
    fn does_not_grow_with_a_fast_stream() {
        let stats = StreamStats::new(CONTRACT, ErrorSource::Predicted, 0);
        (0..10_000).for_each(|_| stats.record(sample(0)));
        assert_eq!(stats.lock().errors.capacity(), SAMPLES_MAX);
        assert_eq!(stats.take_summary().frames, 10_000);
    }

    #[test]
    fn the_minimum_forgets_after_a_minute() {
        let mut minimum = SlidingMinimum::default();
        minimum.push(Some(-3));
        (0..59).for_each(|_| minimum.push(Some(7)));
        assert_eq!(minimum.smallest(), Some(-3));
        minimum.push(None);
        assert_eq!(minimum.smallest(), Some(7));
    }

    proptest! {
        #[test]
        fn percentiles_are_ordered(mut errors in prop::collection::vec(any::<i64>(), 1..600)) {
            let smallest = errors.iter().copied().min().unwrap();
            let largest = errors.iter().copied().max().unwrap();
            let summary = summarize(&mut errors, ErrorSource::Measured).unwrap();
            prop_assert!((smallest..=largest).contains(&summary.p50));
            prop_assert!(summary.p99 <= summary.max);
        }
    }
}

//! The straight line between CLOCK_MONOTONIC and the shared clock, as the audio callback uses it.

use crate::published::{Publisher, Subscriber, WORDS, Words, published};

/// Where the shared clock stands against CLOCK_MONOTONIC: `shared = self.shared + (t − self.monotonic)·(1 + self.rate)`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ClockLine {
    /// A moment on CLOCK_MONOTONIC, ns.
    pub monotonic: i64,
    /// The same moment on the shared clock, ns since 1900.
    pub shared: i64,
    /// How much faster (positive) the shared clock runs than CLOCK_MONOTONIC; 1e-6 is 1 ppm.
    pub rate: f64,
}

impl ClockLine {
    /// The time of the shared clock (ns since 1900) at `monotonic` (CLOCK_MONOTONIC, ns).
    pub fn shared_at(&self, monotonic: i64) -> i64 {
        let elapsed = monotonic.wrapping_sub(self.monotonic);
        self.shared.wrapping_add(elapsed).wrapping_add((elapsed as f64 * self.rate).round() as i64)
    }

    /// CLOCK_MONOTONIC (ns) when the shared clock shows `shared` (ns since 1900).
    pub fn monotonic_at(&self, shared: i64) -> i64 {
        let elapsed = shared.wrapping_sub(self.shared);
        let slower = (elapsed as f64 * self.rate / (1.0 + self.rate)).round() as i64;
        self.monotonic.wrapping_add(elapsed).wrapping_sub(slower)
    }
}

/// The published form: `None` until the clock has been observed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PublishedLine(pub Option<ClockLine>);

impl Words for PublishedLine {
    fn pack(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        if let Some(line) = self.0 {
            words[..4].copy_from_slice(&[1, line.monotonic as u64, line.shared as u64, line.rate.to_bits()]);
        }
        words
    }

    fn unpack(words: &[u64; WORDS]) -> Self {
        Self((words[0] == 1).then(|| ClockLine {
            monotonic: words[1] as i64,
            shared: words[2] as i64,
            rate: f64::from_bits(words[3]),
        }))
    }
}

/// Publishes a line without locks; a normal thread does so a few times a second.
pub struct LinePublisher(Publisher<PublishedLine>);

/// Reads the published line without locks. Cheap to clone.
#[derive(Clone)]
pub struct LineReader(Subscriber<PublishedLine>);

/// A line that is not known yet, to publish and to read.
pub fn clock_line() -> (LinePublisher, LineReader) {
    let (publisher, subscriber) = published(PublishedLine(None));
    (LinePublisher(publisher), LineReader(subscriber))
}

impl LinePublisher {
    /// Replaces the line; `None` says that the shared clock is not known.
    pub fn publish(&mut self, line: Option<ClockLine>) {
        self.0.publish(PublishedLine(line));
    }
}

impl LineReader {
    /// The newest line; `None` while the shared clock is not known. Never waits.
    pub fn latest(&mut self) -> Option<ClockLine> {
        self.0.latest().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back_is_the_same_within_a_nanosecond() {
        let line = ClockLine { monotonic: 5_000_000_000, shared: 3_900_000_000_000_000_000, rate: 123e-6 };
        for elapsed in [-3_600_000_000_000, -1, 0, 1, 999_999_937, 86_400_000_000_000] {
            let monotonic = 5_000_000_000 + elapsed;
            assert!((line.monotonic_at(line.shared_at(monotonic)) - monotonic).abs() <= 1, "{elapsed}");
        }
        assert_eq!(line.shared_at(1_005_000_000_000), 3_900_000_000_000_000_000 + 1_000_000_000_000 + 123_000_000);
    }

    #[test]
    fn publishes_and_withdraws() {
        let (mut publisher, mut reader) = clock_line();
        assert_eq!(reader.latest(), None);
        let line = ClockLine { monotonic: -1, shared: 2, rate: -3e-6 };
        publisher.publish(Some(line));
        assert_eq!(reader.latest(), Some(line));
        publisher.publish(None);
        assert_eq!(reader.latest(), None);
    }
}

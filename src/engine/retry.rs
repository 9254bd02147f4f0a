//! When to connect again.

use std::time::Duration;

/// The pauses between tries. The defaults are explained where they stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The first pause: long enough for a server that restarts at once.
    pub first: Duration,
    /// No pause is longer: a room shall play within 5 s of the server's return.
    pub ceiling: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(250), ceiling: Duration::from_secs(2) }
    }
}

/// Counts the tries since the stream last played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    backoff: Backoff,
    /// How many tries after the first; `None`: endless.
    limit: Option<u32>,
    failed: u32,
}

impl Retry {
    /// Starts to count.
    pub fn new(backoff: Backoff, limit: Option<u32>) -> Self {
        Self { backoff, limit, failed: 0 }
    }

    /// The stream plays: the next failure is the first again.
    pub fn succeeded(&mut self) {
        self.failed = 0;
    }

    /// A try failed: how long to pause before the next, or `None` when there shall be no other.
    pub fn failed(&mut self) -> Option<Duration> {
        let tries = self.failed;
        self.failed = self.failed.saturating_add(1);
        if self.limit.is_some_and(|limit| tries >= limit) {
            return None;
        }
        // Doubles up to the ceiling; 2^16 times anything sensible is beyond it.
        Some(self.backoff.first.saturating_mul(1 << tries.min(16)).min(self.backoff.ceiling))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn doubles_up_to_the_ceiling() {
        let mut retry = Retry::new(Backoff::default(), None);
        let pauses: Vec<u128> = (0..6).map(|_| retry.failed().unwrap().as_millis()).collect();
        assert_eq!(pauses, [250, 500, 1000, 2000, 2000, 2000]);
        retry.succeeded();
        assert_eq!(retry.failed(), Some(Duration::from_millis(250)));
    }

    #[test]
    fn stops_at_the_limit() {
        let mut retry = Retry::new(Backoff::default(), Some(2));
        assert!(retry.failed().is_some() && retry.failed().is_some());
        assert_eq!(retry.failed(), None);
        assert_eq!(Retry::new(Backoff::default(), Some(0)).failed(), None);
    }

    proptest! {
        #[test]
        fn never_longer_than_the_ceiling(tries in 0..200u32) {
            let mut retry = Retry::new(Backoff::default(), None);
            for _ in 0..tries {
                prop_assert!(retry.failed().unwrap() <= Backoff::default().ceiling);
            }
        }
    }
}

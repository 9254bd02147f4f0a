//! The contract of the whole program, as arithmetic:
//!
//! ```text
//! presentation time (shared clock) = sender capture time + playout latency + this room's own delay
//! ```

use crate::clock::NtpTime;
use std::time::Duration;

/// When frames are due in this room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlayoutContract {
    /// The latency that all receivers agreed on.
    pub latency: Duration,
    /// This room's own delay in ns, e.g. for a distance to the others; negative moves the room forward.
    pub room_delay_ns: i64,
}

impl PlayoutContract {
    /// When a frame that was captured at `capture` is due, on the shared clock; saturates at the ends of the epoch.
    pub fn presentation_time(&self, capture: NtpTime) -> NtpTime {
        let latency = u64::try_from(self.latency.as_nanos()).unwrap_or(u64::MAX);
        capture.saturating_add(latency).saturating_add_signed(self.room_delay_ns)
    }

    /// By how much a frame that was captured at `capture` and presented at `presented` was late, in ns; negative is
    /// early. Saturates at the ends of `i64`.
    pub fn presentation_error(&self, capture: NtpTime, presented: NtpTime) -> i64 {
        difference(presented, self.presentation_time(capture))
    }
}

/// `a - b` in ns, saturating.
pub fn difference(a: NtpTime, b: NtpTime) -> i64 {
    (i128::from(a) - i128::from(b)).clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn late_is_positive() {
        let contract = PlayoutContract { latency: Duration::from_secs(1), room_delay_ns: -500 };
        assert_eq!(contract.presentation_time(10_000_000_000), 10_999_999_500);
        assert_eq!(contract.presentation_error(10_000_000_000, 10_999_999_501), 1);
        assert_eq!(contract.presentation_error(10_000_000_000, 10_999_999_000), -500);
    }

    proptest! {
        #[test]
        fn presented_on_time_is_no_error(capture in 0..u64::MAX / 2, latency in 0..60_000u64, delay in -500_000_000..2_000_000_000i64) {
            let contract = PlayoutContract { latency: Duration::from_millis(latency), room_delay_ns: delay };
            let due = contract.presentation_time(capture);
            if capture > 1_000_000_000 {
                prop_assert_eq!(contract.presentation_error(capture, due), 0);
                prop_assert_eq!(contract.presentation_error(capture, due + 7), 7);
            }
        }

        #[test]
        fn the_ends_of_the_epoch_do_not_panic(capture: u64, presented: u64, delay: i64, latency: u64) {
            let contract = PlayoutContract { latency: Duration::from_nanos(latency), room_delay_ns: delay };
            let _ = contract.presentation_error(capture, presented);
        }
    }
}

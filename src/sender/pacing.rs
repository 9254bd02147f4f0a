//! When which frame or block is due: counted from the epoch of the shared clock, so that nothing accumulates and a
//! sender that was restarted goes on in the same raster.

use crate::clock::NtpTime;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

const NS_PER_S: u128 = 1_000_000_000;
/// An item that is due later than this was not the next one: the clock was set back.
const BACKWARD_STEP_NS: u64 = 1_000_000_000;

/// Items at a fixed rate: item `n` belongs to the time `n · denominator / numerator` seconds since the NTP epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raster {
    pub numerator: u32,
    pub denominator: u32,
}

impl Raster {
    /// The time of an item, rounded up to ns (so that RTP timestamps, which are rounded down, count its samples).
    pub fn time(&self, index: u64) -> NtpTime {
        let scaled = u128::from(index) * u128::from(self.denominator) * NS_PER_S;
        scaled.div_ceil(u128::from(self.numerator)) as u64 // below 2^64 for any time until the year 2484
    }

    /// The first item at or after a time.
    pub fn at_or_after(&self, time: NtpTime) -> u64 {
        let index = (u128::from(time) * u128::from(self.numerator) / (u128::from(self.denominator) * NS_PER_S)) as u64;
        // The division rounds down in time, `time` rounds up: one of these two.
        if self.time(index) >= time { index } else { index + 1 }
    }
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing is due yet: look again after so many ns at most.
    Wait(u64),
    /// Send this item. `jump`: it does not follow the one before.
    Send { index: u64, jump: bool },
}

/// Walks through the items of a raster as they become due.
#[derive(Debug)]
pub struct Pacer {
    raster: Raster,
    /// An item is ready when its successor begins (a block of sound has to be recorded first), else when it begins.
    ready_at_end: bool,
    /// An item that is late by more is left out, and all others up to now, ns.
    late_max: u64,
    /// The next item, and whether it does not follow the one before.
    next: Option<(u64, bool)>,
}

impl Pacer {
    pub fn new(raster: Raster, ready_at_end: bool, late_max: u64) -> Self {
        Self { raster, ready_at_end, late_max, next: None }
    }

    /// Starts afresh: the next item is the first that becomes ready from then on.
    pub fn reset(&mut self) {
        self.next = None;
    }

    fn ready(&self, index: u64) -> NtpTime {
        self.raster.time(index + u64::from(self.ready_at_end))
    }

    /// What to do at `now`, on the shared clock. A returned item counts as sent.
    pub fn step(&mut self, now: NtpTime) -> Step {
        let fresh = || (self.raster.at_or_after(now).saturating_sub(u64::from(self.ready_at_end)), true);
        let (index, jump) = match self.next {
            None => fresh(),
            Some(next) => {
                let ready = self.ready(next.0);
                let interval = self.raster.time(next.0 + 1) - self.raster.time(next.0);
                let set_back = ready.saturating_sub(now) > BACKWARD_STEP_NS + interval;
                let too_late = now.saturating_sub(ready) > self.late_max;
                if set_back || too_late { fresh() } else { next }
            }
        };
        match self.ready(index).saturating_sub(now) {
            0 => {
                self.next = Some((index + 1, false));
                Step::Send { index, jump }
            }
            wait => {
                self.next = Some((index, jump));
                Step::Wait(wait)
            }
        }
    }
}

/// Waits that can be interrupted.
#[derive(Debug, Default)]
pub struct Waiter {
    interrupted: Mutex<bool>,
    changed: Condvar,
}

impl Waiter {
    /// Ends the waits of other threads and all to come, or allows them again.
    pub fn interrupt(&self, interrupted: bool) {
        *self.interrupted.lock().unwrap_or_else(PoisonError::into_inner) = interrupted;
        self.changed.notify_all();
    }

    /// Whether the whole time has passed.
    pub fn wait(&self, time: Duration) -> bool {
        let guard = self.interrupted.lock().unwrap_or_else(PoisonError::into_inner);
        let (guard, _) = self
            .changed
            .wait_timeout_while(guard, time, |interrupted| !*interrupted)
            .unwrap_or_else(PoisonError::into_inner);
        !*guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;
    const NOW: u64 = 3_980_000_000 * SECOND;

    fn pacer(ready_at_end: bool) -> Pacer {
        Pacer::new(Raster { numerator: 25, denominator: 1 }, ready_at_end, 40_000_000)
    }

    #[test]
    fn frames_are_due_when_they_begin_and_blocks_when_they_end() {
        let index = NOW / 40_000_000;
        assert_eq!(pacer(false).step(NOW), Step::Send { index, jump: true });
        assert_eq!(pacer(false).step(NOW + 1), Step::Wait(39_999_999));
        assert_eq!(pacer(true).step(NOW), Step::Send { index: index - 1, jump: true });
        let mut pacer = pacer(true);
        assert_eq!(pacer.step(NOW + 1), Step::Wait(39_999_999));
        assert_eq!(pacer.step(NOW + 40_050_000), Step::Send { index, jump: true }, "woken a little late");
    }

    #[test]
    fn a_late_thread_catches_up_within_the_bound_and_skips_beyond_it() {
        let mut pacer = pacer(false);
        let index = NOW / 40_000_000;
        assert_eq!(pacer.step(NOW), Step::Send { index, jump: true });
        assert_eq!(pacer.step(NOW + 70_000_000), Step::Send { index: index + 1, jump: false });
        assert_eq!(pacer.step(NOW + 71_000_000), Step::Wait(9_000_000));
        // Woken more than one interval after frame 2 was due: it is left out.
        assert_eq!(pacer.step(NOW + 130_000_000), Step::Wait(30_000_000));
        assert_eq!(pacer.step(NOW + 160_000_000), Step::Send { index: index + 4, jump: true });
    }

    #[test]
    fn a_clock_that_was_set_is_followed() {
        for step in [-3600, 3600i64] {
            let mut pacer = pacer(false);
            pacer.step(NOW);
            let then = NOW.wrapping_add_signed(step * SECOND as i64);
            assert_eq!(pacer.step(then), Step::Send { index: then / 40_000_000, jump: true }, "step of {step} s");
        }
    }

    #[test]
    fn a_wait_can_be_interrupted() {
        let waiter = std::sync::Arc::new(Waiter::default());
        assert!(waiter.wait(Duration::from_millis(1)));
        let other = waiter.clone();
        let thread = std::thread::spawn(move || other.wait(Duration::from_secs(3600)));
        waiter.interrupt(true);
        assert!(!thread.join().unwrap());
        waiter.interrupt(false);
        assert!(waiter.wait(Duration::ZERO));
    }

    proptest! {
        #[test]
        fn index_and_time_agree(second in 0..9_000_000_000u64, part in 0..2_000u64, numerator in 1u32..192_000, denominator in 1u32..2_000) {
            let raster = Raster { numerator, denominator };
            let index = (second * u64::from(numerator) / u64::from(denominator)) + part;
            let time = raster.time(index);
            prop_assume!(raster.time(index + 1) > time);
            prop_assert_eq!(raster.at_or_after(time), index);
            prop_assert_eq!(raster.at_or_after(time + 1), index + 1);
        }

        #[test]
        fn however_the_thread_is_scheduled_items_come_in_order_and_in_time(delays in prop::collection::vec(0u64..200_000_000, 1..60)) {
            let mut pacer = pacer(true);
            let (mut now, mut last) = (NOW, None);
            for delay in delays {
                now += delay;
                while let Step::Send { index, jump } = pacer.step(now) {
                    let ready = pacer.raster.time(index + 1);
                    prop_assert!(ready <= now && now - ready <= 40_000_000, "late by {}", now - ready);
                    if let Some(last) = last {
                        let follows = index == last + 1;
                        prop_assert!(follows != jump && index > last, "{} after {}", index, last);
                    }
                    last = Some(index);
                }
            }
        }
    }
}

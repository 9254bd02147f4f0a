//! RTP timestamps as a line without wraps: strays are put right, restarts recognised.

use super::fixed::SECOND;
use super::limits::{Limits, ns};
use crate::clock::NtpTime;

/// What to make of a packet's timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// It goes on from those before; this is its place on the line.
    Regular { place: i64 },
    /// It does not, and nothing confirms it yet: use this timestamp in its place.
    Stray { timestamp: u32, place: i64 },
    /// The one before did not either, and both agree: the sender counts from another base now.
    Restarted { place: i64 },
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Stamps {
    last: Option<Last>,
    /// A stray that the next frame may confirm, and what was used in its place.
    pending: Option<(u32, Last)>,
}

#[derive(Debug, Clone, Copy)]
struct Last {
    timestamp: u32,
    place: i64,
    arrived: NtpTime,
}

/// How far `timestamp` is from `from`, ticks.
fn ticks(timestamp: u32, from: u32) -> i64 {
    i64::from(timestamp.wrapping_sub(from).cast_signed())
}

impl Stamps {
    /// The place of the last timestamp, and when it arrived.
    pub fn last(&self) -> Option<(i64, NtpTime)> {
        self.last.map(|last| (last.place, last.arrived))
    }

    /// The place of a timestamp near the last one, without taking it for a packet's.
    pub fn place(&self, timestamp: u32) -> Option<i64> {
        self.last.map(|last| last.place.saturating_add(ticks(timestamp, last.timestamp)))
    }

    /// Takes the timestamp of one more packet, of a stream with this clock rate, Hz. `fits` says whether the sender's
    /// own times speak for a place, when they say anything.
    pub fn add(
        &mut self,
        timestamp: u32,
        arrived: NtpTime,
        clock_rate: u32,
        limits: &Limits,
        fits: impl Fn(i64) -> Option<bool>,
    ) -> Stamp {
        let Some(last) = self.last else {
            return self.accept(timestamp, i64::from(timestamp), arrived);
        };
        let step = ticks(timestamp, last.timestamp);
        let place = last.place.saturating_add(step);
        if step == 0 || clock_rate == 0 {
            return self.accept(timestamp, place, arrived);
        }
        let rate = i64::from(clock_rate);
        let media = step * SECOND / rate;
        // The shared clock may be set back meanwhile.
        let passed = i64::try_from(arrived.saturating_sub(last.arrived)).unwrap_or(i64::MAX);
        let stray = ns(limits.stray);
        let near = media.abs() <= stray || media.saturating_sub(passed).saturating_abs() <= stray;
        if near || fits(place) == Some(true) {
            return self.accept(timestamp, place, arrived);
        }
        let passed_ticks = (i128::from(passed) * i128::from(rate) / i128::from(SECOND)) as i64;
        if let Some((stray_timestamp, instead)) = self.pending {
            let step = ticks(timestamp, stray_timestamp);
            if step == 0 {
                // Another packet of the same frame.
                return Stamp::Stray { timestamp: instead.timestamp, place: instead.place };
            }
            if (step * SECOND / rate).abs() <= stray {
                let place = instead.place.saturating_add(step);
                self.accept(timestamp, place, arrived);
                return Stamp::Restarted { place };
            }
        }
        let place = last.place.saturating_add(passed_ticks.max(1));
        let instead = Last { timestamp: last.timestamp.wrapping_add(passed_ticks.max(1) as u32), place, arrived };
        self.pending = Some((timestamp, instead));
        Stamp::Stray { timestamp: instead.timestamp, place }
    }

    fn accept(&mut self, timestamp: u32, place: i64, arrived: NtpTime) -> Stamp {
        self.last = Some(Last { timestamp, place, arrived });
        self.pending = None;
        Stamp::Regular { place }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RATE: u32 = 90_000;
    const FRAME: u32 = 3_600;
    const FRAME_NS: u64 = 40_000_000;

    fn add(stamps: &mut Stamps, timestamp: u32, arrived: NtpTime) -> Stamp {
        stamps.add(timestamp, arrived, RATE, &Limits::default(), |_| None)
    }

    /// A stream of a hundred frames that starts here; its next timestamp and arrival.
    fn playing(start: u32) -> (Stamps, u32, NtpTime) {
        let mut stamps = Stamps::default();
        for frame in 0..100 {
            let stamp = add(&mut stamps, start.wrapping_add(frame * FRAME), u64::from(frame) * FRAME_NS);
            let place = i64::from(start) + i64::from(frame * FRAME);
            assert_eq!(stamp, Stamp::Regular { place });
        }
        (stamps, start.wrapping_add(100 * FRAME), 100 * FRAME_NS)
    }

    #[test]
    fn the_line_goes_on_past_the_wrap() {
        let (stamps, next, _) = playing(u32::MAX - 10 * FRAME);
        assert!(next < 100 * FRAME);
        assert_eq!(stamps.place(next), Some(i64::from(u32::MAX - 10 * FRAME) + i64::from(100 * FRAME)));
    }

    #[test]
    fn frames_out_of_order_gaps_and_bursts_are_regular() {
        let (mut stamps, next, now) = playing(5_000);
        let place = 5_000 + i64::from(100 * FRAME);
        for (ahead, arrived) in [
            (2 * i64::from(FRAME), now), // a P-frame before its B-frames
            (0, now),
            (i64::from(FRAME), now),
            (30 * 90_000, now + 30 * SECOND as u64), // after a silence of 30 s
            (30 * 90_000 + 3_600, now + 60 * SECOND as u64), // found in the socket half a minute late
        ] {
            let timestamp = next.wrapping_add(ahead as u32);
            assert_eq!(add(&mut stamps, timestamp, arrived), Stamp::Regular { place: place + ahead });
        }
    }

    #[test]
    fn a_stray_frame_gets_the_time_of_its_arrival() {
        for by in [-9_000_000i64, 200_000, 1 << 31] {
            let (mut stamps, next, now) = playing(5_000);
            let stray = next.wrapping_add(by as u32);
            // Two packets of one frame.
            for _ in 0..2 {
                let stamp = add(&mut stamps, stray, now);
                assert_eq!(stamp, Stamp::Stray { timestamp: next, place: 5_000 + i64::from(100 * FRAME) });
            }
            let after = add(&mut stamps, next.wrapping_add(FRAME), now + FRAME_NS);
            assert_eq!(after, Stamp::Regular { place: 5_000 + i64::from(101 * FRAME) });
        }
    }

    #[test]
    fn a_restart_is_believed_with_the_second_frame() {
        let (mut stamps, _, now) = playing(4_000_000_000);
        assert!(matches!(add(&mut stamps, 7, now), Stamp::Stray { .. }));
        let place = 4_000_000_000 + i64::from(101 * FRAME);
        assert_eq!(add(&mut stamps, 7 + FRAME, now + FRAME_NS), Stamp::Restarted { place });
        let next = add(&mut stamps, 7 + 2 * FRAME, now + 2 * FRAME_NS);
        assert_eq!(next, Stamp::Regular { place: place + i64::from(FRAME) });
    }

    #[test]
    fn the_senders_own_times_decide_where_arrivals_mislead() {
        // Half of what waited in the socket was lost while the receiver was suspended for 20 s.
        let (mut stamps, next, now) = playing(5_000);
        let timestamp = next.wrapping_add(10 * RATE);
        let stamp = stamps.add(timestamp, now + 20 * SECOND as u64, RATE, &Limits::default(), |_| Some(true));
        assert_eq!(stamp, Stamp::Regular { place: 5_000 + i64::from(100 * FRAME) + 10 * i64::from(RATE) });
    }

    proptest! {
        #[test]
        fn nothing_panics(packets in prop::collection::vec((any::<u32>(), any::<u64>()), 0..100), rate: u32) {
            let mut stamps = Stamps::default();
            for (timestamp, arrived) in packets {
                let _ = stamps.add(timestamp, arrived, rate, &Limits::default(), |_| None);
                let _ = stamps.place(timestamp);
            }
        }

        #[test]
        fn jitter_of_arrival_makes_no_stray(delays in prop::collection::vec(0u64..900_000_000, 1..200), start: u32) {
            let mut stamps = Stamps::default();
            let mut arrived = 0;
            for (frame, delay) in delays.iter().enumerate() {
                arrived = arrived.max(frame as u64 * FRAME_NS + delay);
                let timestamp = start.wrapping_add(frame as u32 * FRAME);
                prop_assert_eq!(
                    add(&mut stamps, timestamp, arrived),
                    Stamp::Regular { place: i64::from(start) + frame as i64 * i64::from(FRAME) }
                );
            }
        }
    }
}

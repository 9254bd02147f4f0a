//! By what a sender's clock differs from the shared clock, in words.
//!
//! Offsets are ns, positive when the sender is ahead, taken modulo the 136 years of NTP's 32-bit seconds.

use super::fixed::SECOND;
use super::limits::ns;
use crate::clock::{NTP_UNIX_OFFSET, NtpTime};
use std::time::Duration;

/// TAI is ahead of UTC by so much: since 2017, and no further leap second is announced (IERS bulletin C).
const TAI_UTC: i64 = 37 * SECOND;
/// NTP's seconds wrap after so much.
const ERA: i128 = (SECOND as i128) << 32;
/// Time zones reach from UTC−12 to UTC+14, in steps of 15 min.
const ZONE_STEP: i64 = 900 * SECOND;
const ZONE_MAX: i64 = 14 * 3600 * SECOND;
/// How long a device may have run since a clock that starts at zero did: ten years.
const UPTIME_MAX: u64 = 10 * 366 * 86_400;
/// A clock that shows a later time than this year was never set: a century is a long life for a camera.
const LATEST: Duration = Duration::from_secs(200 * 365 * 86_400);

/// A cause of a wrong clock that can be told from the offset, or from the time itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// TAI in place of UTC.
    Tai,
    /// Unix time where NTP time belongs: 70 years behind.
    UnixEpoch,
    /// Both: TAI since 1970, which is PTP's time.
    UnixEpochTai,
    /// The 70 years between the epochs added twice.
    EpochTwice,
    /// Local time in place of UTC: a time zone, in ns.
    Zone(i64),
    /// Time since the sender started.
    Uptime,
    /// A clock without a battery: it started at 1970.
    BootedIn1970,
}

/// The nearer one of the two readings of an offset modulo the era.
fn wrapped(offset: i128) -> i64 {
    let rest = offset.rem_euclid(ERA);
    (if rest > ERA / 2 { rest - ERA } else { rest }) as i64
}

impl Known {
    /// The cause of this offset of a clock that shows `ntp` (as on the wire), when it is a known one.
    pub fn of(offset: i64, ntp: u64, tolerance: Duration) -> Option<Self> {
        let near = |constant: i128| i128::from(wrapped(i128::from(offset) - constant)).abs() <= ns(tolerance).into();
        let epoch = NTP_UNIX_OFFSET.as_nanos() as i128;
        let seconds = ntp >> 32;
        if near(TAI_UTC.into()) {
            Some(Self::Tai)
        } else if near(-epoch) {
            Some(Self::UnixEpoch)
        } else if near(i128::from(TAI_UTC) - epoch) {
            Some(Self::UnixEpochTai)
        } else if near(epoch) {
            Some(Self::EpochTwice)
        } else if seconds < UPTIME_MAX {
            Some(Self::Uptime)
        } else if (NTP_UNIX_OFFSET.as_secs()..NTP_UNIX_OFFSET.as_secs() + UPTIME_MAX).contains(&seconds) {
            Some(Self::BootedIn1970)
        } else {
            let zone = (offset.saturating_add(offset.signum() * ZONE_STEP / 2)) / ZONE_STEP * ZONE_STEP;
            (zone != 0 && zone.abs() <= ZONE_MAX && near(zone.into())).then_some(Self::Zone(zone))
        }
    }

    /// By how much exactly a clock with this fault is ahead, when the fault alone says it.
    #[cfg(test)]
    pub fn exact(self) -> Option<i64> {
        let epoch = NTP_UNIX_OFFSET.as_nanos() as i128;
        match self {
            Self::Tai => Some(TAI_UTC),
            Self::UnixEpoch => Some(wrapped(-epoch)),
            Self::UnixEpochTai => Some(wrapped(i128::from(TAI_UTC) - epoch)),
            Self::EpochTwice => Some(wrapped(epoch)),
            Self::Zone(zone) => Some(zone),
            Self::Uptime | Self::BootedIn1970 => None,
        }
    }
}

/// Whether a time that a clock with this offset shows can be one: between 1970 and 2100.
pub fn is_a_time(offset: i64, arrived: NtpTime) -> bool {
    let shown = i128::from(arrived) + i128::from(offset);
    (NTP_UNIX_OFFSET.as_nanos() as i128..LATEST.as_nanos() as i128).contains(&shown)
}

/// The offset in words, with the cause when it is a known one.
pub fn describe(offset: i64, known: Option<Known>) -> String {
    let size = offset.unsigned_abs() as f64 / SECOND as f64;
    let direction = if offset >= 0 { "ahead" } else { "behind" };
    match known {
        Some(Known::Tai) => format!("{size:.1} s ahead: it counts in TAI, not in UTC"),
        Some(Known::UnixEpoch) => "70 years behind: it sends Unix time where NTP time belongs".into(),
        Some(Known::UnixEpochTai) => {
            "70 years behind: it sends PTP time (TAI since 1970) where NTP time belongs".into()
        }
        Some(Known::EpochTwice) => "70 years off: it adds the 70 years between NTP and Unix time twice".into(),
        Some(Known::Uptime) => "it sends the time since its start: its clock was never set".into(),
        Some(Known::BootedIn1970) => "its clock started at 1970: it was never set".into(),
        Some(Known::Zone(zone)) => {
            let minutes = zone.abs() / (60 * SECOND);
            let amount = match (minutes / 60, minutes % 60) {
                (hours, 0) => format!("{hours} h"),
                (0, minutes) => format!("{minutes} min"),
                (hours, minutes) => format!("{hours} h {minutes} min"),
            };
            format!("{amount} {direction}: local time sent as UTC?")
        }
        None => match size {
            0.0..1.0 => format!("{:.0} ms {direction}", size * 1e3),
            1.0..60.0 => format!("{size:.1} s {direction}"),
            60.0..7_200.0 => format!("{:.0} min {:02.0} s {direction}", (size / 60.0).floor(), (size % 60.0).floor()),
            7_200.0..172_800.0 => format!("{:.1} h {direction}", size / 3_600.0),
            _ => format!("{:.0} days {direction}: was its clock ever set?", size / 86_400.0),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixed::{from_ns, plus};
    use super::*;
    use proptest::prelude::*;

    /// 2026-12-01.
    const NOW: NtpTime = 4_005_072_000_000_000_000;
    const TOLERANCE: Duration = Duration::from_secs(5);

    /// What is said of a clock that shows the right time plus so many seconds.
    fn words(seconds: f64) -> String {
        let by = (seconds * 1e9) as i128;
        let ntp = plus(from_ns(NOW), wrapped(by));
        let offset = wrapped(by);
        describe(offset, Known::of(offset, ntp, TOLERANCE))
    }

    #[test]
    fn known_causes_are_named() {
        for (seconds, expected) in [
            (37.1, "TAI"),
            (-2_208_988_800.2, "Unix time"),
            (-2_208_988_763.1, "PTP time"),
            (2_208_988_800.0, "twice"),
            (3_600.4, "1 h ahead: local time"),
            (-7_199.5, "2 h behind: local time"),
            (19_800.0, "5 h 30 min ahead: local time"),
            (900.0, "15 min ahead: local time"),
            (-4_005_072_000.0 + 3_600.0, "since its start"),
            (-(4_005_072_000.0 - 2_208_988_800.0) + 3_600.0, "started at 1970"),
        ] {
            assert!(words(seconds).contains(expected), "{seconds}: {}", words(seconds));
        }
    }

    #[test]
    fn other_offsets_have_a_size_and_a_direction() {
        for (seconds, expected) in [
            (0.3, "300 ms ahead"),
            (-12.34, "12.3 s behind"),
            (125.0, "2 min 05 s ahead"),
            (-9_000.0 - 100.0, "2.5 h behind"),
            (60.0 * 86_400.0, "60 days ahead: was its clock ever set?"),
        ] {
            assert_eq!(words(seconds), expected);
        }
    }

    #[test]
    fn times_before_1970_are_none() {
        let day = 86_400 * SECOND;
        assert!(is_a_time(0, NOW) && is_a_time(-365 * day, NOW));
        assert!(!is_a_time(-60 * 365 * day, NOW));
        assert!(!is_a_time(67 * 365 * day + 67 * 365 * day / 2, NOW));
    }

    #[test]
    fn exact_offsets_are_those_that_are_named() {
        let now = from_ns(NOW);
        for known in
            [Known::Tai, Known::UnixEpoch, Known::UnixEpochTai, Known::EpochTwice, Known::Zone(-3_600 * SECOND)]
        {
            let offset = known.exact().unwrap();
            assert_eq!(Known::of(offset, plus(now, offset), TOLERANCE), Some(known));
        }
    }

    proptest! {
        #[test]
        fn any_offset_has_words(offset: i64, ntp: u64, arrived: u64) {
            prop_assert!(!describe(offset, Known::of(offset, ntp, TOLERANCE)).is_empty());
            let _ = is_a_time(offset, arrived);
        }

        #[test]
        fn a_small_offset_is_no_known_cause(offset in -30_000_000_000i64..30_000_000_000) {
            prop_assert_eq!(Known::of(offset, plus(from_ns(NOW), offset), TOLERANCE), None);
        }
    }
}

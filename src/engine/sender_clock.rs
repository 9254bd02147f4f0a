//! What the sender says about its clock, and whether it can be believed.

use super::verdict::SenderState;
use crate::clock::{NTP_UNIX_OFFSET, NtpTime};
use std::time::Duration;

/// How far a report may be from the shared clock and still be on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportBounds {
    /// A report of a time that is still to come: clocks of two hosts differ a little.
    pub ahead: Duration,
    /// A report of a time that has passed: encoder, network, and senders that report late.
    pub behind: Duration,
}

impl Default for ReportBounds {
    fn default() -> Self {
        Self { ahead: Duration::from_secs(1), behind: Duration::from_secs(10) }
    }
}

/// What to do with a report.
#[derive(Debug, Clone, PartialEq)]
pub enum Judgement {
    /// Schedule frames by it.
    Use,
    /// Show it and keep sound and picture together by it, but schedule nothing.
    DisplayOnly { offset_ns: i64 },
    /// Forget it.
    Discard(&'static str),
}

/// Judges one pair of the sender's time and the shared clock's at its arrival, both ns since 1900.
pub fn judge(sender: NtpTime, arrived: NtpTime, bounds: ReportBounds) -> Judgement {
    if sender == 0 {
        return Judgement::Discard("the time is zero");
    }
    // Nothing was captured before 1970: such a time is Unix time in the NTP field, or a clock that was never set.
    if sender < NTP_UNIX_OFFSET.as_nanos() as u64 {
        return Judgement::Discard(
            "the time lies before 1970: Unix time sent as NTP time, or a clock that was never set",
        );
    }
    let offset = i128::from(sender) - i128::from(arrived);
    if offset > bounds.ahead.as_nanos() as i128 || -offset > bounds.behind.as_nanos() as i128 {
        return Judgement::DisplayOnly { offset_ns: offset.clamp(i64::MIN.into(), i64::MAX.into()) as i64 };
    }
    Judgement::Use
}

/// TAI is ahead of UTC by so much (since 2017; no leap second is announced).
const TAI_UTC_S: i64 = 37;

/// An offset of a sender's clock in words, naming the cause when it is a known one.
pub fn describe_offset(offset_ns: i64) -> String {
    let seconds = offset_ns as f64 * 1e-9;
    let direction = if seconds >= 0.0 { "ahead" } else { "behind" };
    let size = seconds.abs();
    // What transit and reports do to the figure.
    let near = |wanted: f64| (size - wanted).abs() < 5.0;
    let hours = (size / 3600.0).round();
    let quarter = (size / 900.0).round();
    if direction == "ahead" && (size - TAI_UTC_S as f64).abs() < 2.0 {
        return format!("{size:.1} s ahead: it counts in TAI, not in UTC");
    }
    if (1.0..=14.0).contains(&hours) && near(hours * 3600.0) {
        return format!("{hours:.0} h {direction}: local time sent as UTC?");
    }
    if quarter >= 1.0 && size < 14.0 * 3600.0 && near(quarter * 900.0) {
        return format!("{:.0} min {direction}: local time sent as UTC?", quarter * 15.0);
    }
    match size {
        0.0..60.0 => format!("{size:.1} s {direction}"),
        60.0..7200.0 => format!("{:.0} min {:02.0} s {direction}", (size / 60.0).floor(), size % 60.0),
        7200.0..172_800.0 => format!("{:.1} h {direction}", size / 3600.0),
        _ => format!("{:.0} days {direction}: was its clock ever set?", size / 86_400.0),
    }
}

/// What is known of the sender's clock from all its reports, in-band or RTCP.
#[derive(Debug, Clone, Default)]
pub struct SenderClock {
    last: Option<(Judgement, NtpTime)>,
    discarded: Option<&'static str>,
}

impl SenderClock {
    /// Takes the judgement of one more report.
    pub fn add(&mut self, judgement: &Judgement, arrived: NtpTime) {
        match judgement {
            Judgement::Discard(why) => self.discarded = Some(why),
            other => self.last = Some((other.clone(), arrived)),
        }
    }

    /// For the verdict, `waited` after the first packet.
    pub fn state(&self, waited: Duration) -> SenderState {
        match (&self.last, self.discarded) {
            (Some((Judgement::Use, _)), _) => SenderState::Accepted,
            (Some((Judgement::DisplayOnly { offset_ns }, _)), _) => {
                SenderState::Differs { offset_ns: *offset_ns, text: describe_offset(*offset_ns) }
            }
            (_, Some(why)) => SenderState::Implausible(why.to_owned()),
            _ => SenderState::Silent(waited),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 3_900_000_000_000_000_000;

    #[test]
    fn judges_reports() {
        let judged = |sender| judge(sender, NOW, ReportBounds::default());
        assert_eq!(judged(NOW), Judgement::Use);
        assert_eq!(judged(NOW - 700_000_000), Judgement::Use);
        assert_eq!(judged(NOW + 900_000_000), Judgement::Use);
        assert!(matches!(judged(0), Judgement::Discard(_)));
        assert!(matches!(judged(1_700_000_000_000_000_000), Judgement::Discard(_)));
        let hour = 3_600_000_000_000;
        assert_eq!(judged(NOW + hour), Judgement::DisplayOnly { offset_ns: hour as i64 });
        assert_eq!(judged(NOW - hour), Judgement::DisplayOnly { offset_ns: -(hour as i64) });
    }

    #[test]
    fn offsets_in_words() {
        for (seconds, wanted) in [
            (37.02, "37.0 s ahead: it counts in TAI, not in UTC"),
            (3600.1, "1 h ahead: local time sent as UTC?"),
            (-7199.5, "2 h behind: local time sent as UTC?"),
            (19_800.0, "330 min ahead: local time sent as UTC?"),
            (12.34, "12.3 s ahead"),
            (-125.0, "2 min 05 s behind"),
            (-2_208_988_800.0, "25567 days behind: was its clock ever set?"),
        ] {
            assert_eq!(describe_offset((seconds * 1e9) as i64), wanted);
        }
    }

    #[test]
    fn the_last_plausible_report_counts() {
        let mut clock = SenderClock::default();
        assert_eq!(clock.state(Duration::from_secs(3)), SenderState::Silent(Duration::from_secs(3)));
        clock.add(&Judgement::Discard("the time is zero"), NOW);
        assert!(matches!(clock.state(Duration::ZERO), SenderState::Implausible(_)));
        clock.add(&Judgement::DisplayOnly { offset_ns: 5_000_000_000 }, NOW);
        assert!(matches!(clock.state(Duration::ZERO), SenderState::Differs { .. }));
        clock.add(&Judgement::Use, NOW);
        assert_eq!(clock.state(Duration::ZERO), SenderState::Accepted);
    }

    proptest! {
        #[test]
        fn any_offset_has_words(offset: i64) {
            prop_assert!(!describe_offset(offset).is_empty());
        }
    }
}

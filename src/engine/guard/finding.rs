//! What the guard has to say, for the log, the events and the flight recorder.

use std::collections::VecDeque;

/// More findings than this are not kept until somebody takes them: the oldest go.
const KEPT: usize = 64;

/// What was found. The names in [`Code::name`] are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The sender's times are used.
    Followed,
    /// They are used, on a smoothed line.
    Smoothed,
    /// The sender is on another clock: its times are shown and keep sound and picture together, no more.
    OtherClock,
    /// A time of zero.
    ZeroTime,
    /// A time that can be none.
    AbsurdTime,
    /// A time before the one that came earlier.
    Regressing,
    /// Times that do not fit together.
    Disagreeing,
    /// A report whose RTP timestamp is far from the stream's.
    ForeignTimestamp,
    /// The sender's clock has stepped.
    Stepped,
    /// RTP timestamps count from another base.
    TimestampsRestarted,
    /// A packet with a timestamp that fits nothing.
    StrayTimestamp,
    /// Another source sends the stream now.
    SourceChanged,
    /// The source has said goodbye.
    Bye,
    /// The reports are for a source whose number is the stream's with its bytes in the wrong order.
    SwappedSource,
    /// The reports are for another source.
    OtherSource,
    /// The sender does not say its name (CNAME): one was made up, so that its streams can be synchronized.
    Unnamed,
    /// Sound and picture are apart by the sender's own reports.
    LipsApart,
    /// A packet that is no RTCP.
    Malformed,
}

impl Code {
    /// The name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Followed => "followed",
            Self::Smoothed => "smoothed",
            Self::OtherClock => "other_clock",
            Self::ZeroTime => "zero_time",
            Self::AbsurdTime => "absurd_time",
            Self::Regressing => "regressing",
            Self::Disagreeing => "disagreeing",
            Self::ForeignTimestamp => "foreign_timestamp",
            Self::Stepped => "stepped",
            Self::TimestampsRestarted => "timestamps_restarted",
            Self::StrayTimestamp => "stray_timestamp",
            Self::SourceChanged => "source_changed",
            Self::Bye => "bye",
            Self::SwappedSource => "swapped_source",
            Self::OtherSource => "other_source",
            Self::Unnamed => "unnamed",
            Self::LipsApart => "lips_apart",
            Self::Malformed => "malformed",
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The number of the stream in the SDP.
    pub session: usize,
    /// The source, when it is about one.
    pub ssrc: u32,
    pub code: Code,
    /// A clause in English, for people.
    pub text: String,
}

/// Findings that nobody has taken yet.
#[derive(Debug, Default)]
pub struct Findings {
    waiting: VecDeque<Finding>,
    /// What each source was last said to be, so that it is said once.
    told: Vec<(usize, u32, Code)>,
}

impl Findings {
    /// Something that happened.
    pub fn event(&mut self, session: usize, ssrc: u32, code: Code, text: String) {
        if self.waiting.len() >= KEPT {
            self.waiting.pop_front();
        }
        self.waiting.push_back(Finding { session, ssrc, code, text });
    }

    /// Something that is so, and is said once.
    pub fn state(&mut self, session: usize, ssrc: u32, code: Code, text: impl FnOnce() -> String) {
        let key = (session, ssrc, code);
        if !self.told.contains(&key) {
            if self.told.len() >= KEPT {
                self.told.remove(0);
            }
            self.told.push(key);
            self.event(session, ssrc, code, text());
        }
    }

    /// One of several states that exclude each other: said once, until another one of them was.
    pub fn one_of(&mut self, session: usize, ssrc: u32, all: &[Code], code: Code, text: impl FnOnce() -> String) {
        if !self.told.contains(&(session, ssrc, code)) {
            self.told.retain(|(of, source, told)| (*of, *source) != (session, ssrc) || !all.contains(told));
            self.state(session, ssrc, code, text);
        }
    }

    /// Takes all findings.
    pub fn take(&mut self) -> Vec<Finding> {
        self.waiting.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_said_once_and_events_each_time() {
        let mut findings = Findings::default();
        for _ in 0..3 {
            findings.state(0, 7, Code::ZeroTime, || "a time of zero".into());
            findings.event(0, 7, Code::Bye, "bye".into());
        }
        let codes: Vec<Code> = findings.take().into_iter().map(|finding| finding.code).collect();
        assert_eq!(codes, [Code::ZeroTime, Code::Bye, Code::Bye, Code::Bye]);
    }

    #[test]
    fn of_states_that_exclude_each_other_a_change_is_said() {
        let mut findings = Findings::default();
        let all = [Code::Followed, Code::OtherClock];
        for code in [Code::Followed, Code::Followed, Code::OtherClock, Code::Followed] {
            findings.one_of(0, 7, &all, code, String::new);
            findings.one_of(0, 8, &all, Code::Followed, String::new);
        }
        let codes: Vec<(u32, Code)> = findings.take().into_iter().map(|finding| (finding.ssrc, finding.code)).collect();
        let of_7 = [Code::Followed, Code::OtherClock, Code::Followed];
        assert_eq!(codes.iter().filter(|(ssrc, _)| *ssrc == 7).map(|(_, code)| *code).collect::<Vec<_>>(), of_7);
        assert_eq!(codes.len(), 4);
    }

    #[test]
    fn findings_that_nobody_takes_do_not_pile_up() {
        let mut findings = Findings::default();
        for ssrc in 0..1_000 {
            findings.event(0, ssrc, Code::Bye, String::new());
            findings.state(0, ssrc, Code::ZeroTime, String::new);
        }
        assert_eq!(findings.take().len(), KEPT);
        assert_eq!(findings.told.len(), KEPT);
    }
}

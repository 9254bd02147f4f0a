//! One source of RTP packets: what its times are worth.

use super::finding::{Code, Findings};
use super::fixed::{SECOND, difference, from_ns};
use super::limits::{Limits, ns};
use super::offset::{Known, describe, is_a_time};
use super::pairs::{Fit, Pair, PairLine};
use super::rtcp::SenderReport;
use super::stamps::{Stamp, Stamps};
use crate::clock::NtpTime;
use std::collections::VecDeque;

/// Offsets from times on the packets are collected over so long, and the best counts.
const OFFSET_INTERVAL: i64 = SECOND;
/// The quickest transit is that of the last one or two of these.
const TRANSIT_INTERVAL: i64 = 10 * SECOND;
/// After times that contradicted each other, so many must agree before any is believed.
const CONSISTENT: usize = 2;
/// What a later finding of the same kind takes back.
const BELIEFS: [Code; 8] = [
    Code::Followed,
    Code::Smoothed,
    Code::OtherClock,
    Code::ZeroTime,
    Code::AbsurdTime,
    Code::Regressing,
    Code::Disagreeing,
    Code::ForeignTimestamp,
];

/// What the guard makes of a source's times. Offsets are those of the sender's clock against the shared clock, ns,
/// positive ahead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Belief {
    /// It has said nothing yet.
    #[default]
    Nothing,
    /// Its times are on the shared clock: frames are scheduled by them.
    Followed { offset: i64 },
    /// Its times are on another clock: they are shown, and keep sound and picture together.
    OtherClock { offset: i64, known: Option<Known> },
    /// Its times are worth nothing.
    Refused(Code),
}

impl Belief {
    /// Why not to follow, as a clause; none when there is nothing to say.
    pub fn objection(&self) -> Option<String> {
        match self {
            Self::Nothing | Self::Followed { .. } => None,
            Self::OtherClock { offset, known } => Some(describe(*offset, *known)),
            Self::Refused(code) => Some(refusal(*code).to_owned()),
        }
    }
}

fn refusal(code: Code) -> &'static str {
    match code {
        Code::ZeroTime => "the time is zero: the sender has no clock",
        Code::AbsurdTime => "the time lies before 1970 or after 2100: the sender's clock was never set",
        Code::Regressing => "the time does not go on from report to report",
        Code::ForeignTimestamp => "the RTP timestamps of the reports are not those of the stream",
        Code::SwappedSource => "the reports are for another source: its SSRC is the stream's with swapped bytes",
        _ => "the times do not fit together",
    }
}

/// See the module.
#[derive(Debug)]
pub struct Source {
    pub ssrc: u32,
    session: usize,
    clock_rate: u32,
    /// RTP packets so far.
    pub packets: u64,
    /// Whether rtpbin knows its CNAME.
    pub named: bool,
    /// Whether a report of its own was let through with its times.
    pub reported: bool,
    stamps: Stamps,
    last_timestamp: u32,
    line: PairLine,
    /// The last time that came, to see whether time goes on.
    last_ntp: Option<u64>,
    /// Offsets of the last pairs, each with the arrival that it was taken at.
    offsets: VecDeque<(NtpTime, i64)>,
    belief: Belief,
    /// A report that came before the first packet.
    early: Option<(SenderReport, NtpTime)>,
    transit: Transit,
}

/// The quickest transit of the last while, ns.
#[derive(Debug, Clone, Copy, Default)]
struct Transit {
    since: NtpTime,
    current: Option<i64>,
    before: Option<i64>,
}

impl Transit {
    fn add(&mut self, transit: i64, arrived: NtpTime) {
        if arrived.abs_diff(self.since) > TRANSIT_INTERVAL as u64 {
            *self = Self { since: arrived, current: None, before: self.current };
        }
        self.current = Some(self.current.map_or(transit, |least| least.min(transit)));
    }

    fn least(&self) -> Option<i64> {
        self.current.into_iter().chain(self.before).min()
    }
}

/// What becomes of a packet's times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passage {
    /// The RTP timestamp to use in place of its own.
    pub timestamp: Option<u32>,
    /// The capture time to use; `None` to take it out. Only for packets that carry one.
    pub capture: Option<u64>,
}

impl Source {
    pub fn new(session: usize, ssrc: u32, clock_rate: u32) -> Self {
        Self {
            ssrc,
            session,
            clock_rate,
            packets: 0,
            named: false,
            reported: false,
            stamps: Stamps::default(),
            last_timestamp: 0,
            line: PairLine::new(clock_rate),
            last_ntp: None,
            offsets: VecDeque::new(),
            belief: Belief::Nothing,
            early: None,
            transit: Transit::default(),
        }
    }

    pub fn belief(&self) -> Belief {
        self.belief
    }

    #[cfg(test)]
    pub fn is_smoothed(&self) -> bool {
        self.line.is_smoothed()
    }

    /// From capture to arrival by the sender's own times, the quickest of the last while, ns. On another clock it holds
    /// the offset, too.
    pub fn transit(&self) -> Option<i64> {
        self.transit.least()
    }

    /// The sender's time, as on the wire, and the RTP timestamp of the last packet; `None` without believable times.
    pub fn last_pair(&self) -> Option<(u64, u32)> {
        let (place, _) = self.stamps.last()?;
        Some((self.line.at(place)?, self.last_timestamp)).filter(|_| !matches!(self.belief, Belief::Refused(_)))
    }

    /// The sender's time of an RTP timestamp near the last packet's.
    pub fn time_of(&self, timestamp: u32) -> Option<u64> {
        self.line.at(self.stamps.place(timestamp)?).filter(|_| !matches!(self.belief, Belief::Refused(_)))
    }

    /// Takes an RTP packet, with the capture time on it if it carries one.
    pub fn packet(
        &mut self,
        timestamp: u32,
        capture: Option<u64>,
        arrived: NtpTime,
        limits: &Limits,
        findings: &mut Findings,
    ) -> Passage {
        self.packets += 1;
        let stamp = self.stamps.add(timestamp, arrived, self.clock_rate, limits, |place| {
            // The capture time of that place, by the sender's clock as far as its offset is known.
            let offset = self.offsets.iter().map(|offset| offset.1).max()?;
            let age = difference(self.line.at(place)?, from_ns(arrived)).saturating_sub(offset);
            Some((-ns(limits.backlog)..=ns(limits.stray)).contains(&age))
        });
        let (place, instead) = match stamp {
            Stamp::Regular { place } => (place, None),
            Stamp::Stray { timestamp, place } => {
                findings.state(self.session, self.ssrc, Code::StrayTimestamp, || {
                    "an RTP timestamp fits nothing: it was put right by its arrival".into()
                });
                (place, Some(timestamp))
            }
            Stamp::Restarted { place } => {
                self.line.clear();
                findings.event(
                    self.session,
                    self.ssrc,
                    Code::TimestampsRestarted,
                    "the RTP timestamps count from another base now".into(),
                );
                (place, None)
            }
        };
        self.last_timestamp = instead.unwrap_or(timestamp);
        if self.packets == 1
            && let Some((report, then)) = self.early.take()
        {
            self.report(report, then, limits, findings);
        }
        // A capture time on a stray is that of its frame all the same.
        let capture = capture.and_then(|ntp| self.pair(Pair { place, ntp }, arrived, limits, findings));
        if let Some(time) = self.line.at(place) {
            self.transit.add(difference(from_ns(arrived), time), arrived);
        }
        Passage { timestamp: instead, capture }
    }

    /// Takes a sender report for this source: the NTP time to use, or `None` to take its times out.
    pub fn report(
        &mut self,
        report: SenderReport,
        arrived: NtpTime,
        limits: &Limits,
        findings: &mut Findings,
    ) -> Option<u64> {
        let Some((last, _)) = self.stamps.last() else {
            // It is judged with the first packet; rtpbin of GStreamer 1.22 makes little of it anyway.
            self.early = Some((report, arrived));
            return (report.ntp != 0).then_some(report.ntp);
        };
        let place = self.stamps.place(report.rtp).unwrap_or(last);
        let distance = i128::from(place.abs_diff(last)) * i128::from(SECOND) / i128::from(self.clock_rate.max(1));
        if distance > i128::from(ns(limits.report_distance)) {
            return self.refuse(Code::ForeignTimestamp, findings);
        }
        let used = self.pair(Pair { place, ntp: report.ntp }, arrived, limits, findings);
        self.reported |= used.is_some();
        used
    }

    /// Nothing of this pair is used. What was believed before stays so.
    fn refuse(&mut self, code: Code, findings: &mut Findings) -> Option<u64> {
        if matches!(self.belief, Belief::Nothing | Belief::Refused(_)) {
            self.belief = Belief::Refused(code);
        }
        findings.state(self.session, self.ssrc, code, || refusal(code).to_owned());
        None
    }

    /// Judges a pair: the time to use, or `None`.
    fn pair(&mut self, pair: Pair, arrived: NtpTime, limits: &Limits, findings: &mut Findings) -> Option<u64> {
        if pair.ntp == 0 {
            return self.refuse(Code::ZeroTime, findings);
        }
        let regressing = self.last_ntp.replace(pair.ntp).is_some_and(|last| difference(pair.ntp, last) <= 0);
        let offset = difference(pair.ntp, from_ns(arrived));
        // Of two pairs that contradict each other the one on the shared clock is right.
        let lone = self.line.len() == 1 && !matches!(self.belief, Belief::Followed { .. });
        let fit = match self.line.add(pair, limits) {
            Fit::Off { .. } if lone && inside(offset, limits, 0) => {
                self.line.restart(pair);
                Fit::First
            }
            fit => fit,
        };
        let used = match fit {
            Fit::First => {
                self.offsets.clear();
                pair.ntp
            }
            Fit::Agrees { ntp } => ntp,
            Fit::Stepped { by } => {
                self.offsets.clear();
                let text = format!("the sender's clock has stepped: {}", describe(by, None));
                findings.event(self.session, self.ssrc, Code::Stepped, text);
                pair.ntp
            }
            Fit::Off { ntp, .. } => {
                let code = if regressing { Code::Regressing } else { Code::Disagreeing };
                findings.state(self.session, self.ssrc, code, || refusal(code).to_owned());
                return (!matches!(self.belief, Belief::Refused(_))).then_some(ntp);
            }
            Fit::Lost => {
                self.offsets.clear();
                self.belief = Belief::Refused(if regressing { Code::Regressing } else { Code::Disagreeing });
                return None;
            }
        };
        let contradictory = matches!(self.belief, Belief::Refused(Code::Regressing | Code::Disagreeing));
        if contradictory && self.line.len() < CONSISTENT {
            return None;
        }
        self.note_offset(offset, arrived, limits);
        self.judge(pair.ntp, arrived, limits, findings);
        (!matches!(self.belief, Belief::Refused(_))).then_some(used)
    }

    /// The offset of the sender's clock shows in the quickest of several pairs, and of reports (which an honest sender
    /// dates when it sends them) and packets (which are older by what encoding takes, but current when reports are
    /// stale).
    fn note_offset(&mut self, of_pair: i64, arrived: NtpTime, limits: &Limits) {
        let of_packet =
            self.stamps.last().and_then(|(place, then)| Some(difference(self.line.at(place)?, from_ns(then))));
        let offset = of_packet.map_or(of_pair, |of_packet| of_packet.max(of_pair));
        match self.offsets.back_mut() {
            Some((since, best)) if arrived.abs_diff(*since) < OFFSET_INTERVAL as u64 => *best = offset.max(*best),
            _ => self.offsets.push_back((arrived, offset)),
        }
        while self.offsets.len() > limits.offsets {
            self.offsets.pop_front();
        }
    }

    fn judge(&mut self, ntp: u64, arrived: NtpTime, limits: &Limits, findings: &mut Findings) {
        let Some(offset) = self.offsets.iter().map(|offset| offset.1).max() else { return };
        let margin = if matches!(self.belief, Belief::OtherClock { .. }) { ns(limits.hysteresis) } else { 0 };
        let known = Known::of(offset, ntp, limits.known);
        let belief = if inside(offset, limits, margin) {
            Belief::Followed { offset }
        } else if known.is_some() || is_a_time(offset, arrived) {
            Belief::OtherClock { offset, known }
        } else {
            Belief::Refused(Code::AbsurdTime)
        };
        self.belief = belief;
        let code = match belief {
            Belief::Followed { .. } if self.line.is_smoothed() => Code::Smoothed,
            Belief::Followed { .. } => Code::Followed,
            Belief::OtherClock { .. } => Code::OtherClock,
            Belief::Refused(code) => code,
            Belief::Nothing => return,
        };
        let spread = self.line.spread();
        findings.one_of(self.session, self.ssrc, &BELIEFS, code, || match code {
            Code::Smoothed => format!("the times jitter by {:.1} ms: smoothed", spread as f64 * 1e-6),
            Code::Followed => format!("the sender's clock is {}", describe(offset, None)),
            Code::OtherClock => format!("the sender uses another clock: {}", describe(offset, known)),
            _ => refusal(code).to_owned(),
        });
    }
}

/// Whether a clock with this offset is followed.
fn inside(offset: i64, limits: &Limits, margin: i64) -> bool {
    (-ns(limits.behind).saturating_sub(margin)..=ns(limits.ahead).saturating_sub(margin)).contains(&offset)
}

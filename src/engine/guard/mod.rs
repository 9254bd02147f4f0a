//! The guard before rtpbin: what to do with what a sender says about its clock.
//!
//! rtpbin applies any report in full: a camera whose clock is an hour ahead freezes its picture for an hour. So every
//! RTCP packet, and every capture time on an RTP packet, passes here first:
//!
//! ```text
//!            ┌─ followed: on the shared clock, or near; jitter is smoothed
//! a pair of ─┼─ other clock: passes, so that it is shown and keeps sound and picture together; the room must not
//! RTP + NTP  │  schedule by it ([`Guard::may_schedule`])
//!            └─ refused: zero, absurd, going back, contradicting the others
//! ```
//!
//! A compound packet is rewritten, never dropped, since CNAME and BYE travel in it: a refused report becomes a receiver
//! report, a smoothed one gets its time from the line, one without a CNAME gets one. Capture times on packets are
//! changed or blanked in place, stray RTP timestamps put right.
//!
//! Everything here is a pure function of bytes and arrival times; [`Guard::take_findings`] says in words what was found
//! and done. With SRTP it belongs behind the decryption.

mod finding;
mod fixed;
mod header;
mod limits;
mod offset;
mod pairs;
mod rtcp;
mod source;
mod stamps;

pub use finding::{Code, Finding};
pub use header::Edits;
pub use limits::Limits;
pub use source::Belief;

use super::verdict::SenderState;
use crate::clock::NtpTime;
use finding::Findings;
use header::Form;
use rtcp::{Packet, SenderReport};
use source::Source;
use std::time::Duration;

/// So many sources are remembered for a stream: the current one, those before, and reports for others.
const SOURCES_KEPT: usize = 4;
/// So many streams are watched: an SDP has a handful.
const SESSIONS_MAX: usize = 32;
/// A new source takes the stream over with this packet (RFC 3550, section 6.2.1 wants two in sequence).
const TAKES_OVER: u64 = 2;
/// The CNAME for senders that say none. One for all streams: they come from one sender.
const MADE_UP_NAME: &[u8] = b"sender@unisono.invalid";

/// What the SDP says of one stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamInfo {
    /// RTP clock rate, Hz.
    pub clock_rate: u32,
    /// The local identifier of the ntp-64 header extension.
    pub ntp64_id: Option<u8>,
    /// The identifier that the room's caps give to ntp-64 so that ONVIF's replay extension can be turned into it;
    /// `None` leaves that extension alone.
    pub replay_id: Option<u8>,
    /// Whether the SDP gives the CNAME (`a=ssrc:… cname:`, RFC 5576).
    pub named: bool,
}

/// What is known of one stream's times.
#[cfg(test)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamView {
    pub ssrc: u32,
    pub belief: Belief,
    /// From capture to arrival by the sender's own times, the quickest of the last 10 to 20 s, ns.
    pub transit: Option<i64>,
    /// Whether the sender's times jitter and are smoothed.
    pub smoothed: bool,
    /// Whether rtpbin knows a CNAME, without which it does not synchronize the stream.
    pub named: bool,
}

/// See the module. One for each connection.
#[derive(Debug)]
pub struct Guard {
    limits: Limits,
    sessions: Vec<Session>,
    findings: Findings,
    /// Reports for a source with swapped bytes were seen, and none for the stream.
    swapped: bool,
}

#[derive(Debug, Default)]
struct Session {
    info: StreamInfo,
    sources: Vec<Source>,
    /// The source that sends the stream.
    active: Option<u32>,
}

impl Session {
    fn source(&mut self, number: usize, ssrc: u32) -> &mut Source {
        let index = self.sources.iter().position(|source| source.ssrc == ssrc).unwrap_or_else(|| {
            if self.sources.len() >= SOURCES_KEPT {
                // The oldest that is not in use.
                let old = self.sources.iter().position(|source| Some(source.ssrc) != self.active).unwrap_or(0);
                self.sources.remove(old);
            }
            let mut source = Source::new(number, ssrc, self.info.clock_rate);
            source.named = self.info.named;
            self.sources.push(source);
            self.sources.len() - 1
        });
        &mut self.sources[index]
    }

    fn current(&self) -> Option<&Source> {
        self.sources.iter().find(|source| Some(source.ssrc) == self.active)
    }
}

impl Guard {
    pub fn new(limits: Limits) -> Self {
        Self { limits, sessions: Vec::new(), findings: Findings::default(), swapped: false }
    }

    fn session(&mut self, number: usize) -> Option<&mut Session> {
        if number >= SESSIONS_MAX {
            return None;
        }
        if self.sessions.len() <= number {
            self.sessions.resize_with(number + 1, Session::default);
        }
        self.sessions.get_mut(number)
    }

    /// Notes what stream `number` carries. To be called before its first packet; what was known of it is forgotten.
    pub fn set_stream(&mut self, number: usize, info: StreamInfo) {
        if let Some(session) = self.session(number) {
            *session = Session { info, ..Session::default() };
        }
    }

    /// Judges an RTP packet of stream `number` that arrived at `arrived` on the shared clock: what to change in it.
    /// Allocates nothing once the stream runs.
    pub fn rtp(&mut self, number: usize, packet: &[u8], arrived: NtpTime) -> Edits {
        let mut edits = Edits::default();
        let limits = self.limits;
        self.session(number);
        let Some(session) = self.sessions.get_mut(number) else { return edits };
        let info = session.info;
        let Some(header) = header::parse(packet, info.ntp64_id) else { return edits };
        let capture = header.capture.filter(|capture| capture.form != Form::OnvifReplay || info.replay_id.is_some());
        let source = session.source(number, header.ssrc);
        let ntp = capture.map(|capture| capture.ntp);
        let passage = source.packet(header.timestamp, ntp, arrived, &limits, &mut self.findings);
        let packets = source.packets;
        if let Some(timestamp) = passage.timestamp {
            edits.set_timestamp(timestamp);
        }
        match (capture, passage.capture, info.replay_id) {
            (Some(capture), Some(ntp), Some(id)) if capture.form == Form::OnvifReplay => {
                edits.convert_capture(capture, ntp, id);
            }
            (Some(capture), Some(ntp), _) if ntp != capture.ntp => edits.set_capture(capture, ntp),
            (Some(capture), None, _) => edits.remove_capture(capture),
            _ => {}
        }
        if session.active != Some(header.ssrc) && (session.active.is_none() || packets == TAKES_OVER) {
            if session.active.is_some() {
                let text = "another source sends the stream now".to_owned();
                self.findings.event(number, header.ssrc, Code::SourceChanged, text);
            }
            session.active = Some(header.ssrc);
        }
        edits
    }

    /// Judges a compound RTCP packet of stream `number`: what to pass on in its place, or `None` to pass it as it is.
    pub fn rtcp(&mut self, number: usize, compound: &[u8], arrived: NtpTime) -> Option<Vec<u8>> {
        self.session(number)?;
        let packets: Vec<Packet<'_>> = rtcp::packets(compound).collect();
        let length: usize = packets.iter().map(|packet| packet.bytes().len()).sum();
        if packets.is_empty() || length != compound.len() {
            self.findings.state(number, 0, Code::Malformed, || "a packet is no RTCP, or not to its end".into());
        }
        let mut out = Vec::with_capacity(compound.len() + 64);
        for packet in &packets {
            match packet.sender_report() {
                None => out.extend(packet.bytes()),
                Some(report) => {
                    let named = packets.iter().flat_map(Packet::cnames).any(|(ssrc, _)| ssrc == report.ssrc);
                    self.report(number, packet, report, named, arrived, &mut out);
                }
            }
            for ssrc in packet.byes() {
                self.findings.event(number, ssrc, Code::Bye, "the source has said goodbye".into());
            }
        }
        // What could not be read stays as it was.
        out.extend(&compound[length..]);
        self.compare_streams();
        (out != compound).then_some(out)
    }

    /// Judges one report and writes what becomes of it. `named`: its compound gives a CNAME; rtpbin takes none from
    /// elsewhere.
    fn report(
        &mut self,
        number: usize,
        packet: &Packet<'_>,
        report: SenderReport,
        named: bool,
        arrived: NtpTime,
        out: &mut Vec<u8>,
    ) {
        let Some(session) = self.sessions.get_mut(number) else { return };
        if let Some(active) = session.active.filter(|active| *active != report.ssrc)
            && session.sources.iter().all(|source| source.ssrc != report.ssrc)
        {
            if active.swap_bytes() == report.ssrc {
                self.swapped = true;
                self.findings.state(number, report.ssrc, Code::SwappedSource, || {
                    format!("the reports are for source {:08x}, the stream is {active:08x}: swapped bytes", report.ssrc)
                });
                out.extend(packet.without_sender_info());
            } else {
                self.findings.state(number, report.ssrc, Code::OtherSource, || {
                    format!("a report is for source {:08x}, the stream is {active:08x}", report.ssrc)
                });
                out.extend(packet.bytes());
            }
            return;
        }
        let limits = self.limits;
        let source = session.source(number, report.ssrc);
        source.named |= named;
        match source.report(report, arrived, &limits, &mut self.findings) {
            None => out.extend(packet.without_sender_info()),
            Some(ntp) => {
                if ntp == report.ntp {
                    out.extend(packet.bytes());
                } else {
                    out.extend(packet.with_ntp(ntp));
                }
                if !source.named && !packet.is_padded() {
                    self.findings.state(number, report.ssrc, Code::Unnamed, || {
                        "the sender does not say its name (CNAME) with its reports: one was added".into()
                    });
                    out.extend(rtcp::cname(report.ssrc, MADE_UP_NAME));
                }
            }
        }
    }

    /// A compound to pass on for stream `number` whose capture times come on its packets and who sends no reports:
    /// rtpbin synchronizes a stream only once a report has named it. At most one a second is of use.
    pub fn substitute_report(&self, number: usize) -> Option<Vec<u8>> {
        let source = self.sessions.get(number)?.current()?;
        if source.reported {
            return None;
        }
        let (ntp, rtp) = source.last_pair()?;
        let mut out = rtcp::sender_report(SenderReport { ssrc: source.ssrc, ntp, rtp });
        out.extend(rtcp::cname(source.ssrc, MADE_UP_NAME));
        Some(out)
    }

    /// Says so when the sender's own reports put sound and picture apart.
    fn compare_streams(&mut self) {
        let streams = self.sessions.iter().enumerate();
        let transits: Vec<(usize, u32, i64)> = streams
            .filter_map(|(number, session)| Some((number, session.current()?)))
            .filter_map(|(number, source)| Some((number, source.ssrc, source.transit()?)))
            .collect();
        let Some(&(first, _, quickest)) = transits.iter().min_by_key(|transit| transit.2) else { return };
        for &(number, ssrc, transit) in &transits {
            let apart = transit.saturating_sub(quickest);
            if apart > limits::ns(self.limits.lips) {
                self.findings.state(number, ssrc, Code::LipsApart, || {
                    let apart = apart as f64 * 1e-6;
                    format!("by the sender's times, stream {number} arrives {apart:.0} ms older than stream {first}: sound and picture may be apart")
                });
            }
        }
    }

    /// Whether frames may be scheduled by the sender's times. When not, they play by their arrival, still in sync with
    /// each other.
    pub fn may_schedule(&self) -> bool {
        self.beliefs().all(|belief| !matches!(belief, Belief::OtherClock { .. }))
    }

    fn beliefs(&self) -> impl Iterator<Item = Belief> {
        self.sessions.iter().filter_map(Session::current).map(Source::belief)
    }

    /// What is known of a stream; `None` before its first packet.
    #[cfg(test)]
    pub fn stream(&self, number: usize) -> Option<StreamView> {
        let source = self.sessions.get(number)?.current()?;
        Some(StreamView {
            ssrc: source.ssrc,
            belief: source.belief(),
            transit: source.transit(),
            smoothed: source.is_smoothed(),
            named: source.named,
        })
    }

    /// The sender's time of an RTP timestamp near the last packet's, ns since 1900 on its own clock, in the era of
    /// `arrived`; `None` without believable times.
    pub fn sender_time(&self, number: usize, timestamp: u32, arrived: NtpTime) -> Option<NtpTime> {
        let time = self.sessions.get(number)?.current()?.time_of(timestamp)?;
        arrived.checked_add_signed(fixed::difference(time, fixed::from_ns(arrived)))
    }

    /// What all this says of the sender's clock, for the verdict, `waited` after the first packet.
    pub fn sender_state(&self, waited: Duration) -> SenderState {
        let other = self.beliefs().find_map(|belief| match belief {
            Belief::OtherClock { offset, .. } => Some((offset, belief.objection().unwrap_or_default())),
            _ => None,
        });
        if let Some((offset_ns, text)) = other {
            return SenderState::Differs { offset_ns, text };
        }
        if self.beliefs().any(|belief| matches!(belief, Belief::Followed { .. })) {
            return SenderState::Accepted;
        }
        if let Some(why) = self.beliefs().find_map(|belief| belief.objection()) {
            return SenderState::Implausible(why);
        }
        if self.swapped {
            return SenderState::Implausible(Belief::Refused(Code::SwappedSource).objection().unwrap_or_default());
        }
        SenderState::Silent(waited)
    }

    /// What was found since the last call.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        self.findings.take()
    }
}

#[cfg(test)]
mod tests;

//! A simulated camera for the tests of the guard: its time moves on frame by frame.

use crate::engine::guard::fixed::{difference, from_ns, plus};
use crate::engine::guard::*;

/// 2026-12-01 in the NTP epoch.
pub const START: NtpTime = 4_005_072_000_000_000_000;
pub const SECOND: i64 = 1_000_000_000;
pub const MS: i64 = 1_000_000;
pub const HOUR: i64 = 3_600 * SECOND;
/// Frames (or sound packets) come so often.
pub const FRAME: i64 = 40 * MS;
/// From capture to arrival.
pub const TRANSIT: i64 = 60 * MS;
pub const SSRC: u32 = 0x1122_3344;
pub const RATE: u32 = 90_000;
pub const NTP64_ID: u8 = 3;

/// A camera with one or more streams, whose time moves on frame by frame.
pub struct Camera {
    pub guard: Guard,
    /// ns since [`START`].
    pub now: i64,
    /// How far the camera's clock is ahead.
    pub clock: i64,
    /// Added to the RTP timestamps.
    pub base: u32,
    pub ssrc: u32,
    /// Whether ntp-64 is on the packets.
    pub in_band: bool,
    pub findings: Vec<Finding>,
}

impl Camera {
    pub fn new() -> Self {
        Self::with_streams(1)
    }

    pub fn with_streams(count: usize) -> Self {
        let mut guard = Guard::new(Limits::default());
        for number in 0..count {
            let info = StreamInfo { clock_rate: RATE, ntp64_id: Some(NTP64_ID), ..StreamInfo::default() };
            guard.set_stream(number, info);
        }
        Self { guard, now: 0, clock: 0, base: 1_000_000, ssrc: SSRC, in_band: false, findings: Vec::new() }
    }

    pub fn timestamp(&self, captured: i64) -> u32 {
        self.base.wrapping_add((i128::from(captured) * i128::from(RATE) / i128::from(SECOND)) as u32)
    }

    /// What the camera's clock shows at a moment.
    pub fn shows(&self, moment: i64) -> u64 {
        plus(from_ns(START), moment + self.clock)
    }

    pub fn arrival(&self) -> NtpTime {
        START.checked_add_signed(self.now).unwrap()
    }

    /// The packet of a frame that arrives now, of a stream whose transit is this, and what the guard makes of it.
    pub fn packet_of(&mut self, number: usize, transit: i64) -> (Edits, Vec<u8>) {
        let captured = self.now - transit;
        let mut bytes = vec![if self.in_band { 0x90 } else { 0x80 }, 96, 0, 0];
        bytes.extend(self.timestamp(captured).to_be_bytes());
        bytes.extend((self.ssrc + number as u32).to_be_bytes());
        if self.in_band {
            bytes.extend([0xbe, 0xde, 0, 3, NTP64_ID << 4 | 7]);
            bytes.extend(self.shows(captured).to_be_bytes());
            bytes.extend([0; 3]);
        }
        bytes.extend(b"picture");
        let edits = self.guard.rtp(number, &bytes, self.arrival());
        let mut edited = bytes.clone();
        edits.apply(&mut edited);
        self.findings.extend(self.guard.take_findings());
        (edits, edited)
    }

    pub fn frame(&mut self) -> (Edits, Vec<u8>) {
        self.now += FRAME;
        self.packet_of(0, TRANSIT)
    }

    pub fn frames(&mut self, seconds: i64) {
        for _ in 0..seconds * SECOND / FRAME {
            self.frame();
        }
    }

    /// A compound that arrives now: the bytes and what is passed on.
    pub fn compound(&mut self, number: usize, bytes: &[u8]) -> Vec<u8> {
        let out = self.guard.rtcp(number, bytes, self.arrival()).unwrap_or_else(|| bytes.to_vec());
        self.findings.extend(self.guard.take_findings());
        out
    }

    /// A report with a CNAME, for this moment of the camera and with this NTP field.
    pub fn report_with(&mut self, moment: i64, ntp: u64) -> Vec<u8> {
        let report = SenderReport { ssrc: self.ssrc, ntp, rtp: self.timestamp(moment) };
        let bytes = [rtcp::sender_report(report), rtcp::cname(self.ssrc, b"camera")].concat();
        self.compound(0, &bytes)
    }

    /// An honest report whose NTP field is off by `error`; by how much what is passed on is off, if it has a time.
    pub fn report(&mut self, error: i64) -> Option<i64> {
        let (now, ntp) = (self.now, plus(self.shows(self.now), error));
        let out = self.report_with(now, ntp);
        let names = rtcp::packets(&out).flat_map(|packet| packet.cnames().collect::<Vec<_>>()).count();
        assert_eq!(names, 1, "the CNAME passes, once");
        let report = rtcp::packets(&out).next().unwrap().sender_report()?;
        assert_eq!(report.rtp, self.timestamp(now));
        Some(difference(report.ntp, self.shows(now)))
    }

    pub fn state(&self) -> SenderState {
        self.guard.sender_state(Duration::from_secs(1))
    }

    pub fn has(&self, code: Code) -> bool {
        self.count(code) > 0
    }

    pub fn count(&self, code: Code) -> usize {
        self.findings.iter().filter(|finding| finding.code == code).count()
    }

    /// The text of the state, which must be that of another clock.
    pub fn differs(&self) -> String {
        assert!(!self.guard.may_schedule());
        match self.state() {
            SenderState::Differs { text, .. } => text,
            other => panic!("{other:?}"),
        }
    }
}

pub fn capture(bytes: &[u8]) -> Option<u64> {
    header::parse(bytes, Some(NTP64_ID)).unwrap().capture.map(|capture| capture.ntp)
}

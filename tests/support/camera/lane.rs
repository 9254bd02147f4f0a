//! One stream of one session: makes its RTP packets and reports as the script says.

use super::super::random::Random;
use super::super::timeline::{MS, NTP_UNIX_SECONDS, Nanos, SECOND, Timeline, ntp64};
use super::log::Truth;
use super::media::{Format, Source, is_parameter_set};
use super::script::Clock;
use super::stream::{Epoch, Sdes, Stream};
use super::{rtcp, rtp};

/// TAI minus UTC since 2017 (IERS bulletin C).
const TAI_UTC: Nanos = 37 * SECOND;
/// The first report follows the first packet so closely: rtpbin of GStreamer 1.22 forgets what comes before it.
const FIRST_REPORT: Nanos = MS;

/// Time as one session of the camera tells it.
#[derive(Debug, Clone)]
pub struct CameraTime {
    pub timeline: Timeline,
    pub clock: Clock,
    /// How far the clock has stepped in this session.
    pub step: Nanos,
}

impl CameraTime {
    /// What the NTP field says for a moment of the timeline.
    fn field(&self, epoch: Epoch, moment: Nanos, offset: Nanos) -> u64 {
        let error = self.clock.offset + self.step + offset + (moment as f64 * self.clock.ppm * 1e-6) as Nanos;
        let utc = self.timeline.unix(moment) + error;
        let seventy_years = NTP_UNIX_SECONDS * SECOND;
        ntp64(match epoch {
            Epoch::Ntp => utc,
            Epoch::Zero => return 0,
            Epoch::Unix => utc - seventy_years,
            Epoch::Twice => utc + seventy_years,
            Epoch::Uptime => moment + error - seventy_years,
            Epoch::BootedIn1970 => moment + error,
            Epoch::Tai => utc + TAI_UTC,
        })
    }
}

/// See the module.
pub struct Lane {
    /// May change while it plays.
    pub script: Stream,
    /// The place of the stream in the script.
    pub stream: usize,
    source: Source,
    /// Takes over from `source` at its next key frame.
    successor: Option<Source>,
    format: Format,
    ssrc: u32,
    sequence: u16,
    /// The number of the frame to send next.
    next: i64,
    /// The frame that the RTP timestamps count from, and its timestamp.
    base: (i64, u32),
    /// What is added to the timestamp of the next frame alone.
    outlier: i32,
    next_report: Option<Nanos>,
    packets: u32,
    octets: u32,
    replay_count: u8,
    random: Random,
}

impl Lane {
    /// Starts with the first key frame that is captured at `from` or later.
    pub fn new(script: &Stream, stream: usize, session: u32, from: Nanos) -> Self {
        let mut random = Random::new(u64::from(session) << 8 | stream as u64);
        let (ssrc, sequence, timestamp) = (random.bits() as u32, random.bits() as u16, random.bits() as u32);
        let mut lane = Self {
            stream,
            source: script.media.open(),
            successor: None,
            format: script.media.format(),
            ssrc: script.ssrc.unwrap_or(ssrc),
            sequence: script.sequence.unwrap_or(sequence),
            next: 0,
            base: (0, 0),
            outlier: 0,
            next_report: None,
            packets: 0,
            octets: 0,
            replay_count: 0,
            random,
            script: script.clone(),
        };
        lane.next = (from as i128 * i128::from(lane.format.clock_rate)
            / (i128::from(lane.format.ticks) * i128::from(SECOND))) as i64;
        while lane.captured(lane.next) < from || !lane.source.frame(lane.next).key {
            lane.next += 1;
        }
        lane.base = (lane.next, script.timestamp.unwrap_or(timestamp));
        lane
    }

    /// What an honest report would say of the first packet.
    pub fn truth(&self, timeline: &Timeline) -> Truth {
        Truth {
            stream: self.stream,
            ssrc: self.ssrc,
            sequence: self.sequence,
            timestamp: self.base.1,
            captured: timeline.unix(self.captured(self.base.0)),
            period: SECOND * Nanos::from(self.format.ticks) / Nanos::from(self.format.clock_rate),
        }
    }

    /// How much faster than nominal the sampling clock runs.
    fn speed(&self) -> f64 {
        1.0 + self.script.sampling_ppm * 1e-6
    }

    /// When a frame was captured, by its number in display order.
    fn captured(&self, number: i64) -> Nanos {
        let ticks = i128::from(number) * i128::from(self.format.ticks);
        let nominal = (ticks * i128::from(SECOND) / i128::from(self.format.clock_rate)) as Nanos;
        nominal - (nominal as f64 * (1.0 - 1.0 / self.speed())).round() as Nanos
    }

    /// The RTP timestamp of a moment, as a report extrapolates it.
    fn timestamp_at(&self, moment: Nanos) -> u32 {
        let since = (moment - self.captured(self.base.0)) as f64 / SECOND as f64;
        let ticks = (since * f64::from(self.format.clock_rate) * self.speed()).round() as i64;
        self.base.1.wrapping_add(ticks as u32)
    }

    /// When the next frame is complete and can leave, with the camera's delay. B-frames wait for a later anchor.
    pub fn due(&self, delay: Nanos) -> Nanos {
        self.captured(self.next + self.source.reorder_depth()) + delay
    }

    /// When the next report is due; none before the first packet.
    pub fn report_due(&self) -> Option<Nanos> {
        self.next_report.filter(|_| self.script.reports.sent)
    }

    /// The packets of the next frame.
    pub fn frame(&mut self, time: &CameraTime, now: Nanos) -> Vec<Vec<u8>> {
        if let Some(successor) = self.successor.take_if(|successor| successor.frame(self.next).key) {
            self.source = successor;
        }
        let mut frame = self.source.frame(self.next);
        if !self.script.in_band_parameter_sets && self.source.is_video() {
            frame.payloads.retain(|payload| !is_parameter_set(payload));
        }
        let number = self.next + frame.display_ahead;
        let captured = self.captured(number);
        let ticks =
            (number - self.base.0) * i64::from(self.format.ticks) + i64::from(std::mem::take(&mut self.outlier));
        let timestamp = self.base.1.wrapping_add(ticks as u32);
        self.next += 1;
        // A silent stream reports nevertheless, and always about a running clock.
        self.next_report.get_or_insert(now + FIRST_REPORT + self.script.reports.first_after);
        if self.script.silent {
            return Vec::new();
        }
        let last = frame.payloads.len() - 1;
        let packets = frame.payloads.into_iter().enumerate();
        packets
            .map(|(index, payload)| {
                let packet = rtp::Packet {
                    payload_type: self.script.wire_payload_type.unwrap_or(self.script.payload_type),
                    marker: index == last && self.source.is_video(),
                    sequence: self.sequence,
                    timestamp,
                    ssrc: self.ssrc,
                    extension: self.extension(time, captured, index == 0, index == last, frame.key),
                    payload,
                };
                self.sequence = self.sequence.wrapping_add(1);
                self.packets = self.packets.wrapping_add(1);
                self.octets = self.octets.wrapping_add(packet.payload.len() as u32);
                packet.bytes()
            })
            .collect()
    }

    fn extension(
        &mut self,
        time: &CameraTime,
        captured: Nanos,
        first: bool,
        last: bool,
        key: bool,
    ) -> Option<(u16, Vec<u8>)> {
        if let Some(ntp64) = self.script.ntp64.as_ref().filter(|ntp64| first || !ntp64.first_packet_only) {
            return Some(rtp::ntp64_extension(
                ntp64.id,
                time.field(ntp64.epoch, captured, ntp64.offset),
                ntp64.two_byte,
            ));
        }
        let replay = self.script.onvif_replay.as_ref().filter(|_| first)?;
        self.replay_count = self.replay_count.wrapping_add(1);
        Some(rtp::onvif_extension(time.field(Epoch::Ntp, captured, replay.offset), key, last, self.replay_count))
    }

    /// The packets of the next report.
    pub fn report(&mut self, time: &CameraTime, now: Nanos) -> Vec<Vec<u8>> {
        self.next_report = Some(now + self.script.reports.interval);
        let mut report = self.sender_report(time, now);
        let cname = rtcp::cname(self.ssrc, &self.script.reports.cname);
        match self.script.reports.sdes {
            Sdes::Compound => {
                report.extend(cname);
                vec![report]
            }
            Sdes::Apart => vec![report, cname],
            Sdes::Missing => vec![report],
        }
    }

    fn sender_report(&mut self, time: &CameraTime, now: Nanos) -> Vec<u8> {
        let reports = &self.script.reports;
        let moment = now - reports.stale;
        let ssrc = if reports.swapped_ssrc { self.ssrc.swap_bytes() } else { self.ssrc };
        let ntp = time.field(reports.epoch, moment, reports.offset + self.random.around_zero(reports.jitter));
        rtcp::sender_report(ssrc, ntp, self.timestamp_at(moment), self.packets, self.octets)
    }

    /// A last report and the BYE in one compound packet.
    pub fn bye(&mut self, time: &CameraTime, now: Nanos) -> Vec<u8> {
        let mut packet = self.sender_report(time, now);
        packet.extend(rtcp::cname(self.ssrc, &self.script.reports.cname));
        packet.extend(rtcp::bye(self.ssrc));
        packet
    }

    /// Another source from here on: new SSRC, sequence numbers and timestamps.
    pub fn change_source(&mut self) {
        self.ssrc = self.random.bits() as u32;
        self.sequence = self.random.bits() as u16;
        self.base = (self.next, self.random.bits() as u32);
        (self.packets, self.octets) = (0, 0);
    }

    pub fn restart_timestamps(&mut self, timestamp: u32) {
        self.base = (self.next, timestamp);
    }

    pub fn outlier(&mut self, ticks: i32) {
        self.outlier = ticks;
    }

    pub fn jump_sequence(&mut self, by: u16) {
        self.sequence = self.sequence.wrapping_add(by);
    }

    /// Goes on with other media of the same format at its next key frame.
    pub fn switch(&mut self, successor: Source) {
        self.successor = Some(successor);
    }

    pub fn is_video(&self) -> bool {
        self.source.is_video()
    }
}

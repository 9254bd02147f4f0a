//! Watches the packets before rtpbin sees them: when they come, what they say about the sender's clock, and whether
//! rtpbin may schedule by it.

use super::drift::DriftEstimator;
use super::rtp::{self, NTP64_URI, TimestampLine};
use super::sender_clock::{Judgement, ReportBounds, SenderClock, judge};
use super::verdict::SenderState;
use crate::clock::NtpTime;
use gst::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A pair for the drift estimator is taken at most so often.
const DRIFT_INTERVAL_NS: u64 = 1_000_000_000;

/// What one RTP session carries, as the SDP says.
#[derive(Debug, Clone, Copy, Default)]
pub struct SessionInfo {
    /// RTP clock rate, Hz.
    pub clock_rate: u32,
    /// The identifier of the ntp-64 extension.
    pub ntp64_id: Option<u8>,
}

impl SessionInfo {
    /// Reads the caps that rtspsrc makes of one `m=` line.
    pub fn from_caps(structure: &gst::StructureRef) -> Self {
        let clock_rate = structure.get::<i32>("clock-rate").ok().and_then(|rate| u32::try_from(rate).ok()).unwrap_or(0);
        let ntp64_id = structure.iter().find_map(|(name, value)| {
            let id = name.as_str().strip_prefix("extmap-")?.parse().ok()?;
            let is_ntp64 = match value.get::<&str>() {
                Ok(uri) => uri == NTP64_URI,
                // With a direction or attributes it is a list of three.
                Err(_) => value
                    .get::<gst::Array>()
                    .is_ok_and(|array| array.iter().any(|value| value.get::<&str>().is_ok_and(|uri| uri == NTP64_URI))),
            };
            is_ntp64.then_some(id)
        });
        Self { clock_rate, ntp64_id }
    }
}

/// What was seen of one RTP session.
#[derive(Default)]
struct Session {
    info: SessionInfo,
    ssrc: Option<u32>,
    line: TimestampLine,
    /// The last believable pair: ns since 1900, and the place on the line.
    pair: Option<(NtpTime, i64)>,
    drift: DriftEstimator,
    last_drift: NtpTime,
    transit_max: Option<i64>,
}

/// The watch over one connection. Shared by the pad probes (streaming threads) and the engine.
pub struct RtpMonitor {
    clock: gst::Clock,
    bounds: ReportBounds,
    /// Whether rtpbin schedules by the reports as long as they are believable.
    sync: bool,
    started: Instant,
    /// ns after `started`, plus one; 0: none yet.
    first_packet: AtomicU64,
    last_packet: AtomicU64,
    packets: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    sessions: Vec<Session>,
    sender: SenderClock,
    manager: gst::glib::WeakRef<gst::Element>,
    transport: Option<String>,
}

impl RtpMonitor {
    /// A watch that takes arrival times from `clock`, the pipeline's.
    pub fn new(clock: gst::Clock, sync: bool) -> Arc<Self> {
        Arc::new(Self {
            clock,
            bounds: ReportBounds::default(),
            sync,
            started: Instant::now(),
            first_packet: AtomicU64::new(0),
            last_packet: AtomicU64::new(0),
            packets: AtomicU64::new(0),
            inner: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Plain data, whole even after a panic elsewhere.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what session `number` carries.
    pub fn set_session(&self, number: usize, info: SessionInfo) {
        let mut inner = self.lock();
        session(&mut inner.sessions, number).info = info;
    }

    /// Watches all pads of `manager` (an rtpbin), those to come included.
    pub fn watch(self: &Arc<Self>, manager: &gst::Element) {
        self.lock().manager.set(Some(manager));
        let weak = Arc::downgrade(self);
        manager.connect_pad_added(move |_, pad| {
            if let Some(monitor) = weak.upgrade() {
                monitor.watch_pad(pad);
            }
        });
    }

    fn watch_pad(self: &Arc<Self>, pad: &gst::Pad) {
        let name = pad.name();
        let number = |prefix| name.strip_prefix(prefix).and_then(|number| number.parse::<usize>().ok());
        let monitor = self.clone();
        let kind = gst::PadProbeType::BUFFER | gst::PadProbeType::BUFFER_LIST;
        if let Some(number) = number("recv_rtp_sink_") {
            pad.add_probe(kind, move |pad, probe| {
                if monitor.packets.load(Ordering::Relaxed) == 0 {
                    monitor.lock().transport = transport_of(pad);
                }
                match &probe.data {
                    Some(gst::PadProbeData::Buffer(buffer)) => monitor.handle_rtp(number, buffer),
                    Some(gst::PadProbeData::BufferList(list)) => {
                        list.iter().for_each(|buffer| monitor.handle_rtp(number, buffer));
                    }
                    _ => {}
                }
                gst::PadProbeReturn::Ok
            });
        } else if let Some(number) = number("recv_rtcp_sink_") {
            pad.add_probe(kind, move |_, probe| match &probe.data {
                Some(gst::PadProbeData::Buffer(buffer)) if !monitor.handle_rtcp(number, buffer) => {
                    gst::PadProbeReturn::Drop
                }
                _ => gst::PadProbeReturn::Ok,
            });
        }
    }

    fn handle_rtp(&self, number: usize, buffer: &gst::BufferRef) {
        let elapsed = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX) + 1;
        self.last_packet.store(elapsed, Ordering::Relaxed);
        let _ = self.first_packet.compare_exchange(0, elapsed, Ordering::Relaxed, Ordering::Relaxed);
        self.packets.fetch_add(1, Ordering::Relaxed);
        let Ok(map) = buffer.map_readable() else { return };
        let arrived = self.clock.time().nseconds();
        let mut inner = self.lock();
        let inner = &mut *inner;
        let session = session(&mut inner.sessions, number);
        let Some(packet) = rtp::parse_rtp(&map, session.info.ntp64_id) else { return };
        if session.ssrc != Some(packet.ssrc) {
            let info = session.info;
            *session = Session { info, ssrc: Some(packet.ssrc), ..Session::default() };
        }
        let place = session.line.extend(packet.timestamp);
        if let Some(ntp) = packet.ntp {
            let judgement = judge(ntp, arrived, self.bounds);
            if !matches!(judgement, Judgement::Discard(_)) {
                session.note_pair(ntp, place);
            }
            inner.sender.add(&judgement, arrived);
            self.steer(inner.manager.upgrade(), &judgement);
        }
        if let Some(sender_time) = inner.sessions[number].sender_time(place) {
            let transit = super::timing::difference(arrived, sender_time);
            let session = &mut inner.sessions[number];
            session.transit_max = Some(session.transit_max.map_or(transit, |max| max.max(transit)));
        }
    }

    /// Whether the packet may pass.
    fn handle_rtcp(&self, number: usize, buffer: &gst::BufferRef) -> bool {
        let Ok(map) = buffer.map_readable() else { return true };
        let arrived = self.clock.time().nseconds();
        let mut pass = true;
        for report in rtp::sender_reports(&map) {
            let mut inner = self.lock();
            let inner = &mut *inner;
            let judgement = judge(report.ntp, arrived, self.bounds);
            let session = session(&mut inner.sessions, number);
            if matches!(judgement, Judgement::Discard(_)) {
                pass = false;
            } else if session.ssrc == Some(report.ssrc) {
                // A copy: the report's timestamp may lie behind packets that came already.
                let place = { session.line }.extend(report.rtp);
                session.note_pair(report.ntp, place);
            } else if session.ssrc.is_some() {
                continue; // of another source: rtpbin will not use it for this stream either
            }
            inner.sender.add(&judgement, arrived);
            self.steer(inner.manager.upgrade(), &judgement);
        }
        pass
    }

    /// Lets rtpbin schedule by the sender's clock, or only keep its streams together by it.
    fn steer(&self, manager: Option<gst::Element>, judgement: &Judgement) {
        let (true, Some(manager)) = (self.sync, manager) else { return };
        let wanted = match judgement {
            Judgement::Use => true,
            Judgement::DisplayOnly { .. } => false,
            Judgement::Discard(_) => return,
        };
        if manager.property::<bool>("ntp-sync") != wanted {
            manager.set_property("ntp-sync", wanted);
        }
    }

    /// Whether frames may be placed by the sender's times.
    pub fn is_trusted(&self) -> bool {
        self.sync && self.sender_state() == SenderState::Accepted
    }

    /// What is known of the sender's clock.
    pub fn sender_state(&self) -> SenderState {
        let waited = self.since_first_packet().unwrap_or_default();
        self.lock().sender.state(waited)
    }

    /// Since the first packet came; `None` before.
    pub fn since_first_packet(&self) -> Option<Duration> {
        self.since(&self.first_packet)
    }

    /// Since the last packet came; `None` before the first.
    pub fn since_last_packet(&self) -> Option<Duration> {
        self.since(&self.last_packet)
    }

    fn since(&self, at: &AtomicU64) -> Option<Duration> {
        match at.load(Ordering::Relaxed) {
            0 => None,
            at => Some(self.started.elapsed().saturating_sub(Duration::from_nanos(at))),
        }
    }

    /// `udp`, `udp-mcast` or `tcp`; `None` before the first packet.
    pub fn transport(&self) -> Option<String> {
        self.lock().transport.clone()
    }

    /// From capture to arrival, the largest since the last call, ns; `None` without reports.
    pub fn take_transit(&self) -> Option<i64> {
        self.lock().sessions.iter_mut().filter_map(|session| session.transit_max.take()).max()
    }

    /// The sender's media clock against its own reports, ppm: of the session that knows it best.
    pub fn sender_drift_ppm(&self) -> Option<f64> {
        self.lock().sessions.iter_mut().find_map(|session| session.drift.ppm())
    }
}

fn session(sessions: &mut Vec<Session>, number: usize) -> &mut Session {
    // rtspsrc numbers its streams from 0; an SDP has a handful.
    if sessions.len() <= number {
        sessions.resize_with(number + 1, Session::default);
    }
    &mut sessions[number]
}

impl Session {
    fn note_pair(&mut self, ntp: NtpTime, place: i64) {
        self.pair = Some((ntp, place));
        if self.info.clock_rate > 0 && ntp.saturating_sub(self.last_drift) >= DRIFT_INTERVAL_NS {
            self.last_drift = ntp;
            let media = i128::from(place) * 1_000_000_000 / i128::from(self.info.clock_rate);
            self.drift.add(ntp.into(), media);
        }
    }

    /// The capture time of a place on the line, ns since 1900.
    fn sender_time(&self, place: i64) -> Option<NtpTime> {
        let (ntp, known) = self.pair.filter(|_| self.info.clock_rate > 0)?;
        let since = i128::from(place - known) * 1_000_000_000 / i128::from(self.info.clock_rate);
        u64::try_from(i128::from(ntp) + since).ok()
    }
}

/// What feeds an rtpbin pad: a udpsrc, or rtspsrc's own connection.
fn transport_of(pad: &gst::Pad) -> Option<String> {
    let source = pad.peer()?.parent_element()?;
    if source.factory().is_none_or(|factory| factory.name() != "udpsrc") {
        return Some("tcp".to_owned());
    }
    let multicast = source
        .property::<Option<String>>("address")
        .and_then(|address| address.parse::<std::net::IpAddr>().ok())
        .is_some_and(|address| address.is_multicast());
    Some(if multicast { "udp-mcast" } else { "udp" }.to_owned())
}

//! Watches the packets before rtpbin sees them: when they come, what they say about the sender's clock, and whether
//! rtpbin may schedule by it.

use super::drift::DriftEstimator;
use super::guard::{Finding, Guard, Limits, StreamInfo};
use super::timing::difference;
use super::verdict::SenderState;
use gst::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A pair for the drift estimator is taken at most so often.
const DRIFT_INTERVAL_NS: u64 = 1_000_000_000;
/// A sender without reports of its own is given one so often.
const SUBSTITUTE_INTERVAL: Duration = Duration::from_secs(1);
/// A sender may be so much further behind than the playout latency before it counts as one on another clock: so far the
/// verdict says which latency would do.
const BEHIND_SPARE: Duration = Duration::from_secs(2);
/// The URI of the header extension that carries the capture time (RFC 6051, section 3.3).
const NTP64_URI: &str = "urn:ietf:params:rtp-hdrext:ntp-64";

/// Reads the caps that rtspsrc makes of one `m=` line.
pub fn stream_info(structure: &gst::StructureRef) -> StreamInfo {
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
    let named = structure.fields().any(|name| name.starts_with("ssrc-") && name.ends_with("-cname"));
    StreamInfo { clock_rate, ntp64_id, replay_id: None, named }
}

/// What was seen of one RTP session, beside what the guard knows.
#[derive(Default)]
struct Session {
    clock_rate: u32,
    /// The last RTP timestamp on a line that does not wrap.
    place: Option<i64>,
    drift: DriftEstimator,
    last_drift: u64,
    transit_max: Option<i64>,
    rtcp_pad: gst::glib::WeakRef<gst::Pad>,
    substituted: Option<Instant>,
}

/// The watch over one connection. Shared by the pad probes (streaming threads) and the engine.
pub struct RtpMonitor {
    clock: gst::Clock,
    /// Whether rtpbin schedules by the reports as long as they are believable.
    sync: bool,
    started: Instant,
    /// ns after `started`, plus one; 0: none yet.
    first_packet: AtomicU64,
    last_packet: AtomicU64,
    packets: AtomicU64,
    /// A report of our own is under way to rtpbin.
    substituting: AtomicBool,
    inner: Mutex<Inner>,
}

struct Inner {
    guard: Guard,
    sessions: Vec<Session>,
    manager: gst::glib::WeakRef<gst::Element>,
    transport: Option<String>,
}

impl RtpMonitor {
    /// A watch that takes arrival times from `clock`, the pipeline's. With `sync` rtpbin schedules by the sender's times
    /// as long as the guard lets it.
    pub fn new(clock: gst::Clock, sync: bool, latency: Duration) -> Arc<Self> {
        let limits = Limits { behind: latency + BEHIND_SPARE, ..Limits::default() };
        Arc::new(Self {
            clock,
            sync,
            started: Instant::now(),
            first_packet: AtomicU64::new(0),
            last_packet: AtomicU64::new(0),
            packets: AtomicU64::new(0),
            substituting: AtomicBool::new(false),
            inner: Mutex::new(Inner {
                guard: Guard::new(limits),
                sessions: Vec::new(),
                manager: gst::glib::WeakRef::new(),
                transport: None,
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Plain data, whole even after a panic elsewhere.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what session `number` carries.
    pub fn set_session(&self, number: usize, info: StreamInfo) {
        let mut inner = self.lock();
        inner.guard.set_stream(number, info);
        session(&mut inner.sessions, number).clock_rate = info.clock_rate;
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
                match &mut probe.data {
                    Some(gst::PadProbeData::Buffer(buffer)) => monitor.handle_rtp(number, buffer.make_mut()),
                    Some(gst::PadProbeData::BufferList(list)) => {
                        list.make_mut().foreach_mut(|mut buffer, _| {
                            monitor.handle_rtp(number, buffer.make_mut());
                            std::ops::ControlFlow::Continue(Some(buffer))
                        });
                    }
                    _ => {}
                }
                gst::PadProbeReturn::Ok
            });
        } else if let Some(number) = number("recv_rtcp_sink_") {
            session(&mut self.lock().sessions, number).rtcp_pad.set(Some(pad));
            pad.add_probe(kind, move |_, probe| {
                if let Some(gst::PadProbeData::Buffer(buffer)) = &mut probe.data {
                    monitor.handle_rtcp(number, buffer);
                }
                gst::PadProbeReturn::Ok
            });
        }
    }

    fn handle_rtp(&self, number: usize, buffer: &mut gst::BufferRef) {
        let elapsed = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX) + 1;
        self.last_packet.store(elapsed, Ordering::Relaxed);
        let _ = self.first_packet.compare_exchange(0, elapsed, Ordering::Relaxed, Ordering::Relaxed);
        self.packets.fetch_add(1, Ordering::Relaxed);
        let arrived = self.clock.time().nseconds();
        let mut substitute = None;
        {
            let mut inner = self.lock();
            let inner = &mut *inner;
            let timestamp = {
                let Ok(map) = buffer.map_readable() else { return };
                let edits = inner.guard.rtp(number, &map, arrived);
                drop(map);
                if !edits.is_empty()
                    && let Ok(mut map) = buffer.map_writable()
                {
                    edits.apply(&mut map);
                }
                let Ok(map) = buffer.map_readable() else { return };
                let Some(bytes) = map.get(4..8).and_then(|bytes| bytes.try_into().ok()) else { return };
                u32::from_be_bytes(bytes)
            };
            let session = session(&mut inner.sessions, number);
            if let Some(sender_time) = inner.guard.sender_time(number, timestamp, arrived) {
                session.note(timestamp, sender_time, difference(arrived, sender_time));
            }
            let due = session.substituted.is_none_or(|last| last.elapsed() >= SUBSTITUTE_INTERVAL);
            if due && let Some(report) = inner.guard.substitute_report(number) {
                session.substituted = Some(Instant::now());
                substitute = session.rtcp_pad.upgrade().map(|pad| (pad, report));
            }
            self.steer(inner);
        }
        if let Some((pad, report)) = substitute {
            // Through the pad, as if it had come; our own probe lets it pass.
            self.substituting.store(true, Ordering::Release);
            introduce(&pad, number);
            let _ = pad.chain(gst::Buffer::from_mut_slice(report));
            self.substituting.store(false, Ordering::Release);
        }
    }

    fn handle_rtcp(&self, number: usize, buffer: &mut gst::Buffer) {
        if self.substituting.load(Ordering::Acquire) {
            return;
        }
        let arrived = self.clock.time().nseconds();
        let replacement = {
            let Ok(map) = buffer.map_readable() else { return };
            let mut inner = self.lock();
            let replacement = inner.guard.rtcp(number, &map, arrived);
            self.steer(&inner);
            replacement
        };
        if let Some(bytes) = replacement {
            let mut changed = gst::Buffer::from_mut_slice(bytes);
            if let Some(changed) = changed.get_mut() {
                let _ = buffer.copy_into(changed, gst::BufferCopyFlags::TIMESTAMPS | gst::BufferCopyFlags::META, ..);
            }
            *buffer = changed;
        }
    }

    /// Lets rtpbin schedule by the sender's clock, or only keep its streams together by it.
    fn steer(&self, inner: &Inner) {
        let (true, Some(manager)) = (self.sync, inner.manager.upgrade()) else { return };
        let wanted = inner.guard.may_schedule();
        if manager.property::<bool>("ntp-sync") != wanted {
            manager.set_property("ntp-sync", wanted);
        }
    }

    /// Whether frames may be placed by the sender's times.
    pub fn is_trusted(&self) -> bool {
        self.sync && self.sender_state() == SenderState::Accepted
    }

    /// What the guard found since the last call.
    pub fn take_findings(&self) -> Vec<Finding> {
        self.lock().guard.take_findings()
    }

    /// What is known of the sender's clock.
    pub fn sender_state(&self) -> SenderState {
        let waited = self.since_first_packet().unwrap_or_default();
        self.lock().guard.sender_state(waited)
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
    /// Notes a packet: its RTP timestamp, its capture time (ns since 1900) and how long it was under way.
    fn note(&mut self, timestamp: u32, sender_time: u64, transit: i64) {
        self.transit_max = Some(self.transit_max.map_or(transit, |max| max.max(transit)));
        // Wrapping difference as a signed step (RFC 3550, section 5.1).
        let place = match self.place {
            None => i64::from(timestamp),
            Some(last) => last + i64::from(timestamp.wrapping_sub(last as u32) as i32),
        };
        self.place = Some(place);
        if self.clock_rate > 0 && sender_time.saturating_sub(self.last_drift) >= DRIFT_INTERVAL_NS {
            self.last_drift = sender_time;
            let media = i128::from(place) * 1_000_000_000 / i128::from(self.clock_rate);
            self.drift.add(sender_time.into(), media);
        }
    }
}

/// Sends what has to go before data on a pad that has had none yet: a source of RTCP does so with its first packet only.
fn introduce(pad: &gst::Pad, number: usize) {
    if pad.sticky_event::<gst::event::StreamStart>(0).is_none() {
        pad.send_event(gst::event::StreamStart::new(&format!("unisono/rtcp/{number}")));
    }
    if pad.sticky_event::<gst::event::Caps>(0).is_none() {
        pad.send_event(gst::event::Caps::new(&gst::Caps::new_empty_simple("application/x-rtcp")));
    }
    if pad.sticky_event::<gst::event::Segment>(0).is_none() {
        pad.send_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
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

//! A running shared clock: the `GstClock` for the pipeline, and what is known about how well it follows its source.

use super::{ClockSpec, NTP_UNIX_OFFSET};
use gst::glib;
use gst::prelude::*;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many observations are kept for the filters (at 20 a second while acquiring, about 1 a second later).
const OBSERVATIONS_KEPT: usize = 256;
/// The uncertainty is judged over this many observations.
const UNCERTAINTY_WINDOW: usize = 16;
/// A name may have many addresses: so many are asked at once, the first to answer is followed.
const ADDRESSES_MAX: usize = 4;
/// Between two tries to resolve a name.
const RESOLVE_RETRY: Duration = Duration::from_secs(1);

/// Why there is no clock.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClockError {
    #[error("the clock {0} is not supported yet: use system or ntp://HOST[:PORT]")]
    NotSupported(String),
    #[error("the name of the clock {0} cannot be resolved: check the name, or give an address")]
    Unresolvable(String),
    #[error(
        "the clock {clock} did not answer within {} s: check that a time server runs there and that UDP reaches it",
        timeout.as_secs_f64()
    )]
    Unreachable { clock: String, timeout: Duration },
}

/// One exchange with the clock's source. Local times are CLOCK_MONOTONIC, remote ones the shared clock, both in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// Counts up by one for each observation of this clock.
    pub sequence: u64,
    /// When the request left, CLOCK_MONOTONIC ns.
    pub local_send: u64,
    /// When the answer came, CLOCK_MONOTONIC ns.
    pub local_receive: u64,
    /// The source's time in the middle of the exchange, ns since 1900.
    pub remote: u64,
    /// The round trip without the time that the server took, ns.
    pub round_trip: u64,
}

/// How well the clock follows its source, right now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClockStatus {
    /// Whether the clock has locked to its source.
    pub synced: bool,
    /// How far from its source it may be; half the best recent round trip for a network clock, what the host's own
    /// time service estimates for the system clock. `None` when nothing is known.
    pub uncertainty: Option<Duration>,
    /// The median round trip of the last observations.
    pub round_trip: Option<Duration>,
    /// How much faster (positive) the shared clock runs than CLOCK_MONOTONIC, in ppm.
    pub rate_ppm: Option<f64>,
    /// Since when the source has not answered; `None` before the first answer, and for the system clock.
    pub last_answer: Option<Duration>,
    /// Whether the host's own time service says that it is synchronized; system clock only.
    pub disciplined: Option<bool>,
}

#[derive(Default)]
struct Inner {
    /// The clock to use: set once, when the first address has synchronized (at once for the system clock).
    adopted: Option<gst::Clock>,
    /// All clocks that were started, so that the losers can be dropped.
    candidates: Vec<gst::Clock>,
    observations: VecDeque<Observation>,
    next_sequence: u64,
    last_answer: Option<Instant>,
    resolved: bool,
}

struct Shared {
    spec: ClockSpec,
    inner: Mutex<Inner>,
    changed: Condvar,
    stop: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while it holds the lock; if it did, the data are still whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A shared clock that was started. Cheap to clone; the last one dropped stops the clock.
#[derive(Clone)]
pub struct SharedClock {
    shared: Arc<Shared>,
    _stop: Arc<StopOnDrop>,
}

struct StopOnDrop(Arc<Shared>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
        self.0.changed.notify_all();
    }
}

impl SharedClock {
    /// Starts to follow `spec` and returns at once; names are resolved and servers asked in the background.
    ///
    /// # Errors
    /// [`ClockError::NotSupported`] for clocks that this version does not have.
    pub fn start(spec: &ClockSpec) -> Result<Self, ClockError> {
        let shared = Arc::new(Shared {
            spec: spec.clone(),
            inner: Mutex::default(),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        match spec {
            ClockSpec::System => shared.lock().adopted = Some(system_clock()),
            ClockSpec::Ntp { host, port } => {
                let (host, port, worker) = (host.clone(), *port, shared.clone());
                std::thread::Builder::new()
                    .name("clock-start".into())
                    .spawn(move || start_ntp(&worker, &host, port))
                    .map_err(|_| ClockError::NotSupported(spec.to_string()))?;
            }
            ClockSpec::Ptp { .. } | ClockSpec::GstNet { .. } => return Err(ClockError::NotSupported(spec.to_string())),
        }
        Ok(Self { _stop: Arc::new(StopOnDrop(shared.clone())), shared })
    }

    /// What was asked for.
    pub fn spec(&self) -> &ClockSpec {
        &self.shared.spec
    }

    /// The clock for the pipeline, counting ns since 1900; `None` until it has synchronized for the first time, since
    /// an unsynchronized network clock counts from zero.
    pub fn gst(&self) -> Option<gst::Clock> {
        self.shared.lock().adopted.clone()
    }

    /// Waits until the clock has synchronized.
    ///
    /// # Errors
    /// [`ClockError::Unresolvable`] or [`ClockError::Unreachable`] when it has not within `timeout`; the clock goes on
    /// trying.
    pub fn wait_for_sync(&self, timeout: Duration) -> Result<gst::Clock, ClockError> {
        let inner = self.shared.lock();
        let (inner, _) = self
            .shared
            .changed
            .wait_timeout_while(inner, timeout, |inner| inner.adopted.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        match &inner.adopted {
            Some(clock) => Ok(clock.clone()),
            None if !inner.resolved => Err(ClockError::Unresolvable(self.shared.spec.to_string())),
            None => Err(ClockError::Unreachable { clock: self.shared.spec.to_string(), timeout }),
        }
    }

    /// How well the clock follows its source.
    pub fn status(&self) -> ClockStatus {
        let inner = self.shared.lock();
        let Some(clock) = &inner.adopted else {
            return ClockStatus::default();
        };
        if self.shared.spec == ClockSpec::System {
            let host = host_discipline();
            return ClockStatus {
                synced: true,
                uncertainty: host.as_ref().and_then(|host| host.uncertainty),
                rate_ppm: Some(0.0),
                disciplined: host.map(|host| host.synchronized),
                ..ClockStatus::default()
            };
        }
        let mut recent: Vec<u64> =
            inner.observations.iter().rev().take(UNCERTAINTY_WINDOW).map(|seen| seen.round_trip).collect();
        recent.sort_unstable();
        let (_, _, rate_numerator, rate_denominator) = network_calibration(clock);
        ClockStatus {
            synced: clock.is_synced(),
            // The answer was written at some point of the round trip: half of the best one bounds the error.
            uncertainty: recent.first().map(|best| Duration::from_nanos(best / 2)),
            round_trip: recent.get(recent.len() / 2).map(|median| Duration::from_nanos(*median)),
            rate_ppm: (rate_denominator > 0).then(|| (rate_numerator as f64 / rate_denominator as f64 - 1.0) * 1e6),
            last_answer: inner.last_answer.map(|at| at.elapsed()),
            disciplined: None,
        }
    }

    /// The observations with a sequence number from `from` on, oldest first. Empty for the system clock.
    pub fn observations_since(&self, from: u64) -> Vec<Observation> {
        self.shared.lock().observations.iter().filter(|seen| seen.sequence >= from).copied().collect()
    }
}

/// The rate lives in the internal clock that all clients of one server in this process share.
fn network_calibration(clock: &gst::Clock) -> (u64, u64, u64, u64) {
    let source = clock.property::<Option<gst::Clock>>("internal-clock");
    let (internal, external, numerator, denominator) = source.as_ref().unwrap_or(clock).calibration();
    (internal.nseconds(), external.nseconds(), numerator, denominator)
}

/// An own instance of the realtime clock, carried into the NTP epoch. (The default one is shared by the whole process.)
fn system_clock() -> gst::Clock {
    let clock: gst::SystemClock = glib::Object::builder()
        .property("name", "unisono-system-clock")
        .property("clock-type", gst::ClockType::Realtime)
        .build();
    clock.set_calibration(gst::ClockTime::ZERO, gst::ClockTime::from_nseconds(NTP_UNIX_OFFSET.as_nanos() as u64), 1, 1);
    clock.upcast()
}

/// Resolves the name, asks all its addresses, and adopts the first that synchronizes.
fn start_ntp(shared: &Arc<Shared>, host: &str, port: u16) {
    let addresses = loop {
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        match (host, port).to_socket_addrs() {
            Ok(found) => {
                let mut addresses: Vec<IpAddr> = found.map(|address: SocketAddr| address.ip()).collect();
                addresses.dedup();
                addresses.truncate(ADDRESSES_MAX);
                if !addresses.is_empty() {
                    break addresses;
                }
            }
            Err(error) => tracing::debug!(host, %error, "cannot resolve the time server yet"),
        }
        let inner = shared.lock();
        drop(shared.changed.wait_timeout(inner, RESOLVE_RETRY));
    };
    shared.lock().resolved = true;
    for address in addresses {
        let clock = gst_net::NtpClock::new(None, &address.to_string(), i32::from(port), gst::ClockTime::ZERO)
            .upcast::<gst::Clock>();
        let bus = gst::Bus::new();
        let (weak, weak_clock) = (Arc::downgrade(shared), clock.downgrade());
        bus.set_sync_handler(move |_, message| {
            if let (Some(shared), Some(clock), gst::MessageView::Element(element)) =
                (weak.upgrade(), weak_clock.upgrade(), message.view())
                && let Some(observed) = element.structure().and_then(parse_statistics)
            {
                observe(&shared, &clock, observed);
            }
            gst::BusSyncReply::Drop
        });
        clock.set_property("bus", &bus);
        let weak = Arc::downgrade(shared);
        clock.connect_synced(move |clock, synced| {
            if let (true, Some(shared)) = (synced, weak.upgrade()) {
                adopt(&shared, clock);
            }
        });
        if clock.is_synced() {
            adopt(shared, &clock);
        }
        shared.lock().candidates.push(clock);
    }
}

fn adopt(shared: &Shared, clock: &gst::Clock) {
    let mut inner = shared.lock();
    if inner.adopted.is_none() {
        inner.adopted = Some(clock.clone());
        shared.changed.notify_all();
    }
}

fn observe(shared: &Shared, clock: &gst::Clock, mut observed: Observation) {
    let mut inner = shared.lock();
    if inner.adopted.as_ref().is_some_and(|adopted| adopted != clock) {
        return;
    }
    observed.sequence = inner.next_sequence;
    inner.next_sequence += 1;
    inner.last_answer = Some(Instant::now());
    if inner.observations.len() == OBSERVATIONS_KEPT {
        inner.observations.pop_front();
    }
    inner.observations.push_back(observed);
}

/// The statistics message of GstNetClientClock.
fn parse_statistics(structure: &gst::StructureRef) -> Option<Observation> {
    if structure.name() != "gst-netclock-statistics" {
        return None;
    }
    Some(Observation {
        sequence: 0,
        local_send: structure.get("request-send").ok()?,
        local_receive: structure.get("request-receive").ok()?,
        remote: structure.get("remote").ok()?,
        round_trip: structure.get("rtt").ok()?,
    })
}

struct HostDiscipline {
    synchronized: bool,
    uncertainty: Option<Duration>,
}

/// What the kernel was told by the host's time service (adjtimex(2), reading only).
fn host_discipline() -> Option<HostDiscipline> {
    // SAFETY: timex is plain data; with modes = 0 the call only reads into it.
    let (state, timex) = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&mut timex), timex)
    };
    if state < 0 {
        return None;
    }
    let synchronized = state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0;
    let uncertainty = u64::try_from(timex.esterror).ok().filter(|_| synchronized).map(Duration::from_micros);
    Some(HostDiscipline { synchronized, uncertainty })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_counts_since_1900() {
        gst::init().unwrap();
        let clock = SharedClock::start(&ClockSpec::System).unwrap();
        let gst = clock.wait_for_sync(Duration::ZERO).unwrap();
        let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let difference = gst.time().nseconds().abs_diff((unix + NTP_UNIX_OFFSET).as_nanos() as u64);
        assert!(difference < 1_000_000_000, "{difference} ns apart");
        assert!(clock.status().synced);
    }

    #[test]
    fn clocks_of_later_versions_are_named() {
        gst::init().unwrap();
        for spec in ["ptp://", "gstnet://localhost:1"] {
            let error = SharedClock::start(&spec.parse().unwrap()).err().unwrap().to_string();
            assert!(error.contains(spec.trim_end_matches('/')) && error.contains("not supported yet"), "{error}");
        }
    }

    #[test]
    fn a_silent_server_is_unreachable_after_the_timeout() {
        gst::init().unwrap();
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let spec = format!("ntp://127.0.0.1:{}", silent.local_addr().unwrap().port()).parse().unwrap();
        let clock = SharedClock::start(&spec).unwrap();
        let error = clock.wait_for_sync(Duration::from_millis(300)).err().unwrap();
        assert!(matches!(error, ClockError::Unreachable { .. }), "{error}");
        assert!(clock.gst().is_none());
    }
}

//! A scripted time server: NTP version 4 (RFC 5905) over UDP on loopback, that can be wrong in every way that time
//! servers are.
//!
//! ```text
//! client ──request──> [request delay] receive time [processing] transmit time [answer delay] ──> client
//! ```

use super::ports::{bind, free_address};
use super::random::Random;
use super::timeline::{Nanos, SECOND, Timeline, ntp64};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The length of a packet without extension fields (RFC 5905, figure 8).
const PACKET: usize = 48;
/// The end is looked for so often.
const POLL: Duration = Duration::from_millis(20);
/// Leap indicator 3: the clock is not synchronized (RFC 5905, figure 9).
const UNSYNCHRONIZED: u8 = 3;
/// Stratum 16: the clock is not synchronized (RFC 5905, figure 11).
const STRATUM_UNSYNCHRONIZED: u8 = 16;
const MODE_SERVER: u8 = 4;
/// Log2 of the precision: 2⁻²⁰ is about 1 µs.
const PRECISION: i8 = -20;

/// What the server does. All fields may change while it runs: see [`TimeServer::change`].
#[derive(Debug, Clone)]
pub struct TimeScript {
    /// Where it listens; the port is chosen by the server.
    pub address: IpAddr,
    pub answer: Answer,
    /// How far it is ahead of the host's UTC. A change is a step.
    pub offset: Nanos,
    /// How much faster than UTC it runs from its start on, ppm.
    pub ppm: f64,
    /// Steps to come: so long after the start, by so much.
    pub steps: Vec<(Nanos, Nanos)>,
    /// Its time stands still at this UTC, ns since 1970.
    pub frozen_at: Option<Nanos>,
    /// How long a request travels. With another delay of the answer the way is asymmetric, which no client can see.
    pub request_delay: Delay,
    /// From the receive time to the transmit time: a slow server, honest about it.
    pub processing: Delay,
    /// How long an answer travels.
    pub answer_delay: Delay,
    /// The share of requests that is lost, 0 to 1.
    pub loss: f64,
    /// What the server says of its distance from a reference clock: 1 to 15.
    pub stratum: u8,
    /// The poll interval in the answer as log2 of seconds; `None`: what the client wrote. GStreamer takes up to 2
    /// (4 s) at its word, asks as rarely, and so needs some 12 s to synchronize.
    pub poll: Option<i8>,
}

impl Default for TimeScript {
    fn default() -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST.into(),
            answer: Answer::Honest,
            offset: 0,
            ppm: 0.0,
            steps: Vec::new(),
            frozen_at: None,
            request_delay: Delay::default(),
            processing: Delay::default(),
            answer_delay: Delay::default(),
            loss: 0.0,
            stratum: 1,
            poll: None,
        }
    }
}

/// How a request is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// By the book, with the time that the script makes.
    Honest,
    Silent,
    /// With this version in place of 4. Old servers answer with 3.
    Version(u8),
    /// A kiss-of-death (RFC 5905, section 7.4): `DENY`, `RSTR`, `RATE`, …
    Kiss([u8; 4]),
    /// Leap indicator 3 and stratum 16: the server itself has no time. The times are there nevertheless.
    Unsynchronized,
    /// These bytes.
    Raw(Vec<u8>),
}

/// A delay with an even random part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delay {
    /// At least so long.
    pub fixed: Nanos,
    /// Up to so much longer.
    pub random: Nanos,
}

impl Delay {
    pub const fn of(fixed: Nanos) -> Self {
        Self { fixed, random: 0 }
    }

    fn draw(self, random: &mut Random) -> Nanos {
        self.fixed + (random.unit() * self.random as f64) as Nanos
    }
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Request {
    pub at: Nanos,
    pub from: SocketAddr,
    pub bytes: Vec<u8>,
}

struct Shared {
    script: Mutex<TimeScript>,
    requests: Mutex<Vec<Request>>,
    timeline: Timeline,
    away: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A time server. It answers from [`TimeServer::start`] until it is killed or dropped.
pub struct TimeServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl TimeServer {
    /// Starts a server on a free port. Panics when the host has none.
    pub fn start(script: TimeScript) -> Self {
        let address = free_address(script.address);
        let shared = Shared {
            script: Mutex::new(script),
            requests: Mutex::default(),
            timeline: Timeline::start(),
            away: AtomicBool::new(true),
        };
        let mut server = Self { shared: Arc::new(shared), address, thread: None };
        server.revive();
        server
    }

    /// A server that tells the host's time.
    pub fn honest() -> Self {
        Self::start(TimeScript::default())
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `ntp://ADDRESS:PORT`, as `--clock` takes it.
    pub fn url(&self) -> String {
        format!("ntp://{}", self.address)
    }

    /// Changes the script from now on.
    pub fn change(&self, change: impl FnOnce(&mut TimeScript)) {
        change(&mut locked(&self.shared.script));
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        locked(&self.shared.requests).clone()
    }

    /// The time that the server tells now, ns since 1970.
    pub fn now(&self) -> Nanos {
        let script = locked(&self.shared.script);
        told(&script, &self.shared.timeline, self.shared.timeline.now())
    }

    /// Ends the server: its port is closed.
    pub fn kill(&mut self) {
        self.shared.away.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// Starts a killed server again on the same port. Panics when another process has taken it.
    pub fn revive(&mut self) {
        if self.thread.is_some() {
            return;
        }
        let socket = bind(|| UdpSocket::bind(self.address)).expect("the port of this server is free");
        self.shared.away.store(false, Ordering::Relaxed);
        let shared = self.shared.clone();
        let serve = move || serve(&shared, &socket).expect("a socket on loopback");
        self.thread = Some(std::thread::Builder::new().name("timeserver".into()).spawn(serve).expect("a thread"));
    }
}

impl Drop for TimeServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The time that the server tells at a moment of its timeline, ns since 1970.
fn told(script: &TimeScript, timeline: &Timeline, moment: Nanos) -> Nanos {
    let steps: Nanos = script.steps.iter().filter(|(after, _)| *after <= moment).map(|(_, by)| by).sum();
    let utc = timeline.unix(moment) + script.offset + steps + (moment as f64 * script.ppm * 1e-6) as Nanos;
    script.frozen_at.unwrap_or(utc)
}

fn serve(shared: &Shared, socket: &UdpSocket) -> io::Result<()> {
    let mut random = Random::new(0);
    let mut buffer = [0; 1024];
    let mut count = 0u64;
    // By the time at which they leave.
    let mut answers: BTreeMap<(Nanos, u64), (Vec<u8>, SocketAddr)> = BTreeMap::new();
    while !shared.away.load(Ordering::Relaxed) {
        while let Some(due) = answers.first_entry().filter(|entry| entry.key().0 <= shared.timeline.now()) {
            let (bytes, client) = due.remove();
            // A client that has gone is no concern of the server.
            let _ = socket.send_to(&bytes, client);
        }
        let next = answers.keys().next().map(|(at, _)| shared.timeline.instant(*at));
        let wait = next.map_or(POLL, |at| at.saturating_duration_since(Instant::now()).min(POLL));
        socket.set_read_timeout(Some(wait.max(Duration::from_micros(1))))?;
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        let now = shared.timeline.now();
        let request = Request { at: now, from, bytes: buffer[..length].to_vec() };
        let script = locked(&shared.script).clone();
        if length >= PACKET
            && !random.chance(script.loss)
            && let Some((leaves, bytes)) = answer(&script, &shared.timeline, &request, &mut random)
        {
            count += 1;
            answers.insert((leaves, count), (bytes, from));
        }
        locked(&shared.requests).push(request);
    }
    Ok(())
}

/// The answer, and when it leaves; none from a silent server.
fn answer(
    script: &TimeScript,
    timeline: &Timeline,
    request: &Request,
    random: &mut Random,
) -> Option<(Nanos, Vec<u8>)> {
    let received = request.at + script.request_delay.draw(random);
    let transmitted = received + script.processing.draw(random);
    let leaves = transmitted + script.answer_delay.draw(random);
    let poll = script.poll.map_or(request.bytes[2], i8::cast_unsigned);
    let honest = Header { leap: 0, poll, version: 4, stratum: script.stratum, reference: *b"GPS\0" };
    let header = match &script.answer {
        Answer::Silent => return None,
        Answer::Raw(bytes) => return Some((leaves, bytes.clone())),
        Answer::Honest => honest,
        Answer::Version(version) => Header { version: *version, ..honest },
        Answer::Kiss(code) => Header { leap: UNSYNCHRONIZED, stratum: 0, reference: *code, ..honest },
        Answer::Unsynchronized => {
            Header { leap: UNSYNCHRONIZED, stratum: STRATUM_UNSYNCHRONIZED, reference: *b"INIT", ..honest }
        }
    };
    let time = |moment| ntp64(told(script, timeline, moment));
    let client_transmit = &request.bytes[40..48];
    Some((leaves, header.packet(time(received - 60 * SECOND), client_transmit, time(received), time(transmitted))))
}

/// The part of a packet that is not times.
struct Header {
    leap: u8,
    version: u8,
    stratum: u8,
    poll: u8,
    reference: [u8; 4],
}

impl Header {
    /// RFC 5905, figure 8.
    fn packet(&self, reference_time: u64, origin: &[u8], receive: u64, transmit: u64) -> Vec<u8> {
        let mut packet =
            vec![self.leap << 6 | self.version << 3 | MODE_SERVER, self.stratum, self.poll, PRECISION as u8];
        // Root delay and root dispersion: this is the root.
        packet.extend([0; 8]);
        packet.extend(self.reference);
        packet.extend(reference_time.to_be_bytes());
        packet.extend(origin);
        packet.extend(receive.to_be_bytes());
        packet.extend(transmit.to_be_bytes());
        packet
    }
}

//! A scripted camera: real RTSP, RTP and RTCP over loopback, every byte written by hand, so that it can be wrong in
//! every way that cameras are.
//!
//! ```text
//! Script ─> Camera ─ accepts ─> Connection (one thread: RTSP)
//!                                   └─ PLAY ─> Player (one thread: what is due when)
//!                                                ├─ Lane per stream: RTP packets and reports
//!                                                └─ Wire: loss, order, jitter ─> TCP `$` frames or UDP
//! ```
//!
//! It notes what it received in a [`Log`]. `docs/testing.md` shows how to add a case.

pub mod auth;
mod connection;
mod lane;
pub mod log;
pub mod media;
mod player;
mod rtcp;
mod rtp;
pub mod rtsp;
pub mod script;
mod sdp;
pub mod stream;
mod wire;

pub use super::timeline::{HOUR, MS, Nanos, SECOND, ntp64};
pub use log::{Log, Truth, What};
pub use media::{Media, Recording};
pub use script::{Answer, Event, RtpInfo, Script, Udp};
pub use stream::{Epoch, Line, Ntp64, OnvifReplay, Sdes, Stream};

use super::ports::{bind, free_address};
use super::timeline::Timeline;
use connection::{Connection, WAIT_MAX};
use lane::CameraTime;
use log::Record;
use player::Order;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// New connections, and the end, are looked for so often.
const ACCEPT_POLL: Duration = Duration::from_millis(10);

/// What outlives a restart, and what all threads of a camera share.
struct Shared {
    script: Mutex<Script>,
    timeline: Timeline,
    log: Log,
    connections: AtomicU32,
    sessions: AtomicU32,
    /// How often each rule for an answer was used.
    rule_uses: Mutex<Vec<u32>>,
    /// The ways to the sessions that play.
    players: Mutex<Vec<Sender<Order>>>,
    away: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn script(&self) -> Script {
        locked(&self.script).clone()
    }

    fn note(&self, connection: u32, what: What) {
        self.log.push(Record { at: self.timeline.now(), connection, what });
    }

    fn time(&self) -> CameraTime {
        CameraTime { timeline: self.timeline, clock: locked(&self.script).clock.clone(), step: 0 }
    }

    fn next_session(&self) -> u32 {
        self.sessions.fetch_add(1, Ordering::Relaxed)
    }

    fn register(&self, player: Sender<Order>) {
        locked(&self.players).push(player);
    }

    /// The first rule for this method that is not used up.
    fn rule(&self, method: &str) -> Option<Answer> {
        let script = locked(&self.script);
        let mut uses = locked(&self.rule_uses);
        uses.resize(script.rtsp.answers.len(), 0);
        let mut rules = script.rtsp.answers.iter().zip(uses.iter_mut());
        let (rule, used) = rules.find(|(rule, used)| rule.method == method && **used < rule.times)?;
        *used += 1;
        Some(rule.answer.clone())
    }

    /// Waits, but not beyond the end of the camera.
    fn pause(&self, wait: Nanos) {
        let until = self.timeline.now() + wait.min(WAIT_MAX);
        while self.timeline.now() < until && !self.away.load(Ordering::Relaxed) {
            std::thread::sleep(ACCEPT_POLL);
        }
    }
}

/// A camera. It serves from [`Camera::start`] until it is killed or dropped.
pub struct Camera {
    shared: Arc<Shared>,
    address: SocketAddr,
    running: Option<Running>,
}

/// The threads and connections of a camera that is there.
struct Running {
    acceptor: JoinHandle<()>,
    connections: Arc<Mutex<Vec<Served>>>,
}

/// A control connection and the thread that serves it.
type Served = (TcpStream, JoinHandle<()>);

impl Camera {
    /// Starts a camera on a free port. Panics when the host has none.
    pub fn start(script: Script) -> Self {
        let address = free_address(script.address);
        let shared = Shared {
            script: Mutex::new(script),
            timeline: Timeline::start(),
            log: Log::default(),
            connections: AtomicU32::new(0),
            sessions: AtomicU32::new(0),
            rule_uses: Mutex::default(),
            players: Mutex::default(),
            away: AtomicBool::new(true),
        };
        let mut camera = Self { shared: Arc::new(shared), address, running: None };
        camera.revive();
        camera
    }

    /// `rtsp://ADDRESS:PORT/PATH`.
    pub fn url(&self) -> String {
        format!("rtsp://{}{}", self.address, self.shared.script().rtsp.path)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn log(&self) -> &Log {
        &self.shared.log
    }

    /// True UTC as the camera knows it, ns since 1970: the scale of [`Truth::captured`].
    pub fn utc(&self) -> Nanos {
        self.shared.timeline.unix(self.shared.timeline.now())
    }

    /// Lets something happen now in every session that plays.
    pub fn happen(&self, event: Event) {
        locked(&self.shared.players).retain(|player| player.send(Order::Happen(event.clone())).is_ok());
    }

    /// Changes the script for requests and sessions to come.
    pub fn change(&self, change: impl FnOnce(&mut Script)) {
        change(&mut locked(&self.shared.script));
    }

    /// Ends the camera as if its process were killed: the port is closed, connections end in mid-stream.
    pub fn kill(&mut self) {
        self.shared.away.store(true, Ordering::Relaxed);
        if let Some(running) = self.running.take() {
            let _ = running.acceptor.join();
            for (stream, thread) in locked(&running.connections).drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
                let _ = thread.join();
            }
        }
    }

    /// Starts a killed camera again on the same port, with the same clock and the next session. Panics when another
    /// process has taken the port.
    pub fn revive(&mut self) {
        if self.running.is_some() {
            return;
        }
        let listener = bind(|| TcpListener::bind(self.address)).expect("the port of this camera is free");
        listener.set_nonblocking(true).expect("a fresh socket");
        self.shared.away.store(false, Ordering::Relaxed);
        let connections = Arc::new(Mutex::new(Vec::new()));
        let (shared, list) = (self.shared.clone(), connections.clone());
        let acceptor = std::thread::Builder::new()
            .name("camera".into())
            .spawn(move || accept(&shared, &listener, &list))
            .expect("a thread");
        self.running = Some(Running { acceptor, connections });
    }

    /// Whether the camera listens.
    pub fn is_there(&self) -> bool {
        self.running.is_some()
    }
}

impl Drop for Camera {
    fn drop(&mut self) {
        self.kill();
    }
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener, connections: &Mutex<Vec<Served>>) {
    while !shared.away.load(Ordering::Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(ACCEPT_POLL);
            continue;
        };
        let mut list = locked(connections);
        list.retain(|(_, thread)| !thread.is_finished());
        // A client that has gone already is no concern of the camera.
        let _ = serve(shared, stream).map(|entry| list.push(entry));
    }
}

fn serve(shared: &Arc<Shared>, stream: TcpStream) -> io::Result<Served> {
    stream.set_nonblocking(false)?;
    let id = shared.connections.fetch_add(1, Ordering::Relaxed);
    let connection = Connection::new(shared.clone(), id, stream.try_clone()?)?;
    let thread = std::thread::Builder::new().name("camera-rtsp".into()).spawn(move || connection.run())?;
    Ok((stream, thread))
}

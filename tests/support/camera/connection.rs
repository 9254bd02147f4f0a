//! One control connection: reads requests, answers them as the script says, and runs the session's player.

use super::super::timeline::{Nanos, SECOND};
use super::Shared;
use super::log::{Truth, What};
use super::player::{Alive, Order, Player, Setup};
use super::rtsp::{Incoming, Message, read};
use super::script::{Answer, RtpInfo, Script, Udp};
use super::sdp;
use super::wire::{Outlet, Transport, UdpPair};
use std::io::{self, BufReader};
use std::net::TcpStream;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

const METHODS: &str = "OPTIONS, DESCRIBE, SETUP, PLAY, PAUSE, GET_PARAMETER, SET_PARAMETER, TEARDOWN";

/// See the module.
pub struct Connection {
    shared: Arc<Shared>,
    id: u32,
    stream: TcpStream,
    outlet: Arc<Mutex<Outlet>>,
    session: Option<Session>,
    nonce: (String, u32),
}

/// The session of a connection, from the first SETUP on.
struct Session {
    id: String,
    number: u32,
    transports: Vec<(usize, Arc<Transport>)>,
    alive: Alive,
    player: Option<(Sender<Order>, JoinHandle<()>)>,
}

impl Session {
    /// Ends the player and waits for it.
    fn stop(&mut self) {
        if let Some((orders, thread)) = self.player.take() {
            // It may have ended by itself.
            let _ = orders.send(Order::Stop);
            let _ = thread.join();
        }
    }
}

/// What a request leads to.
enum Outcome {
    Reply(Message),
    /// The reply, and then the player that was made for it.
    Play(Message, Box<Player>),
    Nothing,
    Close,
}

fn reply(status: u16, reason: &str) -> Message {
    Message { start: format!("RTSP/1.0 {status} {reason}"), ..Message::default() }
}

fn ok(headers: impl IntoIterator<Item = (&'static str, String)>) -> Message {
    let headers = headers.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    Message { headers, ..reply(200, "OK") }
}

impl Connection {
    /// # Errors
    /// Those of the socket.
    pub fn new(shared: Arc<Shared>, id: u32, stream: TcpStream) -> io::Result<Self> {
        let outlet = Arc::new(Mutex::new(Outlet::new(stream.try_clone()?)?));
        Ok(Self { nonce: (format!("nonce-{id}-0"), 0), shared, id, stream, outlet, session: None })
    }

    /// Serves the connection until one side closes it.
    pub fn run(mut self) {
        self.note(What::Connected);
        // A client that goes away or talks nonsense ends the connection, nothing else.
        let _ = self.serve();
        if let Some(session) = &mut self.session {
            session.stop();
        }
        self.close();
        self.note(What::Closed);
    }

    fn note(&self, what: What) {
        self.shared.note(self.id, what);
    }

    fn close(&self) {
        self.outlet.lock().unwrap_or_else(PoisonError::into_inner).close();
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut reader = BufReader::new(self.stream.try_clone()?);
        while let Some(incoming) = read(&mut reader)? {
            match incoming {
                Incoming::Interleaved { channel, data } => self.note(What::Interleaved { channel, data }),
                Incoming::Message(request) => {
                    self.note(What::Request(request.clone()));
                    if !self.handle(&request)? {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Answers one request; whether the connection goes on.
    fn handle(&mut self, request: &Message) -> io::Result<bool> {
        let script = self.shared.script();
        self.keep_alive(request);
        let outcome = match self.shared.rule(request.method()) {
            None => self.usual(&script, request),
            Some(Answer::Never) => Outcome::Nothing,
            Some(Answer::After(wait)) => {
                self.shared.pause(wait);
                self.usual(&script, request)
            }
            Some(Answer::Status(status, reason)) => Outcome::Reply(reply(status, reason)),
            Some(Answer::Redirect(url)) => {
                let moved = Message { headers: vec![("Location".into(), url)], ..reply(302, "Moved Temporarily") };
                Outcome::Reply(moved)
            }
            Some(Answer::NeedsSession) if self.names_session(request) => self.usual(&script, request),
            Some(Answer::NeedsSession) => Outcome::Reply(reply(454, "Session Not Found")),
            Some(Answer::Close) => Outcome::Close,
            Some(Answer::Raw(bytes)) => {
                self.write(&bytes)?;
                Outcome::Nothing
            }
        };
        match outcome {
            Outcome::Reply(message) => self.answer(&script, request, message)?,
            Outcome::Play(message, player) => {
                self.answer(&script, request, message)?;
                self.play(*player)?;
            }
            Outcome::Nothing => {}
            Outcome::Close => return Ok(false),
        }
        Ok(true)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.outlet.lock().unwrap_or_else(PoisonError::into_inner).answer(bytes)
    }

    fn answer(&self, script: &Script, request: &Message, mut message: Message) -> io::Result<()> {
        let sequence = request.header("CSeq").unwrap_or_default().to_owned();
        message.headers.insert(0, ("CSeq".into(), sequence));
        message.headers.extend(script.rtsp.headers.iter().cloned());
        // Noted first: a test that sees the answer finds it in the log.
        self.note(What::Answered { method: request.method().to_owned(), status: message.status() });
        self.write(&message.bytes())
    }

    fn names_session(&self, request: &Message) -> bool {
        let named = request.header("Session").map(|value| value.split(';').next().unwrap_or_default().trim());
        self.session.as_ref().is_some_and(|session| named == Some(session.id.as_str()))
    }

    fn keep_alive(&self, request: &Message) {
        if let Some(session) = self.session.as_ref().filter(|_| self.names_session(request)) {
            *session.alive.lock().unwrap_or_else(PoisonError::into_inner) = self.shared.timeline.now();
        }
    }

    /// What an honest camera does.
    fn usual(&mut self, script: &Script, request: &Message) -> Outcome {
        if request.method() != "OPTIONS"
            && let Some(refusal) = self.unauthorized(script, request)
        {
            return Outcome::Reply(refusal);
        }
        match request.method() {
            "OPTIONS" => Outcome::Reply(ok([("Public", METHODS.to_owned())])),
            "DESCRIBE" => Outcome::Reply(Self::describe(script, request)),
            "SETUP" => Outcome::Reply(self.setup(script, request)),
            "PLAY" => self.start(script, request),
            "PAUSE" => {
                self.session.iter_mut().for_each(Session::stop);
                Outcome::Reply(self.with_session([]))
            }
            "GET_PARAMETER" | "SET_PARAMETER" => Outcome::Reply(self.with_session([])),
            "TEARDOWN" => {
                let message = self.with_session([]);
                self.session.take().iter_mut().for_each(Session::stop);
                Outcome::Reply(message)
            }
            _ => Outcome::Reply(reply(501, "Not Implemented")),
        }
    }

    fn unauthorized(&mut self, script: &Script, request: &Message) -> Option<Message> {
        let auth = script.rtsp.auth.as_ref()?;
        let accepted = auth.accepts(request, &self.nonce.0);
        self.nonce.1 += 1;
        if accepted && self.nonce.1 <= auth.nonce_uses {
            return None;
        }
        if accepted {
            self.nonce = (format!("{}-next", self.nonce.0), 0);
        }
        let challenges = auth.challenges(&self.nonce.0, accepted);
        let headers = challenges.into_iter().map(|value| ("WWW-Authenticate".to_owned(), value)).collect();
        Some(Message { headers, ..reply(401, "Unauthorized") })
    }

    fn describe(script: &Script, request: &Message) -> Message {
        let uri = request.uri();
        let path = uri.split_once("://").map_or(uri, |(_, rest)| rest.find('/').map_or("", |at| &rest[at..]));
        if path != script.rtsp.path {
            return reply(404, "Not Found");
        }
        let base = uri.split('?').next().unwrap_or(uri);
        let content_base = script.rtsp.content_base.text(|| Some(format!("{base}/")));
        let mut message = ok([("Content-Type", "application/sdp".to_owned())]);
        message.headers.extend(content_base.map(|value| ("Content-Base".to_owned(), value.replace("{base}", base))));
        message.body = sdp::describe(script, base).into_bytes();
        message
    }

    fn setup(&mut self, script: &Script, request: &Message) -> Message {
        let named = |control: &str| request.uri().trim_end_matches('/').ends_with(&control.replace("{base}", ""));
        let Some(stream) = script.streams.iter().position(|stream| named(&stream.control)) else {
            return reply(404, "Not Found");
        };
        let offers = request.header("Transport").unwrap_or_default().split(',');
        let Some((transport, text)) = offers.filter_map(|offer| self.transport(script, offer.trim())).next() else {
            return reply(461, "Unsupported Transport");
        };
        let (shared, now) = (self.shared.clone(), self.shared.timeline.now());
        let session = self.session.get_or_insert_with(|| {
            let number = shared.next_session();
            let id = format!("{:08X}", 0x5e55_0000 + number);
            Session { id, number, transports: Vec::new(), alive: Arc::new(Mutex::new(now)), player: None }
        });
        session.transports.push((stream, Arc::new(transport)));
        let timeout = script.rtsp.session_timeout / SECOND;
        ok([("Session", format!("{};timeout={timeout}", session.id)), ("Transport", text)])
    }

    /// Takes an offer of the Transport header, if the camera can; with the text for the answer.
    fn transport(&self, script: &Script, offer: &str) -> Option<(Transport, String)> {
        let range = |name: &str| {
            let value = offer.split(';').find_map(|part| part.trim().strip_prefix(name))?;
            let (first, second) = value.split_once('-').unwrap_or((value, ""));
            let first: u16 = first.parse().ok()?;
            Some((first, second.parse().unwrap_or(first.saturating_add(1))))
        };
        if offer.starts_with("RTP/AVP/TCP") && script.rtsp.interleaved {
            let taken = self.session.as_ref().map_or(0, |session| session.transports.len()) as u8;
            let asked = range("interleaved=").map_or(2 * taken, |(first, _)| first as u8);
            let rtp = script.rtsp.first_channel.map_or(asked, |first| first + 2 * taken);
            let rtcp = rtp.wrapping_add(1);
            let text = format!("RTP/AVP/TCP;unicast;interleaved={rtp}-{rtcp}");
            return Some((Transport::Interleaved { rtp, rtcp }, text));
        }
        let udp = matches!(offer.split(';').next(), Some("RTP/AVP" | "RTP/AVP/UDP"));
        if !udp || offer.contains("multicast") || script.rtsp.udp == Udp::Refused {
            return None;
        }
        let client_ports = range("client_port=")?;
        let (local, peer) = (self.stream.local_addr().ok()?.ip(), self.stream.peer_addr().ok()?.ip());
        let pair = UdpPair::bind(local, peer, client_ports, script.rtsp.udp == Udp::Swallowed).ok()?;
        let ((rtp, rtcp), (client_rtp, client_rtcp)) = (pair.server_ports(), client_ports);
        let text = format!("RTP/AVP;unicast;client_port={client_rtp}-{client_rtcp};server_port={rtp}-{rtcp}");
        Some((Transport::Udp(pair), text))
    }

    /// 200 with the Session header, or 454 without a session.
    fn with_session<const N: usize>(&self, headers: [(&'static str, String); N]) -> Message {
        match &self.session {
            Some(session) => ok([("Session", session.id.clone())].into_iter().chain(headers)),
            None => reply(454, "Session Not Found"),
        }
    }

    fn start(&mut self, script: &Script, request: &Message) -> Outcome {
        let Some(session) = self.session.as_mut().filter(|session| session.player.is_none()) else {
            return Outcome::Reply(self.with_session([]));
        };
        let setup = Setup {
            connection: self.id,
            session: session.number,
            transports: session.transports.clone(),
            outlet: self.outlet.clone(),
            time: self.shared.time(),
            alive: session.alive.clone(),
            log: self.shared.log.clone(),
        };
        let player = Player::new(script, setup);
        let base = request.uri().split('?').next().unwrap_or_default().trim_end_matches('/');
        let mut message = self.with_session([("Range", "npt=0.000-".to_owned())]);
        let info = rtp_info(script, base, &player.truths());
        message.headers.extend(info.map(|value| ("RTP-Info".to_owned(), value)));
        Outcome::Play(message, Box::new(player))
    }

    fn play(&mut self, player: Player) -> io::Result<()> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let (sender, receiver) = channel();
        self.shared.register(sender.clone());
        let thread = std::thread::Builder::new().name("camera-player".into());
        session.player = Some((sender, thread.spawn(move || player.run(&receiver))?));
        Ok(())
    }
}

fn rtp_info(script: &Script, base: &str, truths: &[Truth]) -> Option<String> {
    let list = |timestamp: &dyn Fn(&Truth) -> u32| {
        let entry = |truth: &Truth| {
            let control = &script.streams[truth.stream].control;
            let url =
                if control.contains("{base}") { control.replace("{base}", base) } else { format!("{base}/{control}") };
            format!("url={url};seq={};rtptime={}", truth.sequence, timestamp(truth))
        };
        truths.iter().map(entry).collect::<Vec<_>>().join(",")
    };
    match &script.rtsp.rtp_info {
        RtpInfo::Honest => Some(list(&|truth| truth.timestamp)),
        RtpInfo::Missing => None,
        RtpInfo::Zero => Some(list(&|_| 0)),
        RtpInfo::Wrong(by) => Some(list(&|truth| truth.timestamp.wrapping_add(*by))),
        RtpInfo::Text(text) => Some(text.clone()),
    }
}

/// The longest wait that a script may ask for in one answer, so that a camera always ends.
pub const WAIT_MAX: Nanos = 600 * SECOND;

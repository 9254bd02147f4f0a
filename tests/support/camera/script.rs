//! The whole script of a camera: every oddity is a field with an honest default.

use super::super::timeline::{MS, Nanos, SECOND};
use super::auth::Auth;
use super::media::{Media, Recording};
use super::stream::{Line, Stream};
use std::net::{IpAddr, Ipv4Addr};

/// What the camera does. Start from [`Script::video`], [`Script::sound`] or [`Script::both`] and change fields.
#[derive(Debug, Clone)]
pub struct Script {
    /// Where it listens; the port is chosen by the camera.
    pub address: IpAddr,
    pub rtsp: Rtsp,
    pub sdp: Sdp,
    pub clock: Clock,
    pub streams: Vec<Stream>,
    pub network: Network,
    /// From the capture of a frame to its sending: what encoding takes. At least the length of a sound packet.
    pub delay: Nanos,
    /// A relay that waits for its own source: neither RTP nor RTCP for so long after PLAY.
    pub first_packet_after: Nanos,
    /// What happens at which time.
    pub events: Vec<Timed>,
}

impl Script {
    /// An honest camera with these media.
    pub fn of(media: impl IntoIterator<Item = Media>) -> Self {
        let streams = media.into_iter().enumerate();
        Self {
            address: Ipv4Addr::LOCALHOST.into(),
            rtsp: Rtsp::default(),
            sdp: Sdp::default(),
            clock: Clock::default(),
            streams: streams
                .map(|(index, media)| Stream { control: format!("trackID={index}"), ..Stream::new(media) })
                .collect(),
            network: Network::default(),
            delay: 40 * MS,
            first_packet_after: 0,
            events: Vec::new(),
        }
    }

    /// An honest camera with H.264 video.
    pub fn video() -> Self {
        Self::of([Media::H264(Recording::Small)])
    }

    /// An honest microphone with µ-law sound.
    pub fn sound() -> Self {
        Self::of([Media::Pcmu])
    }

    /// An honest camera with H.264 video and µ-law sound.
    pub fn both() -> Self {
        Self::of([Media::H264(Recording::Small), Media::Pcmu])
    }

    /// Changes any fields.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Changes the same fields of every stream.
    pub fn each_stream(mut self, change: impl Fn(&mut Stream)) -> Self {
        self.streams.iter_mut().for_each(change);
        self
    }

    /// Lets something happen so long after the first packet of each session.
    pub fn at(mut self, after: Nanos, event: Event) -> Self {
        self.events.push(Timed { after, session: None, event });
        self
    }

    /// Lets something happen so long after the first packet of one session only: 0 is the first since the camera was
    /// made.
    pub fn in_session(mut self, session: u32, after: Nanos, event: Event) -> Self {
        self.events.push(Timed { after, session: Some(session), event });
        self
    }

    /// Answers a method in another way, always.
    pub fn answer(self, method: &'static str, answer: Answer) -> Self {
        self.answer_times(method, u32::MAX, answer)
    }

    /// Answers a method in another way the first so many times.
    pub fn answer_times(mut self, method: &'static str, times: u32, answer: Answer) -> Self {
        self.rtsp.answers.push(Rule { method, times, answer });
        self
    }
}

/// The control connection.
#[derive(Debug, Clone)]
pub struct Rtsp {
    /// The path of the stream, with its query if it has one. Any other is 404.
    pub path: String,
    /// Other answers than the usual ones; the first rule that fits and is not used up counts.
    pub answers: Vec<Rule>,
    pub auth: Option<Auth>,
    /// What the Session header says of the time-out.
    pub session_timeout: Nanos,
    /// Whether a session without a request that carries its Session header really ends after the time-out. The
    /// camera then stops sending and closes the connection.
    pub sessions_expire: bool,
    /// The header Content-Base of the answer to DESCRIBE.
    pub content_base: Line,
    /// The header RTP-Info of the answer to PLAY.
    pub rtp_info: RtpInfo,
    pub udp: Udp,
    /// Whether RTP may travel in the RTSP connection; otherwise 461.
    pub interleaved: bool,
    /// The camera counts interleaved channels from here and not as the client asked.
    pub first_channel: Option<u8>,
    /// More headers for every answer.
    pub headers: Vec<(String, String)>,
}

impl Default for Rtsp {
    fn default() -> Self {
        Self {
            path: "/live".into(),
            answers: Vec::new(),
            auth: None,
            session_timeout: 60 * SECOND,
            sessions_expire: false,
            content_base: Line::Honest,
            rtp_info: RtpInfo::Honest,
            udp: Udp::Works,
            interleaved: true,
            first_channel: None,
            headers: Vec::new(),
        }
    }
}

/// When a method is answered in another way.
#[derive(Debug, Clone)]
pub struct Rule {
    pub method: &'static str,
    /// How often; then the next rule counts, or the usual answer.
    pub times: u32,
    pub answer: Answer,
}

/// An answer other than the usual one.
#[derive(Debug, Clone)]
pub enum Answer {
    /// None at all. The connection stays open.
    Never,
    /// The usual one, but so much later.
    After(Nanos),
    /// A bare status, as `404 Not Found`.
    Status(u16, &'static str),
    /// 302 to this URL.
    Redirect(String),
    /// 454, unless the request carries the right Session header.
    NeedsSession,
    /// The camera closes the connection instead.
    Close,
    /// These bytes instead.
    Raw(Vec<u8>),
}

/// The header RTP-Info (RFC 2326, section 12.33).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RtpInfo {
    /// The first sequence number and timestamp of each stream.
    Honest,
    Missing,
    /// `rtptime=0`, whatever the timestamps are.
    Zero,
    /// Timestamps that are wrong by so many ticks.
    Wrong(u32),
    Text(String),
}

/// RTP over UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Udp {
    Works,
    /// SETUP is answered, but no packet arrives: a firewall.
    Swallowed,
    /// 461 Unsupported Transport.
    Refused,
}

/// The session description.
#[derive(Debug, Clone)]
pub struct Sdp {
    /// The value of the session's own `a=control:`; `{base}` as in [`Stream::control`].
    pub control: Option<String>,
    /// Gives SSRC and CNAME of each stream as `a=ssrc:… cname:` (RFC 5576). The streams need a fixed SSRC.
    pub ssrc_cname: bool,
    /// Lines for the session part, without line ends: `a=ts-refclk:…` and the like.
    pub session_lines: Vec<String>,
    /// What ends a line.
    pub newline: &'static str,
    /// Text to send instead of all this.
    pub text: Option<String>,
    /// A last change to the text.
    pub edit: Option<fn(String) -> String>,
}

impl Default for Sdp {
    fn default() -> Self {
        Self {
            control: Some("*".into()),
            ssrc_cname: false,
            session_lines: Vec::new(),
            newline: "\r\n",
            text: None,
            edit: None,
        }
    }
}

/// The camera's clock, which stamps its frames. Right (UTC as the host knows it) unless told otherwise.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    /// How far it is ahead of UTC.
    pub offset: Nanos,
    /// How much faster than UTC it runs from the start of the camera on, ppm.
    pub ppm: f64,
}

/// What the network does to packets. Faults are drawn by `seed`, the same in each session.
#[derive(Debug, Clone, Default)]
pub struct Network {
    pub seed: u64,
    /// The share of RTP packets that is lost, 0 to 1.
    pub loss: f64,
    /// The share of RTP packets that comes after its successors, 0 to 1.
    pub reorder: f64,
    /// Each packet is held for a random time up to this. Packets may overtake each other.
    pub jitter: Nanos,
    /// Everything is held and let go together, so often.
    pub burst: Option<Nanos>,
}

/// An event with its time after the first packet of a session, which comes up to half a second after PLAY.
#[derive(Debug, Clone)]
pub struct Timed {
    pub after: Nanos,
    /// In this session only.
    pub session: Option<u32>,
    pub event: Event,
}

/// What can happen while a session plays.
#[derive(Debug, Clone)]
pub enum Event {
    /// Not a packet more, on an open connection.
    Silence,
    /// The end of a silence, in live time: what was captured meanwhile is not sent.
    Resume,
    /// The camera closes the control connection, and with it the session.
    CloseTcp,
    /// RTCP BYE for every stream, then silence.
    Bye,
    /// Another source takes over (new SSRC, sequence numbers and timestamps), with or without a BYE for the old one.
    ChangeSource { bye: bool },
    /// The camera's clock steps by so much (for this session).
    StepClock(Nanos),
    /// RTP timestamps go on from this value, with the same SSRC.
    RestartTimestamps(u32),
    /// The next frame alone has a timestamp that is off by so many ticks.
    OutlierTimestamp(i32),
    /// Sequence numbers go on so much higher.
    JumpSequence(u16),
    /// The video goes on with another recording.
    Switch(Recording),
    /// A `$` frame with a well-formed RTP packet on a channel that was never set up.
    StrayFrame { channel: u8 },
    /// An RTCP packet as it is, to every stream.
    Rtcp(Vec<u8>),
    /// Any change to the streams' scripts, called with the place of each in the script. What was fixed at PLAY (SSRC,
    /// first numbers) stays.
    Change(fn(usize, &mut Stream)),
}

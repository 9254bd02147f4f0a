//! What goes into the engine and what comes out.

use super::error::EngineError;
use super::stats::ErrorSummary;
use super::url::{Credentials, StreamUrl};
use super::verdict::Verdict;
use crate::clock::{ClockSpec, NtpTime};
use std::path::PathBuf;
use std::time::Duration;

/// How the picture is shown.
#[derive(Debug, Clone, Default)]
pub enum VideoOutput {
    /// Not at all.
    Off,
    /// Not shown; a stream without sound is decoded into a clocked sink all the same, so that its sync can be watched.
    #[default]
    Watched,
    /// By a GStreamer element or bin, described as for `gst-launch-1.0`.
    Described(String),
    /// By a sink that a front end made. It gets each frame when it is due, after the clock wait of our own sink, and
    /// has to show it at once.
    Sink(gst::Element),
}

/// How the sound is played.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AudioOutput {
    /// Not at all.
    Off,
    /// By a backend, on the named device or the default one.
    On { backend: AudioBackend, device: Option<String> },
}

/// What plays the sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum AudioBackend {
    /// The steered output where PipeWire runs, else a stock sink
    #[default]
    Auto,
    /// The steered output on PipeWire: follows the shared clock to the microsecond
    Pipewire,
    /// A stock sink of GStreamer: some milliseconds off
    Stock,
}

/// What to do when synchronization cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum SyncPolicy {
    /// Play without it, and say so
    #[default]
    Auto,
    /// End with an error
    Strict,
    /// Do not even try
    Off,
}

/// How RTP comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Transport {
    /// UDP, then UDP multicast, then TCP: the first that works
    #[default]
    Auto,
    /// Unicast UDP
    Udp,
    /// Interleaved in the RTSP connection
    Tcp,
    /// UDP multicast
    Multicast,
}

/// Everything that a room needs to know to start.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    pub url: StreamUrl,
    /// Instead of those in the address.
    pub credentials: Option<Credentials>,
    pub clock: ClockSpec,
    /// How long to wait for the clock before playing without it (or ending, when sync is strict).
    pub clock_timeout: Duration,
    pub sync: SyncPolicy,
    /// The playout latency that all receivers agree on.
    pub latency: Duration,
    /// How long the jitterbuffer waits for a missing packet.
    pub jitter: Duration,
    /// This room's own delay, ns: moves sound and picture.
    pub room_delay_ns: i64,
    /// What the audio device adds without saying so, ns: moves the sound only, to earlier.
    pub output_latency_ns: i64,
    pub transport: Transport,
    pub video: VideoOutput,
    pub audio: AudioOutput,
    /// 0 to 1 as people hear it (the cubic scale of GstStreamVolume).
    pub volume: f64,
    /// How often to try again after a failure; `None`: endless, but an address that looks wrong at the start ends it.
    pub retries: Option<u32>,
    /// Where to log each frame that is presented.
    pub frame_log: Option<PathBuf>,
}

/// What can be asked of a running engine.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// 0 to 1, cubic.
    SetVolume(f64),
    SetMute(bool),
    /// This room's own delay, ns.
    SetDelay(i64),
    /// What the audio device adds without saying so, ns.
    SetOutputLatency(i64),
    /// Another audio device; `None` for the default one.
    SetDevice(Option<String>),
    /// Drop the connection and make a new one.
    Reconnect,
    /// End. The engine answers with [`EngineEvent::End`].
    Quit,
}

/// What happens in the engine.
#[derive(Debug, Clone, PartialEq)]
pub enum EngineEvent {
    /// Once a second while the engine lives, and at once when the verdict changes. Only the latest is kept for a
    /// consumer that is slow.
    Status(Box<Status>),
    /// The verdict changed. Never lost.
    Verdict(Verdict),
    /// Something that a person may want to know. Never lost.
    Notice(Notice),
    /// The engine has ended: the last event. Never lost.
    End(Result<(), EngineError>),
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// A connection is being made; the number counts from 1 since the stream last played.
    Connecting { attempt: u32 },
    /// The first frame of a connection was presented.
    Playing { transport: Option<String> },
    /// The connection is gone; the next try comes after the pause.
    Lost { why: EngineError, retry_in: Duration },
    /// The clock has synchronized.
    ClockSynced,
    /// The clock cannot be had yet; playing without it.
    ClockUnreachable(String),
    /// Something about the audio device.
    Device(String),
    /// Something about the sender's clock or packets: a code that is stable across versions, and words.
    Sender { code: &'static str, text: String },
    /// A part of the stream is not played.
    Skipped { media: String, missing: String },
    /// Anything else worth a line.
    Warning(String),
}

impl Notice {
    /// The code in the `event` lines, stable across versions.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Connecting { .. } => "connecting",
            Self::Playing { .. } => "playing",
            Self::Lost { .. } => "lost",
            Self::ClockSynced => "clock_synced",
            Self::ClockUnreachable(_) => "clock_unreachable",
            Self::Device(_) => "device",
            Self::Sender { .. } => "sender",
            Self::Skipped { .. } => "skipped",
            Self::Warning(_) => "warning",
        }
    }

    /// A sentence for people.
    pub fn text(&self) -> String {
        match self {
            Self::Connecting { attempt: 1 } => "connecting".into(),
            Self::Connecting { attempt } => format!("connecting, try {attempt}"),
            Self::Playing { transport: Some(transport) } => format!("playing over {transport}"),
            Self::Playing { transport: None } => "playing".into(),
            Self::Lost { why, retry_in } => format!("{why}; trying again in {:.2} s", retry_in.as_secs_f64()),
            Self::ClockSynced => "the shared clock is synchronized".into(),
            Self::ClockUnreachable(why) => format!("{why}; playing without it"),
            Self::Skipped { media, missing } => format!("{media} is not played: {missing} is not installed"),
            Self::Device(text) | Self::Warning(text) => text.clone(),
            Self::Sender { code, text } => format!("{text} ({code})"),
        }
    }
}

/// One stream in the status.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamStatus {
    pub verdict: Verdict,
    /// Frames since the engine started.
    pub frames: u64,
    pub with_sender_time: u64,
    pub late: u64,
    /// Of the last frame, ns since 1900.
    pub sender_time: Option<NtpTime>,
    /// Of the last second, ns; `None` when nothing was presented by the shared clock.
    pub error: Option<ErrorSummary>,
}

/// The audio output in the status.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OutputReport {
    /// Whether it follows the shared clock.
    pub steered: bool,
    /// The device's name; `None` while there is none, or when a stock sink plays.
    pub device: Option<String>,
    /// From the callback to the ear, as the device reports it, ns.
    pub latency_ns: Option<i64>,
    /// By how much the resampler plays faster (positive) than nominal, ppm.
    pub speed_ppm: Option<f64>,
    /// Jumps to the due position since the output was opened.
    pub reseeks: u64,
    /// How often the device missed a block.
    pub xruns: u64,
    /// How often the next samples were not there in time.
    pub underruns: u64,
}

/// Drift in ppm; `None` while unknown.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Drift {
    /// This host's CLOCK_MONOTONIC against the shared clock.
    pub system: Option<f64>,
    /// The sender's media clock (RTP) against its own reports.
    pub sender: Option<f64>,
    /// The audio device against the shared clock.
    pub device: Option<f64>,
}

/// The shared clock in the status.
#[derive(Debug, Clone, PartialEq)]
pub struct ClockReport {
    pub kind: &'static str,
    pub address: Option<String>,
    pub synced: bool,
    pub uncertainty: Option<Duration>,
    pub round_trip: Option<Duration>,
    pub rate_ppm: Option<f64>,
}

/// The network in the status: sums since the connection was made.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NetworkReport {
    /// `udp`, `udp-mcast` or `tcp`.
    pub transport: Option<String>,
    pub packets: u64,
    pub lost: u64,
    /// Came after the jitterbuffer had given them up.
    pub late: u64,
    pub duplicates: u64,
    /// Mean deviation of the arrival times (RFC 3550, section 6.4.1).
    pub jitter: Option<Duration>,
}

/// The state of a room.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// Since the engine started.
    pub uptime: Duration,
    pub verdict: Verdict,
    pub clock: ClockReport,
    pub audio: Option<StreamStatus>,
    pub video: Option<StreamStatus>,
    /// `None` when the room plays no sound.
    pub output: Option<OutputReport>,
    pub drift: Drift,
    pub network: NetworkReport,
    pub reconnects: u64,
    pub latency: Duration,
    /// By how much the latency could have been smaller in the last minute, ns; negative: it was too small.
    pub headroom_ns: Option<i64>,
}

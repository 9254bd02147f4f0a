//! The life of a room, on the engine's thread: clock, connection, watch, reconnection.

use super::audio::{self, DeviceNews, Heard, Opening, SteeredOutput};
use super::bus::{BusEvent, PLUGIN_HINT};
use super::drift::DriftEstimator;
use super::error::EngineError;
use super::event::*;
use super::frame_log::FrameLogWriter;
use super::pipeline::{Playback, Stats, described_sink, linear_volume};
use super::queue::EventSender;
use super::retry::{Backoff, Retry};
use super::stats::{ErrorSource, SlidingMinimum, StreamStats, StreamSummary};
use super::timing::PlayoutContract;
use super::verdict::*;
use crate::clock::{ClockSpec, SharedClock};
use gst::prelude::*;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// A status comes so often, and at once when the verdict changes.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// So often the engine looks after its connection.
const TICK: Duration = Duration::from_millis(50);
/// While acquiring, a verdict may be found on so many frames already.
const EARLY_FRAMES: u64 = 3;
/// Frames later than this are late: half a frame at 50 fps, far above the wake-up of a clock wait on a busy host.
const VIDEO_LATE_NS: i64 = 10_000_000;
/// The bound for a picture whose frame rate is not known.
const FRAME_DEFAULT: Duration = Duration::from_millis(40);
/// No packet for so long after the first one: the stream is dead (cameras that fall silent keep the connection open).
const SILENCE: Duration = Duration::from_secs(5);
/// No packet for so long after connecting; rtspsrc tries UDP for 5 s before TCP, relays need up to 10 s to start.
const FIRST_PACKET: Duration = Duration::from_secs(15);
/// How long the connection itself may take.
const CONNECT: Duration = Duration::from_secs(20);
/// How long a diagnosis of a failed connection may take.
const DIAGNOSIS: Duration = Duration::from_secs(2);
/// What decoding and the way to the sink take at most, for the headroom: GstBaseSink's `processing-deadline`.
const PROCESSING: Duration = Duration::from_millis(20);
/// So long a sound device may be away (it is being found, or comes back) before the verdict says so.
const DEVICE_PATIENCE: Duration = Duration::from_secs(3);
/// Under `strict`, sync must be there so long after the first frame was due.
const STRICT_DEADLINE: Duration = Duration::from_secs(10);

/// What the engine's thread waits for.
pub enum Input {
    Command(Command),
    /// From the bus of the connection with this number.
    Bus(u64, BusEvent),
    Resolved(Result<Vec<IpAddr>, String>),
}

/// Why a connection ended.
enum Outcome {
    Quit,
    /// Connect anew at once: asked for, or the clock has come.
    Renew,
    Failed(EngineError),
}

/// What the streams did in the last window, and the verdicts on them.
struct Judged {
    audio: Option<(StreamSummary, Verdict)>,
    video: Option<(StreamSummary, Verdict)>,
    room: Verdict,
    heard: Option<Heard>,
}

pub struct Room {
    config: EngineConfig,
    commands: mpsc::Sender<Input>,
    inputs: mpsc::Receiver<Input>,
    events: EventSender,
    thresholds: Thresholds,
    stats: Stats,
    clock: SharedClock,
    started: Instant,
    clock_told: bool,
    muted: bool,
    system_drift: DriftEstimator,
    /// The smallest slack of each second of the last minute.
    slack: SlidingMinimum,
    connection: u64,
    reconnects: u64,
    /// Whether the sender is this very host.
    same_host: bool,
    verdict: Verdict,
    window_started: Instant,
    sync_since: Option<Instant>,
    /// Whether the sound goes through the steered output; decided once.
    steer: bool,
    /// The steered output, and whether it follows the shared clock (or, without one, the host's).
    output: Option<(SteeredOutput, bool)>,
}

impl Room {
    pub fn new(
        config: EngineConfig,
        commands: mpsc::Sender<Input>,
        inputs: mpsc::Receiver<Input>,
        events: EventSender,
    ) -> Result<Self, EngineError> {
        let mut video_source = ErrorSource::Predicted;
        match &config.video {
            VideoOutput::Described(description) => drop(described_sink(description)?),
            VideoOutput::Watched | VideoOutput::Sink(_) => video_source = ErrorSource::Measured,
            VideoOutput::Off => {}
        }
        if matches!(config.video, VideoOutput::Off) && config.audio == AudioOutput::Off {
            return Err(EngineError::Usage(
                "neither sound nor picture is wanted: drop --no-audio or --no-video".into(),
            ));
        }
        let contract = PlayoutContract { latency: config.latency, room_delay_ns: config.room_delay_ns };
        let stats = Stats {
            audio: Arc::new(StreamStats::new(contract, ErrorSource::Predicted, Thresholds::default().audio_error_ns)),
            video: Arc::new(StreamStats::new(contract, video_source, VIDEO_LATE_NS)),
        };
        if let Some(path) = &config.frame_log {
            let writer = FrameLogWriter::create(path)?;
            stats.audio.set_log(writer.hook("audio"));
            stats.video.set_log(writer.hook("video"));
        }
        let clock = SharedClock::start(&config.clock)?;
        let now = Instant::now();
        Ok(Self {
            config,
            commands,
            inputs,
            events,
            thresholds: Thresholds::default(),
            stats,
            clock,
            started: now,
            clock_told: false,
            muted: false,
            system_drift: DriftEstimator::default(),
            slack: SlidingMinimum::default(),
            connection: 0,
            reconnects: 0,
            same_host: false,
            verdict: Verdict::Acquiring(Reason::Connecting),
            window_started: now,
            sync_since: None,
            steer: false,
            output: None,
        })
    }

    /// Chooses what plays the sound.
    fn choose_output(&mut self) {
        let AudioOutput::On { backend, device } = &self.config.audio else { return };
        // Names like hw:0 are ALSA's own, which only the stock sink plays to.
        let is_alsa = device.as_deref().is_some_and(super::pipeline::is_alsa_device);
        self.steer = match backend {
            AudioBackend::Stock => false,
            AudioBackend::Pipewire => true,
            AudioBackend::Auto if is_alsa => false,
            AudioBackend::Auto => match audio::probe() {
                Ok(()) => true,
                Err(why) => {
                    tracing::info!(%why, "the sound goes through a stock sink");
                    false
                }
            },
        };
    }

    /// Makes sure that the steered output is open on the clock of the next connection.
    fn open_output(&mut self, clock: &SharedClock, shared: bool) {
        let AudioOutput::On { device, .. } = &self.config.audio else { return };
        if !self.steer || self.output.as_ref().is_some_and(|(_, follows)| *follows == shared) {
            return;
        }
        self.output = None;
        let opening = Opening {
            device: device.clone(),
            latency: self.config.latency,
            room_delay_ns: self.config.room_delay_ns,
            output_latency_ns: self.config.output_latency_ns,
            volume: linear_volume(self.config.volume) as f32,
            muted: self.muted,
        };
        match SteeredOutput::open(&opening, clock) {
            Ok(output) => self.output = Some((output, shared)),
            Err(why) => {
                self.steer = false;
                self.events.send(EngineEvent::Notice(Notice::Warning(format!("{why}; the sound is not steered"))));
            }
        }
    }

    /// Tells what the sound device did.
    fn poll_output(&mut self, playback: Option<&Playback>) {
        let Some((output, _)) = &mut self.output else { return };
        if let Some(playback) = playback {
            output.trust(playback.monitor.is_trusted());
        }
        for news in output.poll() {
            match news {
                DeviceNews::Notice(text) => self.events.send(EngineEvent::Notice(Notice::Device(text))),
                DeviceNews::Latency => {
                    if let Some(playback) = playback {
                        playback.recalculate_latency();
                    }
                }
            }
        }
    }

    /// Carries out what does not end the connection; gives back what does.
    fn carry_out(&mut self, command: Command, playback: Option<&Playback>) -> Option<Command> {
        let output = self.output.as_ref().map(|(output, _)| output);
        match command {
            Command::SetVolume(volume) => {
                self.config.volume = volume.clamp(0.0, 1.0);
                if let Some(output) = output {
                    output.controls().set_volume(linear_volume(self.config.volume) as f32);
                }
                if let Some(playback) = playback {
                    playback.set_volume(self.config.volume);
                }
            }
            Command::SetMute(mute) => {
                self.muted = mute;
                if let Some(output) = output {
                    output.controls().set_muted(mute);
                }
                if let Some(playback) = playback {
                    playback.set_mute(mute);
                }
            }
            Command::SetDelay(delay_ns) => {
                self.config.room_delay_ns = delay_ns;
                let contract = PlayoutContract { latency: self.config.latency, room_delay_ns: delay_ns };
                self.stats.audio.set_contract(contract);
                self.stats.video.set_contract(contract);
                if let Some(output) = output {
                    output.controls().set_delay(delay_ns);
                }
                if let Some(playback) = playback {
                    playback.set_room_delay(delay_ns);
                }
            }
            Command::SetOutputLatency(latency_ns) => {
                self.config.output_latency_ns = latency_ns;
                if let Some(output) = output {
                    output.controls().set_output_latency(latency_ns);
                }
            }
            Command::SetDevice(wanted) => {
                if let AudioOutput::On { device, .. } = &mut self.config.audio {
                    *device = wanted.clone();
                }
                match output {
                    Some(output) => output.set_device(wanted),
                    // A stock sink gets its device when it is made.
                    None => return Some(Command::Reconnect),
                }
            }
            Command::Reconnect | Command::Quit => return Some(command),
        }
        None
    }

    /// Runs until asked to quit, or until something final happens.
    pub fn run(mut self) {
        let result = self.live();
        self.events.send(EngineEvent::End(result));
    }

    fn live(&mut self) -> Result<(), EngineError> {
        self.choose_output();
        let mut retry = Retry::new(Backoff::default(), self.config.retries);
        let mut attempt = 0;
        let mut ever_played = false;
        loop {
            attempt += 1;
            let frames_before = self.frames();
            let error = match self.connect_once(attempt) {
                Outcome::Quit => return Ok(()),
                Outcome::Renew => {
                    attempt = 0;
                    self.reconnects += 1;
                    continue;
                }
                Outcome::Failed(error) => error,
            };
            if self.frames() > frames_before {
                ever_played = true;
                attempt = 0;
                retry.succeeded();
            }
            if error.is_final() || (!ever_played && self.config.retries.is_none() && error.is_likely_final_at_start()) {
                return Err(error);
            }
            let Some(pause) = retry.failed() else { return Err(error) };
            self.events.send(EngineEvent::Notice(Notice::Lost { why: error, retry_in: pause }));
            self.reconnects += 1;
            if self
                .wait(Instant::now() + pause, None)
                .is_some_and(|input| matches!(input, Input::Command(Command::Quit)))
            {
                return Ok(());
            }
        }
    }

    fn frames(&self) -> u64 {
        self.stats.audio.frames() + self.stats.video.frames()
    }

    /// Waits for an input until `until`, sending a status each second meanwhile. Commands that do not concern the
    /// connection are carried out here; the others are returned.
    fn wait(&mut self, until: Instant, playback: Option<&Playback>) -> Option<Input> {
        loop {
            let now = Instant::now();
            if now >= until {
                return None;
            }
            if playback.is_none() && self.window_started.elapsed() >= STATUS_INTERVAL {
                self.window_started = now;
                let judged = self.verdict_now(None);
                self.tell_verdict(&judged.room);
                self.status(None, judged.room);
            }
            match self.inputs.recv_timeout((until - now).min(TICK)) {
                Ok(Input::Command(command)) => {
                    if let Some(command) = self.carry_out(command, playback) {
                        return Some(Input::Command(command));
                    }
                }
                Ok(input) => return Some(input),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    if playback.is_some() {
                        return None;
                    }
                }
                // The handle is gone: nobody listens any more.
                Err(mpsc::RecvTimeoutError::Disconnected) => return Some(Input::Command(Command::Quit)),
            }
        }
    }

    /// Waits for the clock as long as the user allows. `None`: it is not there; play without it.
    fn shared_clock(&mut self) -> Result<Option<gst::Clock>, Outcome> {
        if self.config.sync == SyncPolicy::Off {
            return Ok(None);
        }
        let deadline = self.started + self.config.clock_timeout;
        loop {
            if let Some(clock) = self.clock.gst() {
                if !std::mem::replace(&mut self.clock_told, true) {
                    self.events.send(EngineEvent::Notice(Notice::ClockSynced));
                }
                return Ok(Some(clock));
            }
            let now = Instant::now();
            if now >= deadline {
                let error = match self.clock.wait_for_sync(Duration::ZERO) {
                    Ok(clock) => return Ok(Some(clock)),
                    Err(crate::clock::ClockError::Unreachable { clock, .. }) => {
                        crate::clock::ClockError::Unreachable { clock, timeout: self.config.clock_timeout }
                    }
                    Err(error) => error,
                };
                if self.config.sync == SyncPolicy::Strict {
                    return Err(Outcome::Failed(EngineError::NoClock(error)));
                }
                if !std::mem::replace(&mut self.clock_told, true) {
                    self.events.send(EngineEvent::Notice(Notice::ClockUnreachable(error.to_string())));
                }
                return Ok(None);
            }
            // Short: the clock's coming is not an input, and the start shall not wait for a tick.
            if let Some(Input::Command(Command::Quit)) = self.wait(deadline.min(now + Duration::from_millis(5)), None) {
                return Err(Outcome::Quit);
            }
        }
    }

    /// Finds out whether the host's name means anything, on another thread: a resolver may hang.
    fn resolve(&mut self) -> Result<(), Outcome> {
        let host = self.config.url.host().to_owned();
        let port = self.config.url.port();
        let reply = self.commands.clone();
        let (name, failed) =
            (host.clone(), |why: String| Outcome::Failed(EngineError::Unresolvable { host: host.clone(), why }));
        let spawned = std::thread::Builder::new().name("resolve".into()).spawn(move || {
            let found = (name.as_str(), port).to_socket_addrs().map_err(|error| {
                let text = error.to_string();
                // "failed to lookup address information: …" says nothing more than the sentence around it.
                text.rsplit(": ").next().unwrap_or(&text).to_owned()
            });
            let _ = reply.send(Input::Resolved(found.map(|found| found.map(|address| address.ip()).collect())));
        });
        if let Err(error) = spawned {
            return Err(failed(error.to_string()));
        }
        let deadline = Instant::now() + CONNECT;
        loop {
            match self.wait(deadline, None) {
                Some(Input::Resolved(Ok(addresses))) if !addresses.is_empty() => {
                    self.same_host = addresses.iter().any(is_this_host);
                    return Ok(());
                }
                Some(Input::Resolved(Ok(_))) => return Err(failed("it has no address".into())),
                Some(Input::Resolved(Err(why))) => return Err(failed(why)),
                Some(Input::Command(Command::Quit)) => return Err(Outcome::Quit),
                Some(_) => {}
                None => return Err(failed("the name service does not answer".into())),
            }
        }
    }

    fn connect_once(&mut self, attempt: u32) -> Outcome {
        if let Err(outcome) = self.resolve() {
            return outcome;
        }
        let shared = match self.shared_clock() {
            Ok(shared) => shared,
            Err(outcome) => return outcome,
        };
        self.events.send(EngineEvent::Notice(Notice::Connecting { attempt }));
        let sync = shared.is_some();
        // Without the shared clock one of the NTP epoch all the same, so that the sender's time can be shown.
        let source = match sync {
            true => self.clock.clone(),
            false => match SharedClock::start(&ClockSpec::System) {
                Ok(clock) => clock,
                Err(error) => return Outcome::Failed(error.into()),
            },
        };
        let Some(clock) = shared.or_else(|| source.gst()) else {
            return Outcome::Failed(EngineError::Internal("there is no system clock".into()));
        };
        self.open_output(&source, sync);
        self.connection += 1;
        let (number, inputs) = (self.connection, self.commands.clone());
        let playback = Playback::start(
            &self.config,
            &clock,
            sync,
            &self.stats,
            self.output.as_ref().map(|(output, _)| output),
            self.muted,
            move |event| {
                let _ = inputs.send(Input::Bus(number, event));
            },
        );
        let playback = match playback {
            Ok(playback) => playback,
            Err(error) => return Outcome::Failed(error),
        };
        let outcome = self.watch(&playback, sync);
        drop(playback);
        match outcome {
            Outcome::Failed(EngineError::Connect { address, why }) => {
                Outcome::Failed(EngineError::Connect { address, why: self.diagnose().unwrap_or(why) })
            }
            outcome => outcome,
        }
    }

    /// Watches a connection until it ends.
    fn watch(&mut self, playback: &Playback, sync: bool) -> Outcome {
        let connected_at = Instant::now();
        let frames_before = self.frames();
        let (mut told_playing, mut told_skipped, mut told_silent) = (false, 0, false);
        let mut missing: Option<String> = None;
        self.discard_window();
        loop {
            self.poll_output(Some(playback));
            for finding in playback.monitor.take_findings() {
                let (code, text) = (finding.code.name(), finding.text);
                self.events.send(EngineEvent::Notice(Notice::Sender { code, text }));
            }
            match self.wait(Instant::now() + TICK, Some(playback)) {
                Some(Input::Command(Command::Quit)) => return Outcome::Quit,
                Some(Input::Command(Command::Reconnect)) => return Outcome::Renew,
                Some(Input::Bus(number, event)) if number == self.connection => match event {
                    BusEvent::Eos if self.frames() == frames_before && playback.plan().selected == 0 => {
                        return Outcome::Failed(self.nothing_to_play(playback));
                    }
                    BusEvent::Eos => return Outcome::Failed(EngineError::Lost("the sender ended the stream".into())),
                    BusEvent::Error(error) => return Outcome::Failed(self.explain(playback, error, missing)),
                    BusEvent::MissingPlugin(name) => {
                        let text = format!("{name} is not installed ({PLUGIN_HINT})");
                        self.events.send(EngineEvent::Notice(Notice::Warning(text)));
                        missing = Some(name);
                    }
                    BusEvent::Dropped => self.stats.video.record_dropped(),
                    BusEvent::Warning(text) => tracing::info!(%text, "warning of the pipeline"),
                    BusEvent::Playing => tracing::debug!("the pipeline plays"),
                },
                _ => {}
            }
            let plan = playback.plan();
            for (media, missing) in plan.skipped.iter().skip(told_skipped) {
                self.events
                    .send(EngineEvent::Notice(Notice::Skipped { media: media.clone(), missing: missing.clone() }));
            }
            told_skipped = plan.skipped.len();
            if !told_playing && self.frames() > frames_before {
                told_playing = true;
                let transport = playback.monitor.transport();
                self.events.send(EngineEvent::Notice(Notice::Playing { transport }));
            }
            if !told_silent && told_playing && playback.has_stream(true) && playback.sound_goes_nowhere() {
                told_silent = true;
                let text = "no sound system could be opened: playing without sound".to_owned();
                self.events.send(EngineEvent::Notice(Notice::Warning(text)));
            }
            self.judge(playback, sync);
            if let Some(outcome) = self.check_deadlines(playback, connected_at, sync) {
                return outcome;
            }
        }
    }

    /// Silence, a clock that came after all, and the deadlines of `strict`.
    fn check_deadlines(&mut self, playback: &Playback, connected_at: Instant, sync: bool) -> Option<Outcome> {
        let lost = |why: &str| Some(Outcome::Failed(EngineError::Lost(why.to_owned())));
        match playback.monitor.since_last_packet() {
            Some(silent) if silent > SILENCE => {
                return lost(&format!("no packet for {} s", SILENCE.as_secs()));
            }
            None if playback.plan().selected > 0 && connected_at.elapsed() > FIRST_PACKET => {
                return lost(&format!("no packet within {} s", FIRST_PACKET.as_secs()));
            }
            None if connected_at.elapsed() > CONNECT => {
                let (address, why) = (self.config.url.to_string(), "the server does not answer".to_owned());
                return Some(Outcome::Failed(EngineError::Connect { address, why }));
            }
            _ => {}
        }
        if !sync && self.config.sync != SyncPolicy::Off && self.clock.gst().is_some() {
            self.clock_told = false;
            return Some(Outcome::Renew);
        }
        if self.config.sync == SyncPolicy::Strict {
            match &self.verdict {
                Verdict::Unsynced(_) | Verdict::Acquiring(_) => {}
                _ => {
                    self.sync_since.get_or_insert_with(Instant::now);
                }
            }
            let deadline = STRICT_DEADLINE + self.config.latency;
            let in_vain = playback.monitor.since_first_packet().is_some_and(|since| since > deadline);
            if self.sync_since.is_none() && in_vain {
                let why = self.verdict.reason().map(Reason::text).unwrap_or_default();
                return Some(Outcome::Failed(EngineError::NoSync { seconds: deadline.as_secs(), why }));
            }
        }
        None
    }

    /// A clearer error, now that more is known.
    fn explain(&self, playback: &Playback, error: EngineError, missing: Option<String>) -> EngineError {
        match (error, missing) {
            (EngineError::MissingPlugin { .. } | EngineError::Stream(_), Some(missing)) => {
                EngineError::MissingPlugin { missing, hint: PLUGIN_HINT.into() }
            }
            (error @ (EngineError::Stream(_) | EngineError::Lost(_) | EngineError::MissingPlugin { .. }), None)
                if playback.plan().selected == 0 && playback.plan().audio + playback.plan().video > 0 =>
            {
                tracing::debug!(%error, "nothing was selected");
                self.nothing_to_play(playback)
            }
            (error, _) => error,
        }
    }

    fn nothing_to_play(&self, playback: &Playback) -> EngineError {
        let plan = playback.plan();
        match plan.skipped.first() {
            Some((_, missing)) => EngineError::MissingPlugin { missing: missing.clone(), hint: PLUGIN_HINT.into() },
            None => EngineError::NothingToPlay { location: self.config.url.to_string(), offered: plan.offered() },
        }
    }

    /// Why a connection failed, in the operating system's words.
    fn diagnose(&self) -> Option<String> {
        let url = &self.config.url;
        let addresses: Vec<SocketAddr> = (url.host(), url.port()).to_socket_addrs().ok()?.collect();
        let mut why = None;
        for address in addresses.iter().take(2) {
            match TcpStream::connect_timeout(address, DIAGNOSIS) {
                Ok(_) => return None,
                Err(error) => why = Some(describe_io(&error)),
            }
        }
        why
    }

    /// Judges the last window when it is over, or early while there is no good verdict yet.
    fn judge(&mut self, playback: &Playback, sync: bool) {
        let over = self.window_started.elapsed() >= STATUS_INTERVAL;
        let good = matches!(self.verdict, Verdict::Synced | Verdict::Approximate(_) | Verdict::Holdover);
        if !over && (good || !self.early_frames_are_there(playback)) {
            return;
        }
        let previous = self.verdict.clone();
        let judged = self.verdict_now(Some((playback, sync)));
        // A short window has the right to tell that sync is there, not that it is lost.
        if !over && !matches!(judged.room, Verdict::Synced | Verdict::Approximate(_) | Verdict::Holdover) {
            return;
        }
        self.window_started = Instant::now();
        self.follow_system_clock();
        if let Some(transit) = playback.monitor.take_transit() {
            let latency = self.config.latency.as_nanos() as i64 + self.config.room_delay_ns;
            self.slack.push(Some(latency - transit - PROCESSING.as_nanos() as i64));
        } else {
            self.slack.push(None);
        }
        self.tell_verdict(&judged.room);
        if over || !judged.room.same_kind(&previous) {
            self.status(Some((playback, &judged)), judged.room.clone());
        }
    }

    fn early_frames_are_there(&self, playback: &Playback) -> bool {
        let enough = |stats: &StreamStats, audio| !playback.has_stream(audio) || stats.pending() >= EARLY_FRAMES;
        (playback.has_stream(true) || playback.has_stream(false))
            && enough(&self.stats.audio, true)
            && enough(&self.stats.video, false)
    }

    fn discard_window(&mut self) {
        self.stats.audio.take_summary();
        self.stats.video.take_summary();
        self.window_started = Instant::now();
    }

    fn follow_system_clock(&mut self) {
        if let Some(clock) = self.clock.gst() {
            let local = crate::clock::monotonic_ns();
            self.system_drift.add(clock.time().nseconds().into(), local.into());
        }
    }

    fn clock_state(&self) -> ClockState {
        if self.clock.gst().is_none() {
            return if self.started.elapsed() < self.config.clock_timeout {
                ClockState::Waiting(self.started.elapsed())
            } else {
                ClockState::Unreachable
            };
        }
        let status = self.clock.status();
        let undisciplined = status.disciplined == Some(false) && !self.same_host;
        // Sender and receiver on one host read the same clock.
        let uncertainty = if status.disciplined.is_some() && self.same_host { None } else { status.uncertainty };
        ClockState::Synced { uncertainty, silent_for: status.last_answer, undisciplined }
    }

    fn verdict_now(&mut self, playback: Option<(&Playback, bool)>) -> Judged {
        let room = RoomState {
            sync: self.config.sync != SyncPolicy::Off,
            clock: match playback {
                // The clock may have come, but this connection does not follow it.
                Some((_, false)) if self.config.sync != SyncPolicy::Off => ClockState::Unreachable,
                _ => self.clock_state(),
            },
            connected: playback.is_some_and(|(playback, _)| playback.monitor.since_first_packet().is_some()),
            sender: playback
                .map_or(SenderState::Silent(Duration::ZERO), |(playback, _)| playback.monitor.sender_state()),
        };
        let Some((playback, _)) = playback else {
            let verdict = judge_room(&room, &[], &self.thresholds);
            return Judged { audio: None, video: None, room: verdict, heard: None };
        };
        let heard = self.output.as_mut().map(|(output, _)| output.heard());
        let audio = playback.has_stream(true).then(|| {
            let mut summary = self.stats.audio.take_summary();
            let bound_ns = self.thresholds.audio_error_ns;
            let state = match (&self.output, heard) {
                (Some((output, _)), Some(heard)) => {
                    summary.error = heard.error;
                    StreamState {
                        watch: Watch::Measured,
                        bound_ns,
                        locking: output.locking(),
                        no_output: output.no_output(DEVICE_PATIENCE),
                        ..self.stream_state(&summary)
                    }
                }
                _ => StreamState {
                    watch: Watch::Unsteered,
                    bound_ns,
                    no_output: playback.sound_goes_nowhere().then(|| "no sound system could be opened".to_owned()),
                    ..self.stream_state(&summary)
                },
            };
            (summary, judge_stream(&room, &state, &self.thresholds))
        });
        let video = playback.has_stream(false).then(|| {
            let summary = self.stats.video.take_summary();
            let frame = playback.frame_interval().unwrap_or(FRAME_DEFAULT);
            let state = StreamState {
                watch: match self.stats.video.source() {
                    ErrorSource::Measured => Watch::Measured,
                    ErrorSource::Predicted => Watch::Predicted,
                },
                bound_ns: frame.as_nanos() as i64,
                ..self.stream_state(&summary)
            };
            (summary, judge_stream(&room, &state, &self.thresholds))
        });
        let verdicts: Vec<Verdict> =
            [&audio, &video].into_iter().flatten().map(|(_, verdict)| verdict.clone()).collect();
        let room = judge_room(&room, &verdicts, &self.thresholds);
        Judged { audio, video, room, heard }
    }

    fn stream_state(&self, summary: &StreamSummary) -> StreamState {
        StreamState {
            watch: Watch::Predicted,
            frames: summary.frames_now,
            with_sender_time: summary.with_sender_time_now,
            late: summary.late_now,
            error_ns: summary.error.map(|error| error.p50),
            bound_ns: 0,
            needed_latency: self.needed_latency(summary),
            locking: None,
            no_output: None,
        }
    }

    /// What the latency would have had to be, with a fifth more for what is still to come.
    fn needed_latency(&self, summary: &StreamSummary) -> Option<Duration> {
        let late_by = summary.error.map(|error| error.max)?;
        let short = self.slack.smallest().map_or(late_by, |slack| late_by.max(-slack));
        let short = Duration::from_nanos(u64::try_from(short).unwrap_or(0));
        let needed = (self.config.latency + short).mul_f64(1.2);
        // In steps of 50 ms: a figure to type.
        Some(Duration::from_millis(u64::try_from(needed.as_millis()).unwrap_or(u64::MAX).div_ceil(50) * 50))
    }

    fn tell_verdict(&mut self, verdict: &Verdict) {
        if !verdict.same_kind(&self.verdict) {
            self.events.send(EngineEvent::Verdict(verdict.clone()));
        }
        self.verdict = verdict.clone();
    }

    fn status(&self, playback: Option<(&Playback, &Judged)>, verdict: Verdict) {
        let clock = self.clock.status();
        let sync = !matches!(verdict, Verdict::Unsynced(Reason::SyncOff | Reason::ClockUnreachable));
        let stream = |judged: &Option<(StreamSummary, Verdict)>| {
            judged.as_ref().map(|(summary, verdict)| StreamStatus {
                verdict: verdict.clone(),
                frames: summary.frames,
                with_sender_time: summary.with_sender_time,
                late: summary.late,
                sender_time: summary.sender_time.filter(|_| summary.with_sender_time_now > 0),
                // On another clock the difference is no presentation error.
                error: summary
                    .error
                    .filter(|_| sync && !matches!(verdict, Verdict::Unsynced(Reason::SenderClockDiffers { .. }))),
            })
        };
        let mut system_drift = self.system_drift.clone();
        let network = playback.map_or_else(NetworkReport::default, |(playback, _)| {
            let counters = playback.jitter_counters();
            NetworkReport {
                transport: playback.monitor.transport(),
                packets: counters.packets,
                lost: counters.lost,
                late: counters.late,
                duplicates: counters.duplicates,
                jitter: Some(Duration::from_nanos(counters.jitter_ns)),
            }
        });
        let output = (self.config.audio != AudioOutput::Off).then(|| {
            let heard = playback.and_then(|(_, judged)| judged.heard);
            OutputReport {
                steered: self.output.is_some(),
                device: self.output.as_ref().and_then(|(output, _)| output.device().map(str::to_owned)),
                latency_ns: heard.map(|heard| heard.device_latency_ns),
                speed_ppm: heard.map(|heard| heard.stats.speed_offset * 1e6),
                reseeks: heard.map_or(0, |heard| heard.stats.reseeks),
                xruns: heard.map_or(0, |heard| heard.counters.xruns),
                underruns: heard.map_or(0, |heard| heard.stats.underruns),
            }
        });
        let device_drift = playback
            .and_then(|(_, judged)| judged.heard)
            .filter(|heard| heard.stats.settled)
            .map(|heard| heard.stats.device_drift * 1e6);
        self.events.send(EngineEvent::Status(Box::new(Status {
            uptime: self.started.elapsed(),
            verdict,
            clock: ClockReport {
                kind: self.config.clock.kind(),
                address: self.config.clock.address(),
                synced: clock.synced,
                uncertainty: clock.uncertainty.filter(|_| clock.disciplined.is_none() || !self.same_host),
                round_trip: clock.round_trip,
                rate_ppm: clock.rate_ppm,
            },
            audio: playback.and_then(|(_, judged)| stream(&judged.audio)),
            video: playback.and_then(|(_, judged)| stream(&judged.video)),
            output,
            drift: Drift {
                system: system_drift.ppm(),
                sender: playback.and_then(|(playback, _)| playback.monitor.sender_drift_ppm()),
                device: device_drift,
            },
            network,
            reconnects: self.reconnects,
            latency: self.config.latency,
            headroom_ns: self.slack.smallest(),
        })));
    }
}

/// Whether an address is one of this host's own.
fn is_this_host(address: &IpAddr) -> bool {
    // Only an own address can be bound.
    address.is_loopback() || (!address.is_unspecified() && std::net::UdpSocket::bind((*address, 0)).is_ok())
}

/// An error of the operating system, with what to look for.
fn describe_io(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused: is the server running, and on this port?".into(),
        std::io::ErrorKind::TimedOut => "no answer: is the host on, and does a firewall let the port through?".into(),
        std::io::ErrorKind::HostUnreachable | std::io::ErrorKind::NetworkUnreachable => {
            "the host cannot be reached: is it on, and in this network?".into()
        }
        _ => error.to_string(),
    }
}

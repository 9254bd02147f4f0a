//! Whether this room is in sync, and why not: a pure function of what is known.

use std::time::Duration;

/// Why a room is not simply in sync. Each has a stable code for programs and a sentence for people.
#[derive(Debug, Clone, PartialEq)]
pub enum Reason {
    /// Sync was switched off by the user.
    SyncOff,
    /// The shared clock has not answered.
    ClockUnreachable,
    /// Still waiting for the shared clock.
    WaitingForClock,
    /// The shared clock no longer answers and its drift since then is too large.
    ClockLost,
    /// The clock is known to some milliseconds only.
    ClockUncertain(Duration),
    /// The host's own time service does not say that it is synchronized, and the sender is another host.
    ClockNotDisciplined,
    /// Not connected to the sender.
    Connecting,
    /// Connected, no frame presented yet.
    WaitingForFrames,
    /// Waiting for the first sender report.
    WaitingForReports,
    /// The sender says nothing about its clock.
    NoSenderReports,
    /// The sender's reports make no sense.
    ImplausibleReports(String),
    /// The sender's clock is another one: it differs by so many ns.
    SenderClockDiffers { offset_ns: i64, text: String },
    /// Frames come after their presentation time; so much latency is needed.
    LateFrames { needed: Duration },
    /// The presentation error is above the bound, ns.
    PresentationError { error_ns: i64, bound_ns: i64 },
    /// The error is only predicted, since the sink cannot be watched after its clock wait.
    Predicted,
    /// The sound goes through a sink that does not follow the shared clock.
    AudioUnsteered,
    /// The steered output is still locking.
    WaitingForServo,
    /// There is no sound output.
    NoAudioOutput(String),
}

impl Reason {
    /// The code in the status, stable across versions.
    pub fn code(&self) -> &'static str {
        match self {
            Self::SyncOff => "sync_off",
            Self::ClockUnreachable => "clock_unreachable",
            Self::WaitingForClock => "waiting_for_clock",
            Self::ClockLost => "clock_lost",
            Self::ClockUncertain(_) => "clock_uncertain",
            Self::ClockNotDisciplined => "clock_not_disciplined",
            Self::Connecting => "connecting",
            Self::WaitingForFrames => "waiting_for_frames",
            Self::WaitingForReports => "waiting_for_reports",
            Self::NoSenderReports => "no_sender_reports",
            Self::ImplausibleReports(_) => "implausible_reports",
            Self::SenderClockDiffers { .. } => "sender_clock_differs",
            Self::LateFrames { .. } => "late_frames",
            Self::PresentationError { .. } => "presentation_error",
            Self::Predicted => "error_predicted",
            Self::AudioUnsteered => "audio_unsteered",
            Self::WaitingForServo => "waiting_for_servo",
            Self::NoAudioOutput(_) => "no_audio_output",
        }
    }

    /// One sentence with cause and remedy, in English.
    pub fn text(&self) -> String {
        match self {
            Self::SyncOff => "synchronization is switched off (--sync off)".into(),
            Self::ClockUnreachable => {
                "the shared clock does not answer: check --clock and that UDP reaches the time server; \
                 playing without it"
                    .into()
            }
            Self::WaitingForClock => "waiting for the shared clock".into(),
            Self::ClockLost => "the shared clock stopped answering: check the time server and the network".into(),
            Self::ClockUncertain(uncertainty) => format!(
                "the shared clock is known to {:.1} ms only: a time server nearer in the network is more exact",
                uncertainty.as_secs_f64() * 1e3
            ),
            Self::ClockNotDisciplined => "this host's clock is not known to be synchronized: run a time service \
                 (chrony, systemd-timesyncd) or choose a --clock that the sender follows too"
                .into(),
            Self::Connecting => "connecting to the sender".into(),
            Self::WaitingForFrames => "waiting for the first frame".into(),
            Self::WaitingForReports => "waiting for the sender's first report of its clock".into(),
            Self::NoSenderReports => "the sender gives no clock (no RTCP sender reports, no ntp-64 header extension): \
                 enable RTCP or time stamps in the sender"
                .into(),
            Self::ImplausibleReports(why) => {
                format!("the sender's reports of its clock make no sense ({why}): check the sender's time setting")
            }
            Self::SenderClockDiffers { text, .. } => {
                format!("the sender uses another clock ({text}): let both follow the same time server")
            }
            Self::LateFrames { needed } => format!(
                "frames come too late for the latency: set --latency to at least {} ms in every room",
                needed.as_millis()
            ),
            Self::PresentationError { error_ns, bound_ns } => format!(
                "frames are presented {:.2} ms off, more than {:.2} ms",
                *error_ns as f64 * 1e-6,
                *bound_ns as f64 * 1e-6
            ),
            Self::Predicted => "the sink cannot be watched, so its timing is only predicted".into(),
            Self::AudioUnsteered => {
                "the sound goes through a sink that does not follow the shared clock: expect some milliseconds".into()
            }
            Self::WaitingForServo => "the audio output is locking to the shared clock".into(),
            Self::NoAudioOutput(why) => format!("no sound output ({why}): check the sound system, or use --no-audio"),
        }
    }
}

/// The verdict for a room or a stream, from good to bad.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    Synced,
    Approximate(Reason),
    Holdover,
    Acquiring(Reason),
    Unsynced(Reason),
}

impl Verdict {
    /// The word in the status.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Synced => "synced",
            Self::Approximate(_) => "approximate",
            Self::Holdover => "holdover",
            Self::Acquiring(_) => "acquiring",
            Self::Unsynced(_) => "unsynced",
        }
    }

    /// Why it is not better.
    pub fn reason(&self) -> Option<&Reason> {
        match self {
            Self::Synced | Self::Holdover => None,
            Self::Approximate(reason) | Self::Acquiring(reason) | Self::Unsynced(reason) => Some(reason),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Synced => 0,
            Self::Approximate(_) => 1,
            Self::Holdover => 2,
            Self::Acquiring(_) => 3,
            Self::Unsynced(_) => 4,
        }
    }

    /// The worse of two.
    fn worse(self, other: Self) -> Self {
        if other.rank() > self.rank() { other } else { self }
    }

    /// Whether two verdicts say the same to a person: the figures inside may differ.
    pub fn same_kind(&self, other: &Self) -> bool {
        self.name() == other.name() && self.reason().map(Reason::code) == other.reason().map(Reason::code)
    }
}

/// What decides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// A clock at most so uncertain is good enough for `synced`: below what ears and eyes notice between rooms.
    pub clock_synced: Duration,
    /// A clock at most so uncertain is good enough for `approximate`: still no echo.
    pub clock_approximate: Duration,
    /// `synced` needs a median audio error at most so large, ns.
    pub audio_error_ns: i64,
    /// For `holdover` the estimated error of the clock is at most so large.
    pub holdover: Duration,
    /// How long each of clock, report, and servo may take before `acquiring` ends.
    pub deadline: Duration,
    /// So long without an answer, the clock source counts as lost.
    pub clock_lost_after: Duration,
    /// By how much a clock that was left alone may drift, in ppm: what crystals do in a room once their rate is known.
    pub residual_drift_ppm: f64,
    /// So many frames of a second may be late before the verdict says it.
    pub late_share: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            clock_synced: Duration::from_millis(1),
            clock_approximate: Duration::from_millis(20),
            audio_error_ns: 1_000_000,
            holdover: Duration::from_millis(5),
            deadline: Duration::from_secs(10),
            clock_lost_after: Duration::from_secs(20),
            residual_drift_ppm: 5.0,
            late_share: 0.05,
        }
    }
}

/// What is known of the shared clock.
#[derive(Debug, Clone, PartialEq)]
pub enum ClockState {
    /// Not there yet, for so long.
    Waiting(Duration),
    /// Not there within its deadline.
    Unreachable,
    /// Followed.
    Synced {
        uncertainty: Option<Duration>,
        /// Since the source last answered; `None` for the host's own clock.
        silent_for: Option<Duration>,
        /// Whether nothing is known about the host's clock although the sender is another host.
        undisciplined: bool,
    },
}

/// What is known of the sender's clock.
#[derive(Debug, Clone, PartialEq)]
pub enum SenderState {
    /// Nothing yet, for so long since the first packet.
    Silent(Duration),
    /// Reports or ntp-64 that agree with the shared clock.
    Accepted,
    /// The sender is on another clock.
    Differs { offset_ns: i64, text: String },
    /// Reports that make no sense.
    Implausible(String),
}

/// What is known of how a stream comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// Measured after the clock wait, or at a steered output.
    Measured,
    /// Predicted from timestamps.
    Predicted,
    /// Sound through a sink that does not follow the shared clock.
    Unsteered,
}

/// What is known of one stream over the last second.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamState {
    pub watch: Watch,
    /// Frames, those with sender time, and late ones of the last second.
    pub frames: u64,
    pub with_sender_time: u64,
    pub late: u64,
    /// The median error, ns.
    pub error_ns: Option<i64>,
    /// How large the error may be, ns: one frame for video, [`Thresholds::audio_error_ns`] for audio.
    pub bound_ns: i64,
    /// How much latency would have been enough.
    pub needed_latency: Option<Duration>,
    /// The steered output has not locked yet, for so long.
    pub locking: Option<Duration>,
    /// There is no output for this stream.
    pub no_output: Option<String>,
}

/// What is known of the whole room.
#[derive(Debug, Clone, PartialEq)]
pub struct RoomState {
    /// False when the user switched synchronization off.
    pub sync: bool,
    pub clock: ClockState,
    /// Whether a connection to the sender stands.
    pub connected: bool,
    pub sender: SenderState,
}

/// The verdict for one stream.
pub fn judge_stream(room: &RoomState, stream: &StreamState, thresholds: &Thresholds) -> Verdict {
    if let Some(why) = &stream.no_output {
        return Verdict::Unsynced(Reason::NoAudioOutput(why.clone()));
    }
    let common = judge_common(room, thresholds);
    if matches!(common, Verdict::Unsynced(_) | Verdict::Acquiring(_)) {
        return common;
    }
    if stream.frames == 0 {
        return Verdict::Acquiring(Reason::WaitingForFrames);
    }
    // The meta follows the first report by a frame or two; without any it is no stream that can be placed.
    if stream.with_sender_time == 0 {
        return Verdict::Acquiring(Reason::WaitingForReports);
    }
    if let Some(locking) = stream.locking {
        return if locking < thresholds.deadline {
            Verdict::Acquiring(Reason::WaitingForServo)
        } else {
            let (error_ns, bound_ns) = (stream.error_ns.unwrap_or(i64::MAX), stream.bound_ns);
            Verdict::Unsynced(Reason::PresentationError { error_ns, bound_ns })
        };
    }
    let own = match stream.error_ns {
        _ if stream.late as f64 > thresholds.late_share * stream.frames as f64 => {
            Verdict::Unsynced(Reason::LateFrames { needed: stream.needed_latency.unwrap_or_default() })
        }
        Some(error_ns) if error_ns.saturating_abs() > stream.bound_ns => {
            Verdict::Unsynced(Reason::PresentationError { error_ns, bound_ns: stream.bound_ns })
        }
        Some(_) => match stream.watch {
            Watch::Measured => Verdict::Synced,
            Watch::Predicted => Verdict::Approximate(Reason::Predicted),
            Watch::Unsteered => Verdict::Approximate(Reason::AudioUnsteered),
        },
        None => Verdict::Acquiring(Reason::WaitingForFrames),
    };
    common.worse(own)
}

/// The verdict for the room: the worst of what all streams share and of each stream.
pub fn judge_room(room: &RoomState, streams: &[Verdict], thresholds: &Thresholds) -> Verdict {
    let common = judge_common(room, thresholds);
    if matches!(common, Verdict::Unsynced(_)) {
        return common;
    }
    if streams.is_empty() {
        return common.worse(Verdict::Acquiring(if room.connected {
            Reason::WaitingForFrames
        } else {
            Reason::Connecting
        }));
    }
    streams.iter().cloned().fold(common, Verdict::worse)
}

/// What clock and sender say, whatever the streams do.
fn judge_common(room: &RoomState, thresholds: &Thresholds) -> Verdict {
    if !room.sync {
        return Verdict::Unsynced(Reason::SyncOff);
    }
    let clock = match &room.clock {
        ClockState::Waiting(waited) if *waited < thresholds.deadline => Verdict::Acquiring(Reason::WaitingForClock),
        ClockState::Waiting(_) | ClockState::Unreachable => return Verdict::Unsynced(Reason::ClockUnreachable),
        ClockState::Synced { uncertainty, silent_for, undisciplined } => {
            judge_clock(*uncertainty, *silent_for, *undisciplined, thresholds)
        }
    };
    if matches!(clock, Verdict::Unsynced(_)) {
        return clock;
    }
    if !room.connected {
        return clock.worse(Verdict::Acquiring(Reason::Connecting));
    }
    let sender = match &room.sender {
        SenderState::Accepted => Verdict::Synced,
        SenderState::Silent(waited) if *waited < thresholds.deadline => Verdict::Acquiring(Reason::WaitingForReports),
        SenderState::Silent(_) => Verdict::Unsynced(Reason::NoSenderReports),
        SenderState::Implausible(why) => Verdict::Unsynced(Reason::ImplausibleReports(why.clone())),
        SenderState::Differs { offset_ns, text } => {
            Verdict::Unsynced(Reason::SenderClockDiffers { offset_ns: *offset_ns, text: text.clone() })
        }
    };
    clock.worse(sender)
}

fn judge_clock(
    uncertainty: Option<Duration>,
    silent_for: Option<Duration>,
    undisciplined: bool,
    thresholds: &Thresholds,
) -> Verdict {
    let silent_for = silent_for.unwrap_or_default();
    if silent_for > thresholds.clock_lost_after {
        let drifted = silent_for.mul_f64(thresholds.residual_drift_ppm * 1e-6);
        return if uncertainty.unwrap_or_default() + drifted <= thresholds.holdover {
            Verdict::Holdover
        } else {
            Verdict::Unsynced(Reason::ClockLost)
        };
    }
    match uncertainty {
        _ if undisciplined => Verdict::Approximate(Reason::ClockNotDisciplined),
        Some(uncertainty) if uncertainty > thresholds.clock_approximate => {
            Verdict::Unsynced(Reason::ClockUncertain(uncertainty))
        }
        Some(uncertainty) if uncertainty > thresholds.clock_synced => {
            Verdict::Approximate(Reason::ClockUncertain(uncertainty))
        }
        _ => Verdict::Synced,
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;

//! The JSON lines of the status, version 1: documented in docs/status.md, which is a contract.

use crate::clock::ntp_to_unix_ns;
use crate::config::VERSION;
use crate::engine::stats::{ErrorSource, ErrorSummary};
use crate::engine::verdict::{Reason, Verdict};
use crate::engine::{ClockReport, EngineConfig, EngineError, Notice, Status, StreamStatus};
use serde::Serialize;
use std::time::Duration;

/// Raised when a field changes its meaning or goes; new fields do not raise it.
pub const STATUS_VERSION: u32 = 1;

/// One line.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Line {
    Start(Start),
    Status(Box<StatusLine>),
    Event(Event),
    End(End),
}

#[derive(Debug, Serialize)]
pub struct Start {
    version: u32,
    program: String,
    url: String,
    latency_ms: f64,
    sync: &'static str,
    clock: StartClock,
}

#[derive(Debug, Serialize)]
struct StartClock {
    kind: &'static str,
    address: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct StatusLine {
    version: u32,
    uptime_s: f64,
    verdict: &'static str,
    reason: Option<ReasonLine>,
    clock: Clock,
    audio: Option<Stream>,
    video: Option<Stream>,
    output: Option<Output>,
    drift_ppm: Drift,
    network: Network,
    reconnects: u64,
    latency_ms: f64,
    headroom_ms: Option<f64>,
}

#[derive(Debug, Serialize)]
struct ReasonLine {
    code: &'static str,
    text: String,
}

#[derive(Debug, Serialize)]
struct Clock {
    kind: &'static str,
    address: Option<String>,
    synced: bool,
    uncertainty_us: Option<f64>,
    round_trip_us: Option<f64>,
    rate_ppm: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Stream {
    verdict: &'static str,
    reason: Option<ReasonLine>,
    frames: u64,
    with_sender_time: u64,
    late: u64,
    sender_time_ns: Option<i64>,
    error_us: Option<ErrorLine>,
}

#[derive(Debug, Serialize)]
struct ErrorLine {
    p50: f64,
    p99: f64,
    max: f64,
    source: &'static str,
}

#[derive(Debug, Serialize)]
struct Output {
    steered: bool,
    device: Option<String>,
    latency_ms: Option<f64>,
    speed_ppm: Option<f64>,
    reseeks: u64,
    xruns: u64,
    underruns: u64,
}

#[derive(Debug, Serialize)]
struct Drift {
    system: Option<f64>,
    sender: Option<f64>,
    device: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Network {
    transport: Option<String>,
    packets: u64,
    lost: u64,
    late: u64,
    duplicates: u64,
    jitter_ms: Option<f64>,
}

#[derive(Debug, Serialize)]
pub struct Event {
    version: u32,
    uptime_s: f64,
    event: &'static str,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<ReasonLine>,
}

#[derive(Debug, Serialize)]
pub struct End {
    version: u32,
    uptime_s: f64,
    exit_code: u8,
    error: Option<String>,
}

/// To three decimals: a nanosecond in µs, a microsecond in ms.
fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn millis(duration: Duration) -> f64 {
    round(duration.as_secs_f64() * 1e3)
}

fn micros(duration: Duration) -> f64 {
    round(duration.as_secs_f64() * 1e6)
}

fn reason_line(reason: Option<&Reason>) -> Option<ReasonLine> {
    reason.map(|reason| ReasonLine { code: reason.code(), text: reason.text() })
}

impl Line {
    /// The first line.
    pub fn start(config: &EngineConfig) -> Self {
        Self::Start(Start {
            version: STATUS_VERSION,
            program: format!("unisono {VERSION}"),
            url: config.url.to_string(),
            latency_ms: millis(config.latency),
            sync: match config.sync {
                crate::engine::SyncPolicy::Auto => "auto",
                crate::engine::SyncPolicy::Strict => "strict",
                crate::engine::SyncPolicy::Off => "off",
            },
            clock: StartClock { kind: config.clock.kind(), address: config.clock.address() },
        })
    }

    /// A status.
    pub fn status(status: &Status) -> Self {
        Self::Status(Box::new(StatusLine {
            version: STATUS_VERSION,
            uptime_s: round(status.uptime.as_secs_f64()),
            verdict: status.verdict.name(),
            reason: reason_line(status.verdict.reason()),
            clock: clock(&status.clock),
            audio: status.audio.as_ref().map(stream),
            video: status.video.as_ref().map(stream),
            output: status.output.as_ref().map(|output| Output {
                steered: output.steered,
                device: output.device.clone(),
                latency_ms: output.latency_ns.map(|ns| round(ns as f64 * 1e-6)),
                speed_ppm: output.speed_ppm.map(round),
                reseeks: output.reseeks,
                xruns: output.xruns,
                underruns: output.underruns,
            }),
            drift_ppm: Drift {
                system: status.drift.system.map(round),
                sender: status.drift.sender.map(round),
                device: status.drift.device.map(round),
            },
            network: Network {
                transport: status.network.transport.clone(),
                packets: status.network.packets,
                lost: status.network.lost,
                late: status.network.late,
                duplicates: status.network.duplicates,
                jitter_ms: status.network.jitter.map(millis),
            },
            reconnects: status.reconnects,
            latency_ms: millis(status.latency),
            headroom_ms: status.headroom_ns.map(|ns| round(ns as f64 * 1e-6)),
        }))
    }

    /// Something that happened.
    pub fn notice(notice: &Notice, uptime: Duration) -> Self {
        Self::Event(Event {
            version: STATUS_VERSION,
            uptime_s: round(uptime.as_secs_f64()),
            event: notice.code(),
            text: notice.text(),
            verdict: None,
            reason: None,
        })
    }

    /// A new verdict.
    pub fn verdict(verdict: &Verdict, uptime: Duration) -> Self {
        Self::Event(Event {
            version: STATUS_VERSION,
            uptime_s: round(uptime.as_secs_f64()),
            event: "verdict",
            text: verdict.reason().map_or_else(|| verdict.name().to_owned(), Reason::text),
            verdict: Some(verdict.name()),
            reason: reason_line(verdict.reason()),
        })
    }

    /// The last line.
    pub fn end(result: &Result<(), EngineError>, exit_code: u8, uptime: Duration) -> Self {
        Self::End(End {
            version: STATUS_VERSION,
            uptime_s: round(uptime.as_secs_f64()),
            exit_code,
            error: result.as_ref().err().map(ToString::to_string),
        })
    }
}

fn clock(clock: &ClockReport) -> Clock {
    Clock {
        kind: clock.kind,
        address: clock.address.clone(),
        synced: clock.synced,
        uncertainty_us: clock.uncertainty.map(micros),
        round_trip_us: clock.round_trip.map(micros),
        rate_ppm: clock.rate_ppm.map(round),
    }
}

fn stream(stream: &StreamStatus) -> Stream {
    Stream {
        verdict: stream.verdict.name(),
        reason: reason_line(stream.verdict.reason()),
        frames: stream.frames,
        with_sender_time: stream.with_sender_time,
        late: stream.late,
        sender_time_ns: stream.sender_time.map(ntp_to_unix_ns),
        error_us: stream.error.map(error_line),
    }
}

fn error_line(error: ErrorSummary) -> ErrorLine {
    let micros = |ns: i64| round(ns as f64 * 1e-3);
    ErrorLine {
        p50: micros(error.p50),
        p99: micros(error.p99),
        max: micros(error.max),
        source: match error.source {
            ErrorSource::Measured => "measured",
            ErrorSource::Predicted => "predicted",
        },
    }
}

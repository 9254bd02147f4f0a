//! The steered audio output of a room: ring, renderer and device, which live on while connections come and go.
//!
//! ```text
//! UnisonoAudioSink (one a connection) ──> Ring ──> SteeredRenderer ──> PipeWire
//!                              ClockMapping (shared clock ↔ CLOCK_MONOTONIC) ──┘
//! ```

use super::stats::{ErrorSource, ErrorSummary, StreamStats};
use crate::audio::output::{Output, OutputCounters, OutputEvent};
use crate::audio::{
    Controls, Interpolators, RenderState, RenderStats, Ring, SinkParts, StatsReader, SteerConfig, UnisonoAudioSink,
};
use crate::clock::{ClockMapping, SharedClock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The ring holds the playout latency and so much more, for bursts after a stall.
const RING_SPARE: Duration = Duration::from_secs(3);
/// Room for the streams that the sink takes: 48 kHz stereo. Faster ones get shorter bursts.
const SAMPLES_PER_SECOND: f64 = 48_000.0 * 2.0;

/// What the output said about its device since it was last asked.
#[derive(Debug, Clone, PartialEq)]
pub enum DeviceNews {
    /// For the log and the `event` lines.
    Notice(String),
    /// The device's latency changed: the pipeline's is to be computed anew.
    Latency,
}

/// Where the device stands.
#[derive(Debug, Clone, PartialEq)]
enum Device {
    /// Not there (yet), and why, since when.
    Away { why: String, since: Instant },
    /// Asks for blocks.
    Runs(String),
}

/// What the steered output measured in the last window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heard {
    pub error: Option<ErrorSummary>,
    pub stats: RenderStats,
    pub counters: OutputCounters,
    /// From the callback to the ear, as the device reports it, ns.
    pub device_latency_ns: i64,
}

/// An output that is open.
pub struct SteeredOutput {
    ring: Ring,
    config: SteerConfig,
    controls: Controls,
    trusted: Arc<AtomicBool>,
    device_latency: Arc<AtomicI64>,
    stats: StatsReader,
    interpolators: Interpolators,
    /// Of the device and of the stream, Hz; 0 while unknown.
    rates: (u32, u32),
    stream_rate: Arc<AtomicU32>,
    measured: u64,
    device: Device,
    unsettled_since: Option<Instant>,
    output: Box<dyn Output>,
    /// Dropped after the output: its renderer reads the line.
    _mapping: ClockMapping,
}

/// How an output is opened.
#[derive(Debug, Clone, PartialEq)]
pub struct Opening {
    pub device: Option<String>,
    pub latency: Duration,
    pub room_delay_ns: i64,
    pub output_latency_ns: i64,
    /// Linear gain.
    pub volume: f32,
    pub muted: bool,
}

/// Whether a sound server for the steered output can be reached.
///
/// # Errors
/// Why not.
#[cfg(feature = "pipewire")]
pub fn probe() -> Result<(), String> {
    crate::audio::output::pipewire::list_devices(None).map(|_| ()).map_err(|error| error.to_string())
}

/// Whether a sound server for the steered output can be reached.
///
/// # Errors
/// Why not.
#[cfg(not(feature = "pipewire"))]
pub fn probe() -> Result<(), String> {
    Err("this build has no PipeWire output".into())
}

impl SteeredOutput {
    /// Opens the output on `clock`. The device may come later.
    ///
    /// # Errors
    /// Why the sound system cannot be used at all.
    pub fn open(opening: &Opening, clock: &SharedClock) -> Result<Self, String> {
        let config =
            SteerConfig { ring_seconds: (opening.latency + RING_SPARE).as_secs_f64(), ..SteerConfig::default() };
        let ring = Ring::new((config.ring_seconds * SAMPLES_PER_SECOND) as usize, config.fade);
        let controls = Controls::new();
        controls.set_playout_latency(i64::try_from(opening.latency.as_nanos()).unwrap_or(i64::MAX));
        controls.set_delay(opening.room_delay_ns);
        controls.set_output_latency(opening.output_latency_ns);
        controls.set_volume(opening.volume);
        controls.set_muted(opening.muted);
        let mapping = ClockMapping::start(clock).map_err(|error| format!("no thread for the clock: {error}"))?;
        let renderer = crate::audio::SteeredRenderer::new(&config, &ring, mapping.reader(), &controls);
        let (stats, interpolators) = (renderer.stats(), renderer.interpolators());
        let output = open_device(opening.device.clone(), renderer)?;
        Ok(Self {
            ring,
            config,
            controls,
            trusted: Arc::default(),
            device_latency: Arc::default(),
            stats,
            interpolators,
            rates: (0, 0),
            stream_rate: Arc::default(),
            measured: 0,
            device: Device::Away { why: "the device has not started yet".into(), since: Instant::now() },
            unsettled_since: None,
            output,
            _mapping: mapping,
        })
    }

    /// A sink for a new connection; buffers are counted in `stats`.
    pub fn sink(&self, stats: &Arc<StreamStats>) -> UnisonoAudioSink {
        let stats = stats.clone();
        UnisonoAudioSink::new(SinkParts {
            ring: self.ring.clone(),
            map: self.config.map.clone(),
            controls: self.controls.clone(),
            trusted: self.trusted.clone(),
            device_latency: self.device_latency.clone(),
            stream_rate: self.stream_rate.clone(),
            reference: super::meta::sender_time,
            on_buffer: Box::new(move |sender_time, late| stats.count(sender_time, late)),
        })
    }

    /// Says whether the sender's times are on the shared clock.
    pub fn trust(&self, trusted: bool) {
        self.trusted.store(trusted, Ordering::Relaxed);
    }

    /// Volume, mute, delays.
    pub fn controls(&self) -> &Controls {
        &self.controls
    }

    /// Plays to another device from now on.
    pub fn set_device(&self, device: Option<String>) {
        self.output.set_device(device);
    }

    /// Why there is no sound; `None` while the device runs, or may still come.
    pub fn no_output(&self, patience: Duration) -> Option<String> {
        match &self.device {
            Device::Away { why, since } if since.elapsed() > patience => Some(why.clone()),
            _ => None,
        }
    }

    /// The device's name.
    pub fn device(&self) -> Option<&str> {
        match &self.device {
            Device::Runs(name) => Some(name),
            Device::Away { .. } => None,
        }
    }

    /// Reads what the device has told.
    pub fn poll(&mut self) -> Vec<DeviceNews> {
        let mut news = Vec::new();
        let events = self.output.events();
        while let Ok(event) = events.try_recv() {
            self.take(event, &mut news);
        }
        let rates = (self.rates.0, self.stream_rate.load(Ordering::Relaxed));
        if rates != self.rates && rates.0 > 0 && rates.1 > 0 {
            // Not in the callback, which must not allocate.
            self.interpolators.prepare(f64::from(rates.0) / f64::from(rates.1));
        }
        self.rates = rates;
        news
    }

    fn take(&mut self, event: OutputEvent, news: &mut Vec<DeviceNews>) {
        let away = |why: String| Device::Away { why, since: Instant::now() };
        match event {
            OutputEvent::Started(format) => {
                self.device_latency.store(format.latency_ns, Ordering::Relaxed);
                news.push(DeviceNews::Notice(format!(
                    "playing to {} at {} Hz, {} frames a block",
                    format.device, format.rate, format.quantum
                )));
                news.push(DeviceNews::Latency);
                self.rates = (format.rate, 0);
                self.device = Device::Runs(format.device);
            }
            OutputEvent::LatencyChanged { latency_ns } => {
                self.device_latency.store(latency_ns, Ordering::Relaxed);
                news.push(DeviceNews::Latency);
            }
            OutputEvent::QuantumChanged { quantum } => {
                news.push(DeviceNews::Notice(format!("the sound device asks for {quantum} frames a block now")));
                news.push(DeviceNews::Latency);
            }
            OutputEvent::RateChanged { rate } => {
                news.push(DeviceNews::Notice(format!("the sound device runs at {rate} Hz now")));
            }
            OutputEvent::Moved { from, to } => {
                news.push(DeviceNews::Notice(format!("the sound moved from {from} to {to}")));
                self.device = Device::Runs(to);
            }
            // Counted, and told in the status.
            OutputEvent::Xrun { missed_frames } => tracing::info!(missed_frames, "the sound device missed a block"),
            OutputEvent::Stopped => {
                news.push(DeviceNews::Notice("the sound device is suspended".into()));
                self.device = away("the sound device is suspended".into());
            }
            OutputEvent::DeviceVanished { device } => {
                let why = match device {
                    Some(device) => format!("the sound device {device} is not there"),
                    None => "there is no sound device".into(),
                };
                news.push(DeviceNews::Notice(why.clone()));
                self.device = away(why);
            }
            OutputEvent::Reconnecting { reason, delay } => {
                tracing::info!(%reason, ?delay, "connecting to the sound system again");
                // The first reason counts from when it went away; the tries after it do not make that later.
                if let Device::Runs(_) = self.device {
                    news.push(DeviceNews::Notice(reason.clone()));
                    self.device = away(reason);
                } else if let Device::Away { why, .. } = &mut self.device {
                    *why = reason;
                }
            }
        }
    }

    /// What was heard since the last call.
    pub fn heard(&mut self) -> Heard {
        let measured = self.stats.measured();
        let error = self.stats.errors_since(self.measured).map(|error| ErrorSummary {
            p50: error.median,
            p99: error.p99_abs,
            max: error.max_abs,
            source: ErrorSource::Measured,
        });
        self.measured = measured;
        let stats = self.stats.latest();
        let locked = stats.state == RenderState::Playing && stats.settled;
        if locked {
            self.unsettled_since = None;
        } else {
            self.unsettled_since.get_or_insert_with(Instant::now);
        }
        let device_latency_ns = self.device_latency.load(Ordering::Relaxed);
        Heard { error, stats, counters: self.output.counters(), device_latency_ns }
    }

    /// For how long the output has been locking to the shared clock; `None` when it has.
    pub fn locking(&self) -> Option<Duration> {
        self.unsettled_since.map(|since| since.elapsed())
    }
}

#[cfg(feature = "pipewire")]
fn open_device(device: Option<String>, renderer: crate::audio::SteeredRenderer) -> Result<Box<dyn Output>, String> {
    use crate::audio::output::{OutputConfig, pipewire::PipeWireOutput};
    let config = OutputConfig { device, ..OutputConfig::default() };
    match PipeWireOutput::open(config, Box::new(renderer)) {
        Ok(output) => Ok(Box::new(output)),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(not(feature = "pipewire"))]
fn open_device(_device: Option<String>, _renderer: crate::audio::SteeredRenderer) -> Result<Box<dyn Output>, String> {
    Err("this build has no PipeWire output".into())
}

//! One connection's pipeline:
//!
//! ```text
//! playbin3 { rtspsrc { rtpbin } ─ depay ─ parse ─ decode ─┬─ video sink   (clocked, measured or predicted)
//!                                                         └─ audio sink   (steered, or stock and predicted)
//!          }   clock: the shared clock   latency: the playout latency
//! ```

use super::audio::SteeredOutput;
use super::bus::{self, BusEvent};
use super::error::EngineError;
use super::event::{AudioOutput, EngineConfig, VideoOutput};
use super::meta::SenderTimes;
use super::monitor::RtpMonitor;
use super::source::{MediaPlan, SourceSetup};
use super::stats::{PresentationSample, StreamStats};
use super::video_sink::MeasuringSink;
use crate::audio::UnisonoAudioSink;
use gst::glib;
use gst::prelude::*;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// How long the TEARDOWN and the stop of all threads may take; a program shall end within 2 s.
const STOP_DEADLINE: Duration = Duration::from_millis(1_500);

/// The statistics of both streams, which outlive connections.
#[derive(Clone)]
pub struct Stats {
    pub audio: Arc<StreamStats>,
    pub video: Arc<StreamStats>,
}

/// Counters of the jitterbuffers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JitterCounters {
    pub packets: u64,
    pub lost: u64,
    pub late: u64,
    pub duplicates: u64,
    pub jitter_ns: u64,
}

/// A running connection.
pub struct Playback {
    playbin: gst::Element,
    audio_sink: Option<gst::Element>,
    video_sink: Option<gst::Element>,
    /// The volume is the steered output's.
    has_own_volume: bool,
    pub monitor: Arc<RtpMonitor>,
    plan: Arc<Mutex<MediaPlan>>,
    jitterbuffers: Arc<Mutex<Vec<glib::WeakRef<gst::Element>>>>,
}

impl Playback {
    /// Connects to `config.url` on `clock`; with `sync` frames are scheduled by the sender's reports.
    ///
    /// # Errors
    /// When an element is missing or a described sink cannot be made.
    pub fn start(
        config: &EngineConfig,
        clock: &gst::Clock,
        sync: bool,
        stats: &Stats,
        steered: Option<&SteeredOutput>,
        mute: bool,
        on_event: impl Fn(BusEvent) + Send + Sync + 'static,
    ) -> Result<Self, EngineError> {
        let playbin = make("playbin3")?;
        let pipeline = playbin
            .downcast_ref::<gst::Pipeline>()
            .ok_or_else(|| EngineError::Internal("playbin3 is no pipeline".into()))?;
        pipeline.use_clock(Some(clock));
        pipeline.set_latency(gst::ClockTime::from_nseconds(config.latency.as_nanos() as u64));

        let video_sink = match &config.video {
            VideoOutput::Off => None,
            VideoOutput::Watched => Some(MeasuringSink::new(stats.video.clone()).upcast()),
            VideoOutput::Described(description) => Some(described_sink(description)?),
            VideoOutput::Sink(sink) => Some(
                MeasuringSink::with_renderer(stats.video.clone(), sink)
                    .ok_or_else(|| EngineError::Internal("the sink of the window has no pad".into()))?
                    .upcast(),
            ),
        };
        let audio_sink = match &config.audio {
            AudioOutput::Off => None,
            AudioOutput::On { device, .. } => Some(match steered {
                Some(output) => output.sink(&stats.audio).upcast(),
                None => stock_audio_sink(device.as_deref())?,
            }),
        };
        let mut flags = Vec::new();
        if let Some(sink) = &video_sink {
            flags.push("video");
            set_room_delay(sink, config.room_delay_ns);
            if !sink.is::<MeasuringSink>() {
                predict(sink, pipeline, &stats.video);
            }
            playbin.set_property("video-sink", sink);
        }
        if let Some(sink) = &audio_sink {
            flags.push("audio");
            // The steered output has its own volume and delay, and measures.
            if steered.is_none() {
                flags.push("soft-volume");
                set_room_delay(sink, config.room_delay_ns);
                predict(sink, pipeline, &stats.audio);
            }
            playbin.set_property("audio-sink", sink);
        }
        if flags.is_empty() {
            return Err(EngineError::Usage(
                "neither sound nor picture is wanted: drop --no-audio or --no-video".into(),
            ));
        }
        playbin.set_property_from_str("flags", &flags.join("+"));
        playbin.set_property("uri", config.url.location());

        let plan = Arc::new(Mutex::new(MediaPlan::default()));
        let jitterbuffers = Arc::new(Mutex::new(Vec::new()));
        let monitor = RtpMonitor::new(clock.clone(), sync, config.latency);
        let setup = Arc::new(SourceSetup {
            config: config.clone(),
            sync,
            monitor: monitor.clone(),
            plan: plan.clone(),
            jitterbuffers: jitterbuffers.clone(),
        });
        playbin.connect("source-setup", false, move |values| {
            if let Some(source) = values.get(1).and_then(|value| value.get::<gst::Element>().ok()) {
                setup.clone().configure(&source);
            }
            None
        });

        let location = config.url.location().to_owned();
        let weak = playbin.downgrade();
        let gst_bus = pipeline.bus().ok_or_else(|| EngineError::Internal("the pipeline has no bus".into()))?;
        // On the thread that posts: reads, hands over, and keeps nothing queued in GStreamer.
        gst_bus.set_sync_handler(move |_, message| {
            if let Some(playbin) = weak.upgrade()
                && let Some(event) = bus::read(message, playbin.upcast_ref(), &location)
            {
                on_event(event);
            }
            gst::BusSyncReply::Drop
        });
        let has_own_volume = steered.is_some();
        let playback = Self { playbin, audio_sink, video_sink, has_own_volume, monitor, plan, jitterbuffers };
        playback.set_volume(config.volume);
        playback.set_mute(mute);
        // A failure is told by a message too, and better.
        let _ = playback.playbin.set_state(gst::State::Playing);
        Ok(playback)
    }

    /// 0 to 1 on the cubic scale that people hear as even.
    pub fn set_volume(&self, volume: f64) {
        if !self.has_own_volume {
            self.playbin.set_property("volume", linear_volume(volume));
        }
    }

    /// Silences the sound without touching the volume.
    pub fn set_mute(&self, mute: bool) {
        if !self.has_own_volume {
            self.playbin.set_property("mute", mute);
        }
    }

    /// Moves picture (and sound, where it is not steered) by this room's own delay, ns.
    pub fn set_room_delay(&self, delay_ns: i64) {
        for sink in [&self.video_sink, &self.audio_sink].into_iter().flatten() {
            if !sink.is::<UnisonoAudioSink>() {
                set_room_delay(sink, delay_ns);
            }
        }
    }

    /// Computes the pipeline's latency anew: the audio device's has changed.
    pub fn recalculate_latency(&self) {
        if let Some(sink) = &self.audio_sink {
            let _ = sink.post_message(gst::message::Latency::builder().src(sink).build());
        }
    }

    /// What the SDP offered and what was chosen.
    pub fn plan(&self) -> MediaPlan {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the sound goes nowhere, since no sound system could be opened.
    pub fn sound_goes_nowhere(&self) -> bool {
        let Some(sink) = &self.audio_sink else { return false };
        let Some(bin) = sink.downcast_ref::<gst::Bin>() else { return false };
        bin.iterate_recurse()
            .into_iter()
            .flatten()
            .any(|element| element.factory().is_some_and(|factory| factory.name() == "fakesink"))
    }

    /// Whether a sink for this stream has caps: the stream is playing.
    pub fn has_stream(&self, audio: bool) -> bool {
        let sink = if audio { &self.audio_sink } else { &self.video_sink };
        sink.as_ref().and_then(|sink| sink.static_pad("sink")).is_some_and(|pad| pad.has_current_caps())
    }

    /// How long a frame of the picture is, as negotiated.
    pub fn frame_interval(&self) -> Option<Duration> {
        let caps = self.video_sink.as_ref()?.static_pad("sink")?.current_caps()?;
        let rate = caps.structure(0)?.get::<gst::Fraction>("framerate").ok()?;
        (rate.numer() > 0 && rate.denom() > 0)
            .then(|| Duration::from_secs_f64(f64::from(rate.denom()) / f64::from(rate.numer())))
    }

    /// The sums over all jitterbuffers.
    pub fn jitter_counters(&self) -> JitterCounters {
        let list = self.jitterbuffers.lock().unwrap_or_else(PoisonError::into_inner);
        list.iter().filter_map(glib::WeakRef::upgrade).fold(JitterCounters::default(), |sum, jitterbuffer| {
            let stats = jitterbuffer.property::<Option<gst::Structure>>("stats");
            let field = |name| stats.as_ref().and_then(|stats| stats.get::<u64>(name).ok()).unwrap_or(0);
            JitterCounters {
                packets: sum.packets + field("num-pushed"),
                lost: sum.lost + field("num-lost"),
                late: sum.late + field("num-late"),
                duplicates: sum.duplicates + field("num-duplicates"),
                jitter_ns: sum.jitter_ns.max(field("avg-jitter")),
            }
        })
    }
}

impl Drop for Playback {
    /// Sends TEARDOWN and stops. What does not stop in time is left behind: a hung element must not hang the room.
    fn drop(&mut self) {
        if let Some(bus) = self.playbin.bus() {
            bus.unset_sync_handler();
            bus.set_flushing(true);
        }
        let (done, wait) = mpsc::channel();
        let playbin = self.playbin.clone();
        let stopper = std::thread::Builder::new().name("teardown".into()).spawn(move || {
            let _ = playbin.set_state(gst::State::Null);
            let _ = done.send(());
        });
        if stopper.is_err() || wait.recv_timeout(STOP_DEADLINE).is_err() {
            tracing::warn!("the connection did not close in time");
        }
    }
}

/// The gain of a volume of 0 to 1 on the cubic scale.
pub fn linear_volume(volume: f64) -> f64 {
    gst_audio::StreamVolume::convert_volume(
        gst_audio::StreamVolumeFormat::Cubic,
        gst_audio::StreamVolumeFormat::Linear,
        volume,
    )
}

/// Makes an element of a core plugin.
fn make(factory: &str) -> Result<gst::Element, EngineError> {
    gst::ElementFactory::make(factory).build().map_err(|_| EngineError::MissingPlugin {
        missing: format!("the GStreamer element {factory}"),
        hint: "on Debian: apt install gstreamer1.0-plugins-base gstreamer1.0-plugins-good".into(),
    })
}

/// Makes the sink that the user described, as one element or as a bin.
pub fn described_sink(description: &str) -> Result<gst::Element, EngineError> {
    gst::parse::bin_from_description_with_name(description, true, "video-sink-bin").map(Cast::upcast).map_err(|error| {
        EngineError::Usage(format!(
            "--video-sink '{description}' cannot be made: {}",
            error.message().trim_end_matches('.')
        ))
    })
}

/// Names like `hw:0,0` are ALSA's own; everything else belongs to the sound server.
pub fn is_alsa_device(device: &str) -> bool {
    ["hw:", "plughw:", "plug:", "default:", "sysdefault:"].iter().any(|prefix| device.starts_with(prefix))
}

fn stock_audio_sink(device: Option<&str>) -> Result<gst::Element, EngineError> {
    let Some(device) = device else { return make("autoaudiosink") };
    let is_alsa =
        ["hw:", "plughw:", "plug:", "default:", "sysdefault:"].iter().any(|prefix| device.starts_with(prefix));
    let sink = make(if is_alsa { "alsasink" } else { "pulsesink" })?;
    sink.set_property("device", device);
    Ok(sink)
}

/// All clocked sinks in a sink, or the sink itself.
fn base_sinks(sink: &gst::Element) -> Vec<gst_base::BaseSink> {
    match sink.downcast_ref::<gst::Bin>() {
        Some(bin) => bin.iterate_sinks().into_iter().flatten().filter_map(|element| element.downcast().ok()).collect(),
        None => sink.clone().downcast().into_iter().collect(),
    }
}

fn set_room_delay(sink: &gst::Element, delay_ns: i64) {
    // autoaudiosink and its like hand the property on to the sink that they choose later.
    if sink.find_property("ts-offset").is_some() {
        return sink.set_property("ts-offset", delay_ns);
    }
    for sink in base_sinks(sink) {
        sink.set_property("ts-offset", delay_ns);
    }
}

/// Records when the sink will present each buffer, if it does what its timestamp says.
fn predict(sink: &gst::Element, pipeline: &gst::Pipeline, stats: &Arc<StreamStats>) {
    let Some(pad) = sink.static_pad("sink") else {
        tracing::warn!(sink = %sink.name(), "this sink has no pad to watch");
        return;
    };
    let (pipeline, stats) = (pipeline.downgrade(), stats.clone());
    let sink = sink.downgrade();
    let times = Mutex::new(SenderTimes::default());
    pad.add_probe(gst::PadProbeType::BUFFER, move |pad, probe| {
        if let (Some(gst::PadProbeData::Buffer(buffer)), Some(pipeline)) = (&probe.data, pipeline.upgrade())
            && let Some(presented) = predicted_time(pad, buffer, &pipeline, sink.upgrade().as_ref())
        {
            let sender_time = times.lock().unwrap_or_else(PoisonError::into_inner).of(buffer);
            stats.record(PresentationSample { sender_time, presented });
        }
        gst::PadProbeReturn::Ok
    });
}

/// When a clocked sink presents this buffer, on the pipeline clock: at its running time plus base time plus latency, or
/// at once when that has passed.
fn predicted_time(
    pad: &gst::Pad,
    buffer: &gst::BufferRef,
    pipeline: &gst::Pipeline,
    sink: Option<&gst::Element>,
) -> Option<u64> {
    let event = pad.sticky_event::<gst::event::Segment>(0)?;
    let segment = event.segment().downcast_ref::<gst::ClockTime>()?;
    let running_time = segment.to_running_time(buffer.pts()?)?;
    let latency = pipeline.latency()?;
    let delay = sink
        .filter(|sink| sink.find_property("ts-offset").is_some())
        .map_or(0, |sink| sink.property::<i64>("ts-offset"));
    let scheduled = (running_time + pipeline.base_time()? + latency).nseconds().saturating_add_signed(delay);
    Some(scheduled.max(pipeline.clock()?.time().nseconds()))
}

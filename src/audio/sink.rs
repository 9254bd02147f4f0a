//! The end of a GStreamer pipeline on the steered output: takes decoded sound, places it by its reference time, and writes
//! it to the ring. When it is heard is not this element's business but the renderer's, so it does not wait for the clock
//! (`sync` is false) and says its latency itself.

use super::config::MapConfig;
use super::{Controls, Feed, Ring};
use crate::clock::NtpTime;
use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::prelude::*;
use gst_base::subclass::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

static CATEGORY: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new("unisonoaudiosink", gst::DebugColorFlags::empty(), Some("Unisono steered audio sink"))
});

/// So much of the ring stays free for what the device has not played yet when it is late.
const RING_RESERVE: Duration = Duration::from_millis(500);
/// A buffer that is marked as a discontinuity leaves out samples only when its time stamp says that more than this is
/// missing: changes of rtpbin's offset carry the mark too.
const GAP_MIN_NS: i64 = 2_500_000;
/// The device's latency while it has not said anything: a common quantum (1024 frames at 48 kHz).
const LATENCY_UNKNOWN_NS: i64 = 21_333_333;

/// What reads the capture time of a buffer.
pub type ReferenceReader = fn(&gst::BufferRef) -> Option<NtpTime>;
/// Called with the capture time of each buffer (if it has one) and whether it came too late, on the streaming thread:
/// must neither block nor allocate.
pub type OnBuffer = Box<dyn Fn(Option<NtpTime>, bool) + Send + Sync>;

/// What the sink works with; shared with the engine.
pub struct SinkParts {
    /// Where the samples go.
    pub ring: Ring,
    /// How they are placed.
    pub map: MapConfig,
    /// Volume, mute, pause and delays.
    pub controls: Controls,
    /// Whether the sender's times are on the shared clock: if not, buffers are placed by their time stamps.
    pub trusted: Arc<AtomicBool>,
    /// From the callback to the ear, as the device reports it, ns; 0 while unknown.
    pub device_latency: Arc<AtomicI64>,
    /// Where the sink tells the rate of the stream, Hz.
    pub stream_rate: Arc<AtomicU32>,
    pub reference: ReferenceReader,
    pub on_buffer: OnBuffer,
}

/// How buffers are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placement {
    /// By their time stamps: the sender's times are not there yet, or of another clock.
    TimeStamp,
    /// By the sender's times.
    Sender,
}

struct Stream {
    feed: Feed,
    rate: u32,
    channels: u32,
    placement: Placement,
    /// Where the next buffer's time stamp should be.
    next_pts: Option<gst::ClockTime>,
    samples: Vec<f32>,
}

mod imp {
    use super::*;

    #[derive(Default)]
    pub struct UnisonoAudioSink {
        pub(super) parts: Mutex<Option<Arc<SinkParts>>>,
        stream: Mutex<Option<Stream>>,
        flushing: Mutex<bool>,
        wake: Condvar,
    }

    fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        // No panic leaves these half written.
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[glib::object_subclass]
    impl ObjectSubclass for UnisonoAudioSink {
        const NAME: &'static str = "UnisonoAudioSink";
        type Type = super::UnisonoAudioSink;
        type ParentType = gst_base::BaseSink;
        type Interfaces = (gst_audio::StreamVolume,);
    }

    // SAFETY: the interface has no virtual methods; it promises the properties `volume` and `mute`, which are below.
    unsafe impl IsImplementable<UnisonoAudioSink> for gst_audio::StreamVolume {}

    impl ObjectImpl for UnisonoAudioSink {
        fn properties() -> &'static [glib::ParamSpec] {
            static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(|| {
                vec![
                    glib::ParamSpecDouble::builder("volume")
                        .nick("Volume")
                        .blurb("Linear gain, reached in a ramp")
                        .minimum(0.0)
                        .maximum(10.0)
                        .default_value(1.0)
                        .build(),
                    glib::ParamSpecBoolean::builder("mute").nick("Mute").blurb("Silence, reached in a ramp").build(),
                ]
            });
            &PROPERTIES
        }

        fn set_property(&self, _id: usize, value: &glib::Value, pspec: &glib::ParamSpec) {
            let Some(parts) = lock(&self.parts).clone() else { return };
            match pspec.name() {
                "volume" => {
                    if let Ok(volume) = value.get::<f64>() {
                        parts.controls.set_volume(volume as f32);
                    }
                }
                "mute" => {
                    if let Ok(mute) = value.get::<bool>() {
                        parts.controls.set_muted(mute);
                    }
                }
                _ => {}
            }
        }

        fn property(&self, _id: usize, pspec: &glib::ParamSpec) -> glib::Value {
            let parts = lock(&self.parts).clone();
            match pspec.name() {
                "mute" => parts.is_some_and(|parts| parts.controls.muted()).to_value(),
                _ => parts.map_or(1.0, |parts| f64::from(parts.controls.volume())).to_value(),
            }
        }

        fn constructed(&self) {
            self.parent_constructed();
            self.obj().set_sync(false);
            self.obj().set_property("qos", false);
        }
    }

    impl GstObjectImpl for UnisonoAudioSink {}

    impl ElementImpl for UnisonoAudioSink {
        fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
            static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
                gst::subclass::ElementMetadata::new(
                    "Unisono steered audio sink",
                    "Sink/Audio",
                    "Plays each sample at its capture time plus the playout latency on the shared clock",
                    "Unisono",
                )
            });
            Some(&METADATA)
        }

        fn pad_templates() -> &'static [gst::PadTemplate] {
            static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
                // Any rate: the renderer resamples anyway. More channels are mixed down before.
                let caps = gst_audio::AudioCapsBuilder::new_interleaved()
                    .format(gst_audio::AUDIO_FORMAT_F32)
                    .rate_range(8_000..=192_000)
                    .channels_range(1..=2)
                    .build();
                gst::PadTemplate::new("sink", gst::PadDirection::Sink, gst::PadPresence::Always, &caps)
                    .into_iter()
                    .collect()
            });
            &TEMPLATES
        }

        /// GstBaseSink would say that a sink which does not wait for the clock is not live.
        fn query(&self, query: &mut gst::QueryRef) -> bool {
            if let gst::QueryViewMut::Latency(latency) = query.view_mut() {
                let mut upstream = gst::query::Latency::new();
                if !self.obj().static_pad("sink").is_some_and(|pad| pad.peer_query(&mut upstream)) {
                    return false;
                }
                let (_, min, max) = upstream.result();
                let parts = lock(&self.parts).clone();
                let device = parts.map_or(0, |parts| parts.device_latency.load(Ordering::Relaxed));
                let device = if device > 0 { device } else { LATENCY_UNKNOWN_NS };
                let device = gst::ClockTime::from_nseconds(device.unsigned_abs());
                // The ring bounds how long sound can be held.
                latency.set(true, min + device, max);
                return true;
            }
            ElementImplExt::parent_query(self, query)
        }

        fn change_state(&self, transition: gst::StateChange) -> Result<gst::StateChangeSuccess, gst::StateChangeError> {
            if transition == gst::StateChange::PausedToReady {
                self.set_flushing(true);
            }
            let done = self.parent_change_state(transition)?;
            if transition == gst::StateChange::PausedToReady {
                // What is in the ring fades out by itself; a new pipeline's feed takes over without a gap in time.
                if let Some(mut stream) = lock(&self.stream).take() {
                    let _ = stream.feed.finish();
                }
            }
            Ok(done)
        }
    }

    impl BaseSinkImpl for UnisonoAudioSink {
        fn start(&self) -> Result<(), gst::ErrorMessage> {
            self.set_flushing(false);
            if lock(&self.parts).is_none() {
                return Err(gst::error_msg!(gst::CoreError::Failed, ["the sink was given no output"]));
            }
            Ok(())
        }

        fn set_caps(&self, caps: &gst::Caps) -> Result<(), gst::LoggableError> {
            let info = gst_audio::AudioInfo::from_caps(caps).map_err(|_| gst::loggable_error!(CATEGORY, "bad caps"))?;
            let parts =
                lock(&self.parts).clone().ok_or_else(|| gst::loggable_error!(CATEGORY, "the sink has no output"))?;
            let (rate, channels) = (info.rate(), info.channels());
            let mut stream = lock(&self.stream);
            if stream.as_ref().is_some_and(|stream| stream.rate == rate && stream.channels == channels) {
                return Ok(());
            }
            gst::debug!(CATEGORY, imp = self, "{rate} Hz, {channels} channels");
            parts.stream_rate.store(rate, Ordering::Relaxed);
            *stream = Some(Stream {
                feed: Feed::new(&parts.ring, &parts.map, rate, channels),
                rate,
                channels,
                placement: Placement::TimeStamp,
                next_pts: None,
                samples: Vec::new(),
            });
            Ok(())
        }

        fn event(&self, event: gst::Event) -> bool {
            match event.view() {
                gst::EventView::Eos(_) => {
                    if let Some(stream) = &mut *lock(&self.stream) {
                        let _ = stream.feed.finish();
                    }
                }
                gst::EventView::FlushStop(_) => {
                    if let Some(stream) = &mut *lock(&self.stream) {
                        let _ = stream.feed.flush();
                        stream.next_pts = None;
                    }
                }
                _ => {}
            }
            self.parent_event(event)
        }

        fn unlock(&self) -> Result<(), gst::ErrorMessage> {
            self.set_flushing(true);
            Ok(())
        }

        fn unlock_stop(&self) -> Result<(), gst::ErrorMessage> {
            self.set_flushing(false);
            Ok(())
        }

        fn render(&self, buffer: &gst::Buffer) -> Result<gst::FlowSuccess, gst::FlowError> {
            let parts = lock(&self.parts).clone().ok_or(gst::FlowError::Error)?;
            let sender_time = (parts.reference)(buffer);
            let too_far_ahead = {
                let mut stream = lock(&self.stream);
                let stream = stream.as_mut().ok_or(gst::FlowError::NotNegotiated)?;
                let late = self.write(stream, &parts, buffer, sender_time)?;
                (parts.on_buffer)(sender_time, late);
                self.too_far_ahead(stream, &parts)
            };
            self.wait(too_far_ahead)
        }
    }

    impl UnisonoAudioSink {
        fn set_flushing(&self, flushing: bool) {
            *lock(&self.flushing) = flushing;
            self.wake.notify_all();
        }

        fn write(
            &self,
            stream: &mut Stream,
            parts: &SinkParts,
            buffer: &gst::BufferRef,
            sender_time: Option<NtpTime>,
        ) -> Result<bool, gst::FlowError> {
            let map = buffer.map_readable().map_err(|_| gst::FlowError::Error)?;
            stream.samples.clear();
            stream
                .samples
                .extend(map.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])));
            let trusted = parts.trusted.load(Ordering::Relaxed);
            let placement = match stream.placement {
                _ if !trusted => Placement::TimeStamp,
                // Once placed by the sender's times, a buffer that lost its own is placed by counting.
                Placement::TimeStamp if sender_time.is_none() => Placement::TimeStamp,
                _ => Placement::Sender,
            };
            if placement != stream.placement {
                gst::debug!(CATEGORY, imp = self, "placed by {placement:?} from now on");
                stream.placement = placement;
                // The two disagree by what the network adds: one crossfade instead of a slow turn.
                stream.feed.flush().map_err(|_| gst::FlowError::Flushing)?;
            }
            let reference = match placement {
                Placement::Sender => sender_time,
                Placement::TimeStamp => self.clock_time(buffer),
            };
            let discontinuity = self.is_gap(stream, buffer);
            let fed =
                stream.feed.push(&stream.samples, reference, discontinuity).map_err(|_| gst::FlowError::Flushing)?;
            if fed.stepped {
                gst::warning!(CATEGORY, imp = self, "the sender's clock has stepped");
            }
            Ok(fed.written.late > 0)
        }

        /// The buffer's time stamp on the pipeline clock, that is in the NTP epoch.
        fn clock_time(&self, buffer: &gst::BufferRef) -> Option<NtpTime> {
            let sink = self.obj();
            let segment = sink.segment().downcast::<gst::ClockTime>().ok()?;
            let running_time = segment.to_running_time(buffer.pts()?)?;
            Some((running_time + sink.base_time()?).nseconds())
        }

        /// Whether samples are missing before this buffer. Remembers where the next one should start.
        fn is_gap(&self, stream: &mut Stream, buffer: &gst::BufferRef) -> bool {
            let frames = (stream.samples.len() / stream.channels.max(1) as usize) as u64;
            let duration = gst::ClockTime::from_nseconds(frames * 1_000_000_000 / u64::from(stream.rate.max(1)));
            let expected = stream.next_pts;
            stream.next_pts = buffer.pts().map(|pts| pts + duration);
            let (Some(pts), Some(expected)) = (buffer.pts(), expected) else { return false };
            let missing = pts.nseconds() as i64 - expected.nseconds() as i64;
            buffer.flags().contains(gst::BufferFlags::DISCONT) && missing > GAP_MIN_NS
        }

        /// By how much the newest sample is earlier than the ring can hold; `None` when it is not.
        fn too_far_ahead(&self, stream: &Stream, parts: &SinkParts) -> Option<Duration> {
            let end = i64::try_from(stream.feed.end_time()?).ok()?.saturating_add(parts.controls.total_delay());
            let now = self.obj().clock()?.time().nseconds() as i64;
            let ahead = Duration::from_nanos(u64::try_from(end - now).ok()?);
            ahead.checked_sub(stream.feed.capacity().saturating_sub(RING_RESERVE)).filter(|excess| !excess.is_zero())
        }

        /// Holds the pipeline back; by time and not by what the device took, since a device that stops shall not stop
        /// the pipeline.
        fn wait(&self, time: Option<Duration>) -> Result<gst::FlowSuccess, gst::FlowError> {
            let flushing = lock(&self.flushing);
            let flushing = match time {
                None => flushing,
                Some(time) => {
                    let woken = self.wake.wait_timeout_while(flushing, time, |flushing| !*flushing);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            if *flushing { Err(gst::FlowError::Flushing) } else { Ok(gst::FlowSuccess::Ok) }
        }
    }
}

glib::wrapper! {
    pub struct UnisonoAudioSink(ObjectSubclass<imp::UnisonoAudioSink>)
        @extends gst_base::BaseSink, gst::Element, gst::Object,
        @implements gst_audio::StreamVolume;
}

impl UnisonoAudioSink {
    /// A sink that feeds `parts.ring`. Sinks made before it for the same ring are stale from its first buffer on.
    pub fn new(parts: SinkParts) -> Self {
        let sink: Self = glib::Object::builder().property("name", "unisono-audio").build();
        *sink.imp().parts.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(parts));
        sink
    }
}

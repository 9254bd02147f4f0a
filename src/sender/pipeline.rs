//! The bins that a mount serves. gst-rtsp-server looks for payloaders named `pay0`, `pay1`:
//!
//! ```text
//! ┌ bin ──────────────────────────────────────────────────────────────────────────────────────────┐
//! │ programme source (picture) → tee → x264enc|openh264enc|vp8enc → rtph264pay|rtpvp8pay          pay0
//! │ programme source (sound)   → tee → [opusenc|mulawenc] → rtpopuspay|rtpL16pay|rtppcmupay       pay1
//! └───────────────────────────────────────────────────────────────────────────── capture times ↑ ─┘
//! ```
//!
//! Nothing queues: each source's thread encodes and payloads its own frames, and is paced by the clock. A stream that
//! no room wants yet is not linked to anything behind the payloader; the tee (which has one branch) keeps the source
//! going, and nothing is encoded for it.

use super::SendError;
use super::codec::{AudioCodec, AudioFormat, FrameRate, PictureSize, VideoEncoder};
use super::content::{PictureContent, SoundContent};
use super::source::{Content, ProgrammeSource};
use crate::programme::Programme;
use gst::prelude::*;
use gst_rtp::prelude::*;

/// The URI of the in-packet capture times (RFC 6051, section 3.3).
const NTP64_URI: &str = "urn:ietf:params:rtp-hdrext:ntp-64";
/// The number by which packets refer to it; any from 1 to 14 (RFC 8285).
const NTP64_ID: u32 = 1;
/// Payload types for dynamic formats (RFC 3551, section 6).
const VIDEO_PAYLOAD_TYPE: u32 = 96;
const AUDIO_PAYLOAD_TYPE: u32 = 97;
/// A key frame at least so often a second, so that a room that joins sees a picture soon.
const KEY_FRAMES_PER_S: u32 = 2;
/// The rate of the video, kbit/s: enough for sharp digits at 1280x720, little enough for Wi-Fi with many rooms.
const VIDEO_KBIT: u32 = 2_000;
/// The rate of Opus, bit/s: transparent for two channels.
const OPUS_BIT: i32 = 128_000;

/// What one mount serves.
#[derive(Debug, Clone)]
pub struct MediaSpec {
    pub video: Option<VideoSpec>,
    pub audio: Option<AudioSpec>,
    /// Whether packets carry capture times (RFC 6051).
    pub ntp64: bool,
}

/// A picture to send.
#[derive(Debug, Clone, Copy)]
pub struct VideoSpec {
    pub encoder: VideoEncoder,
    pub size: PictureSize,
    pub rate: FrameRate,
}

/// A sound to send.
#[derive(Debug, Clone)]
pub struct AudioSpec {
    pub programme: Programme,
    pub format: AudioFormat,
}

/// Builds the bin.
///
/// # Errors
/// [`SendError::Failed`] when an element is missing or two do not fit together.
pub fn build(spec: &MediaSpec) -> Result<gst::Element, SendError> {
    let bin = gst::Bin::new();
    let mut payloaders = 0;
    if let Some(video) = &spec.video {
        let content = PictureContent::new(video.size, video.rate)
            .ok_or_else(|| SendError::Failed(format!("no picture of {}", video.size)))?;
        let chain = vec![video_encoder(video)?, video_payloader(video.encoder, payloaders)?];
        add_stream(&bin, "picture", Box::new(content), chain, spec.ntp64)?;
        payloaders += 1;
    }
    if let Some(audio) = &spec.audio {
        let content = SoundContent::new(audio.programme.clone(), audio.format);
        let mut chain: Vec<gst::Element> = audio_encoder(audio.format.codec)?.into_iter().collect();
        chain.push(audio_payloader(audio.format.codec, payloaders)?);
        add_stream(&bin, "sound", Box::new(content), chain, spec.ntp64)?;
    }
    Ok(bin.upcast())
}

fn add_stream(
    bin: &gst::Bin,
    name: &str,
    content: Box<dyn Content>,
    mut chain: Vec<gst::Element>,
    ntp64: bool,
) -> Result<(), SendError> {
    if let Some(payloader) = chain.last() {
        carry_capture_times(payloader, ntp64)?;
    }
    let source = ProgrammeSource::new(name, content).upcast::<gst::Element>();
    let tee = built(gst::ElementFactory::make("tee").property("allow-not-linked", true))?;
    if let (Some(pad), Some(payloader)) = (source.static_pad("src"), chain.last()) {
        rest_while_unwanted(&pad, payloader);
    }
    chain.splice(0..0, [source, tee]);
    bin.add_many(&chain)
        .and_then(|()| gst::Element::link_many(&chain))
        .map_err(|error| SendError::Failed(format!("the elements for the {name} cannot be linked: {error}")))
}

fn built(builder: gst::element_factory::ElementBuilder<'_>) -> Result<gst::Element, SendError> {
    builder.build().map_err(|error| SendError::Failed(error.to_string()))
}

fn video_encoder(video: &VideoSpec) -> Result<gst::Element, SendError> {
    let key_interval = (video.rate.numerator / (video.rate.denominator * KEY_FRAMES_PER_S)).max(1);
    let encoder = gst::ElementFactory::make(video.encoder.name());
    built(match video.encoder {
        // One thread: at this preset a frame takes milliseconds, and the other cores are for the rooms.
        VideoEncoder::X264 => encoder
            .property_from_str("tune", "zerolatency")
            .property_from_str("speed-preset", "ultrafast")
            .property("key-int-max", key_interval)
            .property("bitrate", VIDEO_KBIT)
            .property("bframes", 0u32)
            .property("threads", 1u32),
        VideoEncoder::OpenH264 => encoder
            .property("gop-size", key_interval)
            .property("bitrate", VIDEO_KBIT * 1_000)
            .property_from_str("complexity", "low")
            .property_from_str("rate-control", "bitrate")
            .property("enable-frame-skip", false)
            .property("multi-thread", 1u32),
        VideoEncoder::Vp8 => encoder
            .property("deadline", 1i64) // µs a frame: as fast as it can
            .property("cpu-used", 8i32)
            .property("lag-in-frames", 0i32)
            .property("keyframe-max-dist", key_interval as i32)
            .property("target-bitrate", (VIDEO_KBIT * 1_000) as i32)
            .property_from_str("end-usage", "cbr")
            .property_from_str("error-resilient", "default")
            .property("threads", 1i32),
    })
}

fn video_payloader(encoder: VideoEncoder, number: usize) -> Result<gst::Element, SendError> {
    let name = format!("pay{number}");
    built(match encoder {
        VideoEncoder::X264 | VideoEncoder::OpenH264 => gst::ElementFactory::make("rtph264pay")
            .name(&name)
            .property("pt", VIDEO_PAYLOAD_TYPE)
            // With each key frame, so that a room that missed the description of the stream can decode.
            .property("config-interval", -1i32)
            .property_from_str("aggregate-mode", "zero-latency"),
        VideoEncoder::Vp8 => gst::ElementFactory::make("rtpvp8pay")
            .name(&name)
            .property("pt", VIDEO_PAYLOAD_TYPE)
            .property_from_str("picture-id-mode", "15-bit"),
    })
}

fn audio_encoder(codec: AudioCodec) -> Result<Option<gst::Element>, SendError> {
    match codec {
        AudioCodec::Opus => built(gst::ElementFactory::make("opusenc").property("bitrate", OPUS_BIT)).map(Some),
        AudioCodec::L16 => Ok(None),
        AudioCodec::Pcmu => built(gst::ElementFactory::make("mulawenc")).map(Some),
    }
}

fn audio_payloader(codec: AudioCodec, number: usize) -> Result<gst::Element, SendError> {
    let name = format!("pay{number}");
    let (factory, payload_type) = match codec {
        AudioCodec::Opus => ("rtpopuspay", AUDIO_PAYLOAD_TYPE),
        AudioCodec::L16 => ("rtpL16pay", AUDIO_PAYLOAD_TYPE),
        AudioCodec::Pcmu => ("rtppcmupay", 0), // fixed by RFC 3551
    };
    built(gst::ElementFactory::make(factory).name(&name).property("pt", payload_type))
}

/// Makes a payloader carry capture times: exactly in the RTP timestamps, and in the packets if `ntp64`.
fn carry_capture_times(payloader: &gst::Element, ntp64: bool) -> Result<(), SendError> {
    // Each RTP timestamp from the time of its own buffer, never from a count: nothing accumulates over a gap.
    payloader.set_property("perfect-rtptime", false);
    if ntp64 {
        let extension = gst_rtp::RTPHeaderExtension::create_from_uri(NTP64_URI)
            .ok_or_else(|| SendError::Failed("the element rtphdrextntp64 is missing".into()))?;
        extension.set_id(NTP64_ID);
        payloader.emit_by_name::<()>("add-extension", &[&extension]);
    }
    let sink = payloader
        .static_pad("sink")
        .ok_or_else(|| SendError::Failed(format!("{} has no sink pad", payloader.name())))?;
    // What the extension writes: the buffer's time on the NTP clock.
    let caps = gst::Caps::new_empty_simple("timestamp/x-ntp");
    sink.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        if let Some(buffer) = info.buffer_mut() {
            let buffer = buffer.make_mut();
            undo_clipping(buffer);
            if let Some(pts) = buffer.pts() {
                gst::ReferenceTimestampMeta::add(buffer, &caps, pts, gst::ClockTime::NONE);
            }
        }
        gst::PadProbeReturn::Ok
    });
    Ok(())
}

/// Drops what leaves `source` while nothing behind rtpbin takes what `payloader` makes of it.
fn rest_while_unwanted(source: &gst::Pad, payloader: &gst::Element) {
    let payloader = payloader.downgrade();
    source.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        // The first buffer always goes through: with it the server learns what the stream is.
        let unwanted = payloader
            .upgrade()
            .and_then(|payloader| payloader.static_pad("src"))
            .is_some_and(|pad| pad.last_flow_result() == Err(gst::FlowError::NotLinked) && !leads_on(&pad));
        if unwanted { gst::PadProbeReturn::Drop } else { gst::PadProbeReturn::Ok }
    });
}

/// Whether the rtpbin that `pad` is linked to, through the wall of its bin, has something linked to its other side:
/// `send_rtp_sink_N` comes out at `send_rtp_src_N`.
fn leads_on(pad: &gst::Pad) -> bool {
    let inside = pad.peer().and_then(|inside| inside.parent());
    let Some(peer) = inside.and_downcast::<gst::GhostPad>().and_then(|wall| wall.peer()) else { return false };
    let way_out = peer.name().replace("_sink_", "_src_");
    peer.parent_element().and_then(|rtpbin| rtpbin.static_pad(&way_out)).is_some_and(|pad| pad.is_linked())
}

/// An audio encoder starts with samples from before its input (Opus: 6.5 ms), timestamps the packet without them, and
/// tells a decoder to cut them off. RTP cannot tell: there the packet has to begin where its samples do.
fn undo_clipping(buffer: &mut gst::BufferRef) {
    let Some(clipped) = buffer.meta::<gst_audio::AudioClippingMeta>().map(|meta| meta.start()) else { return };
    let gst::GenericFormattedValue::Default(Some(frames)) = clipped else { return };
    // opusenc counts in samples of 48 kHz at any rate.
    let before = gst::ClockTime::from_nseconds(*frames * 1_000_000_000 / 48_000);
    let pts = buffer.pts().and_then(|pts| pts.checked_sub(before));
    buffer.set_pts(pts);
}

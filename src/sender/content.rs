//! Sound and picture of the test programme as buffers.

use super::codec::{AudioCodec, AudioFormat, FrameRate, PictureSize};
use super::pacing::Raster;
use super::source::Content;
use crate::clock::NtpTime;
use crate::programme::Programme;
use crate::programme::picture::{Canvas, Painter, Plane};

/// A late block of sound is still sent within this time, as a gap is heard by everyone, ns.
const AUDIO_LATE_MAX: u64 = 200_000_000;
/// What a packet may carry, bytes: an Ethernet frame less IP, UDP and RTP headers, with room for header extensions,
/// tunnels and VLANs.
const PACKET_BYTES: u32 = 1_300;

/// Blocks of the sound, each as long as one packet.
pub struct SoundContent {
    programme: Programme,
    format: AudioFormat,
    block: u32,
    samples: Vec<i16>,
}

impl SoundContent {
    /// The programme's rate must be that of the format.
    pub fn new(programme: Programme, format: AudioFormat) -> Self {
        Self { block: block_frames(&format), programme, format, samples: Vec::new() }
    }
}

/// How many frames (samples of all channels) a packet holds: 20 ms, the usual frame of speech codecs and Opus;
/// uncompressed 5 ms, or what fits.
fn block_frames(format: &AudioFormat) -> u32 {
    match format.codec {
        AudioCodec::Opus | AudioCodec::Pcmu => format.rate / 50,
        AudioCodec::L16 => (format.rate / 200).min(PACKET_BYTES / (2 * format.channels)).max(1),
    }
}

impl Content for SoundContent {
    fn caps(&self) -> gst::Caps {
        // RTP carries L16 with the high byte first; the encoders take the host's usual order.
        let sample_format = if self.format.codec == AudioCodec::L16 {
            gst_audio::AudioFormat::S16be
        } else {
            gst_audio::AudioFormat::S16le
        };
        let info = gst_audio::AudioInfo::builder(sample_format, self.format.rate, self.format.channels).build();
        info.and_then(|info| info.to_caps()).unwrap_or_else(|_| gst::Caps::new_empty())
    }

    fn raster(&self) -> Raster {
        Raster { numerator: self.format.rate, denominator: self.block }
    }

    fn ready_at_end(&self) -> bool {
        true
    }

    fn late_max(&self) -> u64 {
        AUDIO_LATE_MAX
    }

    fn make(&mut self, index: u64, _time: NtpTime) -> Option<gst::Buffer> {
        let channels = self.format.channels as usize;
        self.samples.resize(self.block as usize * channels, 0);
        self.programme.fill_i16(index * u64::from(self.block), channels, &mut self.samples);
        let mut bytes = Vec::with_capacity(2 * self.samples.len());
        for sample in &self.samples {
            let sample = if self.format.codec == AudioCodec::L16 { sample.to_be_bytes() } else { sample.to_le_bytes() };
            bytes.extend_from_slice(&sample);
        }
        Some(gst::Buffer::from_mut_slice(bytes))
    }
}

/// Frames of the picture.
pub struct PictureContent {
    painter: Painter,
    info: gst_video::VideoInfo,
    rate: FrameRate,
}

impl PictureContent {
    /// `None` when there is no picture of that size.
    pub fn new(size: PictureSize, rate: FrameRate) -> Option<Self> {
        let info = gst_video::VideoInfo::builder(gst_video::VideoFormat::I420, size.width, size.height)
            .fps(gst::Fraction::new(rate.numerator as i32, rate.denominator as i32))
            .colorimetry(&gst_video::VideoColorimetry::new(
                gst_video::VideoColorRange::Range16_235,
                gst_video::VideoColorMatrix::Bt709,
                gst_video::VideoTransferFunction::Bt709,
                gst_video::VideoColorPrimaries::Bt709,
            ))
            .build()
            .ok()?;
        Some(Self { painter: Painter::new(size.width, size.height).ok()?, info, rate })
    }
}

impl Content for PictureContent {
    fn caps(&self) -> gst::Caps {
        self.info.to_caps().unwrap_or_else(|_| gst::Caps::new_empty())
    }

    fn raster(&self) -> Raster {
        Raster { numerator: self.rate.numerator, denominator: self.rate.denominator }
    }

    fn ready_at_end(&self) -> bool {
        false
    }

    fn late_max(&self) -> u64 {
        // When the next frame is due, this one is old.
        self.raster().time(1)
    }

    fn make(&mut self, _index: u64, time: NtpTime) -> Option<gst::Buffer> {
        let buffer = gst::Buffer::with_size(self.info.size()).ok()?;
        let mut frame = gst_video::VideoFrame::from_buffer_writable(buffer, &self.info).ok()?;
        let (width, height) = (self.info.width() as usize, self.info.height() as usize);
        let strides = [0, 1, 2].map(|plane| self.info.stride()[plane] as usize);
        let [y, u, v, _] = frame.planes_data_mut();
        let planes = [
            Plane { data: y, stride: strides[0] },
            Plane { data: u, stride: strides[1] },
            Plane { data: v, stride: strides[2] },
        ];
        self.painter.paint(&mut Canvas { width, height, planes }, time);
        Some(frame.into_buffer())
    }
}

//! What the camera films and hears: recorded files in a loop, and generated sound.

mod ogg;
mod sound;
mod video;

pub use video::{Recording, is_parameter_set};

use std::sync::Arc;

/// What one stream carries.
#[derive(Debug, Clone)]
pub enum Media {
    /// H.264 (RFC 6184, packetization mode 1), 25 frames a second.
    H264(Recording),
    /// G.711 µ-law, 8 kHz, mono, a 440 Hz tone, packets of 20 ms.
    Pcmu,
    /// 16-bit linear PCM, 48 kHz, stereo, a 440 Hz tone, packets of 5 ms.
    L16,
    /// Opus (RFC 7587), mono, a 440 Hz tone, packets of 20 ms.
    Opus,
    /// ONVIF metadata: an empty XML document a second (`application` in the SDP, not for playing).
    Metadata,
}

/// One frame, or one packet of sound, cut to RTP payloads.
#[derive(Debug, Clone, Default)]
pub struct Frame {
    pub payloads: Vec<Vec<u8>>,
    /// Whether a decoder can start here.
    pub key: bool,
    /// Display order minus sending order, in frames. Not 0 with B-frames only.
    pub display_ahead: i64,
}

/// How the media is described and paced.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// The media name of the SDP's `m=` line.
    pub kind: &'static str,
    /// The usual payload type: a static one (RFC 3551) or of the dynamic range.
    pub payload_type: u8,
    /// The value of `a=rtpmap:` without the payload type.
    pub rtpmap: &'static str,
    /// RTP clock, Hz.
    pub clock_rate: u32,
    /// RTP clock ticks from one frame to the next.
    pub ticks: u32,
}

impl Media {
    pub fn format(&self) -> Format {
        match self {
            Self::H264(_) => Format {
                kind: "video",
                payload_type: 96,
                rtpmap: "H264/90000",
                clock_rate: 90_000,
                ticks: 90_000 / video::FRAMES_PER_SECOND,
            },
            Self::Pcmu => Format { kind: "audio", payload_type: 0, rtpmap: "PCMU/8000", clock_rate: 8_000, ticks: 160 },
            Self::L16 => {
                Format { kind: "audio", payload_type: 97, rtpmap: "L16/48000/2", clock_rate: 48_000, ticks: 240 }
            }
            Self::Opus => {
                Format { kind: "audio", payload_type: 98, rtpmap: "opus/48000/2", clock_rate: 48_000, ticks: 960 }
            }
            Self::Metadata => Format {
                kind: "application",
                payload_type: 107,
                rtpmap: "vnd.onvif.metadata/90000",
                clock_rate: 90_000,
                ticks: 90_000,
            },
        }
    }

    /// Loads what has to be loaded. Panics when a fixture is missing: that is a broken checkout.
    pub fn open(&self) -> Source {
        match self {
            Self::H264(recording) => Source::Video(Arc::new(recording.open())),
            Self::Pcmu => Source::Pcmu,
            Self::L16 => Source::L16,
            Self::Opus => Source::Opus(Arc::new(ogg::packets(include_bytes!("../../../fixtures/tone.opus")))),
            Self::Metadata => Source::Metadata,
        }
    }
}

/// Media that was opened. Frames are numbered from the start of the timeline and repeat without end.
#[derive(Debug, Clone)]
pub enum Source {
    Video(Arc<video::Video>),
    Pcmu,
    L16,
    Opus(Arc<Vec<Vec<u8>>>),
    Metadata,
}

impl Source {
    /// The frame with this number.
    pub fn frame(&self, number: i64) -> Frame {
        let sound = |payload| Frame { payloads: vec![payload], key: true, display_ahead: 0 };
        match self {
            Self::Video(video) => video.frame(number),
            Self::Pcmu => sound(sound::pcmu(number)),
            Self::L16 => sound(sound::l16(number)),
            Self::Opus(packets) => sound(packets[number.rem_euclid(packets.len() as i64) as usize].clone()),
            Self::Metadata => sound(
                b"<?xml version=\"1.0\"?><tt:MetadataStream xmlns:tt=\"http://www.onvif.org/ver10/schema\"/>".to_vec(),
            ),
        }
    }

    /// What an honest SDP says in `a=fmtp:`, without the payload type.
    pub fn fmtp(&self) -> Option<String> {
        match self {
            Self::Video(video) => Some(video.fmtp()),
            _ => None,
        }
    }

    /// By how many frames sending waits for a frame that is shown later: 0 without B-frames.
    pub fn reorder_depth(&self) -> i64 {
        match self {
            Self::Video(video) => video.reorder_depth(),
            _ => 0,
        }
    }

    /// Whether a marker bit ends each frame, and parameter sets may be among the payloads.
    pub fn is_video(&self) -> bool {
        matches!(self, Self::Video(_))
    }
}

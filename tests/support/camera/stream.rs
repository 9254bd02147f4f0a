//! The script of one stream: how it is described, how its packets look, and what its sender reports say.

use super::super::timeline::{Nanos, SECOND};
use super::media::Media;

/// One media of the camera. The defaults are those of an honest camera; each field is one thing that can be odd.
#[derive(Debug, Clone)]
pub struct Stream {
    pub media: Media,

    // --- what the SDP says
    /// Listed in the SDP. `false`: can still be set up by its control URL.
    pub described: bool,
    /// The payload type in the SDP.
    pub payload_type: u8,
    /// The line `a=rtpmap:`, here without the payload type.
    pub rtpmap: Line,
    /// The line `a=fmtp:`, here without the payload type (H.264: the parameter sets).
    pub fmtp: Line,
    /// The value of `a=control:`. `{base}` stands for the URL of the DESCRIBE request without query.
    pub control: String,

    // --- RTP
    /// The payload type on the wire when it is not the one in the SDP.
    pub wire_payload_type: Option<u8>,
    /// SSRC; `None`: another one in each session.
    pub ssrc: Option<u32>,
    /// The first sequence number; `None`: another one in each session.
    pub sequence: Option<u16>,
    /// The RTP timestamp of the first packet; `None`: another one in each session. The counter wraps at 2³².
    pub timestamp: Option<u32>,
    /// How much faster than nominal the camera samples, against its own clock, in ppm. Its RTP timestamps count
    /// samples, so they run as much too fast.
    pub sampling_ppm: f64,
    /// Sent again before each key frame (H.264). `false`: in the SDP only.
    pub in_band_parameter_sets: bool,
    /// Announced, but no RTP packet is ever sent. Reports are, unless they are switched off.
    pub silent: bool,
    /// The RFC 6051 header extension ntp-64: each packet says when its frame was captured.
    pub ntp64: Option<Ntp64>,
    /// The ONVIF replay extension on the first packet of each frame.
    pub onvif_replay: Option<OnvifReplay>,

    // --- RTCP
    pub reports: Reports,
}

impl Stream {
    /// An honest stream of this media; `control` is `trackID=` and the place in the script.
    pub fn new(media: Media) -> Self {
        Self {
            described: true,
            payload_type: media.format().payload_type,
            media,
            rtpmap: Line::Honest,
            fmtp: Line::Honest,
            control: String::new(),
            wire_payload_type: None,
            ssrc: None,
            sequence: None,
            timestamp: None,
            sampling_ppm: 0.0,
            in_band_parameter_sets: true,
            silent: false,
            ntp64: None,
            onvif_replay: None,
            reports: Reports::default(),
        }
    }
}

/// A line of text that a camera should send.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Line {
    /// As it should be.
    #[default]
    Honest,
    /// Left out.
    Missing,
    /// This text in its place.
    Text(String),
}

impl Line {
    /// The text to send, if any, when `honest` makes the right one.
    pub fn text(&self, honest: impl FnOnce() -> Option<String>) -> Option<String> {
        match self {
            Self::Honest => honest(),
            Self::Missing => None,
            Self::Text(text) => Some(text.clone()),
        }
    }
}

/// In-band capture times (RFC 6051, section 3.3).
#[derive(Debug, Clone)]
pub struct Ntp64 {
    /// The local identifier (RFC 8285): 1 to 14, in the two-byte form up to 255.
    pub id: u8,
    /// The two-byte form of header extensions.
    pub two_byte: bool,
    /// Announced by `a=extmap:` in the SDP.
    pub announced: bool,
    /// On the first packet of each frame only.
    pub first_packet_only: bool,
    /// What its times count from.
    pub epoch: Epoch,
    /// Added to its times, beside the error of the camera's clock.
    pub offset: Nanos,
}

impl Default for Ntp64 {
    fn default() -> Self {
        Self { id: 1, two_byte: false, announced: true, first_packet_only: false, epoch: Epoch::Ntp, offset: 0 }
    }
}

/// Capture times as recorders send them (ONVIF streaming specification, section 6.3).
#[derive(Debug, Clone, Default)]
pub struct OnvifReplay {
    /// Added to its times, beside the error of the camera's clock.
    pub offset: Nanos,
}

/// What an NTP timestamp field really holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Epoch {
    /// Time since 1900, as it should be.
    #[default]
    Ntp,
    /// All zero: the camera has no clock.
    Zero,
    /// Unix time: 70 years too early.
    Unix,
    /// The 70 years were added twice.
    Twice,
    /// Time since the camera started: reads as 1900, or as 2036.
    Uptime,
    /// A camera without a battery: its clock starts at 1970.
    BootedIn1970,
    /// TAI instead of UTC: 37 s ahead.
    Tai,
}

/// Where the CNAME is. Without one rtpbin does not synchronize the stream, unless the SDP gives it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sdes {
    /// In one compound packet with the report (RFC 3550, section 6.1).
    #[default]
    Compound,
    /// In an RTCP packet of its own after the report: both are less than a compound.
    Apart,
    /// Nowhere.
    Missing,
}

/// What the stream's sender reports say, and when.
#[derive(Debug, Clone)]
pub struct Reports {
    /// `false`: never a report. (A BYE is still sent.)
    pub sent: bool,
    /// The first report comes so long after the first packet of the stream.
    pub first_after: Nanos,
    /// From one report to the next.
    pub interval: Nanos,
    /// What the NTP field counts from.
    pub epoch: Epoch,
    /// Added to the NTP field, beside the error of the camera's clock. On one stream only: lips are off.
    pub offset: Nanos,
    /// Added to the NTP field: anew for each report, even between − and + this.
    pub jitter: Nanos,
    /// The pair of times in the report is so old, and consistent.
    pub stale: Nanos,
    /// The SSRC with its bytes in the wrong order.
    pub swapped_ssrc: bool,
    pub sdes: Sdes,
    /// The name in the SDES, and in the SDP with [`super::script::Sdp::ssrc_cname`].
    pub cname: String,
}

impl Default for Reports {
    fn default() -> Self {
        Self {
            sent: true,
            first_after: 0,
            interval: SECOND,
            epoch: Epoch::Ntp,
            offset: 0,
            jitter: 0,
            stale: 0,
            swapped_ssrc: false,
            sdes: Sdes::Compound,
            cname: "camera@scripted.invalid".into(),
        }
    }
}

//! Recorded H.264: an Annex B file, cut to access units and RTP payloads.

use super::Frame;
use gst::glib;

/// All recordings have this rate.
pub const FRAMES_PER_SECOND: u32 = 25;
/// The longest RTP payload: fits an Ethernet frame with every header and extension.
const PAYLOAD_MAX: usize = 1_200;

const SLICE: u8 = 1;
const IDR_SLICE: u8 = 5;
const SPS: u8 = 7;
const PPS: u8 = 8;
const FU_A: u8 = 28;

/// Which file is played. `tests/fixtures/make.sh` shows how each was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recording {
    /// 160 × 120, constrained baseline, a key frame every 0.4 s.
    Small,
    /// 320 × 240, constrained baseline, a key frame every 0.2 s.
    Large,
    /// 160 × 120, main profile, two B-frames between anchors, a key frame every 0.48 s.
    BFrames,
}

impl Recording {
    pub fn open(self) -> Video {
        Video::parse(match self {
            Self::Small => include_bytes!("../../../fixtures/small.h264"),
            Self::Large => include_bytes!("../../../fixtures/large.h264"),
            Self::BFrames => include_bytes!("../../../fixtures/bframes.h264"),
        })
    }
}

/// A recording in memory.
#[derive(Debug)]
pub struct Video {
    units: Vec<Unit>,
}

/// One access unit: the NAL units of a frame.
#[derive(Debug, Default)]
struct Unit {
    nals: Vec<Vec<u8>>,
    /// Display order minus decoding order, frames.
    display_ahead: i64,
}

fn nal_type(nal: &[u8]) -> u8 {
    nal[0] & 0x1f
}

/// Whether other frames refer to this slice (nal_ref_idc is not 0).
fn is_reference(nal: &[u8]) -> bool {
    nal[0] & 0x60 != 0
}

fn is_slice(nal: &[u8]) -> bool {
    matches!(nal_type(nal), SLICE | IDR_SLICE)
}

impl Unit {
    fn is_key(&self) -> bool {
        self.nals.iter().any(|nal| nal_type(nal) == IDR_SLICE)
    }

    fn is_b_frame(&self) -> bool {
        self.nals.iter().any(|nal| is_slice(nal) && !is_reference(nal))
    }
}

impl Video {
    /// The recordings have one slice a frame, so a slice ends its access unit.
    fn parse(file: &[u8]) -> Self {
        let mut units = vec![Unit::default()];
        for nal in nal_units(file) {
            let unit = units.last_mut().expect("starts with one");
            let ends = is_slice(&nal);
            unit.nals.push(nal);
            if ends {
                units.push(Unit::default());
            }
        }
        units.pop();
        // B-frames are sent after the anchor that they are shown before. They are never references here.
        for anchor in 0..units.len() {
            let followers = units[anchor + 1..].iter().take_while(|unit| unit.is_b_frame()).count();
            if !units[anchor].is_b_frame() {
                units[anchor].display_ahead = followers as i64;
                units[anchor + 1..=anchor + followers].iter_mut().for_each(|unit| unit.display_ahead = -1);
            }
        }
        Self { units }
    }

    /// The frame with this number, in sending order.
    pub fn frame(&self, number: i64) -> Frame {
        let unit = &self.units[number.rem_euclid(self.units.len() as i64) as usize];
        Frame {
            payloads: unit.nals.iter().flat_map(|nal| payloads(nal)).collect(),
            key: unit.is_key(),
            display_ahead: unit.display_ahead,
        }
    }

    /// By how many frames the most delayed frame is sent before its turn to be shown.
    pub fn reorder_depth(&self) -> i64 {
        self.units.iter().map(|unit| unit.display_ahead).max().unwrap_or_default()
    }

    fn parameter_set(&self, kind: u8) -> &[u8] {
        self.units.iter().flat_map(|unit| &unit.nals).find(|nal| nal_type(nal) == kind).expect("in every recording")
    }

    /// RFC 6184, section 8.1.
    pub fn fmtp(&self) -> String {
        let (sps, pps) = (self.parameter_set(SPS), self.parameter_set(PPS));
        format!(
            "packetization-mode=1;profile-level-id={:02X}{:02X}{:02X};sprop-parameter-sets={},{}",
            sps[1],
            sps[2],
            sps[3],
            glib::base64_encode(sps),
            glib::base64_encode(pps)
        )
    }
}

/// Whether this RTP payload is a parameter set, so that a script can leave it out.
pub fn is_parameter_set(payload: &[u8]) -> bool {
    matches!(nal_type(payload), SPS | PPS)
}

/// Splits at the start codes 00 00 01 (H.264, annex B); zero bytes before a start code belong to it.
fn nal_units(file: &[u8]) -> Vec<Vec<u8>> {
    let starts: Vec<usize> =
        (0..file.len().saturating_sub(3)).filter(|&at| file[at..].starts_with(&[0, 0, 1])).collect();
    let ends = starts.iter().skip(1).copied().chain([file.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(start, end)| {
            let nal = &file[start + 3..end];
            let zeros = nal.iter().rev().take_while(|byte| **byte == 0).count();
            nal[..nal.len() - zeros].to_vec()
        })
        .collect()
}

/// A NAL unit as it is, or in fragments (FU-A, RFC 6184, section 5.8).
fn payloads(nal: &[u8]) -> Vec<Vec<u8>> {
    if nal.len() <= PAYLOAD_MAX {
        return vec![nal.to_vec()];
    }
    let parts: Vec<&[u8]> = nal[1..].chunks(PAYLOAD_MAX).collect();
    let last = parts.len() - 1;
    let fragment = |(index, part): (usize, &&[u8])| {
        let (start, end) = (u8::from(index == 0) << 7, u8::from(index == last) << 6);
        let mut payload = vec![nal[0] & 0xe0 | FU_A, start | end | nal_type(nal)];
        payload.extend(*part);
        payload
    };
    parts.iter().enumerate().map(fragment).collect()
}

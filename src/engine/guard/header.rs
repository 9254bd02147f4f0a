//! The header of an RTP packet, and the capture time that it may carry: read, changed, or taken out in place.
//!
//! Two header extensions carry one: ntp-64 (RFC 6051, section 3.3) in the one-byte or two-byte form of RFC 8285, and
//! ONVIF's replay extension (ONVIF streaming specification, section 6.3), which rtpbin does not know.

const VERSION: u8 = 2;
const HEADER: usize = 12;
const TIMESTAMP_AT: usize = 4;
const ONE_BYTE: u16 = 0xbede;
/// 0x100 and four bits of the application's own (RFC 8285, section 4.3).
const TWO_BYTE: u16 = 0x100;
/// The one-byte identifier that ends the list (RFC 8285, section 4.2).
const ONE_BYTE_END: u8 = 15;
const ONVIF_REPLAY: u16 = 0xabac;
/// NTP time, flags and counter.
const ONVIF_REPLAY_LEN: usize = 12;
const NTP_LEN: usize = 8;

/// What the guard needs of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub ssrc: u32,
    pub timestamp: u32,
    pub capture: Option<Capture>,
}

/// A capture time on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capture {
    /// As on the wire; see [`super::fixed`].
    pub ntp: u64,
    pub form: Form,
    /// Where the extension element starts in the packet.
    at: usize,
}

/// How a capture time is carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    OneByte,
    TwoByte,
    OnvifReplay,
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Reads a packet; `ntp64_id` is the local identifier of ntp-64, from `a=extmap`. `None` when it is no RTP.
pub fn parse(bytes: &[u8], ntp64_id: Option<u8>) -> Option<Header> {
    let first = *bytes.first()?;
    if first >> 6 != VERSION || bytes.len() < HEADER {
        return None;
    }
    let capture =
        if first & 0x10 == 0 { None } else { capture(bytes, HEADER + 4 * usize::from(first & 0x0f), ntp64_id) };
    Some(Header { ssrc: word(bytes, 8)?, timestamp: word(bytes, TIMESTAMP_AT)?, capture })
}

/// The capture time in the extension that starts at `start`.
fn capture(bytes: &[u8], start: usize, ntp64_id: Option<u8>) -> Option<Capture> {
    let profile = half(bytes, start)?;
    let end = start + 4 + 4 * usize::from(half(bytes, start + 2)?);
    let mut at = start + 4;
    bytes.get(at..end)?;
    if profile == ONVIF_REPLAY {
        return (end - at >= ONVIF_REPLAY_LEN).then_some(Capture {
            ntp: long(bytes, at)?,
            form: Form::OnvifReplay,
            at: start,
        });
    }
    let form = match profile {
        ONE_BYTE => Form::OneByte,
        _ if profile >> 4 == TWO_BYTE => Form::TwoByte,
        _ => return None,
    };
    let wanted = ntp64_id?;
    while at < end {
        if bytes[at] == 0 {
            at += 1; // padding
            continue;
        }
        let (id, length, data) = match form {
            Form::OneByte if bytes[at] >> 4 == ONE_BYTE_END => return None,
            Form::OneByte => (bytes[at] >> 4, usize::from(bytes[at] & 0x0f) + 1, at + 1),
            _ => (bytes[at], usize::from(*bytes.get(at + 1)?), at + 2),
        };
        if id == wanted && length == NTP_LEN && data + length <= end {
            return Some(Capture { ntp: long(bytes, data)?, form, at });
        }
        at = data + length;
    }
    None
}

/// What to change in a packet, in place. Nothing in most packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Edits {
    timestamp: Option<u32>,
    capture: Option<(Capture, CaptureEdit)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CaptureEdit {
    Set(u64),
    Remove,
    /// Make ONVIF's extension ntp-64 with this identifier.
    Convert(u64, u8),
}

impl Edits {
    /// Whether the packet may pass as it is.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn set_timestamp(&mut self, timestamp: u32) {
        self.timestamp = Some(timestamp);
    }

    pub(super) fn set_capture(&mut self, capture: Capture, ntp: u64) {
        self.capture = Some((capture, CaptureEdit::Set(ntp)));
    }

    pub(super) fn remove_capture(&mut self, capture: Capture) {
        self.capture = Some((capture, CaptureEdit::Remove));
    }

    /// ONVIF's extension and a one-byte ntp-64 with its padding are equally long.
    pub(super) fn convert_capture(&mut self, capture: Capture, ntp: u64, id: u8) {
        self.capture = Some((capture, CaptureEdit::Convert(ntp, id)));
    }

    /// Changes the packet that was parsed; the length stays.
    pub fn apply(&self, bytes: &mut [u8]) {
        if let Some(timestamp) = self.timestamp {
            write(bytes, TIMESTAMP_AT, &timestamp.to_be_bytes());
        }
        let Some((capture, edit)) = self.capture else { return };
        // From the start of the element to its data.
        let head = match capture.form {
            Form::OneByte => 1,
            Form::TwoByte => 2,
            Form::OnvifReplay => 4,
        };
        match edit {
            CaptureEdit::Set(ntp) => write(bytes, capture.at + head, &ntp.to_be_bytes()),
            CaptureEdit::Remove if capture.form == Form::OnvifReplay => {
                // Nobody behind reads it.
            }
            CaptureEdit::Remove => write(bytes, capture.at, &[0; 2 + NTP_LEN][..head + NTP_LEN]),
            CaptureEdit::Convert(ntp, id) => {
                write(bytes, capture.at, &ONE_BYTE.to_be_bytes());
                let mut element = [0; ONVIF_REPLAY_LEN];
                element[0] = id << 4 | (NTP_LEN as u8 - 1);
                element[1..=NTP_LEN].copy_from_slice(&ntp.to_be_bytes());
                write(bytes, capture.at + 4, &element);
            }
        }
    }
}

/// Writes into a packet; nothing when it is not the one that was parsed and ends before.
fn write(bytes: &mut [u8], at: usize, data: &[u8]) {
    if let Some(field) = bytes.get_mut(at..at + data.len()) {
        field.copy_from_slice(data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NTP: u64 = 0xe800_0000_8000_0000;

    fn packet(profile: u16, words: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x90, 0x80 | 96, 0, 1, 0, 0, 0x10, 0, 0xde, 0xad, 0xbe, 0xef];
        bytes.extend(profile.to_be_bytes());
        bytes.extend(((words.len() / 4) as u16).to_be_bytes());
        bytes.extend(words);
        bytes.extend(b"payload");
        bytes
    }

    fn words(before: &[u8], after: &[u8]) -> Vec<u8> {
        [before, &NTP.to_be_bytes(), after].concat()
    }

    /// One packet of each form, with another element before it where that can be.
    fn packets() -> [(Form, Vec<u8>); 3] {
        [
            (Form::OneByte, packet(ONE_BYTE, &words(&[0x10, 7, 0x27], &[0]))),
            (Form::TwoByte, packet(0x1005, &words(&[1, 0, 2, 8], &[]))),
            (Form::OnvifReplay, packet(ONVIF_REPLAY, &words(&[], &[0x80, 1, 0, 0]))),
        ]
    }

    #[test]
    fn reads_every_form() {
        for (form, bytes) in packets() {
            let header = parse(&bytes, Some(2)).unwrap();
            assert_eq!((header.ssrc, header.timestamp), (0xdead_beef, 0x1000));
            let capture = header.capture.unwrap();
            assert_eq!((capture.ntp, capture.form), (NTP, form));
            assert_eq!(parse(&bytes, Some(3)).unwrap().capture.is_some(), form == Form::OnvifReplay);
            assert_eq!(parse(&bytes, None).unwrap().capture.is_some(), form == Form::OnvifReplay);
        }
    }

    #[test]
    fn edits_change_what_they_say_and_nothing_else() {
        for (form, original) in packets() {
            let capture = parse(&original, Some(2)).unwrap().capture.unwrap();
            let mut edits = Edits::default();
            assert!(edits.is_empty());
            edits.set_timestamp(77);
            edits.set_capture(capture, 99);
            let mut bytes = original.clone();
            edits.apply(&mut bytes);
            let header = parse(&bytes, Some(2)).unwrap();
            assert_eq!((header.timestamp, header.capture.unwrap().ntp), (77, 99));
            assert_eq!(bytes.len(), original.len());
            assert!(bytes.ends_with(b"payload"));

            let mut edits = Edits::default();
            edits.remove_capture(capture);
            let mut bytes = original.clone();
            edits.apply(&mut bytes);
            assert_eq!(parse(&bytes, Some(2)).unwrap().capture.is_none(), form != Form::OnvifReplay);
            assert!(bytes.ends_with(b"payload"));
        }
    }

    #[test]
    fn an_element_beside_stays_when_one_is_removed() {
        let (_, original) = packets()[0].clone();
        let mut edits = Edits::default();
        edits.remove_capture(parse(&original, Some(2)).unwrap().capture.unwrap());
        let mut bytes = original.clone();
        edits.apply(&mut bytes);
        assert_eq!(bytes[16..18], original[16..18], "the element with identifier 1");
    }

    #[test]
    fn onvif_becomes_ntp64() {
        let (_, mut bytes) = packets()[2].clone();
        let mut edits = Edits::default();
        edits.convert_capture(parse(&bytes, None).unwrap().capture.unwrap(), 5, 9);
        edits.apply(&mut bytes);
        let capture = parse(&bytes, Some(9)).unwrap().capture.unwrap();
        assert_eq!((capture.ntp, capture.form), (5, Form::OneByte));
        assert!(bytes.ends_with(b"payload"));
    }

    #[test]
    fn what_is_cut_short_has_no_time() {
        for (_, bytes) in packets() {
            for length in 0..bytes.len() - b"payload".len() {
                assert_eq!(parse(&bytes[..length], Some(2)).and_then(|header| header.capture), None);
            }
        }
    }

    proptest! {
        #[test]
        fn garbage_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..80), id in prop::option::of(0u8..)) {
            let mut changed = bytes.clone();
            if let Some(capture) = parse(&bytes, id).and_then(|header| header.capture) {
                for edit in [CaptureEdit::Set(1), CaptureEdit::Remove, CaptureEdit::Convert(1, 1)] {
                    Edits { timestamp: Some(1), capture: Some((capture, edit)) }.apply(&mut changed);
                    prop_assert_eq!(changed.len(), bytes.len());
                }
            }
        }

        #[test]
        fn extensions_of_garbage_are_survived(
            two_byte: bool, words in prop::collection::vec(any::<u8>(), 0..10), id in 1u8..15
        ) {
            let mut words = words;
            words.resize(words.len().next_multiple_of(4), 0);
            let _ = parse(&packet(if two_byte { 0x1000 } else { ONE_BYTE }, &words), Some(id));
        }
    }
}

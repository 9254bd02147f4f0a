//! The packets of RTP and RTCP that tell about the sender's clock, read from their bytes (RFC 3550, 5285, 6051).

use crate::clock::NtpTime;

/// The URI of the header extension that carries the capture time (RFC 6051, section 3.3).
pub const NTP64_URI: &str = "urn:ietf:params:rtp-hdrext:ntp-64";

const VERSION: u8 = 2;
const HEADER_LEN: usize = 12;
const PT_SENDER_REPORT: u8 = 200;
const ONE_BYTE_EXTENSION: u16 = 0xBEDE;
/// 0x100 and four bits of the application's own (RFC 8285, section 4.3).
const TWO_BYTE_EXTENSION: u16 = 0x100;
const NTP64_LEN: usize = 8;

/// NTP 32.32 fixed point as ns since 1900, rounded to the nearest.
pub fn ntp_to_ns(fixed: u64) -> NtpTime {
    ((u128::from(fixed) * 1_000_000_000 + (1 << 31)) >> 32) as u64
}

/// What an RTP packet tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtpInfo {
    pub ssrc: u32,
    pub timestamp: u32,
    pub payload_type: u8,
    /// From the ntp-64 extension, ns since 1900.
    pub ntp: Option<NtpTime>,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Reads the header of an RTP packet; `ntp64_id` is the local identifier of the extension, from `a=extmap`.
/// `None` when it is no RTP packet.
pub fn parse_rtp(bytes: &[u8], ntp64_id: Option<u8>) -> Option<RtpInfo> {
    let first = *bytes.first()?;
    if first >> 6 != VERSION || bytes.len() < HEADER_LEN {
        return None;
    }
    let extension_at = HEADER_LEN + 4 * usize::from(first & 0x0F);
    let has_extension = first & 0x10 != 0;
    let ntp = match ntp64_id {
        Some(id) if has_extension => find_extension(bytes, extension_at, id)
            .filter(|data| data.len() == NTP64_LEN)
            .and_then(|data| u64_at(data, 0))
            .map(ntp_to_ns),
        _ => None,
    };
    Some(RtpInfo { ssrc: u32_at(bytes, 8)?, timestamp: u32_at(bytes, 4)?, payload_type: bytes[1] & 0x7F, ntp })
}

/// The data of one header extension element, in the one-byte or the two-byte form.
fn find_extension(bytes: &[u8], at: usize, id: u8) -> Option<&[u8]> {
    let profile = u16_at(bytes, at)?;
    let words = usize::from(u16_at(bytes, at + 2)?);
    let mut rest = bytes.get(at + 4..at + 4 + 4 * words)?;
    let two_byte = profile >> 4 == TWO_BYTE_EXTENSION;
    if !two_byte && profile != ONE_BYTE_EXTENSION {
        return None;
    }
    while let [head, tail @ ..] = rest {
        if *head == 0 {
            rest = tail; // padding
            continue;
        }
        let (found, len, data) = if two_byte {
            let [len, data @ ..] = tail else { return None };
            (*head, usize::from(*len), data)
        } else {
            if head >> 4 == 15 {
                return None; // reserved: stop (RFC 8285, section 4.2)
            }
            (head >> 4, usize::from(head & 0x0F) + 1, tail)
        };
        if found == id {
            return data.get(..len);
        }
        rest = data.get(len..)?;
    }
    None
}

/// The sender's part of an RTCP sender report (RFC 3550, section 6.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderReport {
    pub ssrc: u32,
    /// ns since 1900.
    pub ntp: NtpTime,
    pub rtp: u32,
}

/// The sender reports of a compound RTCP packet; stops at the first malformed part.
pub fn sender_reports(mut bytes: &[u8]) -> impl Iterator<Item = SenderReport> {
    std::iter::from_fn(move || {
        loop {
            let first = *bytes.first()?;
            if first >> 6 != VERSION {
                return None;
            }
            let len = 4 * (usize::from(u16_at(bytes, 2)?) + 1);
            let packet = bytes.get(..len)?;
            bytes = &bytes[len..];
            if packet[1] == PT_SENDER_REPORT {
                return Some(SenderReport {
                    ssrc: u32_at(packet, 4)?,
                    ntp: ntp_to_ns(u64_at(packet, 8)?),
                    rtp: u32_at(packet, 16)?,
                });
            }
        }
    })
}

/// Extends 32-bit RTP timestamps to a line that does not wrap (RFC 3550, section 5.1).
#[derive(Debug, Clone, Copy, Default)]
pub struct TimestampLine {
    last: Option<i64>,
}

impl TimestampLine {
    /// The place of `timestamp` on the line, next to the last one.
    pub fn extend(&mut self, timestamp: u32) -> i64 {
        let extended = match self.last {
            None => i64::from(timestamp),
            // Wrapping difference as a signed step.
            Some(last) => last + i64::from(timestamp.wrapping_sub(last as u32) as i32),
        };
        self.last = Some(extended);
        extended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(extension: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x90, 0x80 | 96, 0, 1, 0, 0, 0x10, 0, 0xDE, 0xAD, 0xBE, 0xEF];
        bytes.extend_from_slice(extension);
        bytes.extend_from_slice(b"payload");
        bytes
    }

    #[test]
    fn reads_ntp64_in_both_forms() {
        let time = [0xE8, 0, 0, 0, 0x80, 0, 0, 0];
        let mut one = vec![0xBE, 0xDE, 0, 3, 0x10, 7, 0x27];
        one.extend_from_slice(&time);
        one.push(0);
        let mut two = vec![0x10, 0x00, 0, 3, 2, 8];
        two.extend_from_slice(&time);
        two.extend_from_slice(&[0, 0]);
        for extension in [one, two] {
            let info = parse_rtp(&packet(&extension), Some(2)).unwrap();
            assert_eq!((info.ssrc, info.timestamp, info.payload_type), (0xDEAD_BEEF, 0x1000, 96));
            assert_eq!(info.ntp, Some(0xE800_0000 * 1_000_000_000 + 500_000_000));
            assert_eq!(parse_rtp(&packet(&extension), Some(3)).unwrap().ntp, None);
            assert_eq!(parse_rtp(&packet(&extension), None).unwrap().ntp, None);
        }
    }

    #[test]
    fn finds_sender_reports_in_a_compound() {
        let mut bytes = vec![0x80, 201, 0, 1, 0, 0, 0, 9]; // a receiver report first
        bytes.extend_from_slice(&[0x80, 200, 0, 6, 0, 0, 0, 7, 0xE8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 42]);
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&[0x81, 202, 0, 1, 0, 0, 0, 7]);
        let reports: Vec<_> = sender_reports(&bytes).collect();
        assert_eq!(reports, [SenderReport { ssrc: 7, ntp: 0xE800_0000 * 1_000_000_000, rtp: 42 }]);
    }

    #[test]
    fn the_line_goes_on_past_the_wrap_and_back() {
        let mut line = TimestampLine::default();
        assert_eq!(line.extend(u32::MAX - 9), i64::from(u32::MAX) - 9);
        assert_eq!(line.extend(90), i64::from(u32::MAX) + 91);
        assert_eq!(line.extend(u32::MAX), i64::from(u32::MAX));
    }

    #[test]
    fn ntp_rounds_to_the_nearest_nanosecond() {
        assert_eq!(ntp_to_ns(1), 0);
        assert_eq!(ntp_to_ns(4), 1);
        assert_eq!(ntp_to_ns(u64::MAX), 4_294_967_296_000_000_000);
    }

    proptest! {
        #[test]
        fn garbage_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..80), id in prop::option::of(0u8..)) {
            let _ = parse_rtp(&bytes, id);
            prop_assert!(sender_reports(&bytes).count() <= 20);
        }
    }
}

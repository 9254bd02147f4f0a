//! RTCP compound packets, from bytes and to bytes (RFC 3550, section 6).

const VERSION: u8 = 2;
const HEADER: usize = 4;
const PT_SENDER_REPORT: u8 = 200;
const PT_RECEIVER_REPORT: u8 = 201;
const PT_SOURCE_DESCRIPTION: u8 = 202;
const PT_BYE: u8 = 203;
/// The item CNAME of a source description (section 6.5.1).
const ITEM_CNAME: u8 = 1;
/// NTP time, RTP time, packet and octet count (section 6.4.1).
const SENDER_INFO: usize = 20;
const NTP_AT: usize = 8;

/// One packet of a compound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    bytes: &'a [u8],
}

/// The sender's part of a sender report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderReport {
    pub ssrc: u32,
    /// As on the wire; see [`super::fixed`].
    pub ntp: u64,
    pub rtp: u32,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The packets of a compound, up to the first that is malformed.
pub fn packets(mut bytes: &[u8]) -> impl Iterator<Item = Packet<'_>> {
    std::iter::from_fn(move || {
        if bytes.first()? >> 6 != VERSION {
            return None;
        }
        let words = usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?));
        let (packet, rest) = bytes.split_at_checked(HEADER + 4 * words)?;
        bytes = rest;
        Some(Packet { bytes: packet })
    })
}

impl<'a> Packet<'a> {
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    fn kind(&self) -> u8 {
        self.bytes[1]
    }

    /// Report blocks, chunks or sources.
    fn count(&self) -> usize {
        usize::from(self.bytes[0] & 0x1f)
    }

    /// Whether padding follows, which only the last packet of a compound may have.
    pub fn is_padded(&self) -> bool {
        self.bytes[0] & 0x20 != 0
    }

    /// What a sender report says; `None` for other packets.
    pub fn sender_report(&self) -> Option<SenderReport> {
        if self.kind() != PT_SENDER_REPORT || self.bytes.len() < 2 * HEADER + SENDER_INFO {
            return None;
        }
        let ntp = u64::from(word(self.bytes, NTP_AT)?) << 32 | u64::from(word(self.bytes, NTP_AT + 4)?);
        Some(SenderReport { ssrc: word(self.bytes, 4)?, ntp, rtp: word(self.bytes, NTP_AT + 8)? })
    }

    /// The SSRC and CNAME of every chunk of a source description that has one.
    pub fn cnames(&self) -> impl Iterator<Item = (u32, &'a [u8])> {
        let is_sdes = self.kind() == PT_SOURCE_DESCRIPTION;
        let mut chunks = if is_sdes { self.count() } else { 0 };
        let mut rest = &self.bytes[HEADER..];
        std::iter::from_fn(move || {
            while chunks > 0 {
                chunks -= 1;
                let ssrc = word(rest, 0)?;
                let (cname, length) = chunk_cname(rest)?;
                rest = rest.get(length..)?;
                if let Some(cname) = cname {
                    return Some((ssrc, cname));
                }
            }
            None
        })
    }

    /// The sources that leave, when this is a BYE.
    pub fn byes(&self) -> impl Iterator<Item = u32> {
        let bytes = self.bytes;
        let count = if self.kind() == PT_BYE { self.count() } else { 0 };
        (0..count).map_while(move |index| word(bytes, HEADER + 4 * index))
    }

    /// A sender report with another NTP time.
    pub fn with_ntp(&self, ntp: u64) -> Vec<u8> {
        let mut bytes = self.bytes.to_vec();
        if let Some(field) = bytes.get_mut(NTP_AT..NTP_AT + 8) {
            field.copy_from_slice(&ntp.to_be_bytes());
        }
        bytes
    }

    /// A sender report made a receiver report: its report blocks stay, what it said of times is gone.
    pub fn without_sender_info(&self) -> Vec<u8> {
        let mut bytes = self.bytes.to_vec();
        if self.sender_report().is_some() {
            bytes.drain(NTP_AT..NTP_AT + SENDER_INFO);
            bytes[1] = PT_RECEIVER_REPORT;
            let words = ((bytes.len() - HEADER) / 4) as u16;
            bytes[2..4].copy_from_slice(&words.to_be_bytes());
        }
        bytes
    }
}

/// The CNAME of the first chunk in `bytes`, if it has one, and the length of the chunk; `None` when it is malformed.
fn chunk_cname(bytes: &[u8]) -> Option<(Option<&[u8]>, usize)> {
    let mut at = 4;
    let mut cname = None;
    loop {
        let kind = *bytes.get(at)?;
        if kind == 0 {
            // One to four zero bytes, up to the next word.
            return Some((cname, (at + 1).next_multiple_of(4)));
        }
        let length = usize::from(*bytes.get(at + 1)?);
        let text = bytes.get(at + 2..at + 2 + length)?;
        if kind == ITEM_CNAME {
            cname = Some(text);
        }
        at += 2 + length;
    }
}

/// A source description with a CNAME of at most 255 bytes.
pub fn cname(ssrc: u32, name: &[u8]) -> Vec<u8> {
    let name = &name[..name.len().min(usize::from(u8::MAX))];
    let mut bytes = vec![VERSION << 6 | 1, PT_SOURCE_DESCRIPTION, 0, 0];
    bytes.extend(ssrc.to_be_bytes());
    bytes.extend([ITEM_CNAME, name.len() as u8]);
    bytes.extend(name);
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let words = ((bytes.len() - HEADER) / 4) as u16;
    bytes[2..4].copy_from_slice(&words.to_be_bytes());
    bytes
}

/// A sender report without counts and report blocks.
pub fn sender_report(report: SenderReport) -> Vec<u8> {
    let mut bytes = vec![VERSION << 6, PT_SENDER_REPORT, 0, ((HEADER + SENDER_INFO) / 4) as u8];
    bytes.extend(report.ssrc.to_be_bytes());
    bytes.extend(report.ntp.to_be_bytes());
    bytes.extend(report.rtp.to_be_bytes());
    bytes.extend([0; 8]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REPORT: SenderReport = SenderReport { ssrc: 7, ntp: 0x0123_4567_89ab_cdef, rtp: 42 };

    /// A sender report with one report block, an SDES with NAME and CNAME, and a BYE for two sources with a reason.
    fn compound() -> Vec<u8> {
        let mut bytes = sender_report(REPORT);
        bytes[0] |= 1;
        bytes[3] += 6;
        bytes.extend([0xaa; 24]);
        bytes.extend([0x81, 202, 0, 4, 0, 0, 0, 7, 2, 2, b'h', b'i', 1, 4, b'r', b'o', b'o', b'm', 0, 0]);
        bytes.extend([0x82, 203, 0, 3, 0, 0, 0, 7, 0, 0, 0, 8, 3, b'e', b'n', b'd']);
        bytes
    }

    #[test]
    fn reads_a_compound() {
        let bytes = compound();
        let packets: Vec<_> = packets(&bytes).collect();
        assert_eq!(packets.len(), 3);
        assert_eq!(packets[0].sender_report(), Some(REPORT));
        assert_eq!(packets[1].cnames().collect::<Vec<_>>(), [(7, &b"room"[..])]);
        assert_eq!(packets[2].byes().collect::<Vec<_>>(), [7, 8]);
        for (index, packet) in packets.iter().enumerate() {
            assert_eq!(packet.sender_report().is_some(), index == 0);
            assert_eq!(packet.cnames().count(), usize::from(index == 1));
            assert_eq!(packet.byes().count(), if index == 2 { 2 } else { 0 });
        }
    }

    #[test]
    fn a_report_loses_its_times_and_keeps_its_blocks() {
        let bytes = compound();
        let report = packets(&bytes).next().unwrap();
        let stripped = report.without_sender_info();
        assert_eq!(stripped[..8], [0x81, 201, 0, 7, 0, 0, 0, 7]);
        assert_eq!(stripped[8..], [0xaa; 24]);
        assert_eq!(packets(&stripped).next().unwrap().bytes(), &stripped[..]);
    }

    #[test]
    fn a_report_gets_another_time() {
        let bytes = compound();
        let changed = packets(&bytes).next().unwrap().with_ntp(99);
        assert_eq!(packets(&changed).next().unwrap().sender_report(), Some(SenderReport { ntp: 99, ..REPORT }));
        assert_eq!(changed[16..], bytes[16..changed.len()]);
    }

    #[test]
    fn writes_what_it_reads() {
        for name in ["", "a", "ab", "abc", "camera@192.0.2.1"] {
            let bytes = cname(5, name.as_bytes());
            let packet = packets(&bytes).next().unwrap();
            assert_eq!(packet.bytes().len(), bytes.len());
            assert_eq!(packet.cnames().collect::<Vec<_>>(), [(5, name.as_bytes())]);
        }
        assert_eq!(packets(&sender_report(REPORT)).next().unwrap().sender_report(), Some(REPORT));
    }

    #[test]
    fn stops_at_what_is_malformed() {
        let mut bytes = compound();
        let first = packets(&bytes).next().unwrap().bytes().len();
        bytes[first + 3] = 200; // longer than what is there
        assert_eq!(packets(&bytes).count(), 1);
        // A chunk without an end.
        let endless = [0x81, 202, 0, 2, 0, 0, 0, 7, 1, 200, b'x', b'x'];
        assert_eq!(packets(&endless).next().unwrap().cnames().count(), 0);
        assert_eq!(packets(&[0x80, 200, 0, 0]).next().unwrap().sender_report(), None);
    }

    proptest! {
        #[test]
        fn garbage_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for packet in packets(&bytes) {
                let _ = (packet.sender_report(), packet.cnames().count(), packet.byes().count());
                let _ = (packet.with_ntp(1), packet.without_sender_info());
            }
        }

        #[test]
        fn damage_is_survived(at in 0usize..80, to: u8) {
            let mut bytes = compound();
            if let Some(byte) = bytes.get_mut(at) {
                *byte = to;
            }
            for packet in packets(&bytes) {
                let _ = (packet.sender_report(), packet.cnames().count(), packet.byes().count());
                let stripped = packet.without_sender_info();
                prop_assert_eq!(packets(&stripped).next().map(|packet| packet.bytes().len()), Some(stripped.len()));
            }
        }
    }
}

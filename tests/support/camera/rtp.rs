//! RTP packets, byte by byte (RFC 3550, section 5.1).

/// What goes into one packet.
#[derive(Debug, Clone, Default)]
pub struct Packet {
    pub payload_type: u8,
    pub marker: bool,
    pub sequence: u16,
    pub timestamp: u32,
    pub ssrc: u32,
    /// The profile word and the words of the header extension, a multiple of 4 bytes.
    pub extension: Option<(u16, Vec<u8>)>,
    pub payload: Vec<u8>,
}

impl Packet {
    /// The packet on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32 + self.payload.len());
        out.push(0x80 | if self.extension.is_some() { 0x10 } else { 0 });
        out.push(self.payload_type & 0x7f | if self.marker { 0x80 } else { 0 });
        out.extend(self.sequence.to_be_bytes());
        out.extend(self.timestamp.to_be_bytes());
        out.extend(self.ssrc.to_be_bytes());
        if let Some((profile, words)) = &self.extension {
            out.extend(profile.to_be_bytes());
            out.extend(((words.len() / 4) as u16).to_be_bytes());
            out.extend(words);
        }
        out.extend(&self.payload);
        out
    }
}

/// The profile word of one-byte header extensions (RFC 8285, section 4.2).
pub const ONE_BYTE: u16 = 0xbede;
/// The profile word of two-byte header extensions (RFC 8285, section 4.3).
pub const TWO_BYTE: u16 = 0x1000;
/// The profile word of the ONVIF replay extension (ONVIF streaming specification, section 6.3).
pub const ONVIF_REPLAY: u16 = 0xabac;

/// The ntp-64 extension (RFC 6051, section 3.3) in the one-byte or the two-byte form.
pub fn ntp64_extension(id: u8, ntp: u64, two_byte: bool) -> (u16, Vec<u8>) {
    let mut words = if two_byte { vec![id, 8] } else { vec![id << 4 | 7] };
    words.extend(ntp.to_be_bytes());
    words.resize(words.len().next_multiple_of(4), 0);
    (if two_byte { TWO_BYTE } else { ONE_BYTE }, words)
}

/// The ONVIF replay extension: the frame's NTP time, C (clean point), E, D and T bits, and a sequence number.
pub fn onvif_extension(ntp: u64, clean_point: bool, end: bool, cseq: u8) -> (u16, Vec<u8>) {
    let mut words = ntp.to_be_bytes().to_vec();
    words.extend([u8::from(clean_point) << 7 | u8::from(end) << 6, cseq, 0, 0]);
    (ONVIF_REPLAY, words)
}

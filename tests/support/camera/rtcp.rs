//! RTCP packets, byte by byte (RFC 3550, section 6).

const SENDER_REPORT: u8 = 200;
const SOURCE_DESCRIPTION: u8 = 202;
const BYE: u8 = 203;
/// The SDES item CNAME.
const CNAME: u8 = 1;

fn packet(count: u8, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![0x80 | count, kind];
    out.extend(((body.len() / 4) as u16).to_be_bytes());
    out.extend(body);
    out
}

/// A sender report without report blocks (RFC 3550, section 6.4.1).
pub fn sender_report(ssrc: u32, ntp: u64, rtp: u32, packets: u32, octets: u32) -> Vec<u8> {
    let mut body = ssrc.to_be_bytes().to_vec();
    body.extend(ntp.to_be_bytes());
    for word in [rtp, packets, octets] {
        body.extend(word.to_be_bytes());
    }
    packet(0, SENDER_REPORT, &body)
}

/// A source description with a CNAME only (RFC 3550, section 6.5).
pub fn cname(ssrc: u32, name: &str) -> Vec<u8> {
    let mut body = ssrc.to_be_bytes().to_vec();
    body.extend([CNAME, name.len() as u8]);
    body.extend(name.as_bytes());
    // The list of items ends with one to four zero bytes, up to the next word.
    body.push(0);
    body.resize(body.len().next_multiple_of(4), 0);
    packet(1, SOURCE_DESCRIPTION, &body)
}

/// A goodbye without a reason (RFC 3550, section 6.6).
pub fn bye(ssrc: u32) -> Vec<u8> {
    packet(1, BYE, &ssrc.to_be_bytes())
}

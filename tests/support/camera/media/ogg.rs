//! Just enough of Ogg (RFC 3533) to take the Opus packets out of a small file.

/// The packets of the only logical stream, without the two header packets of Opus (RFC 7845, section 3).
pub fn packets(file: &[u8]) -> Vec<Vec<u8>> {
    const PAGE_HEADER: usize = 27;
    const HEADER_PACKETS: usize = 2;
    let mut packets = vec![Vec::new()];
    let mut rest = file;
    while rest.len() > PAGE_HEADER && rest.starts_with(b"OggS") {
        let segments = rest[PAGE_HEADER - 1] as usize;
        let (lacing, mut body) = rest[PAGE_HEADER..].split_at(segments);
        for &length in lacing {
            let (segment, after) = body.split_at(length as usize);
            packets.last_mut().expect("starts with one").extend(segment);
            body = after;
            // A segment of 255 bytes goes on in the next one.
            if length < u8::MAX {
                packets.push(Vec::new());
            }
        }
        rest = body;
    }
    packets.pop();
    packets.split_off(HEADER_PACKETS)
}

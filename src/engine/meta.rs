//! The sender's capture time on a buffer.

use crate::clock::NtpTime;

/// The capture time that rtpjitterbuffer found for this buffer (`add-reference-timestamp-meta`), ns since 1900; `None`
/// before the first report. Allocates nothing.
pub fn sender_time(buffer: &gst::BufferRef) -> Option<NtpTime> {
    buffer.iter_meta::<gst::ReferenceTimestampMeta>().find_map(|meta| {
        let is_ntp = meta.reference().structure(0).is_some_and(|structure| structure.name() == "timestamp/x-ntp");
        is_ntp.then(|| meta.timestamp().nseconds())
    })
}

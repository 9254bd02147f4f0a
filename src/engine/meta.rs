//! The sender's capture time of a buffer.

use crate::clock::NtpTime;

/// Time stamps further apart are of another stretch of the stream.
const STRETCH_NS: i64 = 2_000_000_000;

/// The capture time that rtpjitterbuffer found for this buffer (`add-reference-timestamp-meta`), ns since 1900; `None`
/// before the first report. Allocates nothing.
pub fn sender_time(buffer: &gst::BufferRef) -> Option<NtpTime> {
    buffer.iter_meta::<gst::ReferenceTimestampMeta>().find_map(|meta| {
        let is_ntp = meta.reference().structure(0).is_some_and(|structure| structure.name() == "timestamp/x-ntp");
        is_ntp.then(|| meta.timestamp().nseconds())
    })
}

/// Tells the capture time of frames whose meta was lost on the way: rtph264depay 1.22 loses it on every frame with
/// parameter sets in front, which is every key frame of most cameras. Between two frames of a stream, time stamps and
/// capture times advance alike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SenderTimes {
    /// Time stamp and capture time of the last frame that had both, ns.
    last: Option<(u64, NtpTime)>,
}

impl SenderTimes {
    /// The capture time of a frame; `None` when neither it nor one shortly before had any. Allocates nothing.
    pub fn of(&mut self, buffer: &gst::BufferRef) -> Option<NtpTime> {
        self.continued(buffer.pts().map(gst::ClockTime::nseconds), sender_time(buffer))
    }

    fn continued(&mut self, pts: Option<u64>, own: Option<NtpTime>) -> Option<NtpTime> {
        match (pts, own) {
            (Some(pts), Some(time)) => {
                self.last = Some((pts, time));
                own
            }
            (Some(pts), None) => {
                let (known, time) = self.last?;
                let since = i64::try_from(i128::from(pts) - i128::from(known)).ok()?;
                (since.abs() <= STRETCH_NS).then(|| time.saturating_add_signed(since))
            }
            (None, own) => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_times_are_continued_by_the_time_stamps() {
        let mut times = SenderTimes::default();
        assert_eq!(times.continued(Some(5), None), None);
        assert_eq!(times.continued(Some(40_000_000), Some(1_000_000_000)), Some(1_000_000_000));
        assert_eq!(times.continued(Some(80_000_000), None), Some(1_040_000_000));
        // Frames are not always in order.
        assert_eq!(times.continued(Some(20_000_000), None), Some(980_000_000));
        assert_eq!(times.continued(Some(3_000_000_000), None), None);
        assert_eq!(times.continued(None, None), None);
    }
}

//! Every threshold of the guard, in one place.

use std::time::Duration;

/// When the guard believes what. The defaults suit cameras on a home network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// A sender's clock may be so far ahead of the shared clock and still be followed: frames come out that much
    /// later, so it bounds the pause when the first report arrives. Cameras that are right to a few 100 ms exist.
    pub ahead: Duration,
    /// A sender's clock may be so far behind: set it to the playout latency, beyond which every frame would be late.
    pub behind: Duration,
    /// A sender that was taken for one on another clock must be inside the two limits by so much to be taken back.
    pub hysteresis: Duration,
    /// A pair may be so far off the line through those before and belong to it. Above the jitter of known cameras
    /// (±12 ms), below what is seen as a jump.
    pub agreement: Duration,
    /// A sampling clock may run so much too fast or too slow, ppm. Crystals stay below 100.
    pub drift_ppm: f64,
    /// What a sampling clock is expected to drift, ppm: how much the smoothing trusts a slope before it has seen enough.
    pub usual_drift_ppm: f64,
    /// Pairs that lie closer to their line than this are used as they are: the sender is exact.
    pub exact: Duration,
    /// Smoothed times move by at most so much a second, and a report at most by so much: a step of 1 ms is heard.
    pub slew: Duration,
    /// So many pairs make the line: four minutes of reports. Even jitter of ±12 ms (7 ms in the mean) then leaves
    /// 2 · 7 ms / √256 = 0.9 ms at the end of the line.
    pub window: usize,
    /// Pairs on the packets are taken into the line at most so often.
    pub sample_interval: Duration,
    /// After so many pairs in a row that fit neither the line nor each other there is no line.
    pub disagreements: u32,
    /// The offset of the sender's clock is the best of so many pairs: the one with the quickest transport.
    pub offsets: usize,
    /// How near to a known constant (a time zone, TAI, 1970) an offset must be to be named by it: what transport and
    /// a roughly set clock do.
    pub known: Duration,
    /// An RTP timestamp may be so far from where its arrival puts it.
    pub stray: Duration,
    /// A packet may be so old, and still be of this stream: what a receiver that was suspended finds in its sockets.
    pub backlog: Duration,
    /// The RTP timestamp of a report may be so far from the stream's.
    pub report_distance: Duration,
    /// Streams whose reports put them so far apart, beyond what encoders differ by, are said to be: lips are off.
    pub lips: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ahead: Duration::from_millis(500),
            behind: Duration::from_secs(1),
            hysteresis: Duration::from_millis(100),
            agreement: Duration::from_millis(60),
            drift_ppm: 1_000.0,
            usual_drift_ppm: 50.0,
            exact: Duration::from_millis(1),
            slew: Duration::from_micros(800),
            window: 256,
            sample_interval: Duration::from_millis(250),
            disagreements: 5,
            offsets: 8,
            known: Duration::from_secs(5),
            stray: Duration::from_secs(1),
            backlog: Duration::from_secs(60),
            report_distance: Duration::from_secs(10),
            lips: Duration::from_millis(250),
        }
    }
}

/// A duration as ns, for differences.
pub(super) fn ns(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

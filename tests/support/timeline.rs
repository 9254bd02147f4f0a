//! Time in the scripted worlds: one timeline, and the NTP format.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds, as a difference or since the start of the [`Timeline`].
pub type Nanos = i64;

/// One millisecond.
pub const MS: Nanos = 1_000_000;
/// One second.
pub const SECOND: Nanos = 1_000_000_000;
/// One hour.
pub const HOUR: Nanos = 3600 * SECOND;

/// From 1900 to 1970 in seconds (RFC 5905, table 4).
pub const NTP_UNIX_SECONDS: i64 = 2_208_988_800;

/// So many readings are taken to pair the two clocks of the host; the quickest counts.
const PAIRING_TRIES: usize = 16;

/// The time of a camera or a time server: starts with it and goes on while it is away, so that the frames of
/// a restarted camera stand on the same grid as before.
///
/// It runs on the monotonic clock. UTC is read once: a later step of the host's clock does not reach it, as it plays
/// another machine; slewing reaches both clocks of the host alike.
#[derive(Debug, Clone, Copy)]
pub struct Timeline {
    start: Instant,
    start_unix: Nanos,
}

impl Timeline {
    /// A timeline that starts now.
    pub fn start() -> Self {
        let pair = || {
            let before = Instant::now();
            let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            (before.elapsed(), Self { start: before, start_unix: unix.as_nanos() as Nanos })
        };
        (0..PAIRING_TRIES)
            .map(|_| pair())
            .min_by_key(|(took, _)| *took)
            .map(|(_, pair)| pair)
            .expect("a constant range")
    }

    /// Now, since the start.
    pub fn now(&self) -> Nanos {
        self.start.elapsed().as_nanos() as Nanos
    }

    /// A moment as an [`Instant`], to wait for it.
    pub fn instant(&self, moment: Nanos) -> Instant {
        self.start + Duration::from_nanos(moment.max(0) as u64)
    }

    /// A moment in true UTC, nanoseconds since 1970.
    pub fn unix(&self, moment: Nanos) -> Nanos {
        self.start_unix + moment
    }
}

/// A Unix time in the 64-bit NTP format (RFC 5905, section 6): 32 bits of seconds since 1900, 32 bits of fraction.
/// Times after 2036 wrap, as they do on the wire.
pub fn ntp64(unix: Nanos) -> u64 {
    let seconds = unix.div_euclid(SECOND) + NTP_UNIX_SECONDS;
    let fraction = ((unix.rem_euclid(SECOND) as u128) << 32) / SECOND as u128;
    ((seconds as u32 as u64) << 32) | fraction as u64
}

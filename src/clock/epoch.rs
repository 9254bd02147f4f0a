//! Epochs: NTP counts from 1900, Unix from 1970.

use std::time::Duration;

/// From the NTP epoch (1900-01-01 UTC) to the Unix epoch (1970-01-01 UTC): 70 years, 17 of them leap (RFC 5905, table 4).
pub const NTP_UNIX_OFFSET: Duration = Duration::from_secs(2_208_988_800);

/// Nanoseconds since the NTP epoch.
pub type NtpTime = u64;

/// Nanoseconds since the NTP epoch as nanoseconds since the Unix epoch, UTC. Negative before 1970.
pub fn ntp_to_unix_ns(ntp_ns: NtpTime) -> i64 {
    (i128::from(ntp_ns) - NTP_UNIX_OFFSET.as_nanos() as i128).clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// Nanoseconds since the Unix epoch as nanoseconds since the NTP epoch; `None` before 1900.
pub fn unix_to_ntp_ns(unix_ns: i64) -> Option<NtpTime> {
    u64::try_from(i128::from(unix_ns) + NTP_UNIX_OFFSET.as_nanos() as i128).ok()
}

/// CLOCK_MONOTONIC, ns.
pub fn monotonic_ns() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the call, and CLOCK_MONOTONIC always exists on Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    #[allow(clippy::useless_conversion)] // narrower on 32-bit targets
    let nanoseconds = i64::from(time.tv_sec) * 1_000_000_000 + i64::from(time.tv_nsec);
    nanoseconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unix_epoch_is_seventy_years_after_ntps() {
        // 70 years of 365 days and 17 leap days.
        assert_eq!(NTP_UNIX_OFFSET.as_secs(), (70 * 365 + 17) * 86_400);
        assert_eq!(unix_to_ntp_ns(0), Some(2_208_988_800_000_000_000));
        assert_eq!(ntp_to_unix_ns(2_208_988_800_000_000_000), 0);
        assert_eq!(ntp_to_unix_ns(0), -2_208_988_800_000_000_000);
        assert_eq!(unix_to_ntp_ns(i64::MIN), None);
    }
}

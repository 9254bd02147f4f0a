//! NTP timestamps as they are on the wire: 32.32 fixed point, seconds since 1900, wrapping in 2036 (RFC 5905, section
//! 6). Differences are taken modulo 2³² s, so they are right across the wrap.

use crate::clock::NtpTime;

/// Nanoseconds in a second.
pub const SECOND: i64 = 1_000_000_000;

/// A time of the shared clock in wire format, to the nearest fraction.
pub fn from_ns(ns: NtpTime) -> u64 {
    // Wraps as the wire does.
    (((u128::from(ns) << 32) + SECOND as u128 / 2) / SECOND as u128) as u64
}

/// `a - b` in ns; of the two readings of a wrapped difference the nearer one, within 68 years.
pub fn difference(a: u64, b: u64) -> i64 {
    let fixed = a.wrapping_sub(b).cast_signed();
    ((i128::from(fixed) * i128::from(SECOND) + (1 << 31)) >> 32) as i64
}

/// `time` moved by `ns`.
pub fn plus(time: u64, ns: i64) -> u64 {
    let fixed = ((i128::from(ns) << 32) + i128::from(SECOND) / 2).div_euclid(i128::from(SECOND));
    time.wrapping_add(fixed as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn differences_cross_the_wrap_of_2036() {
        assert_eq!(difference(1 << 32, u64::MAX - (1 << 32) + 1), 2 * SECOND);
        assert_eq!(plus(u64::MAX, SECOND), (1 << 32) - 1);
        assert_eq!(from_ns(4_294_967_296 * SECOND as u64), 0, "the wrap itself");
    }

    proptest! {
        #[test]
        fn what_is_added_is_the_difference(time: u64, ns in -1_000_000_000_000_000_000i64..1_000_000_000_000_000_000) {
            prop_assert!((difference(plus(time, ns), time) - ns).abs() <= 1);
        }

        #[test]
        fn times_of_the_shared_clock_keep_their_differences(a in 0u64..9_000_000_000_000_000_000, by in 0i64..1_000_000_000_000_000_000) {
            let b = a + by.cast_unsigned();
            prop_assert!((difference(from_ns(b), from_ns(a)) - by).abs() <= 1);
        }

        #[test]
        fn nothing_panics(a: u64, b: u64, ns: i64) {
            let _ = (difference(a, b), plus(a, ns), from_ns(b));
        }
    }
}

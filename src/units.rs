//! Durations as people write them: `1s`, `250ms`, `1.5s`, `2min`.

use std::time::Duration;

/// Why a duration could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("'{0}' is no duration: write a number and a unit, like 250ms, 1.5s or 2min")]
    Malformed(String),
    #[error("'{text}' is out of range: give {least} to {most}")]
    OutOfRange { text: String, least: String, most: String },
}

/// A duration, nonnegative. A bare number counts in `bare`.
fn parse(text: &str, bare: Duration) -> Option<Duration> {
    let text = text.trim();
    let split = text.find(|c: char| c.is_alphabetic() || c == 'µ').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number = number.trim();
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let number: f64 = number.parse().ok()?;
    let unit = match unit.trim() {
        "" => bare.as_secs_f64(),
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" | "sec" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * unit).ok()
}

/// A duration in words, as it would be typed.
pub fn show(duration: Duration) -> String {
    if duration.subsec_nanos() == 0 && duration.as_secs() > 0 {
        match duration.as_secs() {
            seconds if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
            seconds if seconds % 60 == 0 => format!("{}min", seconds / 60),
            seconds => format!("{seconds}s"),
        }
    } else {
        format!("{}ms", (duration.as_secs_f64() * 1e6).round() / 1e3)
    }
}

/// Reads a duration between two bounds; a bare number counts in `bare`.
///
/// # Errors
/// Says how to write one, or the bounds.
pub fn duration_between(
    text: &str,
    bare: Duration,
    least: Duration,
    most: Duration,
) -> Result<Duration, DurationError> {
    let out_of_range = || DurationError::OutOfRange { text: text.to_owned(), least: show(least), most: show(most) };
    if text.trim_start().strip_prefix('-').is_some_and(|rest| parse(rest, bare).is_some()) {
        return Err(out_of_range());
    }
    let duration = parse(text, bare).ok_or_else(|| DurationError::Malformed(text.to_owned()))?;
    if duration < least || duration > most { Err(out_of_range()) } else { Ok(duration) }
}

/// Reads a duration between two bounds that may be negative, in ns; a bare number counts in ms.
///
/// # Errors
/// Says how to write one, or the bounds.
pub fn signed_between(text: &str, least_ns: i64, most_ns: i64) -> Result<i64, DurationError> {
    let trimmed = text.trim();
    let (negative, size) = match trimmed.strip_prefix('-') {
        Some(size) => (true, size),
        None => (false, trimmed.strip_prefix('+').unwrap_or(trimmed)),
    };
    let size = parse(size, Duration::from_millis(1)).ok_or_else(|| DurationError::Malformed(text.to_owned()))?;
    let ns = i64::try_from(size.as_nanos()).unwrap_or(i64::MAX);
    let ns = if negative { -ns } else { ns };
    if (least_ns..=most_ns).contains(&ns) {
        return Ok(ns);
    }
    let shown = |ns: i64| {
        let sign = if ns < 0 { "-" } else { "" };
        format!("{sign}{}", show(Duration::from_nanos(ns.unsigned_abs())))
    };
    Err(DurationError::OutOfRange { text: text.to_owned(), least: shown(least_ns), most: shown(most_ns) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn read(text: &str) -> Result<Duration, DurationError> {
        duration_between(text, Duration::from_millis(1), Duration::from_millis(1), HOUR)
    }

    #[test]
    fn reads_what_people_write() {
        for (text, millis) in [
            ("1s", 1000),
            ("250ms", 250),
            ("1.5 s", 1500),
            ("2min", 120_000),
            ("1h", 3_600_000),
            ("40", 40),
            ("5000us", 5),
        ] {
            assert_eq!(read(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest_with_words() {
        for text in ["abc", "", "s", "1x", "1e3", "nan", "inf", "--1", "1.2.3s"] {
            assert!(matches!(read(text), Err(DurationError::Malformed(_))), "{text}");
        }
        for text in ["10h", "0", "-1s", "-5"] {
            let error = read(text).unwrap_err();
            assert_eq!(error.to_string(), format!("'{text}' is out of range: give 1ms to 1h"));
        }
    }

    #[test]
    fn delays_may_be_negative() {
        let read = |text| signed_between(text, -500_000_000, 2_000_000_000);
        assert_eq!(read("137ms"), Ok(137_000_000));
        assert_eq!(read("-0.5s"), Ok(-500_000_000));
        assert_eq!(read("+20"), Ok(20_000_000));
        assert_eq!(read("3s").unwrap_err().to_string(), "'3s' is out of range: give -500ms to 2s");
        assert!(matches!(read("--1ms"), Err(DurationError::Malformed(_))));
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(millis in 1u64..3_600_000) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(read(&show(duration)), Ok(duration));
        }

        #[test]
        fn never_panics(text in "\\PC{0,20}") {
            let _ = read(&text);
        }
    }
}

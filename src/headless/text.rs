//! The status for people: one line that updates on a terminal, lines of what happens elsewhere.

use crate::clock::ntp_to_unix_ns;
use crate::engine::verdict::{Reason, Verdict};
use crate::engine::{Status, StreamStatus};

/// The status in one line, without line end.
pub fn status_line(status: &Status) -> String {
    let mut parts = vec![format!("{:<11}", status.verdict.name())];
    if let Some(stream) = status.video.as_ref().or(status.audio.as_ref()) {
        if let Some(time) = stream.sender_time {
            parts.push(utc_time_of_day(ntp_to_unix_ns(time)));
        }
        parts.push(error(stream));
    }
    if let Some(ppm) = status.drift.sender {
        parts.push(format!("sender {ppm:+.1} ppm"));
    }
    if let Some(headroom) = status.headroom_ns {
        let latency = status.latency.as_millis();
        parts.push(format!("latency {latency} ms, {} to spare", headroom / 1_000_000));
    }
    if let Some(reason) = status.verdict.reason() {
        parts.push(reason.text());
    }
    parts.retain(|part| !part.is_empty());
    parts.join("  ")
}

fn error(stream: &StreamStatus) -> String {
    match stream.error {
        None => String::new(),
        Some(error) => {
            format!("error {:+.2} ms (p99 {:.2})", error.p50 as f64 * 1e-6, error.p99 as f64 * 1e-6)
        }
    }
}

/// A verdict as a line of its own.
pub fn verdict_line(verdict: &Verdict) -> String {
    match verdict.reason() {
        None => verdict.name().to_owned(),
        Some(reason) => format!("{}: {}", verdict.name(), Reason::text(reason)),
    }
}

/// hh:mm:ss.mmm of a Unix time, UTC.
pub fn utc_time_of_day(unix_ns: i64) -> String {
    let millis = unix_ns.div_euclid(1_000_000).rem_euclid(86_400_000);
    let (hours, minutes) = (millis / 3_600_000, millis / 60_000 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:03}", millis / 1000 % 60, millis % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day() {
        assert_eq!(utc_time_of_day(0), "00:00:00.000");
        assert_eq!(utc_time_of_day(1_700_000_000_123_999_999), "22:13:20.123");
        assert_eq!(utc_time_of_day(-1), "23:59:59.999");
    }
}

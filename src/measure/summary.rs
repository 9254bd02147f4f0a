//! Many errors in a few figures.

use serde::Serialize;
use std::fmt;

/// What the windows of a measurement say, in µs. Positive is late.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Windows that were measured.
    pub windows: usize,
    /// Windows in which the sound was not found: silence, drop-outs, another programme. They count against the room.
    pub bad: usize,
    /// Windows left out because the recorder's own time line jumped in them.
    pub recorder_jumps: usize,
    /// Mean with its sign.
    pub mean_us: f64,
    /// Standard deviation.
    pub sd_us: f64,
    /// Of the magnitudes: median, percentiles, largest.
    pub p50_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

impl Summary {
    /// Of errors in ns.
    pub fn new(errors_ns: &[f64], bad: usize, recorder_jumps: usize) -> Self {
        let count = errors_ns.len().max(1) as f64;
        let mean = errors_ns.iter().sum::<f64>() / count;
        let variance = errors_ns.iter().map(|error| (error - mean) * (error - mean)).sum::<f64>() / count;
        let mut sizes: Vec<f64> = errors_ns.iter().map(|error| error.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        // Adding zero turns a rounded −0 into 0.
        let us = |ns: f64| (ns / 10.0).round() / 100.0 + 0.0;
        Self {
            windows: errors_ns.len(),
            bad,
            recorder_jumps,
            mean_us: us(mean),
            sd_us: us(variance.sqrt()),
            p50_us: us(percentile(&sizes, 0.50)),
            p95_us: us(percentile(&sizes, 0.95)),
            p99_us: us(percentile(&sizes, 0.99)),
            max_us: us(sizes.last().copied().unwrap_or_default()),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.windows == 0 {
            write!(f, "not found in any of {} windows", self.bad + self.recorder_jumps)?;
        } else {
            write!(
                f,
                "median {:.1} µs, 95 % below {:.1} µs, largest {:.1} µs, mean {:+.1} µs ({} windows",
                self.p50_us, self.p95_us, self.max_us, self.mean_us, self.windows
            )?;
            if self.bad > 0 {
                write!(f, ", not found in {} more", self.bad)?;
            }
            f.write_str(")")?;
        }
        if self.recorder_jumps > 0 {
            write!(f, "; {} windows left out: the recorder's own time line jumped", self.recorder_jumps)?;
        }
        Ok(())
    }
}

/// By linear interpolation between the two nearest of the ascending values; 0 when there are none.
fn percentile(sorted: &[f64], fraction: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = fraction * last as f64;
    let below = (at.floor() as usize).min(last);
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (at - below as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_magnitudes_and_the_mean_has_its_sign() {
        let errors: Vec<f64> = (0..=100).map(|k| f64::from(k) * -1_000.0).collect();
        let summary = Summary::new(&errors, 2, 1);
        assert_eq!((summary.p50_us, summary.p95_us, summary.p99_us, summary.max_us), (50.0, 95.0, 99.0, 100.0));
        assert_eq!((summary.mean_us, summary.windows, summary.bad), (-50.0, 101, 2));
        assert!((summary.sd_us - 29.15).abs() < 0.01);
        assert_eq!(
            summary.to_string(),
            "median 50.0 µs, 95 % below 95.0 µs, largest 100.0 µs, mean -50.0 µs (101 windows, not found in 2 more); \
             1 windows left out: the recorder's own time line jumped"
        );
    }

    #[test]
    fn nothing_measured_is_said() {
        let summary = Summary::new(&[], 7, 0);
        assert_eq!((summary.p95_us, summary.mean_us), (0.0, 0.0));
        assert_eq!(summary.to_string(), "not found in any of 7 windows");
    }
}

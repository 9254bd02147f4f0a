//! From recordings to errors: one room against another, one room against the test programme.

use super::correlate::Finder;
use super::recording::{NoWindow, Recording, TimeBase};
use super::summary::Summary;
use crate::programme::{PERIOD_S, Programme};
use serde::Serialize;
use std::time::Duration;

/// Below this correlation it is not the same sound. Unrelated noise stays below 0.05 in windows of 0.5 s; a tenth of
/// the power in common is 0.32.
const QUALITY_MIN: f64 = 0.3;
/// Windows start so often, ns, if they are not shorter.
const STEP_NS: i64 = 500_000_000;

const NS_PER_S: f64 = 1e9;
const PERIOD_NS: f64 = PERIOD_S as f64 * NS_PER_S;

/// How to look.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Windows {
    /// Length of a window.
    pub length: Duration,
    /// Left out at the start.
    pub skip: Duration,
    /// How far apart two rooms are looked for.
    pub max_skew: Duration,
}

/// What one window says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// Since the start of the measurement, s.
    pub at_s: f64,
    /// Positive is late, ns.
    pub error_ns: f64,
    /// Normalized correlation.
    pub quality: f64,
}

/// What all windows say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    pub points: Vec<Point>,
    /// Windows in which the sound was not found.
    pub bad: usize,
    /// Windows in which a recorder's time line jumped.
    pub recorder_jumps: usize,
}

impl Series {
    pub fn summary(&self) -> Summary {
        let errors: Vec<f64> = self.points.iter().map(|point| point.error_ns).collect();
        Summary::new(&errors, self.bad, self.recorder_jumps)
    }

    /// Calls `measure` for every window start from `start` to `end` (ns).
    fn over(
        start: i64,
        end: i64,
        windows: &Windows,
        mut measure: impl FnMut(i64) -> Result<Option<(f64, f64)>, NoWindow>,
    ) -> Self {
        let length = i64::try_from(windows.length.as_nanos()).unwrap_or(i64::MAX).max(1);
        let start = start.saturating_add(i64::try_from(windows.skip.as_nanos()).unwrap_or(i64::MAX));
        let step = usize::try_from(STEP_NS.min(length)).unwrap_or(usize::MAX);
        let mut series = Self::default();
        for at in (start..end.saturating_sub(length)).step_by(step) {
            match measure(at) {
                Ok(Some((error_ns, quality))) if quality >= QUALITY_MIN => {
                    let at_s = (at - start) as f64 / NS_PER_S;
                    series.points.push(Point { at_s, error_ns, quality });
                }
                Ok(_) => series.bad += 1,
                Err(NoWindow::Jumped) => series.recorder_jumps += 1,
                Err(NoWindow::Outside) => {}
            }
        }
        series
    }
}

/// Why two recordings, or a recording and the programme, cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    #[error("{0} and {1} were recorded at {2} and {3} samples a second: set both rooms' graphs to one rate")]
    Rates(String, String, u32, u32),
    #[error(
        "{0} and {1} were recorded on two hosts (or before and after a restart): give --clock when recording, so that \
         they share a time"
    )]
    NoCommonTime(String, String),
    #[error("{0} was recorded without --clock: the absolute error cannot be told")]
    NoClock(String),
    #[error("nothing was recorded of {0}")]
    Empty(String),
}

/// Which clock both recordings share: CLOCK_MONOTONIC on one host, else the shared clock.
fn common_base(a: &Recording, b: &Recording) -> Result<TimeBase, CompareError> {
    if a.about.boot == b.about.boot {
        Ok(TimeBase::Monotonic)
    } else if !a.about.clock.is_empty() && !b.about.clock.is_empty() {
        Ok(TimeBase::Shared)
    } else {
        Err(CompareError::NoCommonTime(a.about.room.clone(), b.about.room.clone()))
    }
}

/// A time of CLOCK_MONOTONIC of the recording host in the given base, ns. The shared clock is given less its value at
/// the start of room A (`origin`), since ns since 1900 do not fit.
fn in_base(recording: &Recording, base: TimeBase, origin: u64, monotonic_ns: i64) -> i64 {
    match base {
        TimeBase::Monotonic => monotonic_ns,
        TimeBase::Shared => {
            let shared = recording.about.clock.shared_at(monotonic_ns).unwrap_or(origin);
            (i128::from(shared) - i128::from(origin)).clamp(i64::MIN.into(), i64::MAX.into()) as i64
        }
    }
}

/// How much later room `a` plays than room `b`.
///
/// # Errors
/// [`CompareError`].
pub fn skew(a: &Recording, b: &Recording, windows: &Windows) -> Result<Series, CompareError> {
    let rate = a.about.rate;
    if rate != b.about.rate {
        let (a, b) = (&a.about, &b.about);
        return Err(CompareError::Rates(a.room.clone(), b.room.clone(), a.rate, b.rate));
    }
    let base = common_base(a, b)?;
    let span = |recording: &Recording| match (recording.start_ns(), recording.end_ns()) {
        (Some(start), Some(end)) => Ok((start, end)),
        _ => Err(CompareError::Empty(recording.about.room.clone())),
    };
    let ((a_start, a_end), (b_start, b_end)) = (span(a)?, span(b)?);
    let origin = a.about.clock.shared_at(a_start).unwrap_or_default();
    // What to add to a's monotonic time to get b's: constant on one host, drifting slowly between two.
    let b_offset = |at: i64| {
        let in_a = in_base(a, base, origin, at);
        // b's shared clock runs nearly at the rate of its monotonic clock: a few steps find the inverse to below 1 ns.
        let mut guess = b_start;
        for _ in 0..3 {
            guess += in_a - in_base(b, base, origin, guess);
        }
        guess - at
    };
    let piece = samples(windows.length, rate);
    let reach = samples(windows.max_skew, rate);
    let reach_ns = i64::try_from(windows.max_skew.as_nanos()).unwrap_or(i64::MAX);
    let finder = Finder::new(piece, piece + 2 * reach, rate, false);
    let start = a_start.max(b_start - b_offset(a_start)).saturating_add(reach_ns);
    let end = a_end.min(b_end - b_offset(a_end)).saturating_sub(reach_ns);
    let series = Series::over(start, end, windows, |at| {
        let one = a.window(at, piece)?;
        let other = b.window(at + b_offset(at) - reach_ns, piece + 2 * reach)?;
        let Some(found) = finder.find(one.samples, &finder.whole(other.samples)) else { return Ok(None) };
        let matched = b.window_from(other.first + found.position.max(0.0) as u64, piece)?;
        let index = one.first as f64 + found.centre;
        let a_heard = in_base(a, base, origin, one.heard_at(index));
        let index = other.first as f64 + found.position + found.centre;
        let b_heard = in_base(b, base, origin, matched.heard_at(index));
        Ok(Some(((a_heard - b_heard) as f64, found.quality)))
    });
    Ok(series)
}

/// How much later than `capture time + latency` (shared clock) the room plays the programme. Ambiguous by
/// [`PERIOD_S`]: −5 s to 5 s.
///
/// # Errors
/// [`CompareError`].
pub fn absolute(
    recording: &Recording,
    programme: &Programme,
    latency: Duration,
    windows: &Windows,
) -> Result<Series, CompareError> {
    let about = &recording.about;
    if about.clock.is_empty() {
        return Err(CompareError::NoClock(about.room.clone()));
    }
    if programme.rate() != about.rate {
        let programme_name = format!("the programme '{}'", programme.sound());
        return Err(CompareError::Rates(about.room.clone(), programme_name, about.rate, programme.rate()));
    }
    let (Some(start), Some(end)) = (recording.start_ns(), recording.end_ns()) else {
        return Err(CompareError::Empty(about.room.clone()));
    };
    let piece = samples(windows.length, about.rate);
    let period = programme.period();
    let finder = Finder::new(piece, period.len(), about.rate, true);
    let whole = finder.whole(period);
    let latency_ns = latency.as_nanos() as f64;
    Ok(Series::over(start, end, windows, |at| {
        let window = recording.window(at, piece)?;
        let Some(found) = finder.find(window.samples, &whole) else { return Ok(None) };
        let Some(heard) = about.clock.shared_at(window.heard_at(window.first as f64 + found.centre)) else {
            return Ok(None);
        };
        // Of one sample of the window: where in the period it was captured, and where in it it was heard.
        let captured = (found.position + found.centre) * NS_PER_S / f64::from(about.rate);
        let heard = (heard % (PERIOD_S * 1_000_000_000)) as f64;
        let half = PERIOD_NS / 2.0;
        let error = (heard - captured - latency_ns + half).rem_euclid(PERIOD_NS) - half;
        Ok(Some((error, found.quality)))
    }))
}

fn samples(length: Duration, rate: u32) -> usize {
    (length.as_secs_f64() * f64::from(rate)).round() as usize
}

#[cfg(test)]
mod tests {
    use super::super::clock_history::ClockHistory;
    use super::super::recording::tests::record;
    use super::*;
    use crate::programme::Sound;

    const RATE: u32 = 48_000;

    fn windows() -> Windows {
        Windows { length: Duration::from_millis(500), skip: Duration::ZERO, max_skew: Duration::from_millis(400) }
    }

    /// The programme as a function of time, in s since a multiple of 10 s, by band-limited interpolation.
    fn sound(programme: &Programme) -> impl Fn(f64) -> f32 + '_ {
        move |time| {
            let at = time * f64::from(programme.rate());
            let first = at.floor();
            (-32..=32)
                .map(|k| {
                    let x = at - first - f64::from(k);
                    let window = 0.5 + 0.5 * (std::f64::consts::PI * x / 33.0).cos();
                    let sinc =
                        if x == 0.0 { 1.0 } else { (std::f64::consts::PI * x).sin() / (std::f64::consts::PI * x) };
                    let index = (first as i64 + i64::from(k)).rem_euclid(programme.period().len() as i64);
                    f64::from(programme.period()[index as usize]) * sinc * window
                })
                .sum::<f64>() as f32
        }
    }

    #[test]
    fn skew_is_found_to_a_third_of_a_microsecond_also_between_devices_that_drift() {
        let programme = Programme::new(Sound::Music, RATE).unwrap();
        let sound = sound(&programme);
        for late_s in [0.0, 3.7e-6, -0.0213, 0.2] {
            let a = record("a", RATE, 4.0, 80.0, |time| sound(3.0 + time - late_s));
            let b = record("b", RATE, 4.0, -60.0, |time| sound(3.0 + time));
            let series = skew(&a, &b, &windows()).unwrap();
            assert!(series.points.len() >= 4 && series.bad == 0, "{series:?}");
            for point in &series.points {
                assert!((point.error_ns - late_s * 1e9).abs() < 300.0, "{late_s}: {point:?}");
            }
        }
    }

    #[test]
    fn other_sounds_and_silence_are_bad_windows() {
        let programme = Programme::new(Sound::Noise, RATE).unwrap();
        let sound = sound(&programme);
        let a = record("a", RATE, 3.0, 0.0, |time| sound(3.0 + time));
        let silent = record("b", RATE, 3.0, 0.0, |_| 0.0);
        let series = skew(&a, &silent, &windows()).unwrap();
        assert!(series.points.is_empty() && series.bad >= 3, "{series:?}");
        let later = record("b", RATE, 3.0, 0.0, |time| sound(8.0 + time));
        let series = skew(&a, &later, &windows()).unwrap();
        assert!(series.points.is_empty() && series.bad >= 3, "{series:?}");
    }

    #[test]
    fn two_hosts_are_compared_on_the_shared_clock() {
        let programme = Programme::new(Sound::Noise, RATE).unwrap();
        let sound = sound(&programme);
        let mut a = record("a", RATE, 4.0, 0.0, &sound);
        let mut b = record("b", RATE, 4.0, 0.0, |time| sound(time - 5e-6));
        b.about.boot = "another".into();
        assert!(matches!(skew(&a, &b, &windows()), Err(CompareError::NoCommonTime(..))));
        // The monotonic clock of b is 1000 s ahead and 50 ppm fast.
        let start = 3_900_000_000_000_000_000u64;
        a.about.clock = ClockHistory::new(vec![(5_000_000_000, start), (9_000_000_000, start + 4_000_000_000)]);
        for mark in &mut b.about.marks {
            let elapsed = mark.time_ns - 5_000_000_000;
            mark.time_ns = 1_005_000_000_000 + elapsed + elapsed / 20_000;
        }
        b.about.clock = ClockHistory::new(vec![(1_005_000_000_000, start), (1_009_000_200_000, start + 4_000_000_000)]);
        let series = skew(&a, &b, &windows()).unwrap();
        assert!(series.points.len() >= 4, "{series:?}");
        for point in &series.points {
            assert!((point.error_ns + 5_000.0).abs() < 300.0, "{point:?}");
        }
    }

    #[test]
    fn the_absolute_error_is_told_at_either_rate_and_over_the_periods_end() {
        for rate in [44_100, 48_000] {
            let programme = Programme::new(Sound::Music, rate).unwrap();
            let sound = sound(&programme);
            // Heard from 7.25 s after a multiple of 10 s on; latency 1 s; 12.5 µs late.
            let mut room = record("a", rate, 5.0, 30.0, |time| sound(7.25 + time - 1.0 - 12.5e-6));
            assert!(matches!(
                absolute(&room, &programme, Duration::from_secs(1), &windows()),
                Err(CompareError::NoClock(_))
            ));
            let start = 3_900_000_007_250_000_000;
            room.about.clock = ClockHistory::new(vec![(5_000_000_000, start), (6_000_000_000, start + 1_000_000_000)]);
            let series = absolute(&room, &programme, Duration::from_secs(1), &windows()).unwrap();
            assert!(series.points.len() >= 8 && series.bad == 0, "{series:?}");
            for point in &series.points {
                assert!((point.error_ns - 12_500.0).abs() < 300.0, "{rate}: {point:?}");
            }
            let other = Programme::new(Sound::Music, 96_000).unwrap();
            let error = absolute(&room, &other, Duration::ZERO, &windows()).unwrap_err();
            assert!(matches!(error, CompareError::Rates(..)), "{error}");
        }
    }
}

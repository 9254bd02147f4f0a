//! The line of pairs: which sender time belongs to which RTP timestamp.
//!
//! A sender that is exact is used as it is, so that every receiver computes the same times, whenever it joined. The
//! times of a sender whose reports jitter lie on a fitted line. A pair off the line is held back until the next one
//! confirms it: then the sender's clock has stepped and a new line begins.

use super::fixed::{SECOND, difference, plus};
use super::limits::{Limits, ns};
use std::collections::VecDeque;

/// So many pairs are needed before their spread says anything.
const SPREAD_MIN: usize = 4;
/// A sender that was found jittery is exact again when its spread is below this share of the limit.
const EXACT_AGAIN: i64 = 2;
/// From the median of deviations to the standard deviation, for normal noise.
const MEDIAN_TO_SIGMA: f64 = 1.48;

/// A sender time with its RTP timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// The RTP timestamp on a line without wraps.
    pub place: i64,
    /// As on the wire; see [`super::fixed`].
    pub ntp: u64,
}

/// What became of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// It begins the line.
    First,
    /// It lies on the line. Use this time: its own, or the smoothed one.
    Agrees { ntp: u64 },
    /// It does not, by so many ns. Use the line's time.
    Off { by: i64, ntp: u64 },
    /// The one before did not either, and both agree: the sender's clock has stepped by so many ns.
    Stepped { by: i64 },
    /// So many in a row agreed with nothing that there is no line any more.
    Lost,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct PairLine {
    clock_rate: i64,
    origin: Option<Pair>,
    /// ns of media since the origin, and by how much the sender's time runs ahead of them.
    points: VecDeque<(i64, i64)>,
    fitted: Fitted,
    /// The last time that was given out, as a point.
    given: (i64, i64),
    pending: Option<Pair>,
    off_in_a_row: u32,
    jittery: bool,
    scratch: Vec<i64>,
}

/// `level + slope · (x − centre)`.
#[derive(Debug, Clone, Copy, Default)]
struct Fitted {
    centre: i64,
    level: f64,
    slope: f64,
    /// The median distance of the points, ns.
    spread: i64,
}

impl Fitted {
    fn at(&self, x: i64) -> i64 {
        (self.level + self.slope * (x - self.centre) as f64).round() as i64
    }
}

impl PairLine {
    /// An empty line for RTP timestamps of this rate, Hz; a rate of 0 is taken for 1.
    pub fn new(clock_rate: u32) -> Self {
        Self {
            clock_rate: i64::from(clock_rate.max(1)),
            origin: None,
            points: VecDeque::new(),
            fitted: Fitted::default(),
            given: (0, 0),
            pending: None,
            off_in_a_row: 0,
            jittery: false,
            scratch: Vec::new(),
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::new(u32::try_from(self.clock_rate).unwrap_or(u32::MAX));
    }

    /// How many pairs make the line.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Whether the sender's times are smoothed.
    pub fn is_smoothed(&self) -> bool {
        self.jittery
    }

    /// Half of the pairs lie closer to the line than this, ns.
    pub fn spread(&self) -> i64 {
        self.fitted.spread
    }

    /// The sender time of a place; `None` without a line.
    pub fn at(&self, place: i64) -> Option<u64> {
        let origin = self.origin?;
        let x = self.media(place.saturating_sub(origin.place));
        Some(plus(origin.ntp, x.saturating_add(self.expected(x))))
    }

    /// Ticks as ns of media.
    fn media(&self, ticks: i64) -> i64 {
        let ns = i128::from(ticks) * i128::from(SECOND) / i128::from(self.clock_rate);
        ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    fn point(&self, origin: Pair, pair: Pair) -> (i64, i64) {
        let x = self.media(pair.place.saturating_sub(origin.place));
        (x, difference(pair.ntp, origin.ntp).saturating_sub(x))
    }

    /// Where the line goes on from what was last given out.
    fn expected(&self, x: i64) -> i64 {
        let (x0, y0) = self.given;
        y0.saturating_add((self.fitted.slope * x.saturating_sub(x0) as f64) as i64)
    }

    /// Begins a new line with this pair.
    pub fn restart(&mut self, pair: Pair) {
        self.clear();
        self.origin = Some(pair);
        self.points.push_back((0, 0));
    }

    /// Takes one more pair.
    pub fn add(&mut self, pair: Pair, limits: &Limits) -> Fit {
        let Some(origin) = self.origin else {
            self.restart(pair);
            return Fit::First;
        };
        let (x, y) = self.point(origin, pair);
        let last = self.points.back().map_or(0, |point| point.0);
        let tolerance = |from: i64| {
            ns(limits.agreement) + (limits.drift_ppm * 1e-6 * x.saturating_sub(from).unsigned_abs() as f64) as i64
        };
        // The line itself: what was given out may still be on its way there.
        let line = if self.jittery { self.fitted.at(x) } else { self.expected(x) };
        let by = y.saturating_sub(line);
        if by.saturating_abs() <= tolerance(last) {
            self.pending = None;
            self.off_in_a_row = 0;
            let given = self.agree((x, y), limits);
            // To the bit, where nothing is smoothed.
            let ntp = if given == y { pair.ntp } else { plus(origin.ntp, x.saturating_add(given)) };
            return Fit::Agrees { ntp };
        }
        if let Some(pending) = self.pending {
            let (x0, y0) = self.point(origin, pending);
            if x != x0 && y.saturating_sub(y0).saturating_abs() <= tolerance(x0) {
                self.restart(pending);
                self.agree_with_new(pair, limits);
                return Fit::Stepped { by };
            }
        }
        self.pending = Some(pair);
        self.off_in_a_row += 1;
        if self.off_in_a_row >= limits.disagreements {
            self.clear();
            return Fit::Lost;
        }
        Fit::Off { by, ntp: plus(origin.ntp, x.saturating_add(line)) }
    }

    fn agree_with_new(&mut self, pair: Pair, limits: &Limits) {
        if let Some(origin) = self.origin {
            let point = self.point(origin, pair);
            self.agree(point, limits);
        }
    }

    /// Takes a point of the line; what to give out for it.
    fn agree(&mut self, (x, y): (i64, i64), limits: &Limits) -> i64 {
        let last = self.points.back().map_or(0, |point| point.0);
        if x > last && (self.points.len() < SPREAD_MIN || x - last >= ns(limits.sample_interval)) {
            if self.points.len() >= limits.window {
                self.points.pop_front();
            }
            self.points.push_back((x, y));
            self.fit(limits);
        }
        let wanted = if self.jittery { self.fitted.at(x) } else { y };
        let expected = self.expected(x);
        let given = if self.jittery || wanted.saturating_sub(expected).saturating_abs() > ns(limits.exact) {
            // At most so much a second of media, and a report.
            let passed = x.saturating_sub(self.given.0).clamp(0, SECOND);
            let most = (ns(limits.slew) as f64 * (passed as f64 / SECOND as f64)) as i64;
            expected.saturating_add(wanted.saturating_sub(expected).clamp(-most, most))
        } else {
            wanted
        };
        // A pair of the past does not move the line back.
        if x >= self.given.0 {
            self.given = (x, given);
        }
        given
    }

    /// Finds out whether the points lie on a line, and which.
    fn fit(&mut self, limits: &Limits) {
        let exact = ns(limits.exact);
        if self.points.len() < SPREAD_MIN {
            // Any line fits two points: take the slope for noise of the size that is just not exact.
            self.fitted = self.least_squares(exact, limits);
            return;
        }
        let line = self.least_squares(0, limits);
        self.fitted = line;
        let limit = if self.jittery { exact / EXACT_AGAIN } else { exact };
        self.jittery = line.spread > limit;
        if self.jittery {
            self.fitted = self.least_squares((MEDIAN_TO_SIGMA * line.spread as f64) as i64, limits);
        }
    }

    /// The line of least squares, for noise of this standard deviation in ns: its slope is held near zero until the
    /// points say it better than crystals usually drift (ridge regression).
    fn least_squares(&mut self, sigma: i64, limits: &Limits) -> Fitted {
        let count = self.points.len().max(1);
        let centre = (self.points.iter().map(|point| i128::from(point.0)).sum::<i128>() / count as i128) as i64;
        let level = self.points.iter().map(|point| point.1 as f64).sum::<f64>() / count as f64;
        let (mut xx, mut xy) = (0.0, 0.0);
        for &(x, y) in &self.points {
            let x = x.saturating_sub(centre) as f64;
            xx += x * x;
            xy += x * (y as f64 - level);
        }
        // With a sigma of 0 and all points in one place there is no slope: 1 ns² keeps it zero.
        let ridge = (sigma as f64 / (limits.usual_drift_ppm * 1e-6)).powi(2).max(1.0);
        let most = limits.drift_ppm * 1e-6;
        let mut fitted = Fitted { centre, level, slope: (xy / (xx + ridge)).clamp(-most, most), spread: 0 };
        self.scratch.clear();
        self.scratch.extend(self.points.iter().map(|&(x, y)| y.saturating_sub(fitted.at(x)).saturating_abs()));
        let middle = self.scratch.len() / 2;
        if middle < self.scratch.len() {
            fitted.spread = *self.scratch.select_nth_unstable(middle).1;
        }
        fitted
    }
}

#[cfg(test)]
#[path = "pairs_tests.rs"]
mod tests;

//! Drift: by how much one clock runs faster than another, in ppm.

use std::collections::VecDeque;

/// How an estimator looks back. The defaults suit one point a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DriftConfig {
    /// The number of points kept. 60 s of points: long enough that 100 µs of jitter is below 5 ppm, short enough to
    /// follow a warming crystal.
    pub points: usize,
    /// Fewer points give no figure.
    pub points_min: usize,
    /// A shorter span gives no figure, in ns: over less than 5 s jitter looks like drift.
    pub span_min_ns: i64,
    /// A point this far (in ns) off the line through the others starts the estimator anew: it was a step, no drift.
    pub step_ns: i64,
}

impl Default for DriftConfig {
    fn default() -> Self {
        Self { points: 60, points_min: 5, span_min_ns: 5_000_000_000, step_ns: 50_000_000 }
    }
}

/// Estimates the drift of one clock against a reference from pairs of readings, by the median of all slopes
/// (Theil–Sen): a quarter of the points may be outliers without moving it.
#[derive(Debug, Clone)]
pub struct DriftEstimator {
    config: DriftConfig,
    /// (reference, offset of the other clock from the reference), in ns since the first point.
    points: VecDeque<(i64, i64)>,
    origin: Option<(i128, i128)>,
    slopes: Vec<f64>,
}

impl DriftEstimator {
    /// An estimator without points.
    pub fn new(config: DriftConfig) -> Self {
        Self { config, points: VecDeque::with_capacity(config.points + 1), origin: None, slopes: Vec::new() }
    }

    /// Adds one pair of readings, both in ns of their own epochs. Readings whose reference does not advance are
    /// dropped.
    pub fn add(&mut self, reference: i128, other: i128) {
        let (reference_0, other_0) = *self.origin.get_or_insert((reference, other));
        let (Ok(x), Ok(y)) =
            (i64::try_from(reference - reference_0), i64::try_from((other - other_0) - (reference - reference_0)))
        else {
            return self.restart(reference, other);
        };
        if let Some(&(last, offset)) = self.points.back() {
            if x <= last {
                return;
            }
            let expected = offset + (self.ppm().unwrap_or(0.0) * 1e-6 * (x - last) as f64) as i64;
            if (y - expected).abs() > self.config.step_ns {
                return self.restart(reference, other);
            }
        }
        if self.points.len() == self.config.points {
            self.points.pop_front();
        }
        self.points.push_back((x, y));
    }

    fn restart(&mut self, reference: i128, other: i128) {
        self.clear();
        self.origin = Some((reference, other));
        self.points.push_back((0, 0));
    }

    /// Forgets all points, e.g. after a step or a reconnection.
    pub fn clear(&mut self) {
        self.points.clear();
        self.origin = None;
    }

    /// How much faster (positive) the other clock runs than the reference, in ppm; `None` until there are enough points
    /// over a long enough span.
    pub fn ppm(&mut self) -> Option<f64> {
        let (first, last) = (self.points.front()?, self.points.back()?);
        if self.points.len() < self.config.points_min || last.0 - first.0 < self.config.span_min_ns {
            return None;
        }
        self.slopes.clear();
        // Pairs closer than a quarter of the span say little about the slope and much about the jitter.
        let apart = (last.0 - first.0) / 4;
        for (i, a) in self.points.iter().enumerate() {
            for b in self.points.iter().skip(i + 1).filter(|b| b.0 - a.0 >= apart) {
                self.slopes.push((b.1 - a.1) as f64 / (b.0 - a.0) as f64);
            }
        }
        let middle = self.slopes.len() / 2;
        let (_, median, _) = self.slopes.select_nth_unstable_by(middle, f64::total_cmp);
        Some(*median * 1e6)
    }
}

impl Default for DriftEstimator {
    fn default() -> Self {
        Self::new(DriftConfig::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: i128 = 1_000_000_000;

    fn feed(estimator: &mut DriftEstimator, ppm: f64, seconds: std::ops::Range<i128>, jitter: impl Fn(i128) -> i128) {
        for second in seconds {
            let reference = second * SECOND;
            let drifted = reference + (reference as f64 * ppm * 1e-6) as i128;
            estimator.add(3_900_000_000 * SECOND + reference, 77 + drifted + jitter(second));
        }
    }

    #[test]
    fn no_figure_before_there_is_one() {
        let mut estimator = DriftEstimator::default();
        assert_eq!(estimator.ppm(), None);
        feed(&mut estimator, 10.0, 0..4, |_| 0);
        assert_eq!(estimator.ppm(), None);
    }

    #[test]
    fn outliers_do_not_move_it() {
        let mut estimator = DriftEstimator::default();
        feed(&mut estimator, -35.0, 0..60, |second| if second % 5 == 0 { 20_000_000 } else { 0 });
        let ppm = estimator.ppm().unwrap();
        assert!((ppm + 35.0).abs() < 0.5, "{ppm}");
    }

    #[test]
    fn a_step_starts_it_anew() {
        let mut estimator = DriftEstimator::default();
        feed(&mut estimator, 20.0, 0..30, |_| 0);
        feed(&mut estimator, 20.0, 30..33, |_| 5 * SECOND);
        assert_eq!(estimator.ppm(), None);
        feed(&mut estimator, 20.0, 33..60, |_| 5 * SECOND);
        assert!((estimator.ppm().unwrap() - 20.0).abs() < 0.1);
    }

    proptest! {
        #[test]
        fn finds_the_rate(ppm in -300.0..300.0f64, seed in 0..1000i128) {
            let mut estimator = DriftEstimator::default();
            feed(&mut estimator, ppm, 0..60, |second| (second * 7919 + seed * 104_729) % 200_000 - 100_000);
            let found = estimator.ppm().unwrap();
            prop_assert!((found - ppm).abs() < 5.0, "{} for {}", found, ppm);
        }

        #[test]
        fn any_readings_are_survived(pairs in prop::collection::vec((any::<u64>(), any::<u64>()), 0..100)) {
            let mut estimator = DriftEstimator::default();
            for (a, b) in pairs {
                estimator.add(a.into(), b.into());
                let _ = estimator.ppm();
            }
        }
    }
}

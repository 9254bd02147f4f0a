//! The servo: from measured errors to a speed. Pure.
//!
//! ```text
//!  measured error ──> outlier? ──> tracker ──> error, rate ──> speed = 1 − rate − correction · error, clamped
//!                                     ▲                                        │
//!                                     └──────── knows what was played ─────────┘
//! ```
//!
//! This is a PI loop whose integral (the rate) and proportional part (the error) are estimated by a tracker that knows the
//! speed that was really used. So a clamped speed does not wind anything up, an error that is steered away teaches the
//! rate nothing wrong, and the gains against jitter and against errors are chosen apart. The tracker's bandwidth starts
//! wide and narrows; where it ends depends on the jitter that is seen and on the period.

use super::config::ServoConfig;

/// What to do for the next block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Action {
    /// Play at 1 + this.
    Steer(f64),
    /// Jump to the due position, then play at 1 + this.
    Reseek(f64),
}

/// Steers one device.
#[derive(Debug, Clone)]
pub struct Servo {
    config: ServoConfig,
    /// Tracked error, seconds: position − due position; `None` until the first report. Positive: ahead, to slow down.
    error: Option<f64>,
    /// Tracked rate of the error at speed 1, as a fraction: how much too fast device and sender together are.
    rate: f64,
    /// The tracker's bandwidth, rad/s.
    bandwidth: f64,
    /// Seconds since it was widened.
    acquiring: f64,
    /// Variance of the reports' jitter, s², and how many reports it rests on.
    variance: f64,
    reports: u32,
    /// The innovation before, for the jitter.
    innovation: f64,
    /// Mean of the recent innovations: where it does not vanish, the tracker lags.
    bias: f64,
    outliers: u32,
    outlier_seconds: f64,
}

/// The mean innovation is taken over so many reports.
const BIAS_REPORTS: f64 = 16.0;
/// The jitter is taken over so many reports.
const JITTER_REPORTS: f64 = 128.0;
/// So many outliers in a row at least are the truth, however long the period.
const OUTLIERS_MIN: u32 = 3;
/// White jitter of variance σ² leaves σ²·bandwidth·period·1.25 in the sound (noise bandwidth of a critically damped loop
/// of second order).
const NOISE_BANDWIDTH: f64 = 1.25;
/// A mean innovation of so many of its standard deviations means that something has changed.
const BIAS_SIGMAS: f64 = 6.0;
/// And of at least this, seconds: below, the settled loop follows by itself.
const BIAS_MIN: f64 = 20e-6;

impl Servo {
    /// A servo that knows nothing yet.
    pub fn new(config: ServoConfig) -> Self {
        Self {
            bandwidth: config.bandwidth_acquire,
            config,
            error: None,
            rate: 0.0,
            acquiring: 0.0,
            variance: 0.0,
            reports: 0,
            innovation: 0.0,
            bias: 0.0,
            outliers: 0,
            outlier_seconds: 0.0,
        }
    }

    /// The tracked error, seconds; positive is ahead.
    pub fn error(&self) -> f64 {
        self.error.unwrap_or(0.0)
    }

    /// By how much the device runs too fast at speed 1, as a fraction (the sender's drift included).
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The standard deviation of the reports' jitter, seconds.
    pub fn jitter(&self) -> f64 {
        self.variance.sqrt()
    }

    /// Whether the loop has narrowed: the figures mean something.
    pub fn settled(&self) -> bool {
        self.error.is_some() && self.bandwidth < self.config.bandwidth_acquire / 2.0
    }

    /// The position was set to the due one: nothing is left of the error, the rate stays.
    pub fn reseeked(&mut self) {
        self.error = Some(0.0);
        self.widen();
    }

    /// Nothing is played: forget the error, keep the rate.
    pub fn pause(&mut self) {
        self.error = None;
        self.widen();
    }

    fn widen(&mut self) {
        self.bandwidth = self.config.bandwidth_acquire;
        self.acquiring = 0.0;
        (self.bias, self.innovation) = (0.0, 0.0);
        (self.outliers, self.outlier_seconds) = (0, 0.0);
    }

    /// One report: the block that is about to be played lies `measured` seconds ahead of what is due (behind if
    /// negative) and lasts `period` seconds.
    pub fn update(&mut self, measured: f64, period: f64) -> Action {
        let Some(error) = self.error.filter(|_| measured.is_finite() && period > 0.0) else {
            if measured.is_finite() {
                self.error = Some(measured);
            }
            return self.act(period);
        };
        let innovation = measured - error;
        if self.is_outlier(innovation, period) {
            return self.act(period);
        }
        if self.outliers > 0 {
            // They were the truth: start over from here, with the rate that is known.
            self.widen();
            self.error = Some(measured);
            return self.act(period);
        }
        self.learn_jitter(innovation);
        self.narrow(period);
        self.bias += (innovation - self.bias) / BIAS_REPORTS;
        let deviation = (self.variance / (2.0 * BIAS_REPORTS)).sqrt();
        if self.bias.abs() > (BIAS_SIGMAS * deviation).max(BIAS_MIN) {
            self.widen();
        }
        // Both poles at e^(−bandwidth·period): critically damped, stable for any period.
        let pole = (-self.bandwidth * period).exp();
        self.error = Some(error + (1.0 - pole * pole) * innovation);
        let rate = self.rate + (1.0 - pole) * (1.0 - pole) * innovation / period;
        self.rate = rate.clamp(-self.config.rate_max, self.config.rate_max);
        self.act(period)
    }

    /// Decides the speed for the next block and predicts the error after it.
    fn act(&mut self, period: f64) -> Action {
        let mut error = self.error();
        let reseek = error.abs() > self.config.reseek;
        if reseek {
            self.reseeked();
            error = 0.0;
        }
        // A long period must not be overshot within one block.
        let correction = self.config.correction.min(0.3 / period.max(f64::MIN_POSITIVE));
        let wide = (self.bandwidth / self.config.bandwidth_acquire).clamp(0.0, 1.0);
        let clamp = self.config.clamp_settled + (self.config.clamp_acquire - self.config.clamp_settled) * wide;
        let offset = (-self.rate - correction * error).clamp(-clamp, clamp);
        if self.error.is_some() {
            self.error = Some(error + (offset + self.rate) * period);
        }
        if reseek { Action::Reseek(offset) } else { Action::Steer(offset) }
    }

    /// Whether to ignore this report. The one that shows that the outliers were the truth is none.
    fn is_outlier(&mut self, innovation: f64, period: f64) -> bool {
        let limit = (self.config.outlier_sigmas * self.jitter()).max(self.config.outlier_min);
        // The first reports tell the jitter: only what would be a reseek is suspicious then.
        let limit = if self.reports < 16 { limit.max(self.config.reseek) } else { limit };
        if innovation.abs() <= limit {
            (self.outliers, self.outlier_seconds) = (0, 0.0);
            return false;
        }
        self.outliers += 1;
        self.outlier_seconds += period;
        self.outliers < OUTLIERS_MIN || self.outlier_seconds < self.config.outlier_time
    }

    fn learn_jitter(&mut self, innovation: f64) {
        // The difference of two reports has twice the variance and no bias.
        let difference = innovation - self.innovation;
        self.innovation = innovation;
        self.reports = self.reports.saturating_add(1);
        if self.reports > 1 {
            let weight = 1.0 / f64::from(self.reports - 1).min(JITTER_REPORTS);
            self.variance += (difference * difference / 2.0 - self.variance) * weight;
        }
    }

    fn narrow(&mut self, period: f64) {
        self.acquiring += period;
        if self.acquiring < self.config.acquire_time {
            return;
        }
        let target = self.config.jitter_target.powi(2);
        let settled = target / (NOISE_BANDWIDTH * period * self.variance).max(f64::MIN_POSITIVE);
        let settled = settled.clamp(self.config.bandwidth_settled_min, self.config.bandwidth_settled_max);
        let narrowing = self.config.narrowing * period;
        self.bandwidth = if self.bandwidth > settled {
            (1.0 / (1.0 / self.bandwidth + narrowing)).max(settled)
        } else {
            (self.bandwidth * (1.0 + narrowing)).min(settled)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_wild_report_is_ignored_and_lasting_ones_are_believed() {
        let mut servo = Servo::new(ServoConfig::default());
        for _ in 0..500 {
            servo.update(0.0, 0.02);
        }
        assert!(servo.settled());
        for wild in [0.3, -0.3, f64::NAN, f64::INFINITY] {
            assert_eq!(servo.update(wild, 0.02), Action::Steer(0.0), "{wild}");
            servo.update(0.0, 0.02);
        }
        let actions: Vec<Action> = (0..4).map(|_| servo.update(0.3, 0.02)).collect();
        assert!(matches!(actions[..3], [Action::Steer(_), Action::Steer(_), Action::Reseek(_)]), "{actions:?}");
    }

    #[test]
    fn the_rate_survives_pauses_and_reseeks() {
        let mut servo = Servo::new(ServoConfig::default());
        let mut error = 0.0;
        for _ in 0..2_000 {
            if let Action::Steer(offset) = servo.update(error, 0.01) {
                error += (offset + 150e-6) * 0.01;
            }
        }
        assert!((servo.rate() - 150e-6).abs() < 1e-6);
        servo.pause();
        servo.reseeked();
        assert!((servo.rate() - 150e-6).abs() < 1e-6 && servo.error() == 0.0 && !servo.settled());
    }

    proptest! {
        #[test]
        fn the_speed_stays_within_its_clamp(reports in proptest::collection::vec((-1.0..1.0f64, 0.0..0.5f64), 1..200)) {
            let mut servo = Servo::new(ServoConfig::default());
            for (measured, period) in reports {
                let (Action::Steer(offset) | Action::Reseek(offset)) = servo.update(measured, period);
                prop_assert!(offset.abs() <= 2000e-6, "{offset}");
                prop_assert!(servo.error().is_finite() && servo.rate().is_finite());
            }
        }
    }
}

//! Volume without clicks.

/// The cubic from 0 to 1 with level ends: a fade of this shape has no corner that could be heard.
pub fn smoothstep(x: f32) -> f32 {
    let x = x.clamp(0.0, 1.0);
    x * x * (3.0 - 2.0 * x)
}

/// A gain that moves to its target in smooth ramps.
#[derive(Debug, Clone)]
pub struct GainRamp {
    from: f32,
    to: f32,
    /// Progress from `from` to `to`, 0.0..=1.0.
    progress: f32,
    /// Progress a frame.
    step: f32,
    ramp_seconds: f64,
}

impl GainRamp {
    /// A gain that stands at `gain` and takes `ramp_seconds` for each change.
    pub fn new(gain: f32, ramp_seconds: f64) -> Self {
        Self { from: gain, to: gain, progress: 1.0, step: 1.0, ramp_seconds }
    }

    /// Moves to `target`, starting from where the gain is now.
    pub fn set(&mut self, target: f32, rate: u32) {
        if target != self.to && target.is_finite() {
            self.from = self.now();
            self.to = target;
            self.progress = 0.0;
            self.step = (1.0 / (self.ramp_seconds * f64::from(rate)).max(1.0)) as f32;
        }
    }

    /// The gain right now.
    pub fn now(&self) -> f32 {
        self.from + (self.to - self.from) * smoothstep(self.progress)
    }

    /// Applies the gain to interleaved samples.
    pub fn apply(&mut self, samples: &mut [f32], channels: usize) {
        if self.progress >= 1.0 {
            if self.to != 1.0 {
                samples.iter_mut().for_each(|sample| *sample *= self.to);
            }
            return;
        }
        for frame in samples.chunks_mut(channels.max(1)) {
            self.progress = (self.progress + self.step).min(1.0);
            let gain = self.now();
            frame.iter_mut().for_each(|sample| *sample *= gain);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ramp_ends_at_its_target_in_its_time_and_without_steps() {
        let mut ramp = GainRamp::new(1.0, 0.01);
        ramp.set(0.25, 48_000);
        let mut samples = vec![1.0f32; 2 * 480];
        ramp.apply(&mut samples, 2);
        assert!((samples[958] - 0.25).abs() < 1e-6 && samples[0] == samples[1]);
        let steepest = samples.windows(3).map(|w| (w[2] - w[0]).abs()).fold(0.0, f32::max);
        // 1.5 times the mean slope is the steepest of the cubic.
        assert!(steepest < 0.75 * 1.6 / 480.0, "{steepest}");
        let mut more = vec![1.0f32; 8];
        ramp.apply(&mut more, 2);
        assert!(more.iter().all(|sample| (sample - 0.25).abs() < 1e-6));
    }

    #[test]
    fn a_new_target_in_mid_ramp_starts_where_the_gain_is() {
        let mut ramp = GainRamp::new(0.0, 0.01);
        ramp.set(1.0, 48_000);
        ramp.apply(&mut [1.0; 240], 1);
        let here = ramp.now();
        assert!(here > 0.3 && here < 0.7);
        ramp.set(0.0, 48_000);
        assert_eq!(ramp.now(), here);
        ramp.set(f32::NAN, 48_000);
        assert_eq!(ramp.now(), here);
    }
}

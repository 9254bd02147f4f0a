//! Every number of the steered output, and why it is what it is.

/// How the output is steered. The defaults are meant for everyone; the tests and the curious change them.
#[derive(Debug, Clone, PartialEq)]
pub struct SteerConfig {
    /// Seconds of sound that the ring holds. It bounds how far the writer may be ahead of the device: the playout latency
    /// (1 s by default) and room for a burst after a stall. 4 s of 48 kHz stereo are 1.5 MB, held twice.
    pub ring_seconds: f64,
    /// Length of every fade: start, end, gap, reseek, change of delay, flush; seconds. Below 5 ms a fade is heard as a
    /// click, above 20 ms a reseek is heard as an echo.
    pub fade: f64,
    /// Length of a volume ramp from silence to full scale, seconds: short enough to feel immediate.
    pub volume_ramp: f64,
    /// The servo.
    pub servo: ServoConfig,
    /// The resampler.
    pub resampler: ResamplerConfig,
    /// The map from samples to sender times.
    pub map: MapConfig,
}

impl Default for SteerConfig {
    fn default() -> Self {
        Self {
            ring_seconds: 4.0,
            fade: 0.010,
            volume_ramp: 0.030,
            servo: ServoConfig::default(),
            resampler: ResamplerConfig::default(),
            map: MapConfig::default(),
        }
    }
}

/// How hard and how fast the servo steers. Times in seconds, rates as fractions (1e-6 is 1 ppm), bandwidths in rad/s.
#[derive(Debug, Clone, PartialEq)]
pub struct ServoConfig {
    /// How fast a tracked error is worked off: per second. 2 removes 100 µs to 2 µs within 2 s. The tracked error is
    /// smooth, so this may stay high for good.
    pub correction: f64,
    /// Bandwidth of the tracker right after the start, a reseek or a step. At 2 rad/s the rate of a device that is
    /// 200 ppm off is known to 5 ppm after 3 s.
    pub bandwidth_acquire: f64,
    /// It stays there for so long: 3 s are 6 time constants, after which nothing is left of what was not known.
    pub acquire_time: f64,
    /// Then the bandwidth narrows as 1/(1/start + narrowing·t), like the gain of a Kalman filter for a constant rate
    /// (2.4/t): it averages over all that was seen since, without a tail. Per second.
    pub narrowing: f64,
    /// It never gets wider than this once settled: without jitter nothing is gained by averaging longer, and changes of
    /// the shared clock's line are followed within seconds.
    pub bandwidth_settled_max: f64,
    /// It never gets narrower than this: the rate of a sound card moves by some 0.1 ppm a minute with its temperature,
    /// which leaves an error of rate/bandwidth² ≈ 1 µs.
    pub bandwidth_settled_min: f64,
    /// What jitter of the reports may leave in the sound, standard deviation: the settled bandwidth is chosen so. 3 µs
    /// keeps the worst of a day (4.5 σ) within 0.65 samples at 48 kHz.
    pub jitter_target: f64,
    /// The speed never leaves 1 by more than this while acquiring: 2000 ppm is 3.5 cents, below what is heard (5 cents).
    pub clamp_acquire: f64,
    /// And by no more than this once settled: real devices and senders stay within 200 ppm each.
    pub clamp_settled: f64,
    /// The device's rate is never taken to be further off than this: no crystal is.
    pub rate_max: f64,
    /// From this error on one jump with a crossfade replaces steering: 1 ms takes 2 s to steer away, a jump 10 ms.
    pub reseek: f64,
    /// A report further than this many standard deviations from the tracked error is an outlier …
    pub outlier_sigmas: f64,
    /// … if it is also further than this: a device without jitter would call everything an outlier.
    pub outlier_min: f64,
    /// Outliers are ignored until they have come in a row for so long (and at least three): then they are the truth.
    pub outlier_time: f64,
}

impl Default for ServoConfig {
    fn default() -> Self {
        Self {
            correction: 2.0,
            bandwidth_acquire: 2.0,
            acquire_time: 3.0,
            narrowing: 0.45,
            bandwidth_settled_max: 0.3,
            bandwidth_settled_min: 0.04,
            jitter_target: 3e-6,
            clamp_acquire: 2000e-6,
            clamp_settled: 500e-6,
            rate_max: 1500e-6,
            reseek: 1e-3,
            outlier_sigmas: 6.0,
            outlier_min: 50e-6,
            outlier_time: 0.040,
        }
    }
}

/// The windowed sinc that computes the samples in between.
#[derive(Debug, Clone, PartialEq)]
pub struct ResamplerConfig {
    /// Taps of the filter. 128 pass 20 kHz at 48 kHz, for 0.3 % of a core in stereo.
    pub taps: usize,
    /// Filters a frame, between which is interpolated linearly. The error of that is (π·f/rate/phases)²/2: 256 leave
    /// −104 dB at 10 kHz.
    pub phases: usize,
}

impl Default for ResamplerConfig {
    fn default() -> Self {
        Self { taps: 128, phases: 256 }
    }
}

/// How pairs of sample index and sender time become a line.
#[derive(Debug, Clone, PartialEq)]
pub struct MapConfig {
    /// Pairs older than this are forgotten, seconds: so a room that has run for a day and one that joined two minutes ago
    /// hold the same pairs. 24 reports, at one each 5 s.
    pub window: f64,
    /// Pairs are gathered in cells of this length on the sender's clock, seconds; one cell is one point for the fit.
    pub cell: f64,
    /// A pair that lies on the nominal continuation of the one before within this says nothing new, seconds: between two
    /// sender reports the times are extrapolated at the nominal rate.
    pub news: f64,
    /// What a cell without news weighs in the fit against one with: it decides where there is nothing else.
    pub stale_weight: f64,
    /// Typical rate error of a sender's sampling clock, as a fraction: the prior of the slope.
    pub rate_typical: f64,
    /// And the largest believed.
    pub rate_max: f64,
    /// Noise of a pair that is assumed at least, seconds.
    pub noise_min: f64,
    /// From this deviation on, in one direction for `step_cells` cells, the sender's clock has stepped: the pairs before
    /// are forgotten. Above the ±12 ms by which the reports of some cameras jitter, below a 25 ms step. Seconds.
    pub step: f64,
    /// Cells in a row for a step.
    pub step_cells: usize,
    /// What a new report changes in the line is worked off with this time constant, seconds, …
    pub slew_time: f64,
    /// … and at no more than this rate, so that reports that jitter by milliseconds move the sound without a step; as a
    /// fraction.
    pub slew_rate: f64,
    /// In the first seconds the line jumps instead: one report alone may be far off.
    pub settling: f64,
}

impl Default for MapConfig {
    fn default() -> Self {
        Self {
            window: 120.0,
            cell: 0.25,
            news: 1e-6,
            stale_weight: 1e-4,
            rate_typical: 100e-6,
            rate_max: 500e-6,
            noise_min: 20e-6,
            step: 0.018,
            step_cells: 3,
            slew_time: 2.0,
            slew_rate: 300e-6,
            settling: 10.0,
        }
    }
}

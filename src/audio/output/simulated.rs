//! A device in virtual time: any rate error, report jitter, period, stall or loss, and a record of what was heard when.
//!
//! It drives a [`Renderer`] exactly as a real device does, but a day takes seconds and every run is the same. What it
//! plays is handed to a listener together with the *true* time of the first frame, whatever was reported to the renderer.

use super::{Block, Renderer};

const SECOND: f64 = 1e9;

/// What a simulated device is like.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulatedConfig {
    /// Nominal frames a second, Hz.
    pub rate: u32,
    /// Channels of a block.
    pub channels: usize,
    /// Frames of a block.
    pub period: usize,
    /// How much faster (positive) than nominal the device runs on CLOCK_MONOTONIC, in ppm.
    pub ppm: f64,
    /// The reported times are wrong by up to this, either way, evenly distributed; ns.
    pub jitter: f64,
    /// Seed of the jitter.
    pub seed: u64,
}

impl Default for SimulatedConfig {
    fn default() -> Self {
        Self { rate: 48_000, channels: 2, period: 1024, ppm: 0.0, jitter: 0.0, seed: 1 }
    }
}

/// One block as it was heard.
#[derive(Debug)]
pub struct Heard<'a> {
    /// When the first frame was heard in truth: CLOCK_MONOTONIC, whole ns …
    pub at: i64,
    /// … and the fraction of a ns.
    pub at_fraction: f64,
    /// The duration of a frame in truth, ns.
    pub frame_ns: f64,
    /// What was played, interleaved.
    pub samples: &'a [f32],
    pub channels: usize,
}

/// A device that plays when it is told that time has passed.
pub struct SimulatedDevice {
    config: SimulatedConfig,
    renderer: Box<dyn Renderer>,
    /// CLOCK_MONOTONIC at which the simulation began, ns.
    origin: i64,
    /// When the next block will be heard, ns after the origin.
    next: f64,
    samples: Vec<f32>,
    random: Random,
}

impl SimulatedDevice {
    /// A device whose first block is heard at `start` (CLOCK_MONOTONIC, ns).
    pub fn new(config: SimulatedConfig, renderer: Box<dyn Renderer>, start: i64) -> Self {
        let samples = vec![0.0; config.period * config.channels];
        let random = Random::new(config.seed);
        Self { config, renderer, origin: start, next: 0.0, samples, random }
    }

    /// When the next block will be heard, CLOCK_MONOTONIC ns.
    pub fn next_block(&self) -> i64 {
        self.origin + self.next as i64
    }

    /// Asks for one block and plays it to `listener`.
    pub fn step(&mut self, mut listener: impl FnMut(Heard<'_>)) {
        let jitter = self.config.jitter * (2.0 * self.random.unit() - 1.0);
        self.samples.clear();
        self.samples.resize(self.config.period * self.config.channels, 0.0);
        self.renderer.render(Block {
            samples: &mut self.samples,
            channels: self.config.channels,
            rate: self.config.rate,
            heard_at: self.origin + (self.next + jitter).round() as i64,
        });
        let frame_ns = SECOND / (f64::from(self.config.rate) * (1.0 + self.config.ppm * 1e-6));
        let whole = self.next.floor();
        listener(Heard {
            at: self.origin + whole as i64,
            at_fraction: self.next - whole,
            frame_ns,
            samples: &self.samples,
            channels: self.config.channels,
        });
        self.next += frame_ns * self.config.period as f64;
    }

    /// The device plays nothing for `ns`: an xrun, a suspended or lost device. It asks for no block meanwhile.
    pub fn stall(&mut self, ns: f64) {
        self.next += ns.max(0.0);
    }

    /// What the device is like from the next block on: another rate error, period, jitter or nominal rate.
    pub fn change(&mut self, change: impl FnOnce(&mut SimulatedConfig)) {
        change(&mut self.config);
    }
}

/// A small random generator (SplitMix64): the simulation needs repeatable numbers, not secret ones.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator that always yields the same numbers for the same `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, evenly distributed over all of `u64`.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Evenly distributed in 0.0..1.0.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

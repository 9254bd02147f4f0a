//! A sender, a shared clock and rooms with a device each, in virtual time.

use unisono::audio::output::simulated::{Heard, Random, SimulatedConfig, SimulatedDevice};
use unisono::audio::{Controls, Feed, Position, Ring, StatsReader, SteerConfig, SteeredRenderer};
use unisono::clock::{ClockLine, LinePublisher, clock_line};

pub const SECOND: i64 = 1_000_000_000;
/// The shared clock (ns since 1900) when CLOCK_MONOTONIC shows 0.
pub const EPOCH: i64 = 3_973_000_000 * SECOND;
/// Frequency of the test tone, Hz: a quadrature pair, sine left and cosine right, whose phase tells the position within
/// ±16 ms to some ns. No fault lasts a whole number of its periods.
const TONE: f64 = 30.0;
/// Frames of a sender's buffer.
const BUFFER: u64 = 960;

/// What the sender is like.
#[derive(Debug, Clone)]
pub struct Sender {
    pub rate: u32,
    /// How much slower (positive) than nominal it samples, ppm.
    pub drift_ppm: f64,
    /// Seconds between sender reports, with extrapolation at the nominal rate in between; 0 for a time in each packet.
    pub report_interval: f64,
    /// Each report (or packet time) is wrong by up to this, ns.
    pub noise: f64,
    /// From this capture time (seconds after the start) on the sender's times are so many ns off.
    pub step: Option<(f64, i64)>,
    pub seed: u64,
}

impl Default for Sender {
    fn default() -> Self {
        Self { rate: 48_000, drift_ppm: 0.0, report_interval: 0.0, noise: 0.0, step: None, seed: 7 }
    }
}

impl Sender {
    /// Nanoseconds a frame takes on the shared clock.
    pub fn frame_ns(&self) -> f64 {
        1e9 / f64::from(self.rate) * (1.0 + self.drift_ppm * 1e-6)
    }

    /// The time that the sender claims for `frame`, ns after EPOCH.
    fn claimed(&self, frame: u64) -> f64 {
        let frame_ns = self.frame_ns();
        let truth = frame as f64 * frame_ns;
        let stepped = |time: f64| match self.step {
            Some((at, by)) if time >= at * 1e9 => by as f64,
            _ => 0.0,
        };
        if self.report_interval <= 0.0 {
            return truth + stepped(truth) + self.noise_of(frame);
        }
        let number = (truth / (self.report_interval * 1e9)).floor();
        let report = (number * self.report_interval * 1e9 / frame_ns).ceil();
        let extrapolated = (frame as f64 - report) * 1e9 / f64::from(self.rate);
        report * frame_ns + stepped(report * frame_ns) + extrapolated + self.noise_of(number as u64)
    }

    fn noise_of(&self, number: u64) -> f64 {
        self.noise * (2.0 * Random::new(self.seed ^ (number << 20)).unit() - 1.0)
    }
}

/// A room: what it received so far, its device and what was heard.
pub struct Room {
    pub device: SimulatedDevice,
    pub controls: Controls,
    pub stats: StatsReader,
    pub clock: LinePublisher,
    ring: Ring,
    feed: Feed,
    sender: Sender,
    tone: Tone,
    /// Whether the buffer before the next one was lost, and whether the pipeline tells so.
    lost: bool,
    pub flags_loss: bool,
    /// The next frame that the sender will send to this room.
    next_frame: u64,
    config: SteerConfig,
    latency: i64,
    /// Where the shared clock stands in truth.
    truth: ClockLine,
    pub log: Vec<Sample>,
}

/// One measurement from what was heard.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// When, seconds of CLOCK_MONOTONIC.
    pub at: f64,
    /// Presentation error, µs: positive is late. NaN where nothing was heard.
    pub error: f64,
    /// Length of the quadrature pair: 1 unless fading.
    pub level: f64,
}

impl Room {
    /// A room that starts `start` seconds after the sender, with the truth as clock line.
    pub fn new(device: SimulatedConfig, sender: &Sender, start: f64, latency: f64) -> Self {
        Self::with(SteerConfig::default(), device, sender, start, latency)
    }

    pub fn with(config: SteerConfig, device: SimulatedConfig, sender: &Sender, start: f64, latency: f64) -> Self {
        let ring = Ring::new((config.ring_seconds * f64::from(sender.rate)) as usize * 2, config.fade);
        let (mut clock, reader) = clock_line();
        let truth = ClockLine { monotonic: 0, shared: EPOCH, rate: 0.0 };
        clock.publish(Some(truth));
        let controls = Controls::new();
        let latency = (latency * 1e9) as i64;
        controls.set_playout_latency(latency);
        let renderer = SteeredRenderer::new(&config, &ring, reader, &controls);
        renderer.interpolators().prepare(f64::from(device.rate) / f64::from(sender.rate));
        let stats = renderer.stats();
        let feed = Feed::new(&ring, &config.map, sender.rate, 2);
        let next_frame = (start * f64::from(sender.rate) / BUFFER as f64) as u64 * BUFFER;
        let device = SimulatedDevice::new(device, Box::new(renderer), (start * 1e9) as i64);
        Self {
            device,
            controls,
            stats,
            clock,
            ring,
            feed,
            sender: sender.clone(),
            tone: Tone::new(sender.rate),
            lost: false,
            flags_loss: true,
            next_frame,
            config,
            latency,
            truth,
            log: Vec::new(),
        }
    }

    /// The shared clock is stepped by `ns` in truth, and the line follows at once.
    pub fn step_clock(&mut self, ns: i64) {
        self.truth.shared += ns;
        self.clock.publish(Some(self.truth));
    }

    /// Plays until `end` seconds of CLOCK_MONOTONIC.
    pub fn run_until(&mut self, end: f64) {
        self.run(end, |_| true);
    }

    /// Plays until `end`; buffers whose number is refused by `receives` are lost.
    pub fn run(&mut self, end: f64, receives: impl Fn(u64) -> bool) {
        while self.device.next_block() < (end * 1e9) as i64 {
            self.block(&receives);
        }
    }

    /// Plays one block.
    pub fn block(&mut self, receives: &impl Fn(u64) -> bool) {
        self.receive(self.truth.shared_at(self.device.next_block()) - EPOCH, receives);
        let (sender, latency, truth, log) = (&self.sender, self.latency, &self.truth, &mut self.log);
        self.device.step(|heard| log.push(measure(sender, latency, truth, &heard)));
    }

    /// A new pipeline: what was received and not played is forgotten.
    pub fn reconnect(&mut self) {
        self.feed = Feed::new(&self.ring, &self.config.map, self.sender.rate, 2);
    }

    fn receive(&mut self, now: i64, receives: &impl Fn(u64) -> bool) {
        while (self.next_frame + BUFFER) as f64 * self.sender.frame_ns() < now as f64 {
            let first = self.next_frame;
            self.next_frame += BUFFER;
            if !receives(first / BUFFER) {
                self.lost = true;
                continue;
            }
            let claimed = EPOCH + self.sender.claimed(first).round() as i64;
            let samples = self.tone.from(first);
            self.feed.push(samples, Some(claimed as u64), self.lost && self.flags_loss).expect("the newest feed");
            self.lost = false;
        }
    }
}

/// The test tone, computed once.
struct Tone {
    period: u64,
    samples: Vec<f32>,
}

impl Tone {
    fn new(rate: u32) -> Self {
        let period = u64::from(rate) / TONE as u64;
        assert_eq!(period * TONE as u64, u64::from(rate), "whole periods");
        let angle = |n: u64| std::f64::consts::TAU * (n % period) as f64 / period as f64;
        let samples = (0..period + BUFFER).flat_map(|n| [angle(n).sin() as f32, angle(n).cos() as f32]).collect();
        Self { period, samples }
    }

    /// The buffer that starts with frame `first`.
    fn from(&self, first: u64) -> &[f32] {
        let start = (first % self.period) as usize;
        &self.samples[2 * start..2 * (start + BUFFER as usize)]
    }
}

/// Where in the sender's tone the middle of the block was, against where it should have been.
fn measure(sender: &Sender, latency: i64, truth: &ClockLine, heard: &Heard<'_>) -> Sample {
    let frame = heard.samples.len() / heard.channels / 2;
    let (sine, cosine) = (f64::from(heard.samples[2 * frame]), f64::from(heard.samples[2 * frame + 1]));
    let time = (truth.shared_at(heard.at) - EPOCH - latency) as f64;
    let mut captured = time + heard.at_fraction + frame as f64 * heard.frame_ns;
    if let Some((at, by)) = sender.step
        && captured >= at * 1e9 + by as f64
    {
        captured -= by as f64;
    }
    let due = Position::frame(0).plus(captured / sender.frame_ns());
    let turn = TONE / f64::from(sender.rate);
    let due_phase = (due.index as f64 * turn).fract() + due.fraction * turn;
    let ahead = (sine.atan2(cosine) / std::f64::consts::TAU - due_phase + 0.5).rem_euclid(1.0) - 0.5;
    let level = sine.hypot(cosine);
    let error = if level > 0.01 { -ahead / TONE * 1e6 } else { f64::NAN };
    let at = (heard.at as f64 + frame as f64 * heard.frame_ns) / 1e9;
    Sample { at, error, level }
}

/// The largest |error| from `from` to `to` seconds, µs; infinite if anything was silent or faded there.
pub fn worst(log: &[Sample], from: f64, to: f64) -> f64 {
    let part: Vec<&Sample> = log.iter().filter(|sample| (from..to).contains(&sample.at)).collect();
    assert!(!part.is_empty(), "nothing played from {from} s to {to} s");
    let error = |sample: &&Sample| if sample.level < 0.99 { f64::INFINITY } else { sample.error.abs() };
    part.iter().map(error).fold(0.0, f64::max)
}

/// The largest skew of two rooms from `from` to `to` seconds, µs.
pub fn worst_skew(a: &[Sample], b: &[Sample], from: f64, to: f64) -> f64 {
    let mut others = b.windows(2).filter(|pair| pair[1].at >= from).peekable();
    let mut largest = 0.0f64;
    for sample in a.iter().filter(|sample| (from..to).contains(&sample.at)) {
        while others.peek().is_some_and(|pair| pair[1].at < sample.at) {
            others.next();
        }
        let Some([before, after]) = others.peek() else {
            break;
        };
        let part = (sample.at - before.at) / (after.at - before.at);
        let other = before.error + (after.error - before.error) * part;
        let skew = sample.error - other;
        largest = if skew.is_nan() { f64::INFINITY } else { largest.max(skew.abs()) };
    }
    assert!(largest > 0.0, "nothing to compare");
    largest
}

/// How many seconds after `fault` the error is within `bound` µs for good, until `to`.
pub fn recovery(log: &[Sample], fault: f64, to: f64, bound: f64) -> f64 {
    let outside = |sample: &&Sample| sample.level < 0.99 || sample.error.is_nan() || sample.error.abs() > bound;
    let last = log.iter().filter(|sample| (fault..to).contains(&sample.at)).rfind(outside);
    last.map_or(0.0, |sample| sample.at - fault)
}

/// Seconds of silence or fading from `from` to `to`.
pub fn silence(log: &[Sample], from: f64, to: f64) -> f64 {
    let quiet = |pair: &&[Sample]| (from..to).contains(&pair[0].at) && pair[0].level < 0.99;
    log.windows(2).filter(quiet).map(|pair| pair[1].at - pair[0].at).fold(0.0, |sum, part| sum + part)
}

//! The renderer: in each callback, which sample is due when this block is heard, and how to get there.
//!
//! ```text
//!  heard at (CLOCK_MONOTONIC) ──clock line──> shared clock ──less latency and delays──> capture time
//!      ──sample map──> due position ──minus own position──> error ──servo──> speed ──resampler──> samples
//! ```
//!
//! Nothing in here allocates, locks, logs or waits.

use super::Position;
use super::config::SteerConfig;
use super::controls::Controls;
use super::gain::GainRamp;
use super::map::MapLine;
use super::output::{Block, Renderer};
use super::resample::Interpolators;
use super::ring::{Ring, RingState};
use super::servo::{Action, Servo};
use super::stats::{RenderState, RenderStats, StatsReader, StatsWriter, stats};
use super::voice::{Pace, Source, Voice};
use crate::clock::LineReader;

const SECOND: f64 = 1e9;
/// A step of the device's time line from this on is counted, ns: a servo follows smaller ones.
const TIME_JUMP: i64 = 1_000_000;

/// Plays what the ring holds so that each sample is heard when it is due.
pub struct SteeredRenderer {
    config: SteerConfig,
    controls: Controls,
    clock: LineReader,
    source: Source,
    servo: Servo,
    gain: GainRamp,
    voice: Option<Voice>,
    /// What is fading out; a second one is dropped in favour of the louder.
    leaving: Option<Voice>,
    /// The delay that `voice` has been placed with, ns.
    delay: i64,
    speed_offset: f64,
    /// When the next block should be heard if the device's time line goes on.
    expected: Option<i64>,
    stats: RenderStats,
    writer: StatsWriter,
    reader: StatsReader,
}

/// What is due at the start of a block, and by which map.
struct Due {
    at: Position,
    map: MapLine,
    ring: RingState,
}

impl SteeredRenderer {
    /// A renderer of what is written to `ring`, timed by `clock`.
    pub fn new(config: &SteerConfig, ring: &Ring, clock: LineReader, controls: &Controls) -> Self {
        let (writer, reader) = stats();
        Self {
            controls: controls.clone(),
            clock,
            source: Source::new(ring.reader(), Interpolators::new(&config.resampler), config.resampler.taps),
            servo: Servo::new(config.servo.clone()),
            gain: GainRamp::new(controls.gain(), config.volume_ramp),
            voice: None,
            leaving: None,
            delay: 0,
            speed_offset: 0.0,
            expected: None,
            stats: RenderStats::default(),
            writer,
            reader,
            config: config.clone(),
        }
    }

    /// The figures, to read from any thread.
    pub fn stats(&self) -> StatsReader {
        self.reader.clone()
    }

    /// The interpolators, to [`prepare`](Interpolators::prepare) the one for a pair of rates outside the callback.
    pub fn interpolators(&self) -> Interpolators {
        self.source.interpolators.clone()
    }

    fn due(&mut self, heard_at: i64) -> Result<Due, RenderState> {
        let clock = self.clock.latest().ok_or(RenderState::NoClock)?;
        let ring = self.source.ring.state();
        let map = self.source.ring.map(ring.generation).ok_or(RenderState::NoStream)?;
        let captured = clock.shared_at(heard_at).saturating_sub(self.controls.total_delay());
        Ok(Due { at: map.position_at(captured), map, ring })
    }

    /// Sends the current voice into its fade-out.
    fn leave(&mut self) {
        if let Some(mut voice) = self.voice.take() {
            voice.leaving = true;
            let louder = self.leaving.is_none_or(|leaving| leaving.open <= voice.open);
            if louder {
                self.leaving = Some(voice);
            }
        }
    }

    /// Starts to play at `at`, fading over from what was played.
    fn jump(&mut self, ring: RingState, at: Position) {
        self.leave();
        self.voice = Some(Voice::new(ring, at));
        self.delay = self.controls.total_delay();
    }

    /// Decides where and how fast the next block is played.
    fn steer(&mut self, due: &Due, period: f64) {
        let rate = f64::from(due.ring.rate.max(1));
        let delay = self.controls.total_delay();
        let Some(voice) = self.voice.as_mut().filter(|voice| voice.ring.generation == due.ring.generation) else {
            self.jump(due.ring, due.at);
            self.servo.reseeked();
            self.speed_offset = -self.servo.rate();
            return;
        };
        voice.ring = due.ring;
        if delay != self.delay {
            // The change is known exactly, so it is no error to be steered away.
            let moved = voice.at.plus((self.delay - delay) as f64 * rate / SECOND);
            self.jump(due.ring, moved);
        }
        let Some(voice) = &self.voice else {
            return;
        };
        let error = voice.at.since(due.at) / rate;
        self.writer.record(error);
        match self.servo.update(error, period) {
            Action::Steer(offset) => self.speed_offset = offset,
            Action::Reseek(offset) => {
                self.speed_offset = offset;
                self.stats.reseeks += 1;
                self.jump(due.ring, due.at);
            }
        }
    }

    /// Notes what the device's time line did, and where its next block should be.
    fn follow_time(&mut self, heard_at: i64, period: f64) {
        if self.expected.is_some_and(|expected| (heard_at - expected).abs() > TIME_JUMP) {
            self.stats.time_jumps += 1;
        }
        self.expected = Some(heard_at.saturating_add((period * SECOND) as i64));
    }

    fn mix(&mut self, samples: &mut [f32], channels: usize, rate: u32) {
        let fade = (self.config.fade * f64::from(rate)).max(1.0) as f32;
        let speed = 1.0 + self.speed_offset;
        for voice in [&mut self.voice, &mut self.leaving].into_iter().flatten() {
            let step = f64::from(voice.ring.rate.max(1)) / f64::from(rate) * speed;
            voice.add(samples, Pace { channels, step, fade }, &mut self.source);
        }
        if self.leaving.is_some_and(|voice| voice.is_silent()) {
            self.leaving = None;
        }
    }

    fn report(&mut self, due: Option<&Due>, was_starved: bool) {
        let stats = &mut self.stats;
        stats.blocks += 1;
        stats.error = self.servo.error();
        stats.jitter = self.servo.jitter();
        stats.speed_offset = self.speed_offset;
        stats.settled = self.servo.settled();
        if let (Some(due), Some(voice)) = (due, &self.voice) {
            stats.state = if voice.open > 0.0 { RenderState::Playing } else { RenderState::Starved };
            // The servo's rate is device and sender together, on the shared clock.
            stats.sender_drift = due.map.drift(due.ring.rate);
            stats.device_drift = 1.0 / ((1.0 - self.servo.rate()) * (1.0 + stats.sender_drift)) - 1.0;
            stats.headroom = Position::frame(voice.ring.end).since(voice.at) / f64::from(voice.ring.rate.max(1));
            if voice.starved && !was_starved && !voice.ring.finished {
                stats.underruns += 1;
            }
            self.source.ring.played(voice.ring.generation, voice.at.index);
        }
        self.writer.publish(*stats);
    }
}

impl Renderer for SteeredRenderer {
    fn render(&mut self, block: Block<'_>) {
        block.samples.fill(0.0);
        if block.channels == 0 || block.rate == 0 || block.samples.len() < block.channels {
            return;
        }
        let frames = block.samples.len() / block.channels;
        let period = frames as f64 / f64::from(block.rate);
        self.follow_time(block.heard_at, period);
        let was_starved = self.voice.is_none_or(|voice| voice.starved);
        let due = self.due(block.heard_at);
        match &due {
            Ok(due) => self.steer(due, period),
            Err(state) => {
                self.stats.state = *state;
                self.leave();
                self.servo.pause();
            }
        }
        self.mix(block.samples, block.channels, block.rate);
        self.gain.set(self.controls.gain(), block.rate);
        self.gain.apply(block.samples, block.channels);
        self.report(due.as_ref().ok(), was_starved);
    }
}

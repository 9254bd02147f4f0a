//! One place in the ring that is being played, with its fade.

use super::Position;
use super::gain::smoothstep;
use super::resample::{Interpolators, Planes, window};
use super::ring::{RingReader, RingState};

/// Frames computed at once: what the resampler reads stays in the first-level cache.
const CHUNK: usize = 256;
/// Stream frames a device frame, at most: 192 kHz on an 8 kHz device. Beyond, nothing is played.
const STEP_MAX: f64 = 24.0;
/// More channels than this are not played.
pub(super) const CHANNELS_MAX: usize = 8;

/// What voices read from and compute in; the buffers are allocated before the first callback.
pub(super) struct Source {
    pub ring: RingReader,
    pub interpolators: Interpolators,
    wave: Vec<f32>,
    planes: Vec<f32>,
}

impl Source {
    pub(super) fn new(ring: RingReader, interpolators: Interpolators, taps: usize) -> Self {
        let wave = (CHUNK * STEP_MAX as usize + 2 * taps + 8) * CHANNELS_MAX;
        Self { ring, interpolators, wave: vec![0.0; wave], planes: vec![0.0; CHUNK * CHANNELS_MAX] }
    }
}

/// How a block is played.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Channels of the device.
    pub channels: usize,
    /// Stream frames a device frame.
    pub step: f64,
    /// Length of a whole fade, in frames of the device.
    pub fade: f32,
}

/// A position that moves through one generation of the ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct Voice {
    /// What the ring held when last seen; of an older generation: the last that was seen.
    pub ring: RingState,
    /// Of the next frame.
    pub at: Position,
    /// Where the fade stands, 0 silent to 1 open (linear; shaped when applied).
    pub open: f32,
    /// Whether it is on its way out for good.
    pub leaving: bool,
    /// Whether the last block ran out of samples.
    pub starved: bool,
}

impl Voice {
    pub(super) fn new(ring: RingState, at: Position) -> Self {
        Self { ring, at, open: 0.0, leaving: false, starved: false }
    }

    /// Whether nothing of it can be heard any more.
    pub(super) fn is_silent(&self) -> bool {
        self.leaving && self.open <= 0.0
    }

    /// Adds a block to the interleaved `out` and moves on.
    pub(super) fn add(&mut self, out: &mut [f32], pace: Pace, source: &mut Source) {
        let Pace { channels, step, fade } = pace;
        self.starved = false;
        let Some(interpolator) = source.interpolators.get(1.0 / step) else {
            return;
        };
        let reach = interpolator.reach();
        let streams = (self.ring.channels as usize).clamp(1, CHANNELS_MAX);
        // From `first` on the ring has all samples around a frame, until `last`: both in frames from the start of `out`.
        let from_begin = self.at.since(Position::frame(self.ring.begin));
        let to_end = Position::frame(self.ring.end - reach as i64).since(self.at);
        let (first, last) = (-from_begin / step, to_end / step);
        let total = out.len() / channels;
        if last < total as f64 {
            self.starved = true;
        }
        for (number, chunk) in out.chunks_mut(CHUNK * channels).enumerate() {
            let frames = chunk.len() / channels;
            let offset = (number * CHUNK) as f64;
            let at = self.at;
            self.at = at.plus(step * frames as f64);
            // Within a fade's length of the end it closes, so that nothing is cut off.
            let closing = |frame: f64| self.leaving || frame < first || frame + f64::from(fade) >= last;
            let silent = self.open <= 0.0 && closing(offset) && closing(offset + frames as f64) && first <= offset;
            if silent || step > STEP_MAX || offset + frames as f64 <= first {
                self.open = 0.0;
                continue;
            }
            let (start, length) = window(at, step, frames, reach);
            let relative = at.since(Position::frame(start));
            let wave = &mut source.wave[..length * streams];
            for (stream, plane) in wave.chunks_exact_mut(length).enumerate() {
                source.ring.copy(&self.ring, stream, start, plane);
            }
            let waves = Planes { samples: &*wave, stride: length };
            let mut planes = Planes { samples: &mut source.planes[..CHUNK * streams], stride: CHUNK };
            interpolator.read(waves, relative, step, &mut planes, frames);
            for (frame, values) in chunk.chunks_mut(channels).enumerate() {
                let here = offset + frame as f64;
                let change = if closing(here) { -1.0 } else { 1.0 } / fade;
                self.open = (self.open + change).clamp(0.0, 1.0);
                if here >= last || here < first {
                    self.open = 0.0;
                }
                let gain = smoothstep(self.open);
                for (channel, value) in values.iter_mut().enumerate() {
                    *value += gain * mix(&source.planes, frame, streams, channel, channels);
                }
            }
        }
    }
}

/// The sample of one output channel: mono goes everywhere, anything to mono is averaged, else what both have is kept.
fn mix(planes: &[f32], frame: usize, streams: usize, channel: usize, channels: usize) -> f32 {
    let sample = |stream: usize| planes[stream * CHUNK + frame];
    if streams == 1 {
        sample(0)
    } else if channels == 1 {
        (0..streams).map(sample).sum::<f32>() / streams as f32
    } else if channel < streams {
        sample(channel)
    } else {
        0.0
    }
}

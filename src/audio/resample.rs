//! Samples in between: a windowed sinc (rubato's table and inner loops) read at exact positions.
//!
//! rubato's streaming resamplers keep their own position and history. Its interpolator can also be read at any place of
//! a buffer, and that is what the steered output wants: the position stays ours, exact to the last bit, a reseek needs no
//! flush, and a crossfade is two reads.

use super::Position;
use super::config::ResamplerConfig;
use rubato::WindowFunction;
use rubato::sinc_interpolator::{AnyInterpolator, SincInterpolator, make_interpolator};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Window of the sinc. The 4-term Blackman-Harris keeps the side lobes at −92 dB with a transition half as wide as that
/// of its square, which matters at 128 taps.
const WINDOW: WindowFunction = WindowFunction::BlackmanHarris;

/// Filters, by how much of the stream's band the device can carry: a device at a lower rate needs a lower cutoff, or the
/// highest tones come back as aliases. The ratios of the usual rates (44.1, 48, 88.2, 96, 176.4, 192 kHz), falling.
const BANDS: [f64; 8] = [1.0, 44.1 / 48.0, 0.5, 44.1 / 96.0, 0.25, 44.1 / 192.0, 1.0 / 6.0, 1.0 / 12.0];

/// Reads one channel at positions between its samples.
pub struct Interpolator {
    table: AnyInterpolator<f32>,
    /// Half the taps: how far around a position samples are needed.
    half: usize,
    phases: f64,
}

impl Interpolator {
    fn new(config: &ResamplerConfig, band: f64) -> Self {
        let taps = config.taps.clamp(8, 1024);
        let phases = config.phases.clamp(8, 4096);
        let table = make_interpolator::<f32>(taps, band, None, phases, WINDOW);
        Self { half: table.nbr_points() / 2, phases: table.nbr_sincs() as f64, table }
    }

    /// Frames needed before and after a position.
    pub fn reach(&self) -> usize {
        self.half + 1
    }

    /// Fills `frames` frames of each plane of `out` with the wave at `at`, `at + step`, `at + 2·step` … (frames from the
    /// start of its plane). All channels of a frame are computed together: so the filter is fetched once for all.
    ///
    /// Each plane of `waves` must hold [`reach`](Self::reach) frames before the first and after the last of these
    /// positions; what lies outside is left as it is in `out`.
    pub fn read(&self, waves: Planes<&[f32]>, at: f64, step: f64, out: &mut Planes<&mut [f32]>, frames: usize) {
        // The table's row `sub` read from `index` on gives the wave at index + half − 1 + (sub + 1)/phases.
        let origin = at - self.half as f64 + 1.0 - 1.0 / self.phases;
        let rows = self.phases as usize;
        let last = waves.stride as isize - self.table.nbr_points() as isize - 1;
        for frame in 0..frames.min(out.stride) {
            let place = origin + frame as f64 * step;
            let whole = place.floor();
            let phase = (place - whole) * self.phases;
            let index = whole as isize;
            if index < 0 || index >= last {
                continue;
            }
            let row = (phase as usize).min(rows - 1);
            let between = (phase - row as f64) as f32;
            let index = index as usize;
            let (next_index, next_row) = if row + 1 < rows { (index, row + 1) } else { (index + 1, 0) };
            let planes = waves.samples.chunks_exact(waves.stride).zip(out.samples.chunks_exact_mut(out.stride));
            for (wave, out) in planes {
                let here = self.table.get_sinc_interpolated(wave, index, row);
                let next = self.table.get_sinc_interpolated(wave, next_index, next_row);
                out[frame] = here + between * (next - here);
            }
        }
    }
}

/// One channel after the other, `stride` samples each.
#[derive(Debug, Clone, Copy)]
pub struct Planes<S> {
    pub samples: S,
    pub stride: usize,
}

/// The interpolators that may be needed, made outside the callback and found in it without locks.
#[derive(Clone)]
pub struct Interpolators {
    config: ResamplerConfig,
    bands: Arc<[OnceLock<Interpolator>; BANDS.len()]>,
}

/// All that exist with their parameters, so that rooms in one process share them.
static SHARED: Mutex<Vec<Interpolators>> = Mutex::new(Vec::new());

impl Interpolators {
    /// The interpolators for `config`; the one for devices at the stream's rate or above is made at once.
    pub fn new(config: &ResamplerConfig) -> Self {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let found = shared.iter().find(|one| one.config == *config).cloned();
        let interpolators = found.unwrap_or_else(|| {
            let new = Self { config: config.clone(), bands: Arc::new(std::array::from_fn(|_| OnceLock::new())) };
            shared.push(new.clone());
            new
        });
        drop(shared);
        interpolators.prepare(1.0);
        interpolators
    }

    /// Makes the interpolator for `ratio` (device rate by stream rate), unless it exists. Not for the callback.
    pub fn prepare(&self, ratio: f64) {
        let band = Self::band(ratio);
        self.bands[band].get_or_init(|| Interpolator::new(&self.config, BANDS[band]));
    }

    /// The interpolator for `ratio`; the full-band one while that is not prepared. `None` never happens after
    /// [`new`](Self::new).
    pub fn get(&self, ratio: f64) -> Option<&Interpolator> {
        self.bands[Self::band(ratio)].get().or_else(|| self.bands[0].get())
    }

    fn band(ratio: f64) -> usize {
        // A servo moves the ratio by some ppm, which must not choose the next band.
        const TOLERANCE: f64 = 0.01;
        BANDS.iter().position(|band| *band <= ratio * (1.0 + TOLERANCE)).unwrap_or(BANDS.len() - 1)
    }
}

/// The frames of the stream that `frames` output frames need, from `at` on in steps of `step`: the first, and how many.
pub fn window(at: Position, step: f64, frames: usize, reach: usize) -> (i64, usize) {
    let first = at.index.saturating_sub(reach as i64);
    let span = (at.fraction + step * frames as f64).ceil() as usize;
    (first, span + 2 * reach + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sine(frequency: f64, from: i64, frames: usize) -> Vec<f32> {
        (0..frames).map(|n| (std::f64::consts::TAU * frequency * (from + n as i64) as f64).sin() as f32).collect()
    }

    fn read(interpolator: &Interpolator, wave: &[f32], at: f64, step: f64, out: &mut [f32]) {
        let frames = out.len();
        let waves = Planes { samples: wave, stride: wave.len() };
        interpolator.read(waves, at, step, &mut Planes { samples: out, stride: frames }, frames);
    }

    #[test]
    fn reads_the_wave_at_exact_positions() {
        let interpolators = Interpolators::new(&ResamplerConfig::default());
        let interpolator = interpolators.get(1.0).unwrap();
        let frequency = 0.1;
        for fraction in [0.0, 0.001, 1.0 / 256.0, 0.3, 0.5, 0.999, 0.999_999] {
            let at = Position { index: 1_000, fraction };
            let (first, frames) = window(at, 1.0001, 100, interpolator.reach());
            let wave = sine(frequency, first, frames);
            let mut out = [f32::NAN; 100];
            read(interpolator, &wave, at.since(Position::frame(first)), 1.0001, &mut out);
            for (n, value) in out.iter().enumerate() {
                let truth = (std::f64::consts::TAU * frequency * (1_000.0 + fraction + 1.0001 * n as f64)).sin();
                assert!((f64::from(*value) - truth).abs() < 2e-5, "{fraction} {n}: {value} {truth}");
            }
        }
    }

    #[test]
    fn the_pass_band_is_flat_to_18_khz_and_open_to_20() {
        let interpolators = Interpolators::new(&ResamplerConfig::default());
        let interpolator = interpolators.get(1.0).unwrap();
        for (hertz, loss_db) in [(1_000.0, 0.01), (18_000.0, 0.05), (20_000.0, 0.5)] {
            let wave = sine(hertz / 48_000.0, 0, 2_000);
            // Whole periods, so that the mean of the squares is the power.
            let mut out = [0.0f32; 960];
            read(interpolator, &wave, 200.4, 1.0, &mut out);
            let power = out.iter().map(|v| f64::from(v * v)).sum::<f64>() / out.len() as f64;
            let db = 10.0 * (2.0 * power).log10();
            println!("{hertz} Hz: {db:.3} dB");
            assert!(db.abs() < loss_db, "{hertz} Hz: {db} dB");
        }
    }

    #[test]
    fn a_slower_device_gets_a_lower_cutoff_and_a_servo_does_not_change_it() {
        assert_eq!(Interpolators::band(1.0), 0);
        assert_eq!(Interpolators::band(0.9998), 0);
        assert_eq!(Interpolators::band(2.0), 0);
        assert_eq!(Interpolators::band(44.1 / 48.0 * 0.9995), 1);
        assert_eq!(Interpolators::band(0.5), 2);
        assert_eq!(Interpolators::band(0.001), BANDS.len() - 1);
        let interpolators = Interpolators::new(&ResamplerConfig::default());
        interpolators.prepare(44.1 / 48.0);
        let interpolator = interpolators.get(44.1 / 48.0).unwrap();
        // 23.5 kHz would fold to 20.6 kHz at 44.1 kHz.
        let wave = sine(23_500.0 / 48_000.0, 0, 2_000);
        let mut out = [0.0f32; 1_024];
        read(interpolator, &wave, 200.0, 48.0 / 44.1, &mut out);
        assert!(out.iter().all(|value| value.abs() < 1e-4), "{:?}", &out[..8]);
    }

    #[test]
    fn the_window_holds_what_is_read() {
        let interpolators = Interpolators::new(&ResamplerConfig::default());
        let interpolator = interpolators.get(1.0).unwrap();
        for step in [0.25, 0.918, 1.0, 1.0005, 1.0884, 4.0] {
            for fraction in [0.0, 0.5, 0.999_999_999] {
                let at = Position { index: -50, fraction };
                let (first, frames) = window(at, step, 64, interpolator.reach());
                let mut out = [f32::NAN; 64];
                read(interpolator, &vec![0.5; frames], at.since(Position::frame(first)), step, &mut out);
                assert!(out.iter().all(|value| (value - 0.5).abs() < 0.01), "{step} {fraction}");
            }
        }
    }
}

//! Where in one sound is another one found, to a small fraction of a sample.
//!
//! Two steps: the peak of the normalized cross-correlation gives the whole samples; then the phase of the
//! cross-spectrum of the two aligned, windowed pieces, whose slope over frequency is the remaining delay. Both pieces
//! being aligned first, the window function does not pull the result.

use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use std::f64::consts::TAU;
use std::sync::Arc;

/// Frequencies below are left out, Hz: hum and rumble are no witness.
const BAND_LOW_HZ: f64 = 200.0;
/// Frequencies above are left out, Hz: codecs and resamplers bend or drop them.
const BAND_HIGH_HZ: f64 = 12_000.0;
/// … and those above this fraction of the rate.
const BAND_HIGH_FRACTION: f64 = 0.45;
/// The slope is fitted so often, each time to what the last one left.
const REFINEMENTS: usize = 3;
/// Mean power below this is silence: −80 dBFS.
const SILENCE_POWER: f64 = 1e-8;

/// Where it was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// The first sample of the piece lies at this index of the whole, in samples.
    pub position: f64,
    /// Normalized correlation there, −1 to 1.
    pub quality: f64,
    /// The sample of the piece that the position holds for, when piece and whole are of slightly different speed:
    /// where the weight of what was compared lies. Near the middle.
    pub centre: f64,
}

/// Finds pieces of one length in wholes of one length.
pub struct Finder {
    piece: usize,
    rate: f64,
    circular: bool,
    forward: Arc<dyn RealToComplex<f64>>,
    inverse: Arc<dyn ComplexToReal<f64>>,
    fine: Arc<dyn RealToComplex<f64>>,
    hann: Vec<f64>,
}

/// Something to find pieces in.
pub struct Whole {
    samples: Vec<f64>,
    spectrum: Vec<Complex<f64>>,
    /// Sum of the squares of all samples before each index (of two rounds, when circular).
    energy: Vec<f64>,
}

impl Finder {
    /// For pieces of `piece` samples in wholes of `whole` samples at `rate` Hz. A circular whole starts anew at its
    /// end.
    pub fn new(piece: usize, whole: usize, rate: u32, circular: bool) -> Self {
        let size = if circular { whole } else { (whole + piece).next_power_of_two() };
        let mut planner = RealFftPlanner::new();
        let step = TAU / piece.max(1) as f64;
        Self {
            piece,
            rate: f64::from(rate),
            circular,
            forward: planner.plan_fft_forward(size),
            inverse: planner.plan_fft_inverse(size),
            fine: planner.plan_fft_forward((2 * piece).next_power_of_two()),
            hann: (0..piece).map(|k| 0.5 - 0.5 * (step * k as f64).cos()).collect(),
        }
    }

    /// Prepares a whole; it is not longer than what this finder was made for.
    pub fn whole(&self, samples: &[f32]) -> Whole {
        let samples: Vec<f64> = samples.iter().map(|sample| f64::from(*sample)).collect();
        let spectrum = spectrum(&*self.forward, &samples);
        let rounds = if self.circular { 2 } else { 1 };
        let mut sum = 0.0;
        let mut energy = vec![0.0];
        energy.extend(samples.iter().cycle().take(samples.len() * rounds).map(|sample| {
            sum += sample * sample;
            sum
        }));
        Whole { samples, spectrum, energy }
    }

    /// Where in `whole` the piece is most like; `None` when either is silent. Look at the quality to know whether it
    /// is there at all.
    pub fn find(&self, piece: &[f32], whole: &Whole) -> Option<Found> {
        let piece: Vec<f64> = piece.iter().take(self.piece).map(|sample| f64::from(*sample)).collect();
        let power: f64 = piece.iter().map(|sample| sample * sample).sum();
        let places =
            if self.circular { whole.samples.len() } else { (whole.samples.len() + 1).checked_sub(self.piece)? };
        if piece.len() < self.piece || power < SILENCE_POWER * self.piece as f64 {
            return None;
        }
        // Σ piece[i] · whole[i + k] for every k at once.
        let mut product = spectrum(&*self.forward, &piece);
        for (bin, whole) in product.iter_mut().zip(&whole.spectrum) {
            *bin = bin.conj() * whole;
        }
        let correlation = self.inverse_of(product);
        let scale = 1.0 / self.forward.len() as f64;
        let quality = |place: usize| {
            let energy = whole.energy.get(place + self.piece)? - whole.energy[place];
            (energy >= SILENCE_POWER * self.piece as f64).then(|| correlation[place] * scale / (power * energy).sqrt())
        };
        let (place, quality) = (0..places)
            .filter_map(|place| Some((place, quality(place)?)))
            .max_by(|left, right| left.1.total_cmp(&right.1))?;
        let aligned: Vec<f64> = whole.samples.iter().cycle().skip(place).take(self.piece).copied().collect();
        let position = place as f64 + self.fraction(&piece, &aligned);
        Some(Found { position, quality, centre: self.centre(&piece) })
    }

    /// The centre of weight of what [`Self::fraction`] compares: of the signal under the window, steep parts counting
    /// most.
    fn centre(&self, piece: &[f64]) -> f64 {
        let (mut sum, mut moment) = (0.0, 0.0);
        for (k, (pair, hann)) in piece.windows(2).zip(&self.hann).enumerate() {
            let weight = (pair[1] - pair[0]) * (pair[1] - pair[0]) * hann * hann;
            sum += weight;
            moment += weight * (k as f64 + 0.5);
        }
        if sum > 0.0 { moment / sum } else { self.piece as f64 / 2.0 }
    }

    fn inverse_of(&self, mut product: Vec<Complex<f64>>) -> Vec<f64> {
        // The transform insists on real values at 0 Hz and at one half of the rate; what is there is rounding.
        if let Some(first) = product.first_mut() {
            first.im = 0.0;
        }
        if self.inverse.len().is_multiple_of(2)
            && let Some(last) = product.last_mut()
        {
            last.im = 0.0;
        }
        let mut out = self.inverse.make_output_vec();
        // The lengths are the plan's own, the only other condition was met above.
        let _ = self.inverse.process(&mut product, &mut out);
        out
    }

    /// How many samples later (less than about one) the content comes in `second` than in `first`.
    fn fraction(&self, first: &[f64], second: &[f64]) -> f64 {
        let windowed = |samples: &[f64]| -> Vec<Complex<f64>> {
            let samples: Vec<f64> = samples.iter().zip(&self.hann).map(|(sample, hann)| sample * hann).collect();
            spectrum(&*self.fine, &samples)
        };
        let size = self.fine.len() as f64;
        let high = BAND_HIGH_HZ.min(self.rate * BAND_HIGH_FRACTION) / self.rate;
        let low = BAND_LOW_HZ / self.rate;
        // (angular frequency in radians a sample, cross-spectrum)
        let band: Vec<(f64, Complex<f64>)> = windowed(first)
            .into_iter()
            .zip(windowed(second))
            .enumerate()
            .map(|(bin, (first, second))| (bin as f64 / size, first * second.conj()))
            .filter(|(frequency, _)| (low..high).contains(frequency))
            .map(|(frequency, cross)| (TAU * frequency, cross))
            .collect();
        let weight: f64 = band.iter().map(|(omega, cross)| cross.norm() * omega * omega).sum();
        if weight <= 0.0 {
            return 0.0;
        }
        let mut delay = 0.0;
        for _ in 0..REFINEMENTS {
            let left = |(omega, cross): &(f64, Complex<f64>)| {
                let phase = (cross * Complex::from_polar(1.0, -omega * delay)).arg();
                cross.norm() * omega * phase
            };
            delay += band.iter().map(left).sum::<f64>() / weight;
        }
        delay
    }
}

/// The spectrum of the samples, zeros added behind them.
fn spectrum(transform: &dyn RealToComplex<f64>, samples: &[f64]) -> Vec<Complex<f64>> {
    let mut input = transform.make_input_vec();
    for (place, sample) in input.iter_mut().zip(samples) {
        *place = *sample;
    }
    let mut output = transform.make_output_vec();
    // It fails for vectors of other lengths only, and these are the plan's own.
    let _ = transform.process(&mut input, &mut output);
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Band-limited noise as a function of time in samples; the same for every caller.
    fn noise(time: f64) -> f32 {
        (1..400)
            .map(|k| {
                let k = f64::from(k);
                (TAU * (0.001 * k + 0.0001 * (k * 7.3).sin()) * time + 10.0 * (k * k * 1.7).sin()).cos()
            })
            .sum::<f64>() as f32
            * 0.01
    }

    fn sampled(from: f64, length: usize) -> Vec<f32> {
        (0..length).map(|k| noise(from + k as f64)).collect()
    }

    #[test]
    fn finds_the_place_to_a_thousandth_of_a_sample() {
        let finder = Finder::new(4800, 9600, 48_000, false);
        let whole = finder.whole(&sampled(0.0, 9600));
        for place in [0.0, 100.25, 1234.5, 2400.0, 3999.9, 4799.4] {
            let found = finder.find(&sampled(place, 4800), &whole).unwrap();
            assert!((found.position - place).abs() < 1e-3, "{place}: {found:?}");
            // Half a sample off the grid, the highest frequencies cancel.
            assert!(found.quality > 0.7, "{place}: {found:?}");
        }
    }

    #[test]
    fn another_loudness_and_a_little_noise_do_not_matter() {
        let finder = Finder::new(4800, 9600, 48_000, false);
        let whole = finder.whole(&sampled(0.0, 9600));
        let mut state = 1u32;
        let piece: Vec<f32> = sampled(777.3, 4800)
            .into_iter()
            .map(|sample| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                0.1 * sample + 1e-4 * (state as f32 / u32::MAX as f32 - 0.5)
            })
            .collect();
        let found = finder.find(&piece, &whole).unwrap();
        assert!((found.position - 777.3).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn a_circular_whole_goes_on_at_its_start() {
        // 5000 samples of a sum of whole periods.
        let round =
            |time: f64| (1..300).map(|k| (TAU * f64::from(k) * time / 5000.0 + f64::from(k * k)).cos()).sum::<f64>();
        let samples: Vec<f32> = (0..5000).map(|k| round(f64::from(k)) as f32).collect();
        let finder = Finder::new(1000, 5000, 48_000, true);
        let whole = finder.whole(&samples);
        for place in [4700.0, 4999.6, 0.3] {
            let piece: Vec<f32> = (0..1000).map(|k| round(place + f64::from(k)) as f32).collect();
            let found = finder.find(&piece, &whole).unwrap();
            let error = (found.position - place + 2500.0).rem_euclid(5000.0) - 2500.0;
            assert!(error.abs() < 0.02, "{place}: {found:?}");
        }
    }

    #[test]
    fn silence_is_nowhere_and_another_sound_is_unlike() {
        let finder = Finder::new(4800, 9600, 48_000, false);
        let whole = finder.whole(&sampled(0.0, 9600));
        assert_eq!(finder.find(&[0.0; 4800], &whole), None);
        assert_eq!(finder.find(&sampled(0.0, 4800), &finder.whole(&[0.0; 9600])), None);
        assert_eq!(finder.find(&[0.1; 100], &whole), None);
        let other: Vec<f32> = (0..4800).map(|k| (f64::from(k) * f64::from(k) * 1e-4).sin() as f32).collect();
        assert!(finder.find(&other, &whole).unwrap().quality < 0.3);
    }
}

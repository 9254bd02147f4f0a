//! The noise bed: a steady soft hiss that never repeats within the period, so that every instant of it can be told
//! from every other.
//!
//! ```text
//! noise(t) = c · Σ m^(−1/2) · cos(2π·m·t/10 s + 2π·u(m)),   m = 1000 … 160000   (100 Hz … 16 kHz in steps of 0.1 Hz)
//! u(m)     = top 53 bits of splitmix64(m) / 2^53            (splitmix64: the output for the state m)
//! c        = √(2 / Σ 1/m)                                   (RMS 1 over the whole band)
//! ```
//! Equal power per octave (pink) is kinder to the ear than white noise. At rates where 16 kHz does not fit, harmonics
//! from 0.45 · rate on are left out and the others stay as they are. With numpy, `X[m] = c/√m · exp(2πi·u(m))` and zero
//! elsewhere, it is `irfft(X, n) * n / 2` for `n = 10 · rate`.

use realfft::RealFftPlanner;
use realfft::num_complex::Complex;
use std::f64::consts::TAU;

/// The first harmonic of 0.1 Hz: 100 Hz, about what small loudspeakers reproduce.
const FIRST_HARMONIC: usize = 1_000;
/// The last harmonic of 0.1 Hz: 16 kHz, above which most codecs and ears give up.
const LAST_HARMONIC: usize = 160_000;
/// Harmonics below this fraction of the rate are kept: resamplers and codecs damp what lies near one half.
const BAND: f64 = 0.45;

/// Adds one period with an RMS of `gain` (at rates that hold the whole band).
pub(super) fn add(period: &mut [f64], rate: u32, gain: f64) {
    let scale = (2.0 / (FIRST_HARMONIC..=LAST_HARMONIC).map(|m| 1.0 / m as f64).sum::<f64>()).sqrt() * gain;
    let mut spectrum = vec![Complex::new(0.0, 0.0); period.len() / 2 + 1];
    let end = ((period.len() as f64 * BAND) as usize).min(LAST_HARMONIC + 1);
    debug_assert_eq!(period.len(), rate as usize * super::PERIOD_S as usize);
    for (m, bin) in spectrum.iter_mut().enumerate().take(end).skip(FIRST_HARMONIC) {
        // Half of the amplitude: the other half is the mirrored bin.
        *bin = Complex::from_polar(0.5 * scale / (m as f64).sqrt(), TAU * unit(m as u64));
    }
    let mut noise = vec![0.0; period.len()];
    // The buffers have the lengths that the plan asks for, and the bins at 0 Hz and one half of the rate are real.
    if RealFftPlanner::new().plan_fft_inverse(period.len()).process(&mut spectrum, &mut noise).is_ok() {
        period.iter_mut().zip(noise).for_each(|(sample, noise)| *sample += noise);
    }
}

/// A pseudo-random number from 0 to below 1 that depends on `m` only.
fn unit(m: u64) -> f64 {
    // splitmix64 (Steele, Lea, Flood 2014), one step from the state m.
    let mut z = m.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    (z >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(rate: u32) -> Vec<f64> {
        let mut period = vec![0.0; rate as usize * 10];
        add(&mut period, rate, 1.0);
        period
    }

    #[test]
    fn follows_the_formula() {
        // The sum of the formula, evaluated directly at a few instants of an 8 kHz period.
        let period = period(8_000);
        let scale = (2.0 / (1_000..=160_000).map(|m| 1.0 / m as f64).sum::<f64>()).sqrt();
        for k in [0usize, 1, 12_345, 79_999] {
            let time = k as f64 / 8_000.0;
            let expected: f64 = (1_000u64..36_000)
                .map(|m| scale / (m as f64).sqrt() * (TAU * (m as f64 * time / 10.0 + unit(m))).cos())
                .sum();
            assert!((period[k] - expected).abs() < 1e-6, "sample {k}: {} instead of {expected}", period[k]);
        }
        assert_eq!((unit(0) * (1u64 << 53) as f64) as u64, 0xe220_a839_7b1d_cdaf >> 11); // the generator's first output
    }

    #[test]
    fn is_as_loud_as_asked_everywhere() {
        let period = period(48_000);
        for second in period.chunks(48_000) {
            let rms = (second.iter().map(|sample| sample * sample).sum::<f64>() / second.len() as f64).sqrt();
            assert!((0.9..1.1).contains(&rms), "RMS {rms}");
        }
    }

    #[test]
    fn one_tenth_of_a_second_tells_where_in_the_period_it_is() {
        // The correlation of 0.1 s with the whole period has one peak, and nothing else near it.
        let period = period(8_000);
        let (from, length) = (33_333, 800);
        let energy: f64 = period[from..from + length].iter().map(|sample| sample * sample).sum();
        for lag in (0..period.len()).step_by(3) {
            let product: f64 = (0..length).map(|k| period[from + k] * period[(from + lag + k) % period.len()]).sum();
            assert!(lag == 0 || product < 0.9 * energy, "lag {lag}: {}", product / energy);
        }
    }
}

//! The tick: where the picture flashes, one short sound.
//!
//! ```text
//! tick(t) = a(t) · exp(−t / 8 ms) · sin(2π·f·t)   from each whole second on, for 80 ms
//! a(t)    = ½ − ½·cos(π·t / 1 ms) for t < 1 ms, then 1
//! f       = 1320 Hz; 1980 Hz (a fifth above) in the first second of the period
//! ```

use super::PERIOD_S;
use std::f64::consts::{PI, TAU};

/// Pitch, Hz: E6, which the music's chords agree with.
const PITCH_HZ: f64 = 1_320.0;
/// Pitch of the tick that starts the period, Hz: B6.
const FIRST_PITCH_HZ: f64 = 1_980.0;
/// The attack, s: short enough for a sharp onset, long enough not to click.
const ATTACK_S: f64 = 0.001;
/// The time constant of the decay, s.
const DECAY_S: f64 = 0.008;
/// The length, s: ten time constants, where 16 bits are silent.
const LENGTH_S: f64 = 0.08;

/// Adds the ten ticks of a period.
pub(super) fn add(period: &mut [f64], rate: u32, gain: f64) {
    let rate = rate as usize;
    for second in 0..PERIOD_S as usize {
        let pitch = if second == 0 { FIRST_PITCH_HZ } else { PITCH_HZ };
        let length = (LENGTH_S * rate as f64) as usize;
        for (k, sample) in period[second * rate..].iter_mut().take(length).enumerate() {
            let time = k as f64 / rate as f64;
            let attack = if time < ATTACK_S { 0.5 - 0.5 * (PI * time / ATTACK_S).cos() } else { 1.0 };
            *sample += gain * attack * (-time / DECAY_S).exp() * (TAU * pitch * time).sin();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_at_each_second_and_only_there() {
        let mut period = vec![0.0; 480_000];
        add(&mut period, 48_000, 1.0);
        for (second, samples) in period.chunks(48_000).enumerate() {
            assert_eq!(samples[0], 0.0);
            let (sounding, silent) = samples.split_at(3_840);
            assert!(sounding[..48].iter().any(|sample| sample.abs() > 0.3), "second {second}");
            assert!(silent.iter().all(|sample| *sample == 0.0), "second {second}");
        }
        assert_ne!(period[10], period[48_010], "the first tick of the period has its own pitch");
    }
}

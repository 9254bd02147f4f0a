//! The music: five bars of two seconds, one chord each, a note every half second; slow enough to be a pleasure to
//! leave on, and in time with the second.
//!
//! Each note is a sum of decaying sines and each chord a pad that swells and ebbs, all placed on the period as on a
//! ring: what sounds over its end goes on at its start. See [`NOTES`] and [`CHORDS`] for the score and [`Voice`] for
//! the two instruments:
//!
//! ```text
//! note(t) = g · a(t) · Σ p_i · exp(−t·i / d) · sin(2π·i·f·t),  i = 1, 2, 3    a: raised cosine at either end
//! ```

use std::f64::consts::{PI, TAU};

/// How long a bar is, s.
const BAR_S: f64 = 2.0;
/// The chord of each bar as MIDI note numbers (69 is A4 = 440 Hz): Cmaj7, Am7, Fmaj7, Dm9, Gsus4.
const CHORDS: [[u8; 4]; 5] = [[48, 55, 64, 71], [45, 57, 60, 67], [41, 57, 60, 64], [50, 57, 65, 64], [43, 60, 62, 65]];
/// The melody: when in the period in half seconds, and the MIDI note number.
const NOTES: [(u8, u8); 22] = [
    (0, 72),
    (1, 76),
    (2, 79),
    (3, 83), // up over Cmaj7
    (4, 84),
    (5, 79),
    (6, 76),
    (7, 72), // down over Am7
    (8, 69),
    (9, 72),
    (10, 76),
    (11, 81),
    (11, 77), // Fmaj7
    (12, 79),
    (13, 77),
    (14, 74),
    (15, 69), // Dm9
    (16, 67),
    (17, 72),
    (18, 74),
    (19, 79),
    (19, 74), // Gsus4, leading back
];

/// An instrument.
struct Voice {
    /// The amplitude of the first partial.
    gain: f64,
    /// The amplitudes of the partials 1, 2, 3, relative to the gain.
    partials: [f64; 3],
    /// The time constant of the first partial, s; the others decay as many times faster as they are higher.
    decay_s: f64,
    /// The raised-cosine attack and release, s.
    attack_s: f64,
    release_s: f64,
    /// From the onset to the end of the release, s.
    length_s: f64,
}

/// Like a thumb piano: a soft attack, a long ring.
const PLUCK: Voice =
    Voice { gain: 0.11, partials: [1.0, 0.22, 0.06], decay_s: 0.9, attack_s: 0.006, release_s: 0.5, length_s: 4.0 };
/// Like a far organ: swells before its bar, ebbs after it, hardly decays.
const PAD: Voice =
    Voice { gain: 0.033, partials: [1.0, 0.3, 0.1], decay_s: 60.0, attack_s: 0.8, release_s: 1.2, length_s: 3.2 };
/// How long before its bar a chord begins to swell, s.
const PAD_LEAD_S: f64 = 0.4;

/// Adds one period.
pub(super) fn add(period: &mut [f64], rate: u32) {
    for (half, note) in NOTES {
        sound(period, rate, f64::from(half) * 0.5, note, &PLUCK);
    }
    for (bar, chord) in CHORDS.iter().enumerate() {
        for note in chord {
            sound(period, rate, bar as f64 * BAR_S - PAD_LEAD_S, *note, &PAD);
        }
    }
}

/// Adds one note that starts at `start_s` (may be negative: counted from the end of the period).
fn sound(period: &mut [f64], rate: u32, start_s: f64, note: u8, voice: &Voice) {
    let rate = f64::from(rate);
    let start = (start_s * rate).round().rem_euclid(period.len() as f64) as usize;
    let length = (voice.length_s * rate) as usize;
    let pitch_hz = 440.0 * ((f64::from(note) - 69.0) / 12.0).exp2();
    let step = |partial: f64| TAU * pitch_hz * partial / rate;
    // Each partial is a turning pointer that shrinks: one multiplication a sample instead of a sine.
    let mut partials = [1.0, 2.0, 3.0].map(|partial: f64| {
        let shrink = (-partial / (voice.decay_s * rate)).exp();
        let (sin, cos) = step(partial).sin_cos();
        let amplitude = if pitch_hz * partial < 0.45 * rate { voice.partials[partial as usize - 1] } else { 0.0 };
        (amplitude * voice.gain, 0.0, shrink * cos, shrink * sin)
    });
    let ramp = |x: f64| 0.5 - 0.5 * (PI * x.clamp(0.0, 1.0)).cos();
    for k in 0..length {
        let time = k as f64 / rate;
        let left = voice.length_s - time;
        let envelope = if time < voice.attack_s {
            ramp(time / voice.attack_s)
        } else if left < voice.release_s {
            ramp(left / voice.release_s)
        } else {
            1.0
        };
        let mut sum = 0.0;
        for (re, im, turn_re, turn_im) in &mut partials {
            sum += *im;
            (*re, *im) = (*re * *turn_re - *im * *turn_im, *re * *turn_im + *im * *turn_re);
        }
        period[(start + k) % period.len()] += envelope * sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_over_the_end_goes_on_at_the_start() {
        let rate = 8_000;
        let (mut whole, mut wrapped) = (vec![0.0; 80_000], vec![0.0; 80_000]);
        sound(&mut whole, rate, 1.0, 69, &PLUCK);
        sound(&mut wrapped, rate, -1.0, 69, &PLUCK);
        whole.rotate_left(16_000);
        assert_eq!(whole, wrapped);
    }

    #[test]
    fn never_falls_silent_and_has_no_clicks() {
        let mut period = vec![0.0; 480_000];
        add(&mut period, 48_000);
        for block in period.chunks(4_800) {
            let rms = (block.iter().map(|sample| sample * sample).sum::<f64>() / block.len() as f64).sqrt();
            assert!(rms > 0.01, "RMS {rms}");
        }
        for k in 0..period.len() {
            let jump = (period[(k + 1) % period.len()] - period[k]).abs();
            assert!(jump < 0.09, "a jump of {jump} after sample {k}");
        }
    }
}

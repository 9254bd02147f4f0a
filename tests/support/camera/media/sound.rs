//! Generated sound: a tone whose phase follows from the number of the sample alone.

use std::f64::consts::TAU;

/// Hz. A whole number of periods a second: the tone has no seam.
const TONE: f64 = 440.0;
/// A third of full scale: loud enough for any meter.
const AMPLITUDE: f64 = 10_000.0;

fn sample(number: i64, rate: i64) -> i16 {
    ((TAU * TONE * number.rem_euclid(rate) as f64 / rate as f64).sin() * AMPLITUDE) as i16
}

/// 20 ms of µ-law.
pub fn pcmu(packet: i64) -> Vec<u8> {
    (0..160).map(|index| mu_law(sample(packet * 160 + index, 8_000))).collect()
}

/// 5 ms of stereo, big-endian (RFC 3551, section 4.5.11).
pub fn l16(packet: i64) -> Vec<u8> {
    (0..240).flat_map(|index| [sample(packet * 240 + index, 48_000).to_be_bytes(); 2].concat()).collect()
}

/// One sample in ITU-T G.711 µ-law.
fn mu_law(sample: i16) -> u8 {
    const BIAS: i32 = 0x84;
    const CLIP: i32 = 32_635;
    let sign = if sample < 0 { 0x80 } else { 0 };
    let magnitude = i32::from(sample).abs().min(CLIP) + BIAS;
    // The highest set bit is bit 7 (the bias) to bit 14.
    let exponent = 24 - magnitude.leading_zeros() as i32;
    let mantissa = (magnitude >> (exponent + 3)) & 0x0f;
    !(sign | (exponent << 4) | mantissa) as u8
}

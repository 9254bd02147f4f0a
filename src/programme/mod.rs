//! The test programme: what `unisono-send` plays, computable by anyone from the shared clock's time alone, so that a
//! recording gives the absolute presentation error and not only the skew.
//!
//! # The sound
//! One channel (every channel of a stream carries the same), a function of continuous time with a period of exactly
//! [`PERIOD_S`] = 10 s. It starts anew whenever the shared clock, counted in seconds since the NTP epoch
//! (1900-01-01 UTC) or since the Unix epoch, is a multiple of 10: the offset of the epochs, 2,208,988,800 s, is one.
//! So sample `k` of the period at rate `R` belongs to the capture times `10 s · n + k/R`.
//!
//! | [`Sound`] | parts |
//! |---|---|
//! | `music` | chords and an arpeggio ([`music`]) + noise bed at −46 dBFS RMS + tick at −26 dBFS |
//! | `noise` | noise bed ([`noise`]) at −26 dBFS RMS + tick at −26 dBFS |
//! | `tick` | tick ([`tick`]) at −8 dBFS, silence between |
//! | `silence` | zeros |
//!
//! All peaks stay below −6 dBFS. The parts are band-limited functions of time, so that each rate is generated directly
//! and all rates carry the same sound up to their own bandwidth.
//!
//! A receiver that presents the programme with playout latency `L` and presentation error `e` makes the sound that
//! belongs to capture time `t` heard at `t + L + e` on the shared clock. Correlating a recording with
//! [`Programme::period`] gives `L + e`, without ambiguity as long as it is below 10 s.

pub mod music;
pub mod noise;
pub mod picture;
pub mod tick;

use crate::clock::NtpTime;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// After so many seconds the sound repeats; it starts at whole multiples of this on the shared clock.
pub const PERIOD_S: u64 = 10;
/// The lowest sample rate, Hz: that of telephony.
pub const RATE_MIN: u32 = 8_000;
/// The highest sample rate, Hz.
pub const RATE_MAX: u32 = 192_000;

const NS_PER_S: u128 = 1_000_000_000;

/// Gain of the noise bed under the music: RMS −46 dBFS, hardly heard, yet 44 dB above the rounding noise of 16 bits.
const BED_GAIN: f64 = 0.005;
/// Gain of the noise bed alone: RMS −26 dBFS, peaks near −12 dBFS.
const NOISE_GAIN: f64 = 0.05;
/// Gain of the tick in company, −26 dBFS.
const SOFT_TICK_GAIN: f64 = 0.05;
/// Gain of the tick alone, −8 dBFS.
const TICK_GAIN: f64 = 0.4;

/// What sounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sound {
    /// Soft chords in time with the second, the noise bed below hearing, a soft tick at each flash.
    #[default]
    Music,
    /// The noise bed and a soft tick at each flash: for measuring.
    Noise,
    /// A tick at each flash.
    Tick,
    /// Digital zero.
    Silence,
}

impl Sound {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Music, Self::Noise, Self::Tick, Self::Silence];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Music => "music",
            Self::Noise => "noise",
            Self::Tick => "tick",
            Self::Silence => "silence",
        }
    }
}

impl fmt::Display for Sound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why there is no programme.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgrammeError {
    #[error("there is no sound '{0}': choose music, noise, tick or silence")]
    UnknownSound(String),
    #[error("no programme at {0} samples a second: choose a multiple of 50 from {RATE_MIN} to {RATE_MAX}")]
    UnsupportedRate(u32),
}

impl FromStr for Sound {
    type Err = ProgrammeError;

    fn from_str(text: &str) -> Result<Self, ProgrammeError> {
        Self::ALL
            .into_iter()
            .find(|sound| sound.name() == text)
            .ok_or_else(|| ProgrammeError::UnknownSound(text.into()))
    }
}

/// One period of the sound at one rate, ready to be read at any time of the shared clock. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Programme {
    sound: Sound,
    rate: u32,
    period: Arc<[f32]>,
}

impl Programme {
    /// Computes one period (well below half a second at 48 kHz).
    ///
    /// # Errors
    /// [`ProgrammeError::UnsupportedRate`] unless `rate` (Hz) is a multiple of 50 from [`RATE_MIN`] to [`RATE_MAX`]:
    /// the usual blocks of 20 ms then hold a whole number of samples.
    pub fn new(sound: Sound, rate: u32) -> Result<Self, ProgrammeError> {
        if !(RATE_MIN..=RATE_MAX).contains(&rate) || !rate.is_multiple_of(50) {
            return Err(ProgrammeError::UnsupportedRate(rate));
        }
        let mut period = vec![0.0; PERIOD_S as usize * rate as usize];
        match sound {
            Sound::Music => {
                music::add(&mut period, rate);
                noise::add(&mut period, rate, BED_GAIN);
                tick::add(&mut period, rate, SOFT_TICK_GAIN);
            }
            Sound::Noise => {
                noise::add(&mut period, rate, NOISE_GAIN);
                tick::add(&mut period, rate, SOFT_TICK_GAIN);
            }
            Sound::Tick => tick::add(&mut period, rate, TICK_GAIN),
            Sound::Silence => {}
        }
        Ok(Self { sound, rate, period: period.into_iter().map(|sample| sample as f32).collect() })
    }

    /// What sounds.
    pub fn sound(&self) -> Sound {
        self.sound
    }

    /// Samples a second.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// One period: `10 · rate` samples from −1 to 1, the first at a whole multiple of 10 s of the shared clock.
    pub fn period(&self) -> &[f32] {
        &self.period
    }

    /// The sample with this absolute index, see [`index_at_or_after`].
    pub fn sample(&self, index: u64) -> f32 {
        // The length is rate · 10 > 0; usize has 64 bits or the period has less than 2^32 samples: no loss either way.
        self.period[(index % self.period.len() as u64) as usize]
    }

    /// Writes samples of 16 bits from absolute index `first` on, the same in each of the `channels` interleaved in
    /// `out`. A rest of `out` that is no whole frame is left alone.
    pub fn fill_i16(&self, first: u64, channels: usize, out: &mut [i16]) {
        for (index, frame) in (first..).zip(out.chunks_exact_mut(channels.max(1))) {
            frame.fill(to_i16(self.sample(index)));
        }
    }
}

/// A sample as 16 bits: full scale is 32768, rounded to nearest, no dither (so that a recording can match exactly).
pub fn to_i16(sample: f32) -> i16 {
    (sample * 32_768.0).round() as i16 // `as` saturates
}

/// The index of the first sample at or after a time: index `n` belongs to time `n / rate` since the NTP epoch.
pub fn index_at_or_after(time: NtpTime, rate: u32) -> u64 {
    // u128: ns since 1900 times a rate passes 2^64; the quotient is below 2^64 for any rate below 1 GHz.
    (u128::from(time) * u128::from(rate)).div_ceil(NS_PER_S) as u64
}

/// The time of a sample in ns since the NTP epoch, rounded up, so that truncating back to samples gives `index` again
/// (as RTP payloaders do).
pub fn time_of_index(index: u64, rate: u32) -> NtpTime {
    (u128::from(index) * NS_PER_S).div_ceil(u128::from(rate.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RATES: [u32; 5] = [8_000, 16_000, 44_100, 48_000, 96_000];

    #[test]
    fn every_sound_leaves_6_db_of_headroom_and_only_silence_is_silent() {
        for rate in RATES {
            for sound in Sound::ALL {
                let programme = Programme::new(sound, rate).unwrap();
                assert_eq!(programme.period().len(), rate as usize * 10);
                let peak = programme.period().iter().fold(0.0f32, |peak, sample| peak.max(sample.abs()));
                assert!(peak < 0.501, "{sound} at {rate}: peak {peak}");
                assert_eq!(peak == 0.0, sound == Sound::Silence, "{sound} at {rate}: peak {peak}");
            }
        }
    }

    #[test]
    fn all_rates_carry_the_same_sound() {
        // 96 kHz holds every sample of 48 kHz; both are above the band of all parts.
        for sound in [Sound::Music, Sound::Noise, Sound::Tick] {
            let (low, high) = (Programme::new(sound, 48_000).unwrap(), Programme::new(sound, 96_000).unwrap());
            for index in 0..480_000 {
                let difference = (low.sample(index) - high.sample(2 * index)).abs();
                assert!(difference < 1e-5, "{sound}, sample {index}: {difference}");
            }
        }
    }

    #[test]
    fn it_starts_at_whole_multiples_of_ten_seconds_in_either_epoch() {
        assert_eq!(crate::clock::NTP_UNIX_OFFSET.as_secs() % PERIOD_S, 0);
        let programme = Programme::new(Sound::Noise, 48_000).unwrap();
        let start = index_at_or_after(3_900_000_010 * 1_000_000_000, 48_000);
        assert_eq!(programme.sample(start), programme.period()[0]);
        assert_eq!(programme.sample(start + 480_000 + 7), programme.period()[7]);
        let mut out = [0; 5];
        programme.fill_i16(start + 1, 2, &mut out);
        let [one, two] = [1, 2].map(|index: usize| to_i16(programme.period()[index]));
        assert_eq!(out, [one, one, two, two, 0]);
    }

    #[test]
    fn bad_input_is_refused_with_what_would_do() {
        for rate in [0, 7_999, 48_001, 200_000] {
            assert_eq!(Programme::new(Sound::Tick, rate).err(), Some(ProgrammeError::UnsupportedRate(rate)));
        }
        let error = "jazz".parse::<Sound>().unwrap_err().to_string();
        assert!(error.contains("jazz") && error.contains("music"), "{error}");
        assert!(Sound::ALL.into_iter().all(|sound| sound.name().parse() == Ok(sound)));
    }

    proptest! {
        #[test]
        fn index_and_time_agree(second in 0..9_000_000_000u64, part in 0..192_000u64, rate in 8_000u32..=192_000) {
            let index = second * u64::from(rate) + part;
            let time = time_of_index(index, rate);
            let exact = u128::from(time) * u128::from(rate);
            prop_assert_eq!((exact / NS_PER_S) as u64, index);
            prop_assert_eq!(index_at_or_after(time, rate), if exact % NS_PER_S == 0 { index } else { index + 1 });
        }
    }
}

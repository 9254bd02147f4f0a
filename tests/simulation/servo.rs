//! The servo alone, against a device that is a number: a day takes a second.

use crate::report::Row;
use unisono::audio::config::ServoConfig;
use unisono::audio::output::simulated::Random;
use unisono::audio::{Action, Servo};

/// What a day of one servo left.
pub struct Day {
    /// Largest error from 30 s on, µs.
    pub worst: f64,
    /// Mean error of each hour, µs.
    pub hours: Vec<f64>,
    /// Largest error of the rate over 10 s, from 30 s on, ppm.
    pub rate: f64,
    pub reseeks: u64,
}

pub fn day(ppm: f64, jitter_us: f64, hours: usize) -> Day {
    const PERIOD: f64 = 1024.0 / 48_000.0;
    let blocks_an_hour = (3_600.0 / PERIOD) as usize;
    let blocks_in_10_s = (10.0 / PERIOD) as usize;
    let (mut servo, mut random) = (Servo::new(ServoConfig::default()), Random::new(3));
    let (mut error, mut day) = (0.0f64, Day { worst: 0.0, hours: Vec::new(), rate: 0.0, reseeks: 0 });
    let (mut sum, mut offsets) = (0.0, 0.0);
    for block in 0..hours * blocks_an_hour {
        let measured = error + jitter_us * 1e-6 * (2.0 * random.unit() - 1.0);
        let offset = match servo.update(measured, PERIOD) {
            Action::Steer(offset) => offset,
            Action::Reseek(offset) => {
                error -= measured;
                day.reseeks += 1;
                offset
            }
        };
        let settled = block as f64 * PERIOD > 30.0;
        if settled {
            day.worst = day.worst.max(error.abs() * 1e6);
        }
        sum += error;
        offsets += offset;
        error += (offset + ppm * 1e-6) * PERIOD;
        if (block + 1) % blocks_in_10_s == 0 {
            let mean = offsets / blocks_in_10_s as f64;
            if block as f64 * PERIOD > 40.0 {
                day.rate = day.rate.max((mean * 1e6 + ppm).abs());
            }
            offsets = 0.0;
        }
        if (block + 1) % blocks_an_hour == 0 {
            day.hours.push(sum / blocks_an_hour as f64 * 1e6);
            sum = 0.0;
        }
    }
    day
}

pub fn for_a_day() -> Vec<Row> {
    let mut rows = Vec::new();
    for (ppm, jitter, bound) in [(200.0, 0.0, 5.0), (-200.0, 100.0, 21.0), (200.0, 500.0, 60.0)] {
        let day = day(ppm, jitter, 24);
        let name = format!("servo alone, {ppm:+} ppm, jitter ±{jitter} µs, 24 h");
        let (morning, evening) = day.hours.split_at(12);
        let mean = |hours: &[f64]| hours.iter().sum::<f64>() / hours.len() as f64;
        rows.extend([
            Row::new(&name, "largest error from 30 s on", day.worst, "µs", bound),
            Row::new(
                &name,
                "drift of the mean, second half against first",
                (mean(evening) - mean(morning)).abs(),
                "µs",
                1.0,
            ),
            Row::new(&name, "rate over 10 s, error", day.rate, "ppm", 5.0),
            Row::new(&name, "reseeks", day.reseeks as f64, "", 0.0),
        ]);
    }
    rows
}

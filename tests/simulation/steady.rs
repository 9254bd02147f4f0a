//! Nothing happens: devices that are off by up to 200 ppm, with report jitter or without.

use crate::report::Row;
use crate::rooms::{Room, Sender, worst};
use unisono::audio::output::simulated::SimulatedConfig;

/// A room's first sound is at `START`; figures count from 30 s after it.
const START: f64 = 3.0;
const SETTLED: f64 = START + 30.0;

fn play(ppm: f64, period: usize, jitter_us: f64, seconds: f64, bound: f64) -> Vec<Row> {
    let device = SimulatedConfig { ppm, period, jitter: jitter_us * 1e3, ..Default::default() };
    let mut room = Room::new(device, &Sender::default(), START, 0.3);
    let end = START + seconds;
    room.run_until(end);
    let name = format!("{ppm:+} ppm, period {period}, jitter ±{jitter_us} µs, {seconds} s");
    // The mean rate over 10 s, from the errors at its ends.
    let seen = |at: f64| room.log.iter().find(|sample| sample.at >= at).map_or(f64::NAN, |sample| sample.error);
    let rate = |at: &f64| (seen(at + 10.0) - seen(*at)).abs() / 10.0;
    let starts: Vec<f64> = (0..((seconds - 41.0) / 2.0) as usize).map(|n| SETTLED + 2.0 * n as f64).collect();
    let rate = starts.iter().map(rate).fold(0.0, f64::max);
    let first = room.log.iter().find(|sample| sample.level > 0.5).map_or(f64::NAN, |sample| sample.error.abs());
    vec![
        Row::new(&name, "first sound, error", first, "µs", 1000.0),
        Row::new(&name, "largest error from 30 s on", worst(&room.log, SETTLED, end), "µs", bound),
        Row::new(&name, "rate over 10 s, error", rate, "ppm", 5.0),
        Row::new(&name, "reseeks", room.stats.latest().reseeks as f64, "", 0.0),
    ]
}

pub fn without_jitter() -> Vec<Row> {
    [(200.0, 1024, 300.0), (-200.0, 256, 90.0), (-200.0, 1024, 90.0)]
        .into_iter()
        .flat_map(|(ppm, period, seconds)| play(ppm, period, 0.0, seconds, 5.0))
        .collect()
}

pub fn with_100_us() -> Vec<Row> {
    [(-200.0, 1024, 300.0), (200.0, 64, 60.0), (0.0, 480, 90.0)]
        .into_iter()
        .flat_map(|(ppm, period, seconds)| play(ppm, period, 100.0, seconds, 21.0))
        .collect()
}

pub fn with_500_us() -> Vec<Row> {
    [(200.0, 1024, 300.0), (-200.0, 256, 90.0), (-200.0, 1024, 90.0)]
        .into_iter()
        .flat_map(|(ppm, period, seconds)| play(ppm, period, 500.0, seconds, 60.0))
        .collect()
}

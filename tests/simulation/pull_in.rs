//! From a large error back to none.

use crate::report::Row;
use crate::rooms::{Room, Sender, recovery};
use unisono::audio::SteerConfig;
use unisono::audio::output::simulated::SimulatedConfig;

/// Where the error of 4.9 ms comes from: the shared clock is stepped.
const FAULT: f64 = 43.0;

pub fn from_4_9_ms() -> Vec<Row> {
    let mut rows = Vec::new();
    for reseek in [10e-3, 1e-3] {
        for (ppm, step) in [(200.0, 4_900_000), (200.0, -4_900_000), (-200.0, 4_900_000)] {
            let mut config = SteerConfig::default();
            config.servo.reseek = reseek;
            let device = SimulatedConfig { ppm, ..Default::default() };
            let mut room = Room::with(config, device, &Sender::default(), 3.0, 0.3);
            room.run_until(FAULT);
            room.step_clock(step);
            room.run_until(FAULT + 20.0);
            let how = if reseek > 5e-3 { "steered" } else { "by a jump" };
            let name = format!("{:+.1} ms, device {ppm:+} ppm, {how}", -step as f64 / 1e6);
            // To the other side of zero, once it was near.
            let near = FAULT + 0.1;
            let side = if step > 0 { 1.0 } else { -1.0 };
            let after = room.log.iter().filter(|sample| sample.at > near);
            let overshoot = after.map(|sample| -sample.error * side).fold(0.0, f64::max);
            rows.extend([
                Row::new(&name, "within 21 µs after", recovery(&room.log, FAULT, FAULT + 20.0, 21.0), "s", 6.0),
                Row::new(&name, "overshoot", overshoot, "µs", 100.0),
            ]);
        }
    }
    rows
}

//! Plots as SVG, drawn by hand: a few lines of text each.

use crate::rooms::{Room, Sample, Sender};
use crate::servo;
use std::fmt::Write;
use std::path::Path;
use unisono::audio::SteerConfig;
use unisono::audio::output::simulated::SimulatedConfig;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 300.0;
const MARGIN: f64 = 56.0;
const COLOURS: [&str; 3] = ["#1a5fb4", "#c64600", "#26a269"];

/// Curves over x, each named, with the units of the axes. The y axis is symmetric and logarithmic beyond ±1, so that
/// microseconds and milliseconds are both seen.
struct Plot<'a> {
    title: &'a str,
    x_unit: &'a str,
    y_unit: &'a str,
    curves: Vec<(String, Vec<(f64, f64)>)>,
}

/// Linear below 1, logarithmic above.
fn squeeze(y: f64) -> f64 {
    if y.abs() <= 1.0 { y } else { y.signum() * (1.0 + y.abs().log10()) }
}

impl Plot<'_> {
    fn svg(&self) -> String {
        let points = || self.curves.iter().flat_map(|(_, points)| points);
        let (low, high) = points().fold((f64::MAX, f64::MIN), |(low, high), (x, _)| (low.min(*x), high.max(*x)));
        let top = points().map(|(_, y)| squeeze(*y).abs()).fold(1.0, f64::max).ceil();
        let x = |value: f64| MARGIN + (value - low) / (high - low) * (WIDTH - 2.0 * MARGIN);
        let y = |value: f64| HEIGHT / 2.0 - squeeze(value) / top * (HEIGHT / 2.0 - MARGIN / 1.5);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{MARGIN}\" y=\"20\" font-size=\"14\">{}</text>\n",
            self.title
        );
        let decades = (0..top as i32).flat_map(|decade| [10f64.powi(decade), -10f64.powi(decade)]);
        for value in decades.chain([0.0]) {
            let (at, right) = (y(value), WIDTH - MARGIN);
            let _ = writeln!(svg, "<path d=\"M{MARGIN} {at:.1}H{right}\" stroke=\"#ddd\"/>");
            let _ =
                writeln!(svg, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>", MARGIN - 6.0, at + 4.0);
        }
        for step in 0..=5 {
            let value = low + (high - low) * f64::from(step) / 5.0;
            let bottom = HEIGHT - 18.0;
            let _ =
                writeln!(svg, "<text x=\"{:.1}\" y=\"{bottom}\" text-anchor=\"middle\">{value:.0}</text>", x(value));
        }
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            WIDTH - 4.0,
            HEIGHT - 4.0,
            self.x_unit
        );
        let _ = writeln!(svg, "<text x=\"4\" y=\"36\">{}</text>", self.y_unit);
        for (number, (name, points)) in self.curves.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let mut pen = 'M';
            let mut path = String::new();
            for (at, value) in points {
                if value.is_nan() {
                    pen = 'M';
                    continue;
                }
                let _ = write!(path, "{pen}{:.1} {:.1}", x(*at), y(*value));
                pen = 'L';
            }
            let _ = writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.2\"/>");
            let legend = MARGIN + 330.0 + 130.0 * number as f64;
            let _ = writeln!(svg, "<text x=\"{legend}\" y=\"20\" fill=\"{colour}\">{name}</text>");
        }
        svg + "</svg>\n"
    }

    fn write(&self, name: &str) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/sync");
        std::fs::create_dir_all(&folder).expect("docs/sync");
        std::fs::write(folder.join(name), self.svg()).expect("a plot");
    }
}

/// At most one point each `step` seconds.
fn thin(log: &[Sample], step: f64) -> Vec<(f64, f64)> {
    let mut next = f64::MIN;
    let mut points = Vec::new();
    for sample in log.iter().filter(|sample| !sample.error.is_nan()) {
        if sample.at >= next {
            points.push((sample.at, sample.error));
            next = sample.at + step;
        }
    }
    points
}

/// Writes the plots of `docs/sync.md` to `docs/sync/`.
pub fn document() {
    let start = |jitter: f64| {
        let device = SimulatedConfig { ppm: 200.0, jitter, ..Default::default() };
        let mut room = Room::new(device, &Sender::default(), 0.0, 0.3);
        room.run_until(60.0);
        (format!("±{} µs", jitter / 1e3), thin(&room.log, 0.1))
    };
    let title = "A start at +200 ppm, by report jitter";
    let curves = [0.0, 100e3, 500e3].map(start).into();
    Plot { title, x_unit: "s", y_unit: "error, µs", curves }.write("start.svg");
    let pull_in = |(name, reseek): (&str, f64)| {
        let mut config = SteerConfig::default();
        config.servo.reseek = reseek;
        let device = SimulatedConfig { ppm: 200.0, ..Default::default() };
        let mut room = Room::with(config, device, &Sender::default(), 0.0, 0.3);
        room.run_until(30.0);
        room.step_clock(-4_900_000);
        room.run_until(45.0);
        let log: Vec<Sample> = room.log.into_iter().filter(|sample| sample.at > 29.0).collect();
        (name.to_owned(), thin(&log, 0.02))
    };
    let title = "An error of 4.9 ms";
    let curves = [("steered", 10e-3), ("by a jump (the default)", 1e-3)].map(pull_in).into();
    Plot { title, x_unit: "s", y_unit: "error, µs", curves }.write("pull-in.svg");
    let hours = |jitter: f64| {
        let day = servo::day(200.0, jitter, 24);
        let points = day.hours.iter().enumerate().map(|(hour, mean)| (hour as f64 + 0.5, *mean)).collect();
        (format!("±{jitter} µs"), points)
    };
    let title = "A day of the servo, mean of each hour";
    let curves = [0.0, 100.0, 500.0].map(hours).into();
    Plot { title, x_unit: "h", y_unit: "error, µs", curves }.write("day.svg");
}

//! Which sender time belongs to which sample: a robust line through the pairs of the last two minutes.
//!
//! Samples are placed by counting; pairs of sample index and *reference time* (the sender's capture time on the shared
//! clock) say what they are worth in time. Presentation time stamps are no use here: each room latches their offset by
//! its own history. The line is a function of the pairs of the last [`MapConfig::window`] and of nothing else, so a room
//! that joined late computes what one computes that has run for a day.
//!
//! Between two sender reports the reference times are the last report, continued at the nominal rate: a saw-tooth around
//! the truth when the sender's sampling clock drifts. Only the pairs that break the continuation carry news; the others
//! weigh next to nothing, unless there is nothing else (a sender whose clock does not drift).

use super::Position;
use super::config::MapConfig;
use crate::clock::NtpTime;
use std::collections::VecDeque;

const SECOND: f64 = 1e9;

/// A line between sample index and sender time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MapLine {
    /// A sample index …
    pub index: i64,
    /// … and its capture time on the shared clock, ns since 1900.
    pub time: i64,
    /// The duration of a frame, ns.
    pub frame_ns: f64,
}

impl MapLine {
    /// Which position was captured at `time` (ns since 1900).
    pub fn position_at(&self, time: i64) -> Position {
        Position::frame(self.index).plus(time.saturating_sub(self.time) as f64 / self.frame_ns)
    }

    /// When `index` was captured, ns since 1900.
    pub fn time_at(&self, index: i64) -> i64 {
        let elapsed = index.saturating_sub(self.index) as f64 * self.frame_ns;
        self.time.saturating_add(elapsed.round() as i64)
    }

    /// How much longer (positive) than nominal at `rate` Hz a frame takes, as a fraction: the sender samples slower.
    pub fn drift(&self, rate: u32) -> f64 {
        self.frame_ns * f64::from(rate) / SECOND - 1.0
    }
}

/// The pairs of one stretch of the sender's clock.
#[derive(Debug, Clone, Copy)]
struct Cell {
    /// Number of the stretch.
    number: i64,
    /// Mean of its pairs: frames and ns after the map's origin.
    frames: f64,
    time: f64,
    pairs: f64,
    /// Whether its pairs broke the continuation of what was before.
    news: bool,
}

/// Places buffers and keeps the line.
#[derive(Debug, Clone)]
pub struct SampleMap {
    config: MapConfig,
    rate: u32,
    /// The index of the next frame.
    next: i64,
    /// Where frames and times of the cells count from.
    origin: Option<(i64, i64)>,
    cells: VecDeque<Cell>,
    /// The last pair with news: a continuation is one of this.
    anchor: (f64, f64),
    line: Option<MapLine>,
    /// The last buffer that had a time: index and time of its first frame.
    last: Option<(i64, i64)>,
    steps: u64,
}

/// Where a buffer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Index of its first frame.
    pub index: i64,
    /// Whether the line has changed and is to be published.
    pub changed: bool,
    /// Whether the sender's clock was found to have stepped.
    pub stepped: bool,
}

impl SampleMap {
    /// A map for a stream of `rate` Hz, in which nothing is placed yet.
    pub fn new(config: MapConfig, rate: u32) -> Self {
        Self {
            config,
            rate: rate.max(1),
            next: 0,
            origin: None,
            cells: VecDeque::new(),
            anchor: (0.0, 0.0),
            line: None,
            last: None,
            steps: 0,
        }
    }

    /// The line; `None` before the first pair.
    pub fn line(&self) -> Option<MapLine> {
        self.line
    }

    /// How often the sender's clock has stepped.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The index of the frame that comes next.
    pub fn next_index(&self) -> i64 {
        self.next
    }

    /// Places a buffer of `frames` frames. `reference` is the capture time of its first frame; without it the buffer is
    /// placed by counting. After a `discontinuity` (the buffer does not follow the last one) frames are left out as the
    /// times tell.
    pub fn place(&mut self, frames: usize, reference: Option<NtpTime>, discontinuity: bool) -> Placed {
        let reference = reference.and_then(|time| i64::try_from(time).ok());
        if let (true, Some(time), Some((index, then))) = (discontinuity, reference, self.last) {
            // What was counted since the last time is known; the rest is missing.
            let since = time.saturating_sub(then) as f64 * f64::from(self.rate) / SECOND;
            let missing = since.round() as i64 - (self.next - index);
            self.next += missing.max(0);
        }
        if self.origin.is_none() {
            let Some(time) = reference else {
                let index = self.next;
                self.next += frames as i64;
                return Placed { index, changed: false, stepped: false };
            };
            // Absolute indices: frames of the nominal rate since 1900, so that rooms and generations can be compared.
            // Frames that came before the first time keep their distance.
            let absolute = (i128::from(time) * i128::from(self.rate) / 1_000_000_000) as i64;
            self.next = absolute;
            self.origin = Some((absolute, time));
        }
        let index = self.next;
        self.next = self.next.saturating_add(frames as i64);
        let Some(time) = reference else {
            return Placed { index, changed: false, stepped: false };
        };
        self.last = Some((index, time));
        let (changed, stepped) = self.observe(index, time);
        Placed { index, changed, stepped }
    }

    fn observe(&mut self, index: i64, time: i64) -> (bool, bool) {
        let Some((index0, time0)) = self.origin else {
            return (false, false);
        };
        let (frames, elapsed) = ((index - index0) as f64, time.saturating_sub(time0) as f64);
        let nominal = SECOND / f64::from(self.rate);
        let continued = self.anchor.1 + (frames - self.anchor.0) * nominal;
        let news = self.cells.is_empty() || (elapsed - continued).abs() > self.config.news * SECOND;
        if news {
            self.anchor = (frames, elapsed);
        }
        let number = (time as f64 / (self.config.cell * SECOND)) as i64;
        let known = self.cells.back().is_some_and(|cell| cell.number == number);
        match self.cells.back_mut().filter(|_| known) {
            // What comes after news in a cell continues it; more news is averaged.
            Some(cell) if news && !cell.news => *cell = Cell { number, frames, time: elapsed, pairs: 1.0, news },
            Some(cell) if news => {
                cell.pairs += 1.0;
                cell.frames += (frames - cell.frames) / cell.pairs;
                cell.time += (elapsed - cell.time) / cell.pairs;
            }
            Some(_) => {}
            None => self.cells.push_back(Cell { number, frames, time: elapsed, pairs: 1.0, news }),
        }
        if known && self.line.is_some() {
            return (false, false);
        }
        let oldest = number - (self.config.window / self.config.cell) as i64;
        while self.cells.front().is_some_and(|cell| cell.number < oldest || cell.number > number) {
            self.cells.pop_front();
        }
        let stepped = self.forget_before_a_step();
        if let Some(target) = self.fit(index0, time0) {
            self.approach(target, index);
        }
        (true, stepped)
    }

    /// Whether the newest cells agree that the times have stepped away from the line.
    fn forget_before_a_step(&mut self) -> bool {
        let (Some(line), Some((index0, time0)), wanted) = (self.line, self.origin, self.config.step_cells) else {
            return false;
        };
        if self.cells.len() <= wanted {
            return false;
        }
        let deviation = |cell: &Cell| {
            let expected = (line.time - time0) as f64 + (cell.frames - (line.index - index0) as f64) * line.frame_ns;
            cell.time - expected
        };
        let limit = self.config.step * SECOND;
        let newest = self.cells.iter().rev().take(wanted);
        let late = newest.clone().all(|cell| deviation(cell) > limit);
        let early = newest.clone().all(|cell| deviation(cell) < -limit);
        if !(late || early) {
            return false;
        }
        self.cells.drain(..self.cells.len() - wanted);
        self.line = None;
        self.steps += 1;
        true
    }

    /// A robust line: weighted least squares with a prior for the slope, reweighted against outliers.
    fn fit(&self, index0: i64, time0: i64) -> Option<MapLine> {
        /// Huber's constant: 95 % as good as least squares where the noise is Gaussian.
        const HUBER: f64 = 1.345;
        /// Reweighting has settled after these.
        const ROUNDS: usize = 5;
        let newest = self.cells.back().copied()?;
        let nominal = SECOND / f64::from(self.rate);
        // Around the newest cell, and as deviations from the nominal line: small numbers.
        let points: Vec<(f64, f64, f64)> = self
            .cells
            .iter()
            .map(|cell| {
                let x = (cell.frames - newest.frames) * nominal;
                let weight = if cell.news { 1.0 } else { self.config.stale_weight };
                (x, cell.time - newest.time - x, weight)
            })
            .collect();
        let floor = self.config.noise_min * SECOND;
        let (mut offset, mut drift, mut noise) = (0.0, 0.0, floor);
        for round in 0..ROUNDS {
            let (mut w0, mut wx, mut wy, mut wxx, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
            for (x, y, weight) in &points {
                let residual = (y - offset - drift * x).abs();
                let robust = if round == 0 { 1.0 } else { (HUBER * noise / residual.max(f64::MIN_POSITIVE)).min(1.0) };
                let w = weight * robust;
                (w0, wx, wy) = (w0 + w, wx + w * x, wy + w * y);
                (wxx, wxy) = (wxx + w * x * x, wxy + w * x * y);
            }
            let (mx, my) = (wx / w0, wy / w0);
            let spread = (wxx - wx * mx).max(0.0);
            // The prior of the slope weighs as much as the noise allows it.
            let prior = (noise / self.config.rate_typical).powi(2);
            drift = (wxy - wx * my) / (spread + prior);
            drift = drift.clamp(-self.config.rate_max, self.config.rate_max);
            offset = my - drift * mx;
            noise = median_residual(&points, offset, drift).max(floor);
        }
        let time = (newest.time + offset).round() as i64;
        // The newest cell's frames are a mean: the line starts at the whole frame before it.
        let whole = newest.frames.floor();
        let frame_ns = nominal * (1.0 + drift);
        let back = ((newest.frames - whole) * frame_ns).round() as i64;
        Some(MapLine { index: index0 + whole as i64, time: time0.saturating_add(time - back), frame_ns })
    }

    /// Moves the line smoothly to `target`, from `index` on.
    fn approach(&mut self, target: MapLine, index: i64) {
        let age = self.cells.len() as f64 * self.config.cell;
        self.line = Some(match self.line {
            Some(line) if age > self.config.settling => {
                let error = (target.time_at(index) - line.time_at(index)) as f64 / SECOND;
                let slew = (error / self.config.slew_time).clamp(-self.config.slew_rate, self.config.slew_rate);
                MapLine { index, time: line.time_at(index), frame_ns: target.frame_ns * (1.0 + slew) }
            }
            _ => target,
        });
    }
}

/// The robust standard deviation of the points with news around a line (1.4826 median absolute residuals).
fn median_residual(points: &[(f64, f64, f64)], offset: f64, drift: f64) -> f64 {
    let mut residuals: Vec<f64> =
        points.iter().filter(|point| point.2 == 1.0).map(|(x, y, _)| (y - offset - drift * x).abs()).collect();
    if residuals.is_empty() {
        return 0.0;
    }
    let middle = residuals.len() / 2;
    let (_, median, _) = residuals.select_nth_unstable_by(middle, f64::total_cmp);
    1.4826 * *median
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::output::simulated::Random;

    const RATE: u32 = 48_000;
    const BUFFER: usize = 960;
    const START: i64 = 3_973_000_000_000_000_000;

    /// A sender's buffers: index of the first frame since the start, capture time in truth.
    fn truth(buffer: i64, drift: f64) -> f64 {
        buffer as f64 * BUFFER as f64 * 1e9 / f64::from(RATE) * (1.0 + drift)
    }

    /// What the sender claims: exact at each report, continued at the nominal rate.
    fn reported(buffer: i64, drift: f64, interval: i64, noise: impl Fn(i64) -> f64) -> i64 {
        let report = buffer / interval;
        let nominal = (buffer % interval) as f64 * BUFFER as f64 * 1e9 / f64::from(RATE);
        START + (truth(report * interval, drift) + nominal + noise(report)).round() as i64
    }

    fn map() -> SampleMap {
        SampleMap::new(MapConfig::default(), RATE)
    }

    /// The line's error at the newest sample, ns.
    fn error(map: &SampleMap, buffer: i64, drift: f64, placed: &Placed) -> f64 {
        (map.line().unwrap().time_at(placed.index) - START) as f64 - truth(buffer, drift)
    }

    #[test]
    fn samples_are_contiguous_and_gaps_are_left_out() {
        let mut map = map();
        let first = map.place(BUFFER, Some(START as u64), true);
        assert!(first.changed && map.line().is_some());
        assert_eq!(first.index, (i128::from(START) * 48_000 / 1_000_000_000) as i64);
        // No time: by counting. A time that disagrees by 3 ms: by counting too.
        assert_eq!(map.place(BUFFER, None, false).index - first.index, 960);
        let third = map.place(BUFFER, Some(START as u64 + 43_000_000), false);
        assert_eq!(third.index - first.index, 1_920);
        // 100 ms lost after it.
        assert_eq!(map.place(BUFFER, Some(START as u64 + 163_000_000), true).index - first.index, 1_920 + 960 + 4_800);
        // A discontinuity that loses nothing, and one that goes back.
        assert_eq!(map.place(BUFFER, Some(START as u64 + 183_000_000), true).index - first.index, 8_640);
        assert_eq!(map.place(BUFFER, Some(START as u64), true).index - first.index, 9_600);
    }

    #[test]
    fn nothing_is_known_before_the_first_time() {
        let mut map = map();
        assert!(!map.place(BUFFER, None, true).changed);
        assert_eq!(map.line(), None);
        assert!(!map.place(BUFFER, Some(u64::MAX), false).changed);
    }

    #[test]
    fn the_saw_tooth_of_reports_every_five_seconds_does_not_bias_the_line() {
        for drift in [100e-6, -100e-6, 3e-6, 0.0] {
            let mut map = map();
            for buffer in 0..6_000 {
                let placed = map.place(BUFFER, Some(reported(buffer, drift, 250, |_| 0.0) as u64), false);
                if buffer > 1_000 {
                    let error = error(&map, buffer, drift, &placed);
                    assert!(error.abs() < 10e3, "drift {drift}: {error} ns at buffer {buffer}");
                }
            }
            let found = map.line().unwrap().drift(RATE);
            assert!((found - drift).abs() < 0.3e-6, "{found} instead of {drift}");
            assert!(map.cells.len() <= 482, "{} cells", map.cells.len());
        }
    }

    #[test]
    fn a_late_joiner_computes_the_same_line() {
        let noise = |report: i64| 50e3 * (2.0 * Random::new(report as u64).unit() - 1.0);
        let (mut early, mut late) = (map(), map());
        for buffer in 0..30_000i64 {
            let time = Some(reported(buffer, 40e-6, 1, noise) as u64);
            let placed = early.place(BUFFER, time, false);
            if buffer >= 20_007 {
                let joined = late.place(BUFFER, time, false);
                if buffer > 20_007 + 7_500 {
                    let apart =
                        early.line().unwrap().time_at(placed.index) - late.line().unwrap().time_at(joined.index);
                    assert!(apart.abs() <= 2, "{apart} ns apart at buffer {buffer}");
                }
            }
        }
    }

    #[test]
    fn reports_that_jitter_by_twelve_milliseconds_move_nothing_by_a_millisecond() {
        let noise = |report: i64| 12e6 * (2.0 * Random::new(99 + report as u64).unit() - 1.0);
        let (mut map, mut last) = (map(), None::<MapLine>);
        let mut largest = 0.0f64;
        for buffer in 0..15_000i64 {
            let placed = map.place(BUFFER, Some(reported(buffer, 20e-6, 250, noise) as u64), false);
            let line = map.line().unwrap();
            if let (Some(last), true) = (last, buffer > 50 * 60) {
                largest = largest.max((line.time_at(placed.index) - last.time_at(placed.index)).abs() as f64);
            }
            last = Some(line);
        }
        assert_eq!(map.steps(), 0);
        // 300 ppm for 250 ms are 75 µs.
        assert!(largest < 0.1e6, "{largest}");
    }

    #[test]
    fn a_step_of_25_milliseconds_is_followed_within_a_second() {
        for step in [25_000_000, -25_000_000, 5_000_000_000, -3_600_000_000_000] {
            let mut map = map();
            for buffer in 0..4_000i64 {
                let stepped = if buffer >= 2_000 { step } else { 0 };
                let placed = map.place(BUFFER, Some((reported(buffer, 10e-6, 1, |_| 0.0) + stepped) as u64), false);
                if !(2_000..2_050).contains(&buffer) {
                    let error = error(&map, buffer, 10e-6, &placed) - stepped as f64;
                    assert!(error.abs() < 4e3, "step {step}: {error} at {buffer}");
                }
            }
        }
    }
}

//! What a room played, and when each part of it was heard.

use super::clock_history::ClockHistory;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};
use std::path::Path;

/// Names the file format of [`Recording::save`].
const FORMAT: &str = "unisono-recording";
/// Counts up when readers of the old version could not read the new one.
const VERSION: u32 = 1;
/// The longest header line that is read, bytes: an hour of cycles of 32 frames.
const HEADER_MAX: u64 = 512 << 20;
/// A cycle that comes so much earlier or later than the one before promised is a jump of the device's time line. The
/// drivers' own corrections are below 0.1 ms a cycle; a lost cycle is at least 0.67 ms (32 frames at 48 kHz).
const JUMP_NS: i64 = 500_000;

/// A slope through fewer cycles would rather follow their jitter than the device.
const FIT_MIN: usize = 8;

const NS_PER_S: f64 = 1e9;

/// One cycle of the device's graph: when its first sample was due, and where it is in the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(i64, u64)", into = "(i64, u64)")]
pub struct Mark {
    /// The scheduled start of the cycle: CLOCK_MONOTONIC of the recording host, ns.
    pub time_ns: i64,
    /// Index of the cycle's first sample.
    pub first: u64,
}

impl From<(i64, u64)> for Mark {
    fn from((time_ns, first): (i64, u64)) -> Self {
        Self { time_ns, first }
    }
}

impl From<Mark> for (i64, u64) {
    fn from(mark: Mark) -> Self {
        (mark.time_ns, mark.first)
    }
}

/// What belongs to a recording beside its samples.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// The device's name.
    pub room: String,
    /// Samples a second, Hz.
    pub rate: u32,
    /// From the start of a cycle until its first sample is heard, as the device reports it, ns.
    pub latency_ns: i64,
    /// Identifies the host while it runs; recordings of one boot share CLOCK_MONOTONIC.
    pub boot: String,
    /// Ascending.
    pub marks: Vec<Mark>,
    /// The shared clock, when one was given.
    pub clock: ClockHistory,
}

/// A recording of one room, mono.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    pub about: About,
    /// Full scale ±1.0.
    pub samples: Vec<f32>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
    #[serde(flatten)]
    about: About,
    samples: u64,
}

/// Which clock times are given in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeBase {
    /// CLOCK_MONOTONIC of the recording host.
    Monotonic,
    /// The shared clock, ns since 1900.
    Shared,
}

/// Why there is no window at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoWindow {
    /// Before the start or after the end.
    Outside,
    /// The device's time line jumped within it.
    Jumped,
}

/// Some consecutive samples, and when the one in the middle was heard.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window<'a> {
    pub samples: &'a [f32],
    /// Index of the first one in the recording.
    pub first: u64,
    /// Index of the one in the middle, and when it was heard (CLOCK_MONOTONIC, ns).
    middle: u64,
    middle_ns: i64,
    /// What a sample takes in this window, ns.
    sample_ns: f64,
}

impl Window<'_> {
    /// When the sample with this index (of the recording; a fraction is a time between two) was heard:
    /// CLOCK_MONOTONIC, ns. Precise in the middle of the window.
    pub fn heard_at(&self, index: f64) -> i64 {
        self.middle_ns + ((index - self.middle as f64) * self.sample_ns).round() as i64
    }
}

impl Recording {
    /// When the first sample was heard: CLOCK_MONOTONIC, ns; `None` when nothing was recorded.
    pub fn start_ns(&self) -> Option<i64> {
        self.about.marks.first().map(|mark| mark.time_ns + self.about.latency_ns)
    }

    /// When the start of the last cycle was heard: CLOCK_MONOTONIC, ns.
    pub fn end_ns(&self) -> Option<i64> {
        self.about.marks.last().map(|mark| mark.time_ns + self.about.latency_ns)
    }

    /// Cycles that did not follow from the one before.
    pub fn jumps(&self) -> usize {
        self.about.marks.windows(2).filter(|pair| self.is_jump(pair[0], pair[1])).count()
    }

    fn is_jump(&self, before: Mark, after: Mark) -> bool {
        let recorded = (after.first - before.first) as f64 * NS_PER_S / f64::from(self.about.rate.max(1));
        (after.time_ns - before.time_ns - recorded.round() as i64).abs() > JUMP_NS
    }

    /// The `length` samples whose first was heard at `at_ns` (CLOCK_MONOTONIC, ns; rounded to a sample).
    ///
    /// # Errors
    /// [`NoWindow`] when they were not all recorded, or not in one go.
    pub fn window(&self, at_ns: i64, length: usize) -> Result<Window<'_>, NoWindow> {
        let at_ns = at_ns - self.about.latency_ns;
        let marks = &self.about.marks;
        let from = marks.partition_point(|mark| mark.time_ns <= at_ns).checked_sub(1).ok_or(NoWindow::Outside)?;
        let rate = f64::from(self.about.rate.max(1));
        let offset = ((at_ns - marks[from].time_ns) as f64 * rate / NS_PER_S).round() as u64;
        self.window_from(marks[from].first.checked_add(offset).ok_or(NoWindow::Outside)?, length)
    }

    /// The `length` samples from index `first` on.
    ///
    /// # Errors
    /// As [`Self::window`].
    pub fn window_from(&self, first: u64, length: usize) -> Result<Window<'_>, NoWindow> {
        let rate = f64::from(self.about.rate.max(1));
        let marks = &self.about.marks;
        let start = usize::try_from(first).map_err(|_| NoWindow::Outside)?;
        let end = start.checked_add(length).filter(|end| *end <= self.samples.len()).ok_or(NoWindow::Outside)?;
        let from = marks.partition_point(|mark| mark.first <= first).checked_sub(1).ok_or(NoWindow::Outside)?;
        let to = marks.partition_point(|mark| mark.first < end as u64);
        let inside = &marks[from..to];
        if inside.windows(2).any(|pair| self.is_jump(pair[0], pair[1])) {
            return Err(NoWindow::Jumped);
        }
        let middle = first + length as u64 / 2;
        let base = inside[0].time_ns;
        let points = inside.iter().map(|mark| (mark.first as f64 - middle as f64, (mark.time_ns - base) as f64));
        let (middle_ns, sample_ns) = line_at_zero(points, NS_PER_S / rate);
        Ok(Window {
            samples: &self.samples[start..end],
            first,
            middle,
            middle_ns: base + middle_ns.round() as i64 + self.about.latency_ns,
            sample_ns,
        })
    }

    /// Writes one line of JSON (all but the samples), then the samples as 32-bit floats, little-endian.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let header = Header {
            format: FORMAT.into(),
            version: VERSION,
            about: self.about.clone(),
            samples: self.samples.len() as u64,
        };
        let mut file = io::BufWriter::new(std::fs::File::create(path)?);
        serde_json::to_writer(&mut file, &header)?;
        file.write_all(b"\n")?;
        for sample in &self.samples {
            file.write_all(&sample.to_le_bytes())?;
        }
        file.flush()
    }

    /// Reads what [`Self::save`] wrote.
    ///
    /// # Errors
    /// Those of the file system; [`io::ErrorKind::InvalidData`] when it is no recording or is damaged.
    pub fn load(path: &Path) -> io::Result<Self> {
        let mut file = io::BufReader::new(std::fs::File::open(path)?);
        let mut line = Vec::new();
        (&mut file).take(HEADER_MAX).read_until(b'\n', &mut line)?;
        let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
        let header: Header =
            serde_json::from_slice(&line).map_err(|_| invalid("this is no recording of unisono measure --save"))?;
        if header.format != FORMAT || header.version != VERSION {
            return Err(invalid("this recording is of another version of unisono"));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let samples: Vec<f32> =
            bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect();
        let about = header.about;
        let ascending = about.marks.windows(2).all(|pair| pair[0].first <= pair[1].first);
        let inside = about.marks.last().is_none_or(|mark| mark.first <= samples.len() as u64);
        if samples.len() as u64 != header.samples || !ascending || !inside || about.rate == 0 {
            return Err(invalid("this recording is damaged or cut off"));
        }
        Ok(Self { about, samples })
    }
}

/// The value at 0 and the slope of the straight line that fits the points best. So a driver that corrects its wake-ups
/// is averaged, and a device is taken at its true rate. Fewer than [`FIT_MIN`] points get the given slope.
fn line_at_zero(points: impl Iterator<Item = (f64, f64)> + Clone, slope: f64) -> (f64, f64) {
    let count = points.clone().count();
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / count.max(1) as f64;
    let (x, y) = (mean(&mut points.clone().map(|point| point.0)), mean(&mut points.clone().map(|point| point.1)));
    let spread: f64 = points.clone().map(|point| (point.0 - x) * (point.0 - x)).sum();
    let common: f64 = points.map(|point| (point.0 - x) * (point.1 - y)).sum();
    let slope = if count >= FIT_MIN && spread > 0.0 { common / spread } else { slope };
    (y - slope * x, slope)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Samples of a function of the time heard (s since the first sample), by a device that runs `ppm` fast.
    pub fn record(room: &str, rate: u32, seconds: f64, ppm: f64, sound: impl Fn(f64) -> f32) -> Recording {
        let quantum = 256;
        let true_rate = f64::from(rate) * (1.0 + ppm * 1e-6);
        let samples: Vec<f32> = (0..(seconds * true_rate) as u64).map(|k| sound(k as f64 / true_rate)).collect();
        let marks = (0..samples.len() as u64 / quantum)
            .map(|cycle| Mark {
                time_ns: 5_000_000_000 + ((cycle * quantum) as f64 * 1e9 / true_rate).round() as i64,
                first: cycle * quantum,
            })
            .collect();
        Recording { about: About { room: room.into(), rate, marks, ..About::default() }, samples }
    }

    #[test]
    fn a_window_knows_when_its_middle_was_heard() {
        let mut recording = record("den", 48_000, 2.0, 0.0, |time| time as f32);
        recording.about.latency_ns = 1_000_000;
        let window = recording.window(5_501_000_000, 4800).unwrap();
        assert_eq!((window.first, window.samples.len()), (24_000, 4800));
        assert!((window.samples[0] - 0.5).abs() < 1e-6);
        assert!((window.heard_at(26_400.0) - 5_551_000_000).abs() <= 1);
        assert!((window.heard_at(26_400.5) - 5_551_010_417).abs() <= 1);
    }

    #[test]
    fn a_fast_device_is_timed_by_its_cycles_not_by_its_nominal_rate() {
        let recording = record("den", 48_000, 5.0, 500.0, |_| 0.0);
        for second in [1i64, 2, 4] {
            let window = recording.window(5_000_000_000 + second * 1_000_000_000, 24_000).unwrap();
            let middle = window.first + 12_000;
            let said = (window.heard_at(middle as f64) - 5_000_000_000) as f64 / 1e9;
            assert!((said - middle as f64 / 48_024.0).abs() < 2e-9, "{said}");
        }
    }

    #[test]
    fn windows_end_where_the_recording_does_or_jumps() {
        let mut recording = record("den", 48_000, 2.0, 0.0, |time| time as f32);
        assert_eq!(recording.window(4_999_000_000, 100), Err(NoWindow::Outside));
        assert_eq!(recording.window(6_999_000_000, 100), Err(NoWindow::Outside));
        assert_eq!(recording.window(i64::MAX, 100), Err(NoWindow::Outside));
        assert_eq!(recording.jumps(), 0);
        for mark in &mut recording.about.marks[100..] {
            mark.time_ns += 21_000_000;
        }
        assert_eq!(recording.jumps(), 1);
        let jump = recording.about.marks[100].time_ns - 21_000_000;
        assert_eq!(recording.window(jump - 10_000_000, 2000), Err(NoWindow::Jumped));
        assert!(recording.window(jump + 30_000_000, 2000).is_ok());
        assert_eq!(Recording::default().window(0, 1), Err(NoWindow::Outside));
    }

    #[test]
    fn what_was_saved_is_loaded_and_damage_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("den.rec");
        let mut recording = record("den", 44_100, 0.5, 10.0, |time| time.sin() as f32);
        recording.about.clock = ClockHistory::new(vec![(1, 2), (3, 4)]);
        recording.save(&path).unwrap();
        assert_eq!(Recording::load(&path).unwrap(), recording);

        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 400]).unwrap();
        assert!(Recording::load(&path).unwrap_err().to_string().contains("cut off"));
        std::fs::write(&path, b"RIFF\n").unwrap();
        assert!(Recording::load(&path).unwrap_err().to_string().contains("no recording"));
        assert_eq!(Recording::load(&dir.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}

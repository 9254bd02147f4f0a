//! `unisono measure`: how well rooms are synchronized, from what their devices really play.
//!
//! ```text
//! sink's monitor ─► recorder (samples + the driver's scheduled times) ─┐
//! a file of --save ───────────────────────────────────────────────────┴─► compare ─► skew of two rooms
//!                             the test programme, shared clock, latency ─┘         └► absolute error of each
//! ```
//!
//! - *Skew*: how much later one room plays than the other. Works with any sound that both play, if it is no silence.
//! - *Absolute error*: how much later a room plays than `capture time + latency` says. Needs the test programme of
//!   `unisono-send` and the shared clock.
//!
//! What is measured is the device's digital output at the time at which the device says that it is heard. What neither
//! the device nor PipeWire know of (converters, HDMI receivers, loudspeakers, the air) is not in it.

pub mod clock_history;
pub mod compare;
pub mod correlate;
#[cfg(feature = "pipewire")]
pub mod recorder;
pub mod recording;
mod report;
pub mod summary;

use crate::clock::ClockSpec;
#[cfg(feature = "pipewire")]
use crate::clock::SharedClock;
use crate::programme::{Programme, Sound};
use crate::units::{DurationError, duration_between};
use anyhow::{Context, bail};
use compare::Windows;
use recording::Recording;
use report::{Report, RoomReport, SkewReport};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The most rooms that are measured at once: each has a thread and its samples in memory.
const ROOMS_MAX: usize = 16;
/// The longest recording: 0.7 GB a room at 48 kHz.
const LENGTH_MAX: Duration = Duration::from_secs(3_600);
/// Shorter windows hold too little sound to tell one place from another.
const WINDOW_MIN: Duration = Duration::from_millis(50);
/// Longer windows, or rooms further apart than this, are half a period of the programme: no place would be certain.
const WINDOW_MAX: Duration = Duration::from_secs(5);
/// A network clock synchronizes within a second or not at all.
#[cfg(feature = "pipewire")]
const CLOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// What to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Names of the sinks to record, or files written with --save. Two or more are compared with the first one
    #[arg(value_name = "ROOM", required = true, num_args = 1..=ROOMS_MAX)]
    pub rooms: Vec<String>,
    /// How long to record
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = length)]
    pub length: Duration,
    /// Leave out so much at the start
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = skip)]
    pub skip: Duration,
    /// Length of the windows that are compared: short ones show short jumps, long ones are steadier
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = window)]
    pub window: Duration,
    /// How far apart two rooms are looked for
    #[arg(long, value_name = "TIME", default_value = "400ms", value_parser = max_skew)]
    pub max_skew: Duration,
    /// The shared clock, for the absolute error: system or ntp://HOST[:PORT]
    #[arg(long, value_name = "CLOCK")]
    pub clock: Option<ClockSpec>,
    /// The playout latency that the absolute error is counted from
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = latency)]
    pub latency: Duration,
    /// The sound that the sender plays, for the absolute error: music, noise or tick
    #[arg(long, value_name = "SOUND", default_value_t = Sound::Music)]
    pub sound: Sound,
    /// Exit with 4 when 95 % of the windows are not within so much
    #[arg(long, value_name = "TIME", value_parser = limit)]
    pub limit: Option<Duration>,
    /// Keep the recordings in this directory, as ROOM.rec
    #[arg(long, value_name = "DIRECTORY")]
    pub save: Option<PathBuf>,
    /// PipeWire's socket: a name or a path, if it is not the one of this session
    #[arg(long, value_name = "SOCKET")]
    pub server: Option<String>,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print every window, too
    #[arg(long)]
    pub trace: bool,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything that was asked for was measured, within the limit if there is one.
    Measured,
    /// Something was recorded in which the sound was not found in any window.
    NotFound,
    /// A figure is beyond `--limit`.
    BeyondLimit,
}

impl Outcome {
    /// 0 measured, 4 beyond the limit (as a room that is not in sync), 6 sound not found. (1 is an error, 2 wrong
    /// usage.)
    pub fn code(self) -> u8 {
        match self {
            Self::Measured => 0,
            Self::NotFound => 6,
            Self::BeyondLimit => 4,
        }
    }
}

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn length(text: &str) -> Result<Duration, DurationError> {
    duration_between(text, S, MS, LENGTH_MAX)
}

fn skip(text: &str) -> Result<Duration, DurationError> {
    duration_between(text, S, Duration::ZERO, LENGTH_MAX)
}

fn window(text: &str) -> Result<Duration, DurationError> {
    duration_between(text, MS, WINDOW_MIN, WINDOW_MAX)
}

fn max_skew(text: &str) -> Result<Duration, DurationError> {
    duration_between(text, MS, MS, WINDOW_MAX)
}

fn latency(text: &str) -> Result<Duration, DurationError> {
    duration_between(text, MS, Duration::ZERO, crate::cli::LATENCY_MAX)
}

fn limit(text: &str) -> Result<Duration, DurationError> {
    duration_between(text, MS, Duration::ZERO, WINDOW_MAX)
}

/// Measures and prints the result on standard output.
///
/// # Errors
/// No server, no such sink, a file that is no recording, a clock that does not synchronize: with what to do about it.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let report = measure(args)?;
    print!("{}", if args.json { report.json()? } else { report.text() });
    Ok(report.outcome(args.limit))
}

fn measure(args: &Args) -> anyhow::Result<Report> {
    let recordings = record_or_load(args)?;
    if let Some(directory) = &args.save {
        save(&recordings, directory)?;
    }
    let windows = Windows { length: args.window, skip: args.skip, max_skew: args.max_skew };
    let mut rooms = Vec::new();
    for recording in &recordings {
        let absolute = if recording.about.clock.is_empty() {
            None
        } else {
            let programme = Programme::new(args.sound, recording.about.rate)?;
            Some(compare::absolute(recording, &programme, args.latency, &windows)?)
        };
        rooms.push(RoomReport::new(recording, absolute, args.trace));
    }
    let mut skews = Vec::new();
    if let Some((first, others)) = recordings.split_first() {
        for other in others {
            let series = compare::skew(other, first, &windows)?;
            skews.push(SkewReport::new(other, first, &series, args.trace));
        }
    }
    Ok(Report::new(rooms, skews, args.window))
}

fn record_or_load(args: &Args) -> anyhow::Result<Vec<Recording>> {
    let is_file = |room: &str| room.contains('/') || room.ends_with(".rec");
    let files = args.rooms.iter().filter(|room| is_file(room)).count();
    if files == args.rooms.len() {
        let load = |room: &String| Recording::load(Path::new(room)).with_context(|| format!("cannot read {room}"));
        return args.rooms.iter().map(load).collect();
    }
    if files > 0 {
        bail!("give either sinks to record or files to compare, not both");
    }
    record(args)
}

#[cfg(feature = "pipewire")]
fn record(args: &Args) -> anyhow::Result<Vec<Recording>> {
    let reader = match &args.clock {
        None => None,
        Some(spec) => {
            gst::init().context("GStreamer cannot be started")?;
            let clock = SharedClock::start(spec)?;
            let gst = clock.wait_for_sync(CLOCK_TIMEOUT)?;
            Some((clock, clock_history::ClockReader::start(gst)?))
        }
    };
    let length = args.skip + args.length + WINDOW_SPARE;
    let server = args.server.as_deref();
    let recordings = std::thread::scope(|scope| {
        let threads: Vec<_> =
            args.rooms.iter().map(|room| scope.spawn(move || recorder::record(server, room, length))).collect();
        // All are waited for before the first error is told.
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow::anyhow!("the recorder panicked")))
            .collect::<Vec<_>>()
    });
    let line = reader.map(|(_clock, reader)| reader.finish()).unwrap_or_default();
    recordings
        .into_iter()
        .map(|recording| {
            let mut recording = recording??;
            recording.about.clock = line.clone();
            Ok(recording)
        })
        .collect()
}

/// Two recorders do not start at the same instant.
#[cfg(feature = "pipewire")]
const WINDOW_SPARE: Duration = Duration::from_millis(500);

#[cfg(not(feature = "pipewire"))]
fn record(_args: &Args) -> anyhow::Result<Vec<Recording>> {
    bail!("this build of Unisono has no PipeWire: it can only compare recordings")
}

fn save(recordings: &[Recording], directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    for recording in recordings {
        // A sink's name is no path.
        let name = recording.about.room.replace(['/', '\0'], "_");
        let path = directory.join(format!("{name}.rec"));
        recording.save(&path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Result<Args, clap::Error> {
        Cli::try_parse_from(std::iter::once("measure").chain(line.split_whitespace())).map(|cli| cli.args)
    }

    #[test]
    fn understands_its_arguments() {
        let parsed = args("a b --length 5 --latency 800ms --clock ntp://box --sound noise --window 100").unwrap();
        assert_eq!(parsed.rooms, ["a", "b"]);
        assert_eq!((parsed.window, parsed.sound), (100 * MS, Sound::Noise));
        assert_eq!((parsed.length, parsed.latency), (5 * S, 800 * MS));
        for wrong in ["", "a --window 10", "a --length -1", "a --clock http://x", "a --sound jazz", "a --latency 1h"] {
            assert!(args(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn compares_files_and_says_what_is_wrong_with_them() {
        let dir = tempfile::tempdir().unwrap();
        let programme = Programme::new(Sound::Noise, 48_000).unwrap();
        let sound = |time: f64| programme.sample((time * 48_000.0).round() as u64);
        for (room, late) in [("a", 0.0), ("b", 0.001)] {
            let mut recording = recording::tests::record(room, 48_000, 3.0, 0.0, |time| sound(time + 1.0 - late));
            recording.about.clock =
                clock_history::ClockHistory::new(vec![(5_000_000_000, 3_900_000_001_000_000_000 + 1_000_000_000)]);
            recording.save(&dir.path().join(format!("{room}.rec"))).unwrap();
        }
        let path = |name: &str| dir.path().join(name).display().to_string();
        let line = format!("{} {} --sound noise --max-skew 100", path("a.rec"), path("b.rec"));
        let report = measure(&args(&line).unwrap()).unwrap();
        assert_eq!(report.outcome(None), Outcome::Measured);
        assert_eq!(report.outcome(Some(MS / 10)), Outcome::BeyondLimit);
        assert_eq!(report.outcome(Some(2 * MS)), Outcome::Measured);
        let json: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        let skew = json["skews"][0]["skew"]["mean_us"].as_f64().unwrap();
        assert!((skew - 1_000.0).abs() < 0.5, "{json}");
        let error = json["rooms"][1]["absolute_error"]["mean_us"].as_f64().unwrap();
        assert!((error - 1_000.0).abs() < 0.5, "{json}");
        assert!(report.text().contains("b plays after a"), "{}", report.text());

        let missing = measure(&args(&format!("{} {}", path("a.rec"), path("c.rec"))).unwrap()).unwrap_err();
        assert!(format!("{missing:#}").contains("c.rec"), "{missing:#}");
        let mixed = measure(&args(&format!("{} sink", path("a.rec"))).unwrap()).unwrap_err();
        assert!(mixed.to_string().contains("not both"), "{mixed}");
    }

    #[test]
    fn silence_is_not_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = |room: &str| {
            let path = dir.path().join(format!("{room}.rec"));
            recording::tests::record(room, 48_000, 2.0, 0.0, |_| 0.0).save(&path).unwrap();
            path.display().to_string()
        };
        let report = measure(&args(&format!("{} {} --max-skew 100", path("a"), path("b"))).unwrap()).unwrap();
        assert_eq!(report.outcome(None), Outcome::NotFound);
        assert!(report.text().contains("not found"), "{}", report.text());
    }
}

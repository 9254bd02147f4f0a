//! The command line of the receiver: types only.

use crate::clock::ClockSpec;
use crate::engine::{AudioBackend, SyncPolicy, Transport};
use crate::units::{DurationError, duration_between, signed_between};
use clap::{ArgAction, Args, Parser};
use std::path::PathBuf;
use std::time::Duration;

/// No latency below this works: a frame has to be sent, decoded and shown.
pub const LATENCY_MIN: Duration = Duration::from_millis(20);
/// More than this would have to be buffered as decoded pictures.
pub const LATENCY_MAX: Duration = Duration::from_secs(60);

/// Earlier than this no frame of a common latency would be there in time, ns.
pub const DELAY_MIN_NS: i64 = -500_000_000;
/// Later than this is no room any more, ns.
pub const DELAY_MAX_NS: i64 = 2_000_000_000;

/// Plays one RTSP stream in many rooms as if there were one loudspeaker and one screen
#[derive(Debug, Parser)]
#[command(name = "unisono", version, args_conflicts_with_subcommands = true, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Subcommand>,

    #[command(flatten)]
    pub play: PlayArgs,
}

const AFTER_HELP: &str = "\
Every room needs the same --clock and --latency as the others.
Exit codes: 0 ended as asked, 1 failure while playing, 2 wrong usage, 3 cannot connect,
4 not in sync and 5 no clock (both with --sync strict).";

/// Everything but playing.
#[derive(Debug, clap::Subcommand)]
pub enum Subcommand {
    /// Measure how well rooms are synchronized, from what their sinks really play
    Measure(crate::measure::Args),
}

/// How to play.
#[derive(Debug, Clone, Args)]
pub struct PlayArgs {
    /// What to play: rtsp://[USER:PASSWORD@]HOST[:PORT]/PATH, or HOST:PORT/PATH
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,

    /// Play without a window
    #[arg(long)]
    pub headless: bool,

    /// The clock that the sender and all rooms follow: system, or ntp://HOST[:PORT]
    #[arg(long, default_value = "system", value_name = "CLOCK")]
    pub clock: ClockSpec,

    /// How long to wait for the clock
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = clock_timeout)]
    pub clock_timeout: Duration,

    /// What to do when sync cannot be had
    #[arg(long, default_value = "auto", value_enum)]
    pub sync: SyncPolicy,

    /// Playout latency, the same in all rooms: from capture at the sender to loudspeaker and screen
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = latency, allow_hyphen_values = true)]
    pub latency: Duration,

    /// How long to wait for packets that are missing or out of order
    #[arg(long, default_value = "100ms", value_name = "TIME", value_parser = jitter, allow_hyphen_values = true)]
    pub jitter: Duration,

    /// How the packets come
    #[arg(long, default_value = "auto", value_enum)]
    pub transport: Transport,

    /// User for the server, instead of one in the URL
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,

    /// File whose first line is the password
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,

    /// Show the picture by this GStreamer element or bin, e.g. 'videoconvert ! fbdevsink'
    #[arg(long, value_name = "ELEMENT-OR-BIN", conflicts_with = "no_video")]
    pub video_sink: Option<String>,

    /// Play no picture
    #[arg(long)]
    pub no_video: bool,

    /// Play no sound
    #[arg(long, conflicts_with = "no_video")]
    pub no_audio: bool,

    /// Play the sound on this device of the sound server (or ALSA, as hw:0,0)
    #[arg(long, value_name = "DEVICE", conflicts_with = "no_audio")]
    pub audio_device: Option<String>,

    /// What plays the sound
    #[arg(long, default_value = "auto", value_enum, conflicts_with = "no_audio")]
    pub audio_output: AudioBackend,

    /// This room's own delay, -500ms to 2s: moves sound and picture
    #[arg(long, default_value = "0", value_name = "TIME", value_parser = delay, allow_hyphen_values = true)]
    pub delay: i64,

    /// What the audio device adds without saying so (HDMI, Bluetooth), -500ms to 2s: moves the sound only
    #[arg(long, default_value = "0", value_name = "TIME", value_parser = delay, allow_hyphen_values = true)]
    pub output_latency: i64,

    /// Volume in percent, as loud as it sounds (cubic)
    #[arg(long, default_value = "100", value_name = "PERCENT", value_parser = volume, allow_hyphen_values = true)]
    pub volume: f64,

    /// How often to try again after a failure [default: for ever once it has played]
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,

    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = run_time, requires = "headless", allow_hyphen_values = true)]
    pub duration: Option<Duration>,

    /// Print the status as one JSON object a line (docs/status.md)
    #[arg(long, requires = "headless")]
    pub json: bool,

    /// Log every presented frame to this file, as CSV
    #[arg(long, value_name = "FILE", requires = "headless")]
    pub frame_log: Option<PathBuf>,

    /// Say more on stderr (-vv: even more)
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,

    /// Started by D-Bus
    #[arg(long, hide = true)]
    pub gapplication_service: bool,
}

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn latency(text: &str) -> Result<Duration, DurationError> {
    duration_between(text, MILLISECOND, LATENCY_MIN, LATENCY_MAX)
}

/// Nanoseconds.
fn delay(text: &str) -> Result<i64, DurationError> {
    signed_between(text, DELAY_MIN_NS, DELAY_MAX_NS)
}

fn jitter(text: &str) -> Result<Duration, DurationError> {
    duration_between(text, MILLISECOND, Duration::ZERO, LATENCY_MAX)
}

fn clock_timeout(text: &str) -> Result<Duration, DurationError> {
    duration_between(text, SECOND, Duration::ZERO, DAY)
}

fn run_time(text: &str) -> Result<Duration, DurationError> {
    duration_between(text, SECOND, MILLISECOND, 366 * DAY)
}

fn volume(text: &str) -> Result<f64, String> {
    let percent: f64 =
        text.trim_end_matches('%').parse().map_err(|_| "a volume is a number from 0 to 100".to_owned())?;
    if (0.0..=100.0).contains(&percent) {
        Ok(percent / 100.0)
    } else {
        Err("a volume is a number from 0 to 100".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn bounds_of_the_options() {
        let parse = |args: &[&str]| Cli::try_parse_from([&["unisono", "--headless", "cam:554"], args].concat());
        for bad in [
            &["--latency", "abc"][..],
            &["--latency", "-1s"],
            &["--latency", "10h"],
            &["--volume", "101"],
            &["--volume", "-1"],
            &["--volume", "nan"],
            &["--no-audio", "--no-video"],
            &["--no-video", "--video-sink", "fakesink"],
            &["--clock", "sundial"],
            &["--retries", "-1"],
            &["--duration", "0"],
        ] {
            let error = parse(bad).map(|_| ()).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{bad:?}");
        }
        let play = parse(&["--latency", "250", "--volume", "50%", "--duration", "3"]).unwrap().play;
        assert_eq!(play.latency, Duration::from_millis(250));
        assert_eq!(play.volume, 0.5);
        assert_eq!(play.duration, Some(Duration::from_secs(3)));
    }
}

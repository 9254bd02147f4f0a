//! The command line of the sender: types only.

use super::codec::{AudioCodec, FrameRate, PictureSize, VideoCodecChoice};
use crate::cli::{LATENCY_MAX, LATENCY_MIN};
use crate::clock::ClockSpec;
use crate::programme::Sound;
use crate::units::{DurationError, duration_between};
use clap::{ArgAction, Parser};
use std::net::IpAddr;
use std::time::Duration;

/// Sends a test programme whose every frame and sample carries its capture time on the shared clock
#[derive(Debug, Parser)]
#[command(name = "unisono-send", version, after_help = AFTER_HELP)]
pub struct Args {
    /// TCP port of the RTSP server; 0 takes a free one
    #[arg(long, default_value_t = 8554)]
    pub port: u16,

    /// Address to listen on; 0.0.0.0 or :: for all
    #[arg(long, default_value = "127.0.0.1", value_name = "IP")]
    pub address: IpAddr,

    /// The clock that the sender and all rooms follow: system, or ntp://HOST[:PORT]
    #[arg(long, default_value = "system", value_name = "CLOCK")]
    pub clock: ClockSpec,

    /// How long to wait for the clock
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = clock_timeout)]
    pub clock_timeout: Duration,

    /// Playout latency to signal to the rooms
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = latency, allow_hyphen_values = true)]
    pub latency: Duration,

    /// Send capture times in sender reports only, not in the packets too (RFC 6051)
    #[arg(long)]
    pub no_ntp64: bool,

    /// What sounds: music, noise, tick or silence
    #[arg(long, default_value_t, value_name = "SOUND")]
    pub sound: Sound,

    /// opus, l16 or pcmu
    #[arg(long, default_value_t, value_name = "CODEC")]
    pub audio_codec: AudioCodec,

    /// Audio samples a second [default: 48000, pcmu: 8000]
    #[arg(long, value_name = "HZ")]
    pub rate: Option<u32>,

    /// Audio channels [default: 2, pcmu: 1]
    #[arg(long, value_name = "N")]
    pub channels: Option<u32>,

    /// auto (H.264 if an encoder is installed, else VP8), h264 or vp8
    #[arg(long, default_value_t, value_name = "CODEC")]
    pub video_codec: VideoCodecChoice,

    /// Size of the picture, in pixels
    #[arg(long, default_value_t, value_name = "WIDTHxHEIGHT")]
    pub size: PictureSize,

    /// Frames a second: a number, or a fraction as 30000/1001
    #[arg(long, default_value_t, value_name = "N[/D]")]
    pub fps: FrameRate,

    /// Say more on stderr (-vv: even more)
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
}

const AFTER_HELP: &str = "\
What is served:
  /test        picture and sound
  /video       picture only
  /audio       sound only
  /audio-opus, /audio-l16, /audio-pcmu   sound only, in this codec

When it listens it prints the address and the command for a room on stdout.
Exit codes: 0 ended as asked (SIGINT, SIGTERM), 1 failure, 2 wrong usage, 5 no clock.";

fn latency(text: &str) -> Result<Duration, DurationError> {
    duration_between(text, Duration::from_millis(1), LATENCY_MIN, LATENCY_MAX)
}

fn clock_timeout(text: &str) -> Result<Duration, DurationError> {
    duration_between(text, Duration::from_secs(1), Duration::ZERO, Duration::from_secs(24 * 3600))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn bounds_of_the_options() {
        let parse = |args: &[&str]| Args::try_parse_from([&["unisono-send"], args].concat());
        for bad in [
            &["--port", "70000"][..],
            &["--address", "nowhere"],
            &["--clock", "sundial"],
            &["--latency", "10h"],
            &["--latency", "-1s"],
            &["--sound", "jazz"],
            &["--audio-codec", "mp3"],
            &["--video-codec", "theora"],
            &["--size", "1280"],
            &["--size", "1281x720"],
            &["--fps", "0"],
            &["--fps", "1000"],
            &["--rate", "x"],
            &["extra"],
        ] {
            let error = parse(bad).map(|_| ()).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{bad:?}");
        }
        let args = parse(&["--latency", "250", "--fps", "30000/1001", "--size", "640x360"]).unwrap();
        assert_eq!(args.latency, Duration::from_millis(250));
        assert_eq!((args.fps.to_string(), args.size.to_string()), ("30000/1001".into(), "640x360".into()));
        assert_eq!(parse(&[]).unwrap().address, IpAddr::from([127, 0, 0, 1]));
    }
}

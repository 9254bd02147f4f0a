//! From the command line to a running room.

use crate::cli::{Cli, PlayArgs, Subcommand};
use crate::engine::{AudioOutput, Credentials, EngineConfig, EngineError, Secret, StreamUrl, VideoOutput, exit};
use crate::{headless, logging, measure};
use clap::Parser;
use std::path::Path;
use std::process::ExitCode;

/// Runs the receiver with the arguments of the process.
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            if error.use_stderr() {
                eprintln!("{}", usage_error(&error));
                return ExitCode::from(exit::USAGE);
            }
            // Help and version; a closed pipe is nothing to report.
            let _ = error.print();
            return ExitCode::from(exit::OK);
        }
    };
    logging::init(cli.play.verbose);
    if let Some(Subcommand::Measure(args)) = &cli.command {
        return ExitCode::from(match measure::run(args) {
            Ok(outcome) => outcome.code(),
            Err(error) => {
                eprintln!("unisono: {error:#}");
                exit::PLAYING
            }
        });
    }
    let code = match play(cli.play) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("unisono: {error}");
            error.exit_code()
        }
    };
    ExitCode::from(code)
}

/// clap's words without its blank lines and usage: what is wrong, a tip if there is one, and where to read more.
fn usage_error(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with("For more"));
    let said: Vec<&str> = lines.take_while(|line| !line.starts_with("Usage:")).take(2).collect();
    format!("{}\nSee 'unisono --help'.", said.join("\n"))
}

fn play(args: PlayArgs) -> Result<u8, EngineError> {
    if !args.headless {
        return run_window(&args);
    }
    let (json, duration) = (args.json, args.duration);
    let config = engine_config(args)?;
    init_gstreamer()?;
    Ok(headless::run(config, headless::Options { json, duration }))
}

#[cfg(feature = "gui")]
fn run_window(args: &PlayArgs) -> Result<u8, EngineError> {
    crate::i18n::init();
    init_gstreamer()?;
    crate::ui::run(args)
}

#[cfg(not(feature = "gui"))]
fn run_window(_: &PlayArgs) -> Result<u8, EngineError> {
    Err(EngineError::Usage("this program was built without a window: use --headless".into()))
}

/// Initializes GStreamer.
fn init_gstreamer() -> Result<(), EngineError> {
    gst::init().map_err(|error| EngineError::Internal(format!("GStreamer cannot be initialized: {error}")))
}

/// What the options say, checked against each other.
pub fn engine_config(args: PlayArgs) -> Result<EngineConfig, EngineError> {
    let url = match args.urls.as_slice() {
        [] => return Err(crate::engine::UrlError::Empty.into()),
        [url] => StreamUrl::parse(url)?,
        _ => return Err(EngineError::Usage("a room without window plays one URL: start one program for each".into())),
    };
    if args.jitter >= args.latency {
        return Err(EngineError::Usage(format!(
            "--jitter {} leaves nothing of --latency {}: the latency must be larger",
            crate::units::show(args.jitter),
            crate::units::show(args.latency)
        )));
    }
    let credentials = credentials(&url, args.user, args.password_file.as_deref())?;
    let video = match args.video_sink {
        _ if args.no_video => VideoOutput::Off,
        Some(description) => VideoOutput::Described(description),
        None => VideoOutput::Watched,
    };
    let audio = if args.no_audio {
        AudioOutput::Off
    } else {
        AudioOutput::On { backend: args.audio_output, device: args.audio_device }
    };
    Ok(EngineConfig {
        url,
        credentials,
        clock: args.clock,
        clock_timeout: args.clock_timeout,
        sync: args.sync,
        latency: args.latency,
        jitter: args.jitter,
        room_delay_ns: args.delay,
        output_latency_ns: args.output_latency,
        transport: args.transport,
        video,
        audio,
        volume: args.volume,
        retries: args.retries,
        frame_log: args.frame_log,
    })
}

/// The user and password of the options; those of the address stand for what is not given.
fn credentials(
    url: &StreamUrl,
    user: Option<String>,
    password_file: Option<&Path>,
) -> Result<Option<Credentials>, EngineError> {
    let password = match password_file {
        None => None,
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                EngineError::Usage(format!("--password-file {} cannot be read: {error}", path.display()))
            })?;
            Some(Secret::new(text.lines().next().unwrap_or_default()))
        }
    };
    let in_url = url.credentials();
    let user = user.map(Secret::new).or_else(|| in_url.map(|credentials| credentials.user.clone()));
    match (user, password) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(EngineError::Usage("--password-file needs a --user".into())),
        (Some(user), password) => {
            let password =
                password.or_else(|| in_url.map(|credentials| credentials.password.clone())).unwrap_or_default();
            Ok(Some(Credentials { user, password }))
        }
    }
}

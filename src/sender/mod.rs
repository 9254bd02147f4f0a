//! The reference sender `unisono-send`: an RTSP server whose every frame and sample carries its capture time on the
//! shared clock, in sender reports and (RFC 6051) in the packets themselves.
//!
//! ```text
//! cli → codec (what is installed) → shared clock, synchronized → server ─ mounts ─ factory → media
//!                                                                                     │
//!                  source (paced by the clock: pacing; filled by content) → encoder → payloader
//! ```

mod cli;
mod codec;
mod content;
mod factory;
mod pacing;
mod pipeline;
mod server;
mod source;

use crate::clock::{ClockError, SharedClock};
use crate::engine::exit;
use crate::programme::Programme;
use clap::Parser;
use cli::Args;
use codec::{AudioCodec, AudioFormat, VideoEncoder};
use factory::Setup;
use gst::glib;
use pipeline::{AudioSpec, MediaSpec, VideoSpec};
use server::Server;
use std::collections::HashMap;
use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a waiting sender looks whether it shall end.
const POLL: Duration = Duration::from_millis(50);
/// How long connections may take to close at the end.
const CLOSE_MAX: Duration = Duration::from_millis(500);

/// Why the sender ends.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Clock(#[from] ClockError),
    #[error("cannot listen on {address}: {reason}")]
    CannotListen { address: SocketAddr, reason: String },
    #[error("{element} is not installed: install {package} (e.g. apt install), or choose another codec")]
    MissingElement { element: String, package: String },
    #[error("{0}")]
    Failed(String),
}

impl SendError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Clock(ClockError::NotSupported(_)) => exit::USAGE,
            Self::Clock(_) => exit::NO_CLOCK,
            Self::CannotListen { .. } | Self::MissingElement { .. } | Self::Failed(_) => exit::PLAYING,
        }
    }
}

/// Runs the sender with the arguments of the process.
pub fn run() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version are no errors; a closed pipe is nothing to report.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { exit::USAGE } else { exit::OK });
        }
    };
    crate::logging::init(args.verbose);
    match send(&args) {
        Ok(()) => ExitCode::from(exit::OK),
        Err(error) => {
            eprintln!("unisono-send: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn send(args: &Args) -> Result<(), SendError> {
    let stop = stop_on_signals()?;
    // Checked before anything is started.
    let format = AudioFormat::new(args.audio_codec, args.rate, args.channels)?;
    gst::init().map_err(|error| SendError::Failed(format!("GStreamer cannot be initialized: {error}")))?;
    codec::check_transport()?;
    format.check_installed()?;
    let encoder = VideoEncoder::choose(args.video_codec)?;
    tracing::info!(encoder = encoder.name(), audio = %format.codec, "what will be sent");

    let shared_clock = SharedClock::start(&args.clock)?;
    let mounts = media(args, format, encoder)?;
    let Some(clock) = wait_for_clock(&shared_clock, args.clock_timeout, &stop)? else { return Ok(()) };
    let signalled = format!("latency={};clock={}", args.latency.as_millis(), args.clock);
    let mounts = mounts
        .into_iter()
        .map(|(path, media)| (path, Setup { media, clock: clock.clone(), signalled: signalled.clone() }))
        .collect();
    let mut server = Server::listen(SocketAddr::new(args.address, args.port), mounts)?;
    announce(&server, args);

    let main_loop = glib::MainLoop::new(None, false);
    let quit = main_loop.clone();
    glib::timeout_add(POLL, move || {
        if stop.load(Ordering::Relaxed) {
            quit.quit();
            return glib::ControlFlow::Break;
        }
        glib::ControlFlow::Continue
    });
    main_loop.run();
    server.close();
    // The goodbyes to the receivers leave in the main context.
    let (context, until) = (glib::MainContext::default(), Instant::now() + CLOSE_MAX);
    while context.pending() && Instant::now() < until {
        context.iteration(false);
    }
    Ok(())
}

/// A flag that SIGINT and SIGTERM set.
fn stop_on_signals() -> Result<Arc<AtomicBool>, SendError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGINT, libc::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|error| SendError::Failed(format!("signals cannot be handled: {error}")))?;
    }
    Ok(stop)
}

/// Waits for the clock, since nothing may be sent before its time is known; `None` when asked to end.
fn wait_for_clock(clock: &SharedClock, timeout: Duration, stop: &AtomicBool) -> Result<Option<gst::Clock>, SendError> {
    let began = Instant::now();
    loop {
        match clock.wait_for_sync(POLL.min(timeout.saturating_sub(began.elapsed()))) {
            Ok(clock) => return Ok(Some(clock)),
            Err(_) if stop.load(Ordering::Relaxed) => return Ok(None),
            Err(error) if began.elapsed() >= timeout => {
                return Err(match error {
                    // Of the whole wait, not of its last part.
                    ClockError::Unreachable { clock, .. } => ClockError::Unreachable { clock, timeout },
                    other => other,
                }
                .into());
            }
            Err(_) => {}
        }
    }
}

/// What is served under which path.
fn media(args: &Args, format: AudioFormat, encoder: VideoEncoder) -> Result<Vec<(String, MediaSpec)>, SendError> {
    let mut programmes: HashMap<u32, Programme> = HashMap::new();
    let mut audio = |format: AudioFormat| -> Result<AudioSpec, SendError> {
        let programme = match programmes.get(&format.rate) {
            Some(programme) => programme.clone(),
            None => {
                let made =
                    Programme::new(args.sound, format.rate).map_err(|error| SendError::Usage(error.to_string()))?;
                programmes.insert(format.rate, made.clone());
                made
            }
        };
        Ok(AudioSpec { programme, format })
    };
    let video = VideoSpec { encoder, size: args.size, rate: args.fps };
    let spec = |video, audio| MediaSpec { video, audio, ntp64: !args.no_ntp64 };
    let mut mounts = vec![
        ("/test".to_owned(), spec(Some(video), Some(audio(format)?))),
        ("/video".to_owned(), spec(Some(video), None)),
        ("/audio".to_owned(), spec(None, Some(audio(format)?))),
    ];
    for codec in AudioCodec::ALL {
        // With the rate and channels asked for where the codec can carry them, else with its own.
        let format =
            AudioFormat::new(codec, args.rate, args.channels).or_else(|_| AudioFormat::new(codec, None, None))?;
        if format.check_installed().is_ok() {
            mounts.push((format!("/audio-{codec}"), spec(None, Some(audio(format)?))));
        }
    }
    Ok(mounts)
}

/// Prints the address and the command for a room.
fn announce(server: &Server, args: &Args) {
    let url = format!("rtsp://{}/test", server.address());
    let mut command = format!("unisono --headless {url} --clock {}", args.clock);
    if args.latency != Duration::from_secs(1) {
        command.push_str(&format!(" --latency {}", crate::units::show(args.latency)));
    }
    let mut stdout = std::io::stdout().lock();
    // Nobody may be listening to stdout; the sender serves all the same.
    let _ = writeln!(stdout, "{url}\n{command}").and_then(|()| stdout.flush());
    tracing::info!(%url, clock = %args.clock, "listens");
}

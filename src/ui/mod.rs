//! The window: a front end on the engine's events alone, plus the sink that it hands in for the picture.
//!
//! ```text
//! application ─ window ─┬─ start_page                        an address to play
//!                       ├─ status page                       connecting, reconnecting, failed: in words
//!                       └─ player page: video_view, badge    the picture and the verdict
//!                  │
//!                  └─ session ── Engine (a thread of its own; started and dropped off the main thread)
//! ```

mod application;
mod launch;
mod session;
mod start_page;
mod verdict_badge;
mod verdict_words;
mod video_view;
mod window;

use crate::cli::PlayArgs;
use crate::engine::{EngineError, StreamUrl, exit};
use gtk::gio::prelude::*;

pub use application::Application;

/// Opens the window, or asks the instance that runs already to do so, and returns the exit code.
///
/// # Errors
/// When an address is none, or when there is no display.
pub fn run(args: &PlayArgs) -> Result<u8, EngineError> {
    for url in &args.urls {
        StreamUrl::parse(url)?;
    }
    gtk::init().map_err(|_| EngineError::Usage("there is no display to open a window on: use --headless".into()))?;
    gstgtk4::plugin_register_static()
        .map_err(|error| EngineError::Internal(format!("the video sink cannot be registered: {error}")))?;
    let service = args.gapplication_service;
    let app = Application::new(launch::Launch::of_process(args));
    // Our own options are in the launch; GApplication gets only what it has to know.
    let arguments: &[&str] = if service { &["unisono", "--gapplication-service"] } else { &["unisono"] };
    let code = app.run_with_args(arguments);
    Ok(if code == gtk::glib::ExitCode::SUCCESS { exit::OK } else { exit::PLAYING })
}

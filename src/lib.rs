//! Unisono plays one RTSP stream in many rooms as if there were one loudspeaker and one screen.
//!
//! Every receiver presents each frame at
//!
//! ```text
//! presentation time (shared clock) = sender capture time + playout latency + this room's own delay
//! ```
//!
//! ```text
//! RTSP server ──RTP/RTCP──> rtspsrc ─ rtpbin ─ playbin3 ─┬─ video sink      ─┐ clock wait
//!                                                         └─ audio sink      ─┤
//!                                                                             ▼
//!                           Engine: bus + probes ──> EngineEvent ──> ui | headless
//! ```
//!
//! Arrows point one way: `ui` and `headless` use [`engine`]; the engine uses [`clock`] and [`audio`]. The engine never
//! touches GTK, and a headless build links none.

mod app;
pub mod audio;
pub mod cli;
pub mod clock;
pub mod config;
pub mod engine;
pub mod headless;
#[cfg(feature = "gui")]
mod i18n;
pub mod logging;
pub mod measure;
pub mod programme;
pub mod published;
#[cfg(feature = "sender")]
pub mod sender;
#[cfg(feature = "gui")]
pub mod ui;
pub mod units;

pub use app::run;

//! The steered audio output: measure when a block will be heard, control the speed, act on the samples.
//!
//! ```text
//!  pipeline ──buffers──> Feed ─┬─ SampleMap: sample index ↔ sender time ──┐
//!                              └─ Writer ──> Ring ──────────────┐         │ published without locks
//!                                                               ▼         ▼
//!  device ──Block: to fill, heard at──> SteeredRenderer: due position ─ Servo ─ Interpolator ─ GainRamp
//!                                                               ▲
//!  clock filter (a normal thread) ──ClockLine: shared clock ↔ CLOCK_MONOTONIC
//! ```
//!
//! The [`Ring`] and the device belong to the engine, not to one pipeline: each pipeline makes its own [`Feed`].

pub mod config;
mod controls;
mod feed;
mod gain;
mod map;
pub mod output;
mod position;
mod resample;
mod ring;
mod servo;
mod sink;
mod stats;
mod steered;
mod voice;

pub use config::SteerConfig;
pub use controls::Controls;
pub use feed::{Fed, Feed};
pub use gain::GainRamp;
pub use map::{MapLine, Placed, SampleMap};
pub use position::Position;
pub use resample::{Interpolator, Interpolators, Planes};
pub use ring::{Ring, RingReader, RingState, Stale, Writer, Written};
pub use servo::{Action, Servo};
pub use sink::{SinkParts, UnisonoAudioSink};
pub use stats::{ErrorSummary, RenderState, RenderStats, StatsReader};
pub use steered::SteeredRenderer;

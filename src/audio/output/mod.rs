//! Where samples leave the process: a device that pulls blocks and says when each will be heard.
//!
//! ```text
//! Renderer ◄──── Block (samples to fill, heard at) ──── output ──── OutputEvent ────► engine
//! ```
//!
//! An output calls its [`Renderer`] on the device's real-time thread, once a block. What happens to the device (it
//! starts, vanishes, returns, changes its rate) is told as [`OutputEvent`]s through a bounded channel that never blocks
//! the output: when nobody reads, the oldest events are lost, never the newest.

#[cfg(feature = "pipewire")]
pub mod pipewire;
pub mod simulated;

use serde::Serialize;
use std::time::Duration;

/// One block that a device asks for, in its callback.
pub struct Block<'a> {
    /// To fill: interleaved samples, full scale ±1.0.
    pub samples: &'a mut [f32],
    /// Channels in `samples`.
    pub channels: usize,
    /// Frames a second of the device, nominal, in Hz.
    pub rate: u32,
    /// When the first frame of this block will be heard: CLOCK_MONOTONIC, ns. All delays that the device knows of are in it.
    pub heard_at: i64,
}

/// Fills blocks. Called on the device's real-time thread: must not allocate, lock, log or call GStreamer.
pub trait Renderer: Send {
    fn render(&mut self, block: Block<'_>);
}

/// How many events wait for a reader before the oldest is lost. Devices change a few times a day; a burst (a sound
/// server that restarts) makes about ten.
pub const EVENT_CAPACITY: usize = 64;

/// What to play to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputConfig {
    /// The device's name as in [`Device::name`]; `None` for the default device, followed when it changes.
    pub device: Option<String>,
    /// Channels that the renderer fills, 1 to 8. The sound system mixes them up or down to those of the device.
    pub channels: u32,
    /// What mixers show as the name of the stream.
    pub stream_name: String,
    /// The sound system's socket: a name or an absolute path; `None` for the one of the user's session.
    pub server: Option<String>,
}

impl Default for OutputConfig {
    fn default() -> Self {
        Self { device: None, channels: 2, stream_name: "Unisono".into(), server: None }
    }
}

/// A device that sound can be played to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Identifies it, also after it was away or the host was restarted.
    pub name: String,
    /// For people.
    pub description: String,
    /// Whether streams without a device of their own go there.
    pub default: bool,
}

/// How the device runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceFormat {
    /// The device's name as in [`Device::name`].
    pub device: String,
    /// Frames a second, Hz: the device graph's own rate, so that nobody resamples behind the renderer's back.
    pub rate: u32,
    /// Channels of the blocks.
    pub channels: u32,
    /// Frames a block.
    pub quantum: u32,
    /// From the scheduled time of a cycle until its first frame is heard, as far as the device reports it, in ns.
    /// Negative when the user compensates more than there is.
    pub latency_ns: i64,
}

/// What happened to the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputEvent {
    /// The device asks for blocks.
    Started(DeviceFormat),
    /// The delay from callback to ear changed; the blocks' `heard_at` follows in one step.
    LatencyChanged { latency_ns: i64 },
    /// The size of the blocks changed.
    QuantumChanged { quantum: u32 },
    /// The device changed its rate, in Hz. The stream is opened anew at that rate; `Started` follows.
    RateChanged { rate: u32 },
    /// The stream was moved to another device, by the user or because the default device changed.
    Moved { from: String, to: String },
    /// Blocks were not asked for, or not in time: so many frames of the device's time line are missing.
    Xrun { missed_frames: u64 },
    /// The device stopped to ask for blocks, but is still there (suspended).
    Stopped,
    /// The device went away, or was not there in the first place. The output goes on looking for it.
    DeviceVanished { device: Option<String> },
    /// The sound system is not reachable, or refused the stream; another try follows after `delay`.
    Reconnecting { reason: String, delay: Duration },
}

/// Why there is no output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutputError {
    #[error("an output has 1 to {MAX_CHANNELS} channels, not {0}")]
    Channels(u32),
    #[error("the name '{0}' has a zero byte in it")]
    Name(String),
    #[error("PipeWire's library cannot be used: {0}")]
    Library(String),
    #[error("PipeWire cannot be reached ({0}): check that it runs in this session (systemctl --user status pipewire)")]
    Unreachable(String),
    #[error("PipeWire did not answer within {} s", .0.as_secs_f64())]
    NoAnswer(Duration),
    #[error("the audio thread cannot be started: {0}")]
    Thread(String),
}

/// 7.1 surround is the most that a stream of Unisono carries.
pub const MAX_CHANNELS: u32 = 8;

/// An output that was opened. Dropped, it stops and joins its thread in bounded time.
pub trait Output: Send {
    /// What happens to the device.
    fn events(&self) -> async_channel::Receiver<OutputEvent>;

    /// Plays to another device from now on; `None` for the default device.
    fn set_device(&self, device: Option<String>);

    /// What was counted since the output was opened.
    fn counters(&self) -> OutputCounters;
}

/// Counted since the output was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct OutputCounters {
    /// Blocks that were filled.
    pub blocks: u64,
    /// Gaps in the device's count of frames.
    pub xruns: u64,
    /// Frames in those gaps.
    pub missed_frames: u64,
    /// Steps of the device's time line against CLOCK_MONOTONIC (an xrun, a moved stream, a suspended device).
    pub time_jumps: u64,
}

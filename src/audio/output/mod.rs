//! Where samples leave the process: a device that pulls blocks and says when each will be heard.

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

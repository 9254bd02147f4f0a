//! What may be changed while the output plays, from any thread, without locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

/// Settings that the callback reads at each block. Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct Controls(Arc<Shared>);

struct Shared {
    volume: AtomicU32,
    muted: AtomicBool,
    playing: AtomicBool,
    playout_latency: AtomicI64,
    delay: AtomicI64,
    output_latency: AtomicI64,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            volume: AtomicU32::new(1.0f32.to_bits()),
            muted: AtomicBool::new(false),
            playing: AtomicBool::new(true),
            playout_latency: AtomicI64::new(0),
            delay: AtomicI64::new(0),
            output_latency: AtomicI64::new(0),
        }
    }
}

impl Controls {
    /// Full volume, playing, no delays.
    pub fn new() -> Self {
        Self::default()
    }

    /// The linear gain, 0.0 to 10.0; reached in a ramp. What is no such number is ignored.
    pub fn set_volume(&self, volume: f32) {
        if (0.0..=10.0).contains(&volume) {
            self.0.volume.store(volume.to_bits(), Ordering::Relaxed);
        }
    }

    /// The linear gain as set.
    pub fn volume(&self) -> f32 {
        f32::from_bits(self.0.volume.load(Ordering::Relaxed))
    }

    /// Silence, reached in a ramp; the volume is kept.
    pub fn set_muted(&self, muted: bool) {
        self.0.muted.store(muted, Ordering::Relaxed);
    }

    /// Whether it is muted.
    pub fn muted(&self) -> bool {
        self.0.muted.load(Ordering::Relaxed)
    }

    /// Paused, it fades to silence while time goes on; playing again, it fades in where time is then.
    pub fn set_playing(&self, playing: bool) {
        self.0.playing.store(playing, Ordering::Relaxed);
    }

    /// Whether it plays.
    pub fn playing(&self) -> bool {
        self.0.playing.load(Ordering::Relaxed)
    }

    /// The playout latency that all rooms agreed on, ns.
    pub fn set_playout_latency(&self, ns: i64) {
        self.0.playout_latency.store(ns, Ordering::Relaxed);
    }

    /// This room's own delay, ns; negative is earlier.
    pub fn set_delay(&self, ns: i64) {
        self.0.delay.store(ns, Ordering::Relaxed);
    }

    /// What the device adds without reporting it (a television, Bluetooth), ns: sound is sent earlier by this.
    pub fn set_output_latency(&self, ns: i64) {
        self.0.output_latency.store(ns, Ordering::Relaxed);
    }

    /// From capture to the moment when the device shall have its sample, ns: latency and delay, less what the device adds.
    pub fn total_delay(&self) -> i64 {
        let delays =
            self.0.playout_latency.load(Ordering::Relaxed).saturating_add(self.0.delay.load(Ordering::Relaxed));
        delays.saturating_sub(self.0.output_latency.load(Ordering::Relaxed))
    }

    /// The gain that the ramp is to reach.
    pub(super) fn gain(&self) -> f32 {
        if self.muted() || !self.playing() { 0.0 } else { self.volume() }
    }
}

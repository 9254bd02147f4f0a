//! The real-time side: one call a cycle. Nothing here allocates, locks, logs or waits.

use super::heard::{self, Cycle, PathLatency};
use super::shared::Shared;
use crate::audio::output::{Block, Renderer};
use crate::published::Subscriber;
use pipewire::stream::Stream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of one sample.
const SAMPLE_BYTES: usize = size_of::<f32>();

/// Where the renderer waits while no stream is open. The real-time thread never touches it.
pub(super) type RendererHome = Arc<Mutex<Option<Box<dyn Renderer>>>>;

/// What one stream's callback owns. Returns the renderer to its home when the stream is closed.
pub(super) struct Callback {
    renderer: Option<Box<dyn Renderer>>,
    home: RendererHome,
    shared: Arc<Shared>,
    channels: usize,
    /// The stream's own rate, Hz.
    rate: u32,
    timeline: Timeline,
    latency: Subscriber<PathLatency>,
}

impl Callback {
    pub fn new(
        home: &RendererHome,
        shared: &Arc<Shared>,
        latency: Subscriber<PathLatency>,
        channels: u32,
        rate: u32,
    ) -> Self {
        let renderer = home.lock().unwrap_or_else(PoisonError::into_inner).take();
        Self {
            renderer,
            home: home.clone(),
            shared: shared.clone(),
            channels: channels.max(1) as usize,
            rate,
            timeline: Timeline::default(),
            latency,
        }
    }

    /// Fills one buffer. Called by PipeWire's real-time thread.
    pub fn process(&mut self, stream: &Stream) {
        let Some(mut buffer) = stream.dequeue_buffer() else { return };
        let requested = buffer.requested();
        let Some(data) = buffer.datas_mut().first_mut() else { return };
        let frame_bytes = self.channels * SAMPLE_BYTES;
        let mut frames = 0;
        if let Some(bytes) = data.data() {
            // SAFETY: every bit pattern is a valid f32.
            let (unaligned, samples, _) = unsafe { bytes.align_to_mut::<f32>() };
            if unaligned.is_empty() {
                let capacity = samples.len() / self.channels;
                let cycle = self.shared.position.read();
                // A stream at the graph's rate is asked for a whole cycle; 0 means that PipeWire has no wish.
                let wanted = match (requested, &cycle) {
                    (0, Some(cycle)) => cycle.duration as usize,
                    (0, None) => 0,
                    (requested, _) => requested.try_into().unwrap_or(usize::MAX),
                };
                frames = wanted.min(capacity);
                self.fill(stream, cycle, &mut samples[..frames * self.channels]);
            }
        }
        let chunk = data.chunk_mut();
        *chunk.offset_mut() = 0;
        *chunk.stride_mut() = frame_bytes as i32;
        *chunk.size_mut() = (frames * frame_bytes) as u32;
    }

    fn fill(&mut self, stream: &Stream, cycle: Option<Cycle>, samples: &mut [f32]) {
        let (Some(cycle), Some(renderer)) = (cycle, &mut self.renderer) else {
            // Without a time there is nothing that could be due.
            samples.fill(0.0);
            return;
        };
        let path = self.latency.latest();
        let converter_frames = stream.time().map_or(0, |time| time.buffered());
        let heard_at = heard::heard_at(&cycle, &path, converter_frames, self.rate);
        renderer.render(Block { samples, channels: self.channels, rate: self.rate, heard_at });
        self.report(&cycle, &path);
    }

    /// Counts, and wakes the output's own thread when there is news.
    fn report(&mut self, cycle: &Cycle, path: &PathLatency) {
        let shared = &*self.shared;
        let mut news = false;
        if !shared.running.load(Ordering::Relaxed) {
            // Told anew after a pause: what the clock did meanwhile is no xrun.
            self.timeline = Timeline::default();
            news = true;
        }
        // A stream that PipeWire resamples is not called once a cycle.
        if cycle.rate == self.rate {
            match self.timeline.advance(cycle) {
                Step::Smooth => {}
                Step::Jump => {
                    shared.time_jumps.fetch_add(1, Ordering::Relaxed);
                }
                Step::Xrun(frames) => {
                    shared.time_jumps.fetch_add(1, Ordering::Relaxed);
                    shared.xruns.fetch_add(1, Ordering::Relaxed);
                    shared.missed_frames.fetch_add(frames, Ordering::Relaxed);
                    news = true;
                }
            }
        }
        let latency_ns = heard::latency_ns(cycle, path);
        news |= shared.rate.swap(cycle.rate, Ordering::Relaxed) != cycle.rate;
        news |= shared.quantum.swap(cycle.duration, Ordering::Relaxed) != cycle.duration;
        shared.latency_ns.store(latency_ns, Ordering::Relaxed);
        shared.blocks.fetch_add(1, Ordering::Relaxed);
        if news {
            shared.running.store(true, Ordering::Release);
            shared.wake.notify();
        }
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = self.renderer.take();
    }
}

/// How one cycle follows the one before.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// As foreseen, or the first one.
    Smooth,
    /// Another driver, rate or time line: not our loss.
    Jump,
    /// So many frames of the device's time line went by without us.
    Xrun(u64),
}

/// Watches the driver's count of frames and its time.
#[derive(Debug, Default)]
struct Timeline {
    last: Option<Cycle>,
}

impl Timeline {
    /// Half a cycle: the driver's loop corrects by much less, a lost cycle is twice as much.
    const JUMP_CYCLES: i64 = 2;

    fn advance(&mut self, cycle: &Cycle) -> Step {
        let Some(last) = self.last.replace(*cycle) else { return Step::Smooth };
        if last.driver != cycle.driver || last.rate != cycle.rate {
            return Step::Jump;
        }
        let expected = last.position.wrapping_add(last.duration.into());
        if cycle.position != expected {
            let missed = cycle.position.wrapping_sub(expected);
            // A count that runs backwards is a driver that was started anew.
            return if missed < u64::MAX / 2 { Step::Xrun(missed) } else { Step::Jump };
        }
        let duration_ns = i64::from(last.duration) * 1_000_000_000 / i64::from(last.rate);
        let error = cycle.nsec.saturating_sub(last.nsec).saturating_sub(duration_ns);
        if error.saturating_abs() > duration_ns / Self::JUMP_CYCLES { Step::Jump } else { Step::Smooth }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycle(number: u64) -> Cycle {
        let duration = 480;
        Cycle {
            nsec: 1_000_000_000 + number as i64 * 10_000_000,
            rate: 48_000,
            duration,
            position: number * u64::from(duration),
            driver_delay: 0,
            driver: 1,
        }
    }

    fn after(last: Cycle, now: Cycle) -> Step {
        let mut timeline = Timeline::default();
        assert_eq!(timeline.advance(&last), Step::Smooth);
        timeline.advance(&now)
    }

    #[test]
    fn the_next_cycle_is_smooth_also_when_the_driver_corrects() {
        assert_eq!(after(cycle(5), cycle(6)), Step::Smooth);
        let corrected = Cycle { nsec: cycle(6).nsec + 200_000, ..cycle(6) };
        assert_eq!(after(cycle(5), corrected), Step::Smooth);
    }

    #[test]
    fn the_cycle_after_a_change_of_quantum_is_smooth() {
        let longer = Cycle { duration: 960, ..cycle(6) };
        let mut timeline = Timeline::default();
        timeline.advance(&cycle(5));
        assert_eq!(timeline.advance(&longer), Step::Smooth);
        assert_eq!(timeline.advance(&cycle(8)), Step::Smooth);
    }

    #[test]
    fn missing_frames_are_an_xrun() {
        assert_eq!(after(cycle(5), cycle(9)), Step::Xrun(3 * 480));
    }

    #[test]
    fn another_driver_a_restart_or_a_late_cycle_is_a_jump() {
        assert_eq!(after(cycle(5), Cycle { driver: 2, ..cycle(99) }), Step::Jump);
        assert_eq!(after(cycle(5), cycle(2)), Step::Jump);
        let late = Cycle { nsec: cycle(6).nsec + 6_000_000, ..cycle(6) };
        assert_eq!(after(cycle(5), late), Step::Jump);
        assert_eq!(after(cycle(5), Cycle { rate: 44_100, ..cycle(6) }), Step::Jump);
    }
}

//! Samples on their way to the device, addressed by absolute sample index.
//!
//! ```text
//!               begin                 played                       end
//!   ──forgotten──┤████████████████████████████████████████████████├──silence──>  index
//!                 kept, already heard  waiting to be heard
//! ```
//!
//! A frame that was never written is silence, a frame whose time has passed is dropped, and what does not fit pushes out
//! the oldest. Each (re)connected pipeline, flush or change of format gets a new *generation* and with it the other one
//! of two banks: so the device fades from the last sound of the old one to the new, and a dying pipeline can no longer
//! write. Writers exclude each other with a lock; the reader is wait-free.

use super::map::MapLine;
use crate::published::{Publisher, Subscriber, WORDS, Words, published};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the ring holds, as the reader sees it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RingState {
    /// Counts the writers; 0 before the first.
    pub generation: u64,
    /// Frames a second, nominal, Hz.
    pub rate: u32,
    /// Channels of a frame.
    pub channels: u32,
    /// The first frame held.
    pub begin: i64,
    /// One past the last frame held.
    pub end: i64,
    /// Whether the writer has said that nothing follows, so that running dry is no fault.
    pub finished: bool,
}

impl Words for RingState {
    fn pack(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words[..6].copy_from_slice(&[
            self.generation,
            self.rate.into(),
            self.channels.into(),
            self.begin as u64,
            self.end as u64,
            self.finished.into(),
        ]);
        words
    }

    fn unpack(words: &[u64; WORDS]) -> Self {
        Self {
            generation: words[0],
            rate: words[1] as u32,
            channels: words[2] as u32,
            begin: words[3] as i64,
            end: words[4] as i64,
            finished: words[5] == 1,
        }
    }
}

/// The map that the current writer has published, with the generation that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PublishedMap {
    pub generation: u64,
    pub line: MapLine,
}

impl Words for PublishedMap {
    fn pack(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words[..4].copy_from_slice(&[
            self.generation,
            self.line.index as u64,
            self.line.time as u64,
            self.line.frame_ns.to_bits(),
        ]);
        words
    }

    fn unpack(words: &[u64; WORDS]) -> Self {
        let line = MapLine { index: words[1] as i64, time: words[2] as i64, frame_ns: f64::from_bits(words[3]) };
        Self { generation: words[0], line }
    }
}

struct Banks {
    /// Samples as the bits of f32: atomics, so that a writer that overtakes the reader is a wrong sample, not undefined.
    samples: [Box<[AtomicU32]>; 2],
    /// The first frame that the device has not asked for yet, and the generation that it belongs to.
    played: AtomicI64,
    played_generation: AtomicU64,
    writing: Mutex<Writing>,
    state: Subscriber<RingState>,
    map: Subscriber<PublishedMap>,
}

struct Writing {
    state: RingState,
    /// Frames of the next writes that are still to be faded in after a gap.
    fade_in: usize,
    state_publisher: Publisher<RingState>,
    map_publisher: Publisher<PublishedMap>,
    late: u64,
    gaps: u64,
}

impl Banks {
    fn lock(&self) -> MutexGuard<'_, Writing> {
        // Nothing panics while it holds the lock; if it did, the data are still whole.
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bank(&self, generation: u64) -> &[AtomicU32] {
        &self.samples[(generation & 1) as usize]
    }

    /// How many frames a bank holds.
    fn capacity(&self, channels: u32) -> i64 {
        (self.samples[0].len() / (channels as usize).max(1)) as i64
    }

    /// The first frame of `state` that may still be written: what the device has asked for is late.
    fn writable_from(&self, generation: u64) -> i64 {
        if self.played_generation.load(Ordering::Acquire) == generation {
            self.played.load(Ordering::Acquire)
        } else {
            i64::MIN
        }
    }
}

/// The shared ring. Cheap to clone. It belongs to the engine, not to one pipeline.
#[derive(Clone)]
pub struct Ring {
    banks: Arc<Banks>,
    fade_seconds: f64,
}

/// What became of the frames of one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Frames that are in the ring now.
    pub frames: usize,
    /// Frames dropped because the device is past them.
    pub late: usize,
    /// Frames of silence filled in before them.
    pub gap: usize,
}

/// The writer is not the newest one any more: its pipeline is to be taken down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("another pipeline writes to the audio output now")]
pub struct Stale;

/// Writes one generation.
pub struct Writer {
    ring: Ring,
    generation: u64,
    rate: u32,
    channels: u32,
}

impl Ring {
    /// A ring with room for `samples` samples (frames × channels), whose gaps are faded over `fade_seconds`.
    pub fn new(samples: usize, fade_seconds: f64) -> Self {
        let bank = || (0..samples.max(1)).map(|_| AtomicU32::new(0)).collect();
        let (state_publisher, state) = published(RingState::default());
        let (map_publisher, map) = published(PublishedMap::default());
        let writing =
            Writing { state: RingState::default(), fade_in: 0, state_publisher, map_publisher, late: 0, gaps: 0 };
        let banks = Banks {
            samples: [bank(), bank()],
            played: AtomicI64::new(i64::MIN),
            played_generation: AtomicU64::new(0),
            writing: Mutex::new(writing),
            state,
            map,
        };
        Self { banks: Arc::new(banks), fade_seconds }
    }

    /// A writer of frames of `channels` channels at `rate` Hz. Writers before it are stale from now on.
    pub fn writer(&self, rate: u32, channels: u32) -> Writer {
        let mut writing = self.banks.lock();
        let generation = writing.state.generation + 1;
        writing.state = RingState { generation, rate, channels, ..RingState::default() };
        writing.fade_in = 0;
        let state = writing.state;
        writing.state_publisher.publish(state);
        Writer { ring: self.clone(), generation, rate, channels }
    }

    /// The reader for the device.
    pub fn reader(&self) -> RingReader {
        RingReader { banks: self.banks.clone(), state: self.banks.state.clone(), map: self.banks.map.clone() }
    }

    /// Frames dropped because they came too late, ever.
    pub fn late_frames(&self) -> u64 {
        self.banks.lock().late
    }

    /// Gaps that were filled with silence, ever.
    pub fn gaps(&self) -> u64 {
        self.banks.lock().gaps
    }
}

impl Writer {
    /// Frames a second, nominal.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// Channels of a frame.
    pub fn channels(&self) -> u32 {
        self.channels
    }

    /// Writes interleaved `samples`, the first frame at `index`. An incomplete last frame is dropped.
    ///
    /// # Errors
    /// [`Stale`] when a newer writer exists; nothing is written then.
    pub fn write(&mut self, index: i64, samples: &[f32]) -> Result<Written, Stale> {
        let banks = &self.ring.banks;
        let mut writing = self.current(banks)?;
        let channels = self.channels.max(1) as usize;
        let capacity = banks.capacity(self.channels);
        let given = samples.len() / channels;
        // What does not fit is the front of it: the newest wins.
        let skipped = given.saturating_sub(capacity as usize);
        let played = banks.writable_from(self.generation);
        // Nor can a frame be put before what the ring has begun with: the reader may be past it.
        let state = writing.state;
        let earliest = if state.begin == state.end { played } else { played.max(state.begin) };
        let late = usize::try_from(earliest.saturating_sub(index)).unwrap_or(0).min(given);
        let first = late.max(skipped);
        let (start, stop) = (index.saturating_add(first as i64), index.saturating_add(given as i64));
        writing.late += late as u64;
        let mut written = Written { frames: given - first, late, gap: 0 };
        if written.frames == 0 {
            return Ok(written);
        }
        let bank = banks.bank(self.generation);
        let mut state = state;
        if state.begin == state.end {
            (state.begin, state.end) = (start, start);
        } else if start > state.end {
            written.gap = usize::try_from(start - state.end).unwrap_or(usize::MAX);
            writing.gaps += 1;
            writing.fade_in = self.fade_frames();
            self.fade_out(bank, &state, played);
            // Silence further back than a whole ring would be pushed out again at once.
            let silent = (start - state.end).min(capacity);
            state.begin = state.begin.max(start - capacity);
            writing.state_publisher.publish(state);
            for frame in start - silent..start {
                let slot = frame.rem_euclid(capacity) as usize * channels;
                bank[slot..slot + channels].iter().for_each(|sample| sample.store(0, Ordering::Relaxed));
            }
        }
        // The reader must have forgotten a frame before it is overwritten.
        state.begin = state.begin.max(stop - capacity);
        writing.state_publisher.publish(state);
        let fade = self.fade_frames();
        for (frame, values) in (start..).zip(samples[first * channels..].chunks_exact(channels)) {
            let gain = match writing.fade_in {
                0 => 1.0,
                left => {
                    writing.fade_in -= 1;
                    super::gain::smoothstep(1.0 - left as f32 / fade as f32)
                }
            };
            let slot = frame.rem_euclid(capacity) as usize * channels;
            for (sample, value) in bank[slot..slot + channels].iter().zip(values) {
                sample.store((value * gain).to_bits(), Ordering::Relaxed);
            }
        }
        state.end = state.end.max(stop);
        state.finished = false;
        writing.state = state;
        writing.state_publisher.publish(state);
        Ok(written)
    }

    /// Publishes which sender time belongs to which frame.
    ///
    /// # Errors
    /// [`Stale`] when a newer writer exists.
    pub fn publish_map(&mut self, line: MapLine) -> Result<(), Stale> {
        let mut writing = self.current(&self.ring.banks)?;
        writing.map_publisher.publish(PublishedMap { generation: self.generation, line });
        Ok(())
    }

    /// Says that nothing follows: what is in the ring is played to its end and faded out.
    ///
    /// # Errors
    /// [`Stale`] when a newer writer exists.
    pub fn finish(&mut self) -> Result<(), Stale> {
        let mut writing = self.current(&self.ring.banks)?;
        writing.state.finished = true;
        let state = writing.state;
        writing.state_publisher.publish(state);
        Ok(())
    }

    /// How many frames the writer is ahead of the device; `None` while the device has not played any of this writer's.
    /// More than [`capacity`](Self::capacity) cannot be kept: wait before writing more.
    pub fn ahead(&self) -> Option<i64> {
        let played = self.ring.banks.writable_from(self.generation);
        let writing = self.ring.banks.lock();
        (played != i64::MIN && writing.state.generation == self.generation).then(|| writing.state.end - played)
    }

    /// Frames that the ring holds.
    pub fn capacity(&self) -> i64 {
        self.ring.banks.capacity(self.channels)
    }

    /// Whether a newer writer exists.
    pub fn is_stale(&self) -> bool {
        self.ring.banks.lock().state.generation != self.generation
    }

    fn current<'a>(&self, banks: &'a Banks) -> Result<MutexGuard<'a, Writing>, Stale> {
        let writing = banks.lock();
        if writing.state.generation == self.generation { Ok(writing) } else { Err(Stale) }
    }

    fn fade_frames(&self) -> usize {
        ((self.ring.fade_seconds * f64::from(self.rate)) as usize).max(1)
    }

    /// Fades out the last frames before a gap, as far as the device has not asked for them.
    fn fade_out(&self, bank: &[AtomicU32], state: &RingState, played: i64) {
        let (channels, capacity) = (self.channels.max(1) as usize, self.ring.banks.capacity(self.channels));
        let frames = (self.fade_frames() as i64).min(state.end - state.begin.max(played)).max(0);
        for (step, frame) in (state.end - frames..state.end).enumerate() {
            let gain = super::gain::smoothstep(1.0 - (step + 1) as f32 / frames as f32);
            let slot = frame.rem_euclid(capacity) as usize * channels;
            for sample in &bank[slot..slot + channels] {
                let value = f32::from_bits(sample.load(Ordering::Relaxed));
                sample.store((value * gain).to_bits(), Ordering::Relaxed);
            }
        }
    }
}

/// Reads the ring on the device's thread. Never waits.
pub struct RingReader {
    banks: Arc<Banks>,
    state: Subscriber<RingState>,
    map: Subscriber<PublishedMap>,
}

impl RingReader {
    /// What the ring holds now.
    pub fn state(&mut self) -> RingState {
        self.state.latest()
    }

    /// The map of generation `generation`, once its writer has published one.
    pub fn map(&mut self, generation: u64) -> Option<MapLine> {
        let map = self.map.latest();
        (map.generation == generation && generation != 0).then_some(map.line)
    }

    /// Tells the writer that frames before `index` are of no use any more.
    pub fn played(&self, generation: u64, index: i64) {
        // A writer that sees the new generation with the old index, for an instant, keeps or drops a few frames.
        if self.banks.played_generation.load(Ordering::Relaxed) != generation {
            self.banks.played.store(index, Ordering::Release);
            self.banks.played_generation.store(generation, Ordering::Release);
        }
        self.banks.played.store(index, Ordering::Release);
    }

    /// Copies channel `channel` of the frames from `start` on to `out`; frames that `state` does not hold are silence.
    pub fn copy(&self, state: &RingState, channel: usize, start: i64, out: &mut [f32]) {
        let channels = (state.channels as usize).max(1);
        let capacity = self.banks.capacity(state.channels);
        let wanted = start.saturating_add(out.len() as i64);
        let (first, last) = (start.max(state.begin), wanted.min(state.end));
        if first >= last || channel >= channels {
            out.fill(0.0);
            return;
        }
        let (head, rest) = out.split_at_mut((first - start) as usize);
        let (body, tail) = rest.split_at_mut((last - first) as usize);
        head.fill(0.0);
        tail.fill(0.0);
        let bank = self.banks.bank(state.generation);
        let mut slot = first.rem_euclid(capacity) as usize * channels + channel;
        let wrap = capacity as usize * channels;
        for value in body {
            *value = f32::from_bits(bank[slot].load(Ordering::Relaxed));
            slot += channels;
            if slot >= wrap {
                slot -= wrap;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u32 = 1_000;

    fn ramp(from: i64, frames: usize) -> Vec<f32> {
        (0..frames).map(|n| (from + n as i64) as f32).collect()
    }

    fn read(reader: &mut RingReader, start: i64, frames: usize) -> Vec<f32> {
        let state = reader.state();
        let mut out = vec![f32::NAN; frames];
        reader.copy(&state, 0, start, &mut out);
        out
    }

    #[test]
    fn what_is_written_is_read_at_its_index_and_the_rest_is_silence() {
        let ring = Ring::new(100, 0.005);
        let (mut writer, mut reader) = (ring.writer(RATE, 1), ring.reader());
        // Far from zero, as the frames since 1900 are, and across the end of the bank.
        let start = 190_000_000_000_037;
        for n in 0..20 {
            writer.write(start + n * 7, &ramp(n * 7, 7)).unwrap();
        }
        let state = reader.state();
        assert_eq!((state.begin, state.end), (start + 40, start + 140));
        let out = read(&mut reader, start + 35, 110);
        assert_eq!(out[..5], [0.0; 5]);
        assert_eq!(out[5..105], ramp(40, 100));
        assert_eq!(out[105..], [0.0; 5]);
    }

    #[test]
    fn a_gap_is_faded_silence() {
        let ring = Ring::new(1_000, 0.005);
        let (mut writer, mut reader) = (ring.writer(RATE, 1), ring.reader());
        writer.write(0, &[1.0; 50]).unwrap();
        let written = writer.write(80, &[1.0; 50]).unwrap();
        assert_eq!(written, Written { frames: 50, late: 0, gap: 30 });
        let out = read(&mut reader, 0, 130);
        assert!(out[..45].iter().chain(&out[85..]).all(|sample| *sample == 1.0), "{out:?}");
        assert!(out[50..80].iter().all(|sample| *sample == 0.0), "{out:?}");
        assert!(out.windows(2).all(|pair| (pair[1] - pair[0]).abs() < 0.36), "{out:?}");
        assert_eq!(ring.gaps(), 1);
    }

    #[test]
    fn a_gap_longer_than_the_ring_forgets_what_was_before() {
        let ring = Ring::new(100, 0.005);
        let (mut writer, mut reader) = (ring.writer(RATE, 1), ring.reader());
        writer.write(0, &[1.0; 90]).unwrap();
        writer.write(1_000_000, &[1.0; 10]).unwrap();
        let out = read(&mut reader, 1_000_000 - 100, 110);
        assert!(out[..100].iter().all(|sample| *sample == 0.0) && out[109] == 1.0, "{out:?}");
    }

    #[test]
    fn what_comes_too_late_is_dropped_and_what_is_too_much_pushes_out_the_oldest() {
        let ring = Ring::new(200, 0.0);
        let (mut writer, mut reader) = (ring.writer(RATE, 2), ring.reader());
        assert_eq!(writer.capacity(), 100);
        assert_eq!(writer.ahead(), None);
        writer.write(0, &[0.5; 60]).unwrap();
        reader.played(1, 40);
        assert_eq!(writer.ahead(), Some(-10));
        assert_eq!(writer.write(30, &[0.25; 40]).unwrap(), Written { frames: 10, late: 10, gap: 10 });
        assert_eq!(writer.ahead(), Some(10));
        assert_eq!(ring.late_frames(), 10);
        // 300 frames at once: the last hundred stay.
        assert_eq!(writer.write(50, &[0.75; 600]).unwrap().frames, 100);
        let state = reader.state();
        assert_eq!((state.begin, state.end), (250, 350));
        // An incomplete frame is dropped, nothing is nothing.
        assert_eq!(writer.write(350, &[1.0]).unwrap(), Written::default());
        assert_eq!(writer.write(i64::MAX - 3, &[]).unwrap(), Written::default());
    }

    #[test]
    fn a_new_writer_makes_the_old_one_stale_and_leaves_its_sound_to_fade() {
        let ring = Ring::new(100, 0.0);
        let (mut old, mut reader) = (ring.writer(RATE, 1), ring.reader());
        old.write(0, &[1.0; 10]).unwrap();
        old.publish_map(MapLine { index: 5, time: 6, frame_ns: 7.0 }).unwrap();
        let before = reader.state();
        assert_eq!(reader.map(1), Some(MapLine { index: 5, time: 6, frame_ns: 7.0 }));
        let mut new = ring.writer(2 * RATE, 1);
        assert!(old.is_stale() && !new.is_stale());
        assert_eq!(old.write(10, &[1.0; 10]), Err(Stale));
        assert_eq!(old.publish_map(MapLine::default()), Err(Stale));
        assert_eq!(old.finish(), Err(Stale));
        assert_eq!(reader.map(2), None);
        new.write(1_000, &[0.5; 10]).unwrap();
        let mut out = [0.0; 10];
        reader.copy(&before, 0, 0, &mut out);
        assert_eq!(out, [1.0; 10]);
        assert_eq!(read(&mut reader, 1_000, 10), [0.5; 10]);
        assert_eq!(reader.state().rate, 2 * RATE);
    }
}

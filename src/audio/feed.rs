//! What a pipeline does with decoded buffers: place them by their reference time and write them to the ring.

use super::config::MapConfig;
use super::map::{MapLine, SampleMap};
use super::ring::{Ring, Stale, Writer, Written};
use crate::clock::NtpTime;
use std::time::Duration;

/// Feeds one stream of one format into a [`Ring`]. Made anew for each pipeline, flush and change of format; those before
/// it are stale from then on.
pub struct Feed {
    ring: Ring,
    writer: Writer,
    map: SampleMap,
    config: MapConfig,
    written_until: i64,
    /// Frames that wait for the first reference time: they cannot be placed before.
    dropped_unplaced: u64,
}

/// What became of one buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fed {
    /// What the ring took.
    pub written: Written,
    /// Index of the first frame, once the first reference time was seen.
    pub index: Option<i64>,
    /// Whether the sender's clock was found to have stepped.
    pub stepped: bool,
}

impl Feed {
    /// A feed of `channels` channels at `rate` Hz.
    pub fn new(ring: &Ring, config: &MapConfig, rate: u32, channels: u32) -> Self {
        Self {
            writer: ring.writer(rate, channels),
            ring: ring.clone(),
            map: SampleMap::new(config.clone(), rate),
            config: config.clone(),
            written_until: 0,
            dropped_unplaced: 0,
        }
    }

    /// Writes interleaved `samples`. `reference` is the capture time of the first frame on the shared clock (ns since
    /// 1900), if the buffer still has it; `discontinuity` says that it does not follow the buffer before. Samples before
    /// the first reference time are dropped: nobody knows when they are due.
    ///
    /// # Errors
    /// [`Stale`] when a newer feed exists: the pipeline is to be taken down.
    pub fn push(&mut self, samples: &[f32], reference: Option<NtpTime>, discontinuity: bool) -> Result<Fed, Stale> {
        let frames = samples.len() / (self.writer.channels().max(1) as usize);
        let placed = self.map.place(frames, reference, discontinuity);
        let Some(line) = self.map.line() else {
            self.dropped_unplaced += frames as u64;
            return if self.writer.is_stale() { Err(Stale) } else { Ok(Fed::default()) };
        };
        let written = self.writer.write(placed.index, samples)?;
        self.written_until = placed.index + frames as i64;
        if placed.changed {
            self.writer.publish_map(line)?;
        }
        Ok(Fed { written, index: Some(placed.index), stepped: placed.stepped })
    }

    /// Forgets what is not played yet: a flush. The sound fades out and fades in with what comes next.
    ///
    /// # Errors
    /// [`Stale`] when a newer feed exists.
    pub fn flush(&mut self) -> Result<(), Stale> {
        if self.writer.is_stale() {
            return Err(Stale);
        }
        *self = Self::new(&self.ring, &self.config, self.writer.rate(), self.writer.channels());
        Ok(())
    }

    /// The stream has ended: what is in the ring is played and faded out at its end.
    ///
    /// # Errors
    /// [`Stale`] when a newer feed exists.
    pub fn finish(&mut self) -> Result<(), Stale> {
        self.writer.finish()
    }

    /// How far the writer is ahead of the device; `None` while the device has not got to this feed. A pipeline that gets
    /// more than [`capacity`](Self::capacity) ahead pushes out what was not heard: wait before that.
    pub fn ahead(&self) -> Option<Duration> {
        self.writer.ahead().map(|frames| self.duration(frames))
    }

    /// How much sound the ring holds.
    pub fn capacity(&self) -> Duration {
        self.duration(self.writer.capacity())
    }

    /// The current line from samples to sender times; `None` before the first reference time.
    pub fn line(&self) -> Option<MapLine> {
        self.map.line()
    }

    /// When the sample after the last one was captured, by the line; ns since 1900.
    pub fn end_time(&self) -> Option<NtpTime> {
        self.map.line().and_then(|line| u64::try_from(line.time_at(self.written_until)).ok())
    }

    /// Frames dropped because no reference time was known yet.
    pub fn unplaced_frames(&self) -> u64 {
        self.dropped_unplaced
    }

    /// How often the sender's clock has stepped.
    pub fn steps(&self) -> u64 {
        self.map.steps()
    }

    fn duration(&self, frames: i64) -> Duration {
        Duration::from_secs_f64(frames.max(0) as f64 / f64::from(self.writer.rate().max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_placed_by_their_reference_times() {
        let ring = Ring::new(48_000, 0.0);
        let mut feed = Feed::new(&ring, &MapConfig::default(), 48_000, 2);
        let mut reader = ring.reader();
        assert_eq!(feed.push(&[1.0; 960], None, false), Ok(Fed::default()));
        assert_eq!((feed.unplaced_frames(), feed.end_time()), (480, None));
        let start = 3_973_000_000_000_000_000u64;
        let fed = feed.push(&[0.5; 960], Some(start), false).unwrap();
        let index = fed.index.unwrap();
        assert_eq!(fed.written, Written { frames: 480, late: 0, gap: 0 });
        assert_eq!(feed.end_time(), Some(start + 10_000_000));
        let state = reader.state();
        assert_eq!((state.begin, state.end, state.rate), (index, index + 480, 48_000));
        assert_eq!(reader.map(state.generation).unwrap().time_at(index), start as i64);
        assert_eq!(feed.capacity(), Duration::from_millis(500));
        reader.played(state.generation, index);
        assert_eq!(feed.ahead(), Some(Duration::from_millis(10)));
        // A flush begins a new generation that has to be told the time again.
        feed.flush().unwrap();
        assert_eq!(reader.state().generation, state.generation + 1);
        assert_eq!(reader.map(state.generation + 1), None);
        let newer = Feed::new(&ring, &MapConfig::default(), 44_100, 1);
        assert_eq!(feed.push(&[0.5; 960], Some(start), false), Err(Stale));
        assert_eq!(feed.push(&[0.5; 960], None, false), Err(Stale));
        assert_eq!((feed.flush(), feed.finish()), (Err(Stale), Err(Stale)));
        assert_eq!(newer.ahead(), None);
    }
}

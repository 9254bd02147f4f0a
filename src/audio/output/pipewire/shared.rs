//! What the real-time thread and the output's own thread share. Neither ever waits for the other, except the own
//! thread for the few instructions in which the real-time thread reads the graph's position.

use super::heard::Cycle;
use crate::audio::output::{OutputCounters, OutputError};
use pipewire::spa;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The graph's position, in memory that the sound server maps, moves and unmaps.
///
/// PipeWire tells of a new area (or none) before it unmaps the old one. The real-time thread marks that it reads;
/// [`Self::set`] waits for the mark to go, so the old area is never read after `set` returned.
#[derive(Debug, Default)]
pub(crate) struct PositionCell {
    area: AtomicPtr<spa::sys::spa_io_position>,
    reading: AtomicBool,
}

impl PositionCell {
    /// Takes another area, or none. Not for the real-time thread.
    ///
    /// # Safety
    /// `area` is null, or points to a position that stays valid until `set` is called with another value.
    pub unsafe fn set(&self, area: *mut spa::sys::spa_io_position) {
        self.area.store(area, Ordering::SeqCst);
        while self.reading.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }

    /// The running cycle; `None` when there is no graph. For one reader: the real-time thread, in its callback, while
    /// the server has written this cycle's clock and does not touch it.
    pub fn read(&self) -> Option<Cycle> {
        self.reading.store(true, Ordering::SeqCst);
        let area = self.area.load(Ordering::SeqCst);
        // SAFETY: not null, and valid for as long as `reading` is set (see `set`). Another process writes it between
        // our cycles: hence the volatile read, and no reference.
        let clock = (!area.is_null()).then(|| unsafe { std::ptr::read_volatile(&raw const (*area).clock) });
        self.reading.store(false, Ordering::SeqCst);
        let clock = clock?;
        // The rate is a fraction; audio drivers say 1/rate.
        let rate = clock.rate.denom.checked_div(clock.rate.num)?;
        (rate > 0).then_some(Cycle {
            nsec: i64::try_from(clock.nsec).ok()?,
            rate,
            duration: u32::try_from(clock.duration).ok()?,
            position: clock.position,
            driver_delay: clock.delay,
            driver: clock.id,
        })
    }
}

/// Wakes the output's own thread; writing to it is one system call that never blocks.
#[derive(Debug)]
pub(super) struct Wake(OwnedFd);

impl Wake {
    pub fn new() -> Result<Self, OutputError> {
        // SAFETY: plain system call; the descriptor is ours alone.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(OutputError::Thread(std::io::Error::last_os_error().to_string()));
        }
        // SAFETY: a new descriptor that nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub fn notify(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: 8 bytes of ours. It fails only when the counter is full, and then the reader is awake anyway.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Makes it quiet until the next [`Self::notify`].
    pub fn clear(fd: RawFd) {
        let mut count = [0u8; 8];
        // SAFETY: 8 bytes of ours; the descriptor does not block.
        unsafe { libc::read(fd, count.as_mut_ptr().cast(), count.len()) };
    }
}

/// Everything that both threads see.
#[derive(Debug)]
pub(super) struct Shared {
    pub position: PositionCell,
    pub wake: Wake,
    /// Whether the real-time thread has told of its first block; cleared by the own thread to be told again.
    pub running: AtomicBool,
    /// Of the last cycle: Hz.
    pub rate: AtomicU32,
    /// Of the last cycle: frames.
    pub quantum: AtomicU32,
    /// Of the last cycle: from its start until its first frame is heard, ns.
    pub latency_ns: AtomicI64,
    pub blocks: AtomicU64,
    pub xruns: AtomicU64,
    pub missed_frames: AtomicU64,
    pub time_jumps: AtomicU64,
}

impl Shared {
    pub fn new() -> Result<Self, OutputError> {
        Ok(Self {
            position: PositionCell::default(),
            wake: Wake::new()?,
            running: AtomicBool::new(false),
            rate: AtomicU32::new(0),
            quantum: AtomicU32::new(0),
            latency_ns: AtomicI64::new(0),
            blocks: AtomicU64::new(0),
            xruns: AtomicU64::new(0),
            missed_frames: AtomicU64::new(0),
            time_jumps: AtomicU64::new(0),
        })
    }

    pub fn counters(&self) -> OutputCounters {
        OutputCounters {
            blocks: self.blocks.load(Ordering::Relaxed),
            xruns: self.xruns.load(Ordering::Relaxed),
            missed_frames: self.missed_frames.load(Ordering::Relaxed),
            time_jumps: self.time_jumps.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_is_not_read_after_it_was_taken_away() {
        let cell = PositionCell::default();
        assert_eq!(cell.read(), None);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut seen = 0;
                while seen < 1000 {
                    if let Some(cycle) = cell.read() {
                        assert_eq!((cycle.rate, cycle.duration), (48_000, 256));
                        seen += 1;
                    }
                }
            });
            while !reader.is_finished() {
                // SAFETY: plain data, all zeros are valid.
                let mut area: Box<spa::sys::spa_io_position> = Box::new(unsafe { std::mem::zeroed() });
                area.clock.rate = spa::sys::spa_fraction { num: 1, denom: 48_000 };
                area.clock.duration = 256;
                // SAFETY: valid until the second call.
                unsafe { cell.set(&raw mut *area) };
                std::thread::yield_now();
                unsafe { cell.set(std::ptr::null_mut()) };
                // What a reader must never see.
                area.clock.duration = 0;
                drop(area);
            }
        });
    }

    #[test]
    fn a_clock_without_a_rate_is_no_cycle() {
        let cell = PositionCell::default();
        // SAFETY: plain data; outlives its use in the cell.
        let mut area: spa::sys::spa_io_position = unsafe { std::mem::zeroed() };
        unsafe { cell.set(&raw mut area) };
        assert_eq!(cell.read(), None);
        unsafe { cell.set(std::ptr::null_mut()) };
    }

    #[test]
    fn wake_is_quiet_after_it_was_cleared() {
        let wake = Wake::new().unwrap();
        let ready = || {
            let mut poll = libc::pollfd { fd: wake.fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one pollfd of ours.
            unsafe { libc::poll(&mut poll, 1, 0) }
        };
        assert_eq!(ready(), 0);
        wake.notify();
        wake.notify();
        assert_eq!(ready(), 1);
        Wake::clear(wake.fd());
        assert_eq!(ready(), 0);
    }
}

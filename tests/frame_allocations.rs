//! Nothing is allocated for a frame: reading its capture time, recording its presentation, queueing its line of the log.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use unisono::engine::sender_time;
use unisono::engine::stats::{ErrorSource, PresentationSample, StreamStats};
use unisono::engine::timing::PlayoutContract;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is handed to the system's allocator; the counter is atomic.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The only test of this program: the counter is the process's.
#[test]
fn a_frame_costs_no_allocation() {
    gst::init().expect("GStreamer");
    let caps = gst::Caps::new_empty_simple("timestamp/x-ntp");
    let mut buffer = gst::Buffer::with_size(64).expect("a buffer");
    let time = gst::ClockTime::from_nseconds(3_900_000_000_000_000_000);
    gst::ReferenceTimestampMeta::add(buffer.get_mut().expect("the only owner"), &caps, time, gst::ClockTime::NONE);
    let contract = PlayoutContract { latency: Duration::from_secs(1), room_delay_ns: 0 };
    let stats = StreamStats::new(contract, ErrorSource::Measured, 10_000_000);
    let mut frame = |number: u64| {
        let sender_time = sender_time(&buffer);
        assert_eq!(sender_time, Some(time.nseconds()));
        stats.record(PresentationSample { sender_time, presented: time.nseconds() + 1_000_000_000 + number });
        if number.is_multiple_of(50) {
            stats.take_summary();
        }
    };
    (0..100).for_each(&mut frame);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (0..1_000).for_each(&mut frame);
    let allocated = ALLOCATIONS.load(Ordering::Relaxed) - before;
    // The test's own thread and harness are quiet meanwhile; a frame that allocated would do so a thousand times.
    assert!(allocated < 10, "{allocated} allocations for 1000 frames");
}

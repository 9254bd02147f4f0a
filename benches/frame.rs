//! What the engine does for each frame: reading the capture time and recording the presentation.

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;
use unisono::engine::stats::{ErrorSource, PresentationSample, StreamStats};
use unisono::engine::timing::PlayoutContract;

fn frame(c: &mut Criterion) {
    let contract = PlayoutContract { latency: Duration::from_secs(1), room_delay_ns: 0 };
    let stats = StreamStats::new(contract, ErrorSource::Measured, 10_000_000);
    let mut time = 3_900_000_000_000_000_000u64;
    c.bench_function("record one frame", |b| {
        b.iter(|| {
            time += 40_000_000;
            stats.record(black_box(PresentationSample { sender_time: Some(time), presented: time + 1_000_100_000 }));
        });
    });
    c.bench_function("summarize one second of 50 frames", |b| {
        b.iter(|| {
            for number in 0..50 {
                let sender_time = time + number * 20_000_000;
                let presented = sender_time + 1_000_000_000 + number * 1_000;
                stats.record(PresentationSample { sender_time: Some(sender_time), presented });
            }
            black_box(stats.take_summary());
        });
    });

    gst::init().expect("GStreamer");
    let caps = gst::Caps::new_empty_simple("timestamp/x-ntp");
    let mut buffer = gst::Buffer::with_size(64).expect("a buffer");
    gst::ReferenceTimestampMeta::add(
        buffer.get_mut().expect("the only owner"),
        &caps,
        gst::ClockTime::from_nseconds(time),
        gst::ClockTime::NONE,
    );
    c.bench_function("read the capture time of one buffer", |b| {
        b.iter(|| black_box(unisono::engine::sender_time(black_box(&buffer))));
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    targets = frame
}
criterion_main!(benches);

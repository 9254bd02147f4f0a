//! What one callback of the steered output costs: a stereo room at 48 kHz.
//!
//! `cargo bench --bench callback` prints the time of a block and, from that, the share of a core: a block of 1024 frames
//! comes each 21.3 ms, so 0.5 % of a core are 106 µs.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Instant;
use unisono::audio::config::MapConfig;
use unisono::audio::output::{Block, Renderer};
use unisono::audio::{Action, Controls, Feed, Ring, Servo, SteerConfig, SteeredRenderer};
use unisono::clock::{ClockLine, clock_line};

const SECOND: i64 = 1_000_000_000;
const EPOCH: i64 = 3_973_000_000 * SECOND;

/// A room that plays: 2 s of sound in the ring, over and over.
struct Room {
    renderer: SteeredRenderer,
    feed: Feed,
    sound: Vec<f32>,
    rate: u32,
    device_rate: u32,
    fed: i64,
    played: i64,
    _line: unisono::clock::LinePublisher,
}

impl Room {
    fn new(rate: u32, device_rate: u32) -> Self {
        let config = SteerConfig::default();
        let ring = Ring::new(rate as usize * 8, config.fade);
        let (mut line, reader) = clock_line();
        line.publish(Some(ClockLine { monotonic: 0, shared: EPOCH, rate: 0.0 }));
        let renderer = SteeredRenderer::new(&config, &ring, reader, &Controls::new());
        renderer.interpolators().prepare(f64::from(device_rate) / f64::from(rate));
        let feed = Feed::new(&ring, &MapConfig::default(), rate, 2);
        let sound = (0..rate / 5).flat_map(|n| [(n as f32 * 0.1).sin(), (n as f32 * 0.13).sin()]).collect();
        Self { renderer, feed, sound, rate, device_rate, fed: 0, played: 0, _line: line }
    }

    /// Keeps the ring filled; not part of what is measured.
    fn feed(&mut self) {
        while self.time_fed() < self.time_played() + SECOND / 2 {
            let reference = (EPOCH + self.time_fed()) as u64;
            self.feed.push(&self.sound, Some(reference), false).expect("the only feed");
            self.fed += self.sound.len() as i64 / 2;
        }
    }

    fn time_fed(&self) -> i64 {
        self.fed * SECOND / i64::from(self.rate)
    }

    fn time_played(&self) -> i64 {
        self.played * SECOND / i64::from(self.device_rate)
    }

    fn block(&mut self, samples: &mut [f32]) {
        // 100 ppm off, so that it steers.
        let heard_at = self.time_played() + self.time_played() / 10_000;
        self.renderer.render(Block { samples, channels: 2, rate: self.device_rate, heard_at });
        self.played += samples.len() as i64 / 2;
    }
}

fn callback(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("callback");
    for (rate, device_rate, frames) in
        [(48_000, 48_000, 256), (48_000, 48_000, 1024), (44_100, 48_000, 1024), (48_000, 44_100, 1024)]
    {
        let name = format!("{rate} Hz on {device_rate} Hz");
        group.throughput(Throughput::Elements(frames as u64));
        group.bench_with_input(BenchmarkId::new(name, frames), &frames, |bencher, frames| {
            let mut room = Room::new(rate, device_rate);
            let mut samples = vec![0.0; 2 * frames];
            bencher.iter_custom(|rounds| {
                let mut spent = std::time::Duration::ZERO;
                for _ in 0..rounds {
                    room.feed();
                    let start = Instant::now();
                    room.block(black_box(&mut samples));
                    spent += start.elapsed();
                }
                spent
            });
        });
    }
    group.finish();
}

/// The share of a core that one room takes, printed: the figure that the documentation names.
fn share(_: &mut Criterion) {
    const FRAMES: usize = 1024;
    const BLOCKS: u32 = 5_000;
    let (mut room, mut samples) = (Room::new(48_000, 48_000), vec![0.0; 2 * FRAMES]);
    // SAFETY: usage is plain data, and the pointer is valid for the call.
    let cpu = || unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage.ru_utime.tv_sec as f64 + usage.ru_utime.tv_usec as f64 / 1e6
    };
    let start = cpu();
    for _ in 0..BLOCKS {
        room.feed();
        room.block(black_box(&mut samples));
    }
    let spent = cpu() - start;
    let played = f64::from(BLOCKS) * FRAMES as f64 / 48_000.0;
    println!("share of a core, stereo room at 48 kHz, feeding included: {:.3} %", spent / played * 100.0);
}

fn parts(criterion: &mut Criterion) {
    let mut servo = Servo::new(SteerConfig::default().servo);
    criterion.bench_function("servo", |bencher| {
        bencher.iter(|| {
            let (Action::Steer(offset) | Action::Reseek(offset)) = servo.update(black_box(1e-6), 0.02);
            offset
        });
    });
}

criterion_group!(benches, share, callback, parts);
criterion_main!(benches);

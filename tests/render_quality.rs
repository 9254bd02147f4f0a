//! What the callback costs and what it does to the sound: no allocation, no lock, no audible distortion, no click.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::f64::consts::TAU;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use unisono::audio::output::simulated::{SimulatedConfig, SimulatedDevice};
use unisono::audio::output::{Block, Renderer};
use unisono::audio::{Controls, Feed, Ring, SteerConfig, SteeredRenderer};
use unisono::clock::{ClockLine, LinePublisher, clock_line};

/// Frames a second of stream and device.
const RATE: u32 = 48_000;
/// The shared clock (ns since 1900) when CLOCK_MONOTONIC shows 0.
const EPOCH: i64 = 3_973_000_000_000_000_000;
/// Frames of a buffer of the pipeline.
const BUFFER: u64 = 960;
/// How far the pipeline is ahead, frames: half the playout latency.
const AHEAD: u64 = 24_000;
/// The playout latency, ns.
const LATENCY: i64 = 1_000_000_000;
const AMPLITUDE: f64 = 0.5;

/// Counts the allocations of each thread by itself, so that tests beside do not disturb.
struct Counting;

thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });

// SAFETY: everything is handed to the system's allocator; the counter is a plain cell of the thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A stream of a sine, and the renderer that plays it.
struct Rig {
    feed: Feed,
    controls: Controls,
    frequency: f64,
    next: u64,
    _clock: LinePublisher,
}

fn rig(frequency: f64) -> (Rig, SteeredRenderer) {
    let config = SteerConfig::default();
    let ring = Ring::new((config.ring_seconds * f64::from(RATE)) as usize * 2, config.fade);
    let controls = Controls::new();
    controls.set_playout_latency(LATENCY);
    let (mut clock, reader) = clock_line();
    clock.publish(Some(ClockLine { monotonic: 0, shared: EPOCH, rate: 0.0 }));
    let renderer = SteeredRenderer::new(&config, &ring, reader, &controls);
    let feed = Feed::new(&ring, &config.map, RATE, 2);
    (Rig { feed, controls, frequency, next: 0, _clock: clock }, renderer)
}

impl Rig {
    /// Sends what has been captured by `heard_at` (CLOCK_MONOTONIC, ns) and is to be heard a latency later.
    fn send_until(&mut self, heard_at: i64) {
        let due = (heard_at - LATENCY) as f64 * 1e-9 * f64::from(RATE);
        while (self.next as f64) < due + AHEAD as f64 {
            let samples: Vec<f32> = (self.next..self.next + BUFFER)
                .flat_map(|frame| {
                    let phase = TAU * (frame as f64 * self.frequency / f64::from(RATE)).fract();
                    [(AMPLITUDE * phase.sin()) as f32; 2]
                })
                .collect();
            let captured = EPOCH as u64 + self.next * 1_000_000_000 / u64::from(RATE);
            self.feed.push(&samples, Some(captured), false).expect("the only feed");
            self.next += BUFFER;
        }
    }
}

/// Plays for so long and returns the left channel.
fn play(rig: &mut Rig, device: &mut SimulatedDevice, seconds: f64) -> Vec<f64> {
    let until = device.next_block() + (seconds * 1e9) as i64;
    let mut heard = Vec::new();
    while device.next_block() < until {
        rig.send_until(device.next_block());
        device.step(|block| heard.extend(block.samples.iter().step_by(2).map(|sample| f64::from(*sample))));
    }
    heard
}

fn device(renderer: SteeredRenderer, ppm: f64) -> SimulatedDevice {
    SimulatedDevice::new(SimulatedConfig { ppm, ..SimulatedConfig::default() }, Box::new(renderer), 2 * LATENCY)
}

/// What is left when the best sine near `cycles` a sample is taken away, relative to that sine, in dB. A linear change of
/// phase and amplitude over the stretch belongs to the sine.
fn distortion(samples: &[f64], cycles: f64) -> f64 {
    let middle = samples.len() as f64 / 2.0;
    let basis = |index: usize| {
        let (sin, cos) = (TAU * (cycles * index as f64).fract()).sin_cos();
        let t = (index as f64 - middle) / middle;
        [cos, sin, t * cos, t * sin]
    };
    let mut matrix = [[0.0; 5]; 4];
    for (index, sample) in samples.iter().enumerate() {
        let values = basis(index);
        for row in 0..4 {
            for column in 0..4 {
                matrix[row][column] += values[row] * values[column];
            }
            matrix[row][4] += values[row] * sample;
        }
    }
    let fit = solve(matrix);
    let (mut rest, mut signal) = (0.0, 0.0);
    for (index, sample) in samples.iter().enumerate() {
        let fitted: f64 = basis(index).iter().zip(fit).map(|(value, weight)| value * weight).sum();
        rest += (sample - fitted).powi(2);
        signal += fitted.powi(2);
    }
    10.0 * (rest / signal).log10()
}

/// Gaussian elimination; the matrix is well conditioned.
fn solve(mut matrix: [[f64; 5]; 4]) -> [f64; 4] {
    for pivot in 0..4 {
        for row in pivot + 1..4 {
            let factor = matrix[row][pivot] / matrix[pivot][pivot];
            let above = matrix[pivot];
            for (value, above) in matrix[row].iter_mut().zip(above) {
                *value -= factor * above;
            }
        }
    }
    let mut solution = [0.0; 4];
    for row in (0..4).rev() {
        let known: f64 = (row + 1..4).map(|column| matrix[row][column] * solution[column]).sum();
        solution[row] = (matrix[row][4] - known) / matrix[row][row];
    }
    solution
}

#[test]
fn a_sine_on_a_device_that_is_100_ppm_off_stays_clean() {
    for frequency in [1_000.0, 10_000.0] {
        for ppm in [100.0, -100.0] {
            let (mut rig, renderer) = rig(frequency);
            let mut device = device(renderer, ppm);
            play(&mut rig, &mut device, 20.0);
            let heard = play(&mut rig, &mut device, 2.0);
            let cycles = frequency / (f64::from(RATE) * (1.0 + ppm * 1e-6));
            let level = distortion(&heard, cycles);
            println!("{frequency} Hz at {ppm:+} ppm: {level:.1} dB");
            assert!(level < -90.0, "{frequency} Hz at {ppm:+} ppm: {level:.1} dB");
        }
    }
}

/// The measure itself sees what it should: a second harmonic of -60 dB reads as -60 dB.
#[test]
fn the_measure_of_distortion_measures() {
    let tone = |index: usize, cycles: f64| (TAU * cycles * index as f64).sin();
    let samples: Vec<f64> = (0..96_000).map(|index| tone(index, 0.02) + 1e-3 * tone(index, 0.04)).collect();
    assert!((distortion(&samples, 0.02) + 60.0).abs() < 0.1, "{}", distortion(&samples, 0.02));
}

/// A click is a kink: the largest second difference beyond that of the tone itself. A jump of -60 dBFS from one sample to
/// the next has 1e-3; clicks below that drown in any programme at the level of speech.
const CLICK: f64 = 1e-3;
/// The tone of the click tests, Hz: its own second difference is 8.6e-5.
const LOW_TONE: f64 = 100.0;

fn kink(samples: &[f64]) -> f64 {
    samples.windows(3).map(|three| (three[2] - 2.0 * three[1] + three[0]).abs()).fold(0.0, f64::max)
}

#[test]
fn nothing_that_happens_while_playing_clicks() {
    type Happening = (&'static str, fn(&mut Rig, &mut SimulatedDevice));
    let happenings: [Happening; 8] = [
        ("volume down", |rig, _| rig.controls.set_volume(0.1)),
        ("volume up", |rig, _| rig.controls.set_volume(1.0)),
        ("mute", |rig, _| rig.controls.set_muted(true)),
        ("unmute", |rig, _| rig.controls.set_muted(false)),
        ("more delay", |rig, _| rig.controls.set_delay(137_000_000)),
        ("less delay", |rig, _| rig.controls.set_delay(-3_000_000)),
        // The device was away for a moment: what is due is 7.3 ms further on, and the output jumps.
        ("reseek", |_, device| device.stall(7.3e6)),
        ("flush", |rig, _| rig.feed.flush().expect("the only feed")),
    ];
    let (mut rig, renderer) = rig(LOW_TONE);
    let stats = renderer.stats();
    let mut device = device(renderer, 40.0);
    let mut heard = play(&mut rig, &mut device, 0.5);
    let start = kink(&heard);
    println!("start: {start:.2e}");
    assert!(heard.iter().any(|sample| sample.abs() > 0.9 * AMPLITUDE), "nothing was played");
    assert!(start < CLICK, "start: {start:.2e}");
    play(&mut rig, &mut device, 10.0);
    for (what, happen) in happenings {
        heard = play(&mut rig, &mut device, 0.1);
        happen(&mut rig, &mut device);
        heard.extend(play(&mut rig, &mut device, 1.0));
        let kink = kink(&heard);
        println!("{what}: {kink:.2e}");
        assert!(kink < CLICK, "{what}: {kink:.2e}");
    }
    assert!(stats.clone().latest().reseeks > 0, "the device's stall was to make a reseek");
}

#[test]
fn a_hard_cut_is_a_click_to_the_measure() {
    let tone = |index: usize| AMPLITUDE * (TAU * LOW_TONE * index as f64 / f64::from(RATE)).sin();
    let cut: Vec<f64> = (0..4_800).map(|index| if index < 2_500 { tone(index) } else { 0.0 }).collect();
    assert!(kink(&cut) > 100.0 * CLICK);
    assert!(kink(&(0..4_800).map(tone).collect::<Vec<_>>()) < CLICK / 10.0);
}

/// Renders as a callback would, with the figures of the thread that does it.
struct Watched {
    renderer: SteeredRenderer,
    allocations: Arc<std::sync::atomic::AtomicU64>,
}

impl Renderer for Watched {
    fn render(&mut self, block: Block<'_>) {
        let before = ALLOCATIONS.with(Cell::get);
        self.renderer.render(block);
        self.allocations.fetch_add(ALLOCATIONS.with(Cell::get) - before, Ordering::Relaxed);
    }
}

#[test]
fn the_callback_allocates_nothing_whatever_happens() {
    let (mut rig, renderer) = rig(LOW_TONE);
    let allocations = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let watched = Watched { renderer, allocations: allocations.clone() };
    let mut device = SimulatedDevice::new(
        SimulatedConfig { ppm: 70.0, ..SimulatedConfig::default() },
        Box::new(watched),
        2 * LATENCY,
    );
    play(&mut rig, &mut device, 2.0);
    rig.controls.set_volume(0.3);
    rig.controls.set_delay(50_000_000);
    play(&mut rig, &mut device, 1.0);
    device.stall(30e6);
    play(&mut rig, &mut device, 1.0);
    rig.feed.flush().expect("the only feed");
    device.change(|config| config.period = 256);
    play(&mut rig, &mut device, 1.0);
    device.change(|config| config.rate = 44_100);
    play(&mut rig, &mut device, 1.0);
    assert_eq!(allocations.load(Ordering::Relaxed), 0);
}

/// How often the calling thread went to sleep by itself.
fn sleeps() -> i64 {
    // SAFETY: rusage is plain data, and the call only writes into it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage.ru_nvcsw as i64
    }
}

/// While other threads write to the ring, publish the clock's line and read the figures without pause, the callback never
/// sleeps: a lock that it shared with them would make it.
#[test]
fn the_callback_waits_for_nobody() {
    let (mut rig, mut renderer) = rig(LOW_TONE);
    let stop = Arc::new(AtomicBool::new(false));
    let stats = renderer.stats();
    rig.send_until(2 * LATENCY);
    let busy = {
        let (stop, mut stats) = (stop.clone(), stats.clone());
        std::thread::spawn(move || {
            let mut heard_at = 2 * LATENCY;
            let mut rounds = 0u64;
            while !stop.load(Ordering::Relaxed) {
                heard_at += 20_000_000;
                rig.send_until(heard_at);
                rig._clock.publish(Some(ClockLine { monotonic: 0, shared: EPOCH, rate: 0.0 }));
                let _ = (stats.latest(), stats.errors_since(0), rig.feed.ahead());
                rounds += 1;
            }
            rounds
        })
    };
    let mut samples = vec![0.0f32; 512];
    let before = sleeps();
    for number in 0..20_000i64 {
        let heard_at = 2 * LATENCY + number * 5_333_333;
        renderer.render(Block { samples: &mut samples, channels: 2, rate: RATE, heard_at });
    }
    let slept = sleeps() - before;
    stop.store(true, Ordering::Relaxed);
    assert!(busy.join().expect("the other thread") > 100, "the other thread did nothing");
    assert_eq!(slept, 0);
}

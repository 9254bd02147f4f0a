//! Plays the test programme to a PipeWire sink through the whole steered chain, without a sender and a network: what is
//! left is the error of the audio output itself. `build-aux/measure-output.sh` measures two of them.
//!
//! ```text
//! cargo run --release --example play_programme -- --device kitchen --seconds 60
//! ```

use clap::Parser;
use gst::prelude::*;
use std::time::{Duration, Instant};
use unisono::audio::config::SteerConfig;
use unisono::audio::output::pipewire::PipeWireOutput;
use unisono::audio::output::{Output, OutputConfig, OutputEvent};
use unisono::audio::{Controls, Feed, Ring, SteeredRenderer};
use unisono::clock::{ClockMapping, ClockSpec, SharedClock};
use unisono::programme::{Programme, Sound, index_at_or_after, time_of_index};

/// Between two buffers; what a sender captures meanwhile is written at once.
const BUFFER: Duration = Duration::from_millis(20);
/// The system clock needs no time to synchronize, an NTP server at most a few round trips.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two reports on stderr.
const REPORT: Duration = Duration::from_secs(10);

#[derive(Parser)]
struct Args {
    /// The sink's name; without it the default sink
    #[arg(long)]
    device: Option<String>,
    /// PipeWire's socket
    #[arg(long)]
    server: Option<String>,
    #[arg(long, default_value_t = Sound::Music)]
    sound: Sound,
    #[arg(long, default_value = "system")]
    clock: ClockSpec,
    /// Samples a second of the stream
    #[arg(long, default_value_t = 48_000)]
    rate: u32,
    /// Playout latency in ms
    #[arg(long, default_value_t = 1_000)]
    latency: u32,
    /// How long to play
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    gst::init()?;
    let shared = SharedClock::start(&args.clock)?;
    let clock = shared.wait_for_sync(CLOCK_TIMEOUT)?;
    let programme = Programme::new(args.sound, args.rate)?;

    const CHANNELS: u32 = 2;
    let config = SteerConfig::default();
    let samples = config.ring_seconds * f64::from(args.rate) * f64::from(CHANNELS);
    let ring = Ring::new(samples as usize, config.fade);
    let mapping = ClockMapping::start(&shared)?;
    let controls = Controls::new();
    controls.set_playout_latency(i64::from(args.latency) * 1_000_000);
    let renderer = SteeredRenderer::new(&config, &ring, mapping.reader(), &controls);
    let (mut stats, interpolators) = (renderer.stats(), renderer.interpolators());

    let output_config = OutputConfig {
        device: args.device,
        channels: CHANNELS,
        stream_name: "Unisono test programme".into(),
        server: args.server,
    };
    let output = PipeWireOutput::open(output_config, Box::new(renderer))?;
    let events = output.events();
    let mut feed = Feed::new(&ring, &config.map, args.rate, CHANNELS);
    let mut next = index_at_or_after(clock.time().nseconds(), args.rate);
    let mut buffer = Vec::new();
    let start = Instant::now();
    let mut report = start + REPORT;
    while start.elapsed().as_secs_f64() < args.seconds {
        let until = index_at_or_after(clock.time().nseconds(), args.rate);
        buffer.clear();
        buffer.extend((next..until).flat_map(|index| [programme.sample(index); CHANNELS as usize]));
        if !buffer.is_empty() {
            feed.push(&buffer, Some(time_of_index(next, args.rate)), false)
                .map_err(|_| anyhow::anyhow!("another feed has taken the ring"))?;
        }
        next = until;
        while let Ok(event) = events.try_recv() {
            eprintln!("{:8.3} s  {event:?}", start.elapsed().as_secs_f64());
            if let OutputEvent::Started(format) = event {
                interpolators.prepare(f64::from(format.rate) / f64::from(args.rate));
            }
        }
        if Instant::now() >= report {
            report += REPORT;
            let stats = stats.latest();
            eprintln!(
                "{:8.3} s  {:?}, error {:.2} µs, speed {:+.2} ppm, {} reseeks, {} underruns, {:?}",
                start.elapsed().as_secs_f64(),
                stats.state,
                stats.error * 1e6,
                stats.speed_offset * 1e6,
                stats.reseeks,
                stats.underruns,
                output.counters()
            );
        }
        std::thread::sleep(BUFFER);
    }
    Ok(())
}

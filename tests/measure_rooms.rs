//! `unisono measure` on a real PipeWire: two rooms that play the test programme through the whole steered chain.
#![cfg(feature = "pipewire")]

mod support;

use gst::prelude::*;
use serde_json::Value;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use support::pipewire::{Server, Setup};
use unisono::audio::config::SteerConfig;
use unisono::audio::output::OutputConfig;
use unisono::audio::output::pipewire::PipeWireOutput;
use unisono::audio::{Controls, Feed, Ring, SteeredRenderer};
use unisono::clock::{ClockMapping, ClockSpec, SharedClock};
use unisono::programme::{Programme, Sound, index_at_or_after, time_of_index};

/// Of the stream, whatever the graph's is.
const RATE: u32 = 48_000;
/// Playout latency of the rooms, ms: short, so that the test is.
const LATENCY_MS: i64 = 400;

/// A room that plays the programme, so much later than it should.
struct Room {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Room {
    fn play(server: &Server, device: &str, programme: &Programme, late_us: i64) -> Self {
        let shared = SharedClock::start(&ClockSpec::System).unwrap();
        let clock = shared.wait_for_sync(Duration::ZERO).unwrap();
        let mapping = ClockMapping::start(&shared).unwrap();
        let config = SteerConfig::default();
        let ring = Ring::new((config.ring_seconds * f64::from(RATE)) as usize * 2, config.fade);
        let controls = Controls::new();
        controls.set_playout_latency(LATENCY_MS * 1_000_000);
        controls.set_delay(late_us * 1_000);
        let renderer = SteeredRenderer::new(&config, &ring, mapping.reader(), &controls);
        renderer.interpolators().prepare(44_100.0 / f64::from(RATE));
        let output_config =
            OutputConfig { device: Some(device.into()), server: Some(server.socket()), ..OutputConfig::default() };
        let output = PipeWireOutput::open(output_config, Box::new(renderer)).unwrap();
        let mut feed = Feed::new(&ring, &config.map, RATE, 2);
        let mut next = index_at_or_after(clock.time().nseconds(), RATE);
        let (programme, stop) = (programme.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let until = index_at_or_after(clock.time().nseconds(), RATE);
                let samples: Vec<f32> = (next..until).flat_map(|index| [programme.sample(index); 2]).collect();
                if !samples.is_empty() {
                    feed.push(&samples, Some(time_of_index(next, RATE)), false).unwrap();
                }
                next = until;
                std::thread::sleep(Duration::from_millis(20));
            }
            drop((output, mapping));
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

fn measure(server: &Server, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
    command.arg("measure").args(arguments).args(["--server", &server.socket()]);
    command.output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Plays in two rooms, the second 5 ms late, and checks what is measured.
fn two_rooms(setup: &Setup) {
    let Some(server) = Server::start_with(setup) else { return };
    gst::init().unwrap();
    let programme = Programme::new(Sound::Noise, RATE).unwrap();
    let _rooms = [Room::play(&server, "roomA", &programme, 0), Room::play(&server, "roomB", &programme, 5_000)];
    // The servo has settled after 5 s.
    std::thread::sleep(Duration::from_secs(6));
    let latency = format!("{LATENCY_MS}ms");
    let output = measure(
        &server,
        &["roomA", "roomB", "--length=6s", "--sound=noise", "--clock=system", "--latency", &latency, "--json"],
    );
    assert!(output.status.success(), "{output:?}");
    let result = json(&output);
    let near = |summary: &Value, expected: f64| {
        let median = summary["p50_us"].as_f64().unwrap();
        // An idle host measures 0.00 µs. A busy one may lose cycles, and a room steers back after each.
        assert!((median - expected).abs() < 50.0, "{median} µs instead of {expected}: {result}");
        assert!(summary["windows"].as_u64().unwrap() >= 5, "{result}");
    };
    assert_eq!(result["rooms"][0]["rate"], setup.rate);
    near(&result["rooms"][0]["absolute_error"], 0.0);
    near(&result["rooms"][1]["absolute_error"], 5_000.0);
    near(&result["skews"][0]["skew"], 5_000.0);
}

#[test]
fn two_rooms_are_heard_when_they_should_be() {
    two_rooms(&Setup { sinks: vec!["roomA".into(), "roomB".into()], ..Setup::default() });
}

#[test]
fn also_on_a_graph_at_another_rate() {
    two_rooms(&Setup { sinks: vec!["roomA".into(), "roomB".into()], rate: 44_100, quantum: 256 });
}

#[test]
fn recordings_are_kept_and_compared_later() {
    let Some(server) = Server::start(&["roomA", "roomB"]) else { return };
    gst::init().unwrap();
    let programme = Programme::new(Sound::Noise, RATE).unwrap();
    let _rooms = [Room::play(&server, "roomA", &programme, 0), Room::play(&server, "roomB", &programme, 0)];
    let directory = server.dir.path().join("recordings").display().to_string();
    let output =
        measure(&server, &["roomA", "roomB", "--length=3s", "--save", &directory, "--max-skew=100ms", "--json"]);
    let first = json(&output);
    let again = measure(
        &server,
        &[&format!("{directory}/roomA.rec"), &format!("{directory}/roomB.rec"), "--max-skew=100ms", "--json"],
    );
    assert_eq!(json(&again), first);
}

#[test]
fn says_what_is_missing() {
    let Some(server) = Server::start(&["roomA", "roomB"]) else { return };
    let output = measure(&server, &["kitchen", "--length=1s"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("there is no sink 'kitchen'") && error.contains("roomA, roomB"), "{error}");

    let output = measure(&server, &["roomA", "roomB", "--length=1s", "--max-skew=50ms"]);
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("not found"), "{text}");
}

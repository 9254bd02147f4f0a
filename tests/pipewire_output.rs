//! The PipeWire output against a real PipeWire with null sinks: what it tells, and that it comes back from everything.
#![cfg(feature = "pipewire")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::pipewire::{PATIENCE, Server, Setup, until};
use unisono::audio::output::pipewire::{PipeWireOutput, list_devices};
use unisono::audio::output::{Block, DeviceFormat, Output, OutputConfig, OutputEvent, Renderer};

/// What the renderer saw, for the test to read.
#[derive(Default)]
struct Seen {
    blocks: AtomicU64,
    frames: AtomicU64,
    last_heard_at: AtomicI64,
    /// Blocks whose time does not follow from the one before.
    gaps: AtomicU64,
}

/// Silence, with the blocks' times checked.
struct Probe {
    seen: Arc<Seen>,
    next: Option<i64>,
}

impl Renderer for Probe {
    fn render(&mut self, block: Block<'_>) {
        block.samples.fill(0.0);
        let frames = (block.samples.len() / block.channels) as i64;
        if self.next.is_some_and(|next| (block.heard_at - next).abs() > 2_000) {
            self.seen.gaps.fetch_add(1, Ordering::Relaxed);
        }
        self.next = Some(block.heard_at + frames * 1_000_000_000 / i64::from(block.rate));
        self.seen.last_heard_at.store(block.heard_at, Ordering::Relaxed);
        self.seen.frames.fetch_add(frames as u64, Ordering::Relaxed);
        self.seen.blocks.fetch_add(1, Ordering::Relaxed);
    }
}

struct Room {
    output: PipeWireOutput,
    events: async_channel::Receiver<OutputEvent>,
    seen: Arc<Seen>,
}

impl Room {
    fn open(server: &Server, device: Option<&str>) -> Self {
        let seen = Arc::new(Seen::default());
        let config = OutputConfig {
            device: device.map(str::to_owned),
            server: Some(server.socket()),
            ..OutputConfig::default()
        };
        let output = PipeWireOutput::open(config, Box::new(Probe { seen: seen.clone(), next: None })).unwrap();
        Self { events: output.events(), output, seen }
    }

    /// The next event that `wanted` makes something of; the others are passed over, and shown when none comes.
    fn wait<T>(&self, what: &str, wanted: impl Fn(&OutputEvent) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut passed = Vec::new();
        loop {
            match self.events.try_recv() {
                Ok(event) => match wanted(&event) {
                    Some(found) => return found,
                    None => passed.push(event),
                },
                Err(error) => {
                    assert!(Instant::now() < deadline && !error.is_closed(), "no {what}, but {passed:?}");
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
    }

    fn started(&self) -> DeviceFormat {
        self.wait("start", |event| match event {
            OutputEvent::Started(format) => Some(format.clone()),
            _ => None,
        })
    }

    /// A busy host may lose cycles, but never without counting them. (Waits: the two are not counted at one instant.)
    fn counts_every_gap(&self) {
        until("the same count of gaps", || self.output.counters().time_jumps == self.seen.gaps.load(Ordering::Relaxed));
    }

    fn plays(&self) {
        let before = self.seen.blocks.load(Ordering::Relaxed);
        until("blocks", || self.seen.blocks.load(Ordering::Relaxed) > before + 5);
    }
}

fn monotonic_ns() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one timespec of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

#[test]
fn plays_to_the_named_device_on_a_continuous_time_line() {
    let Some(server) = Server::start(&["roomA", "roomB"]) else { return };
    let room = Room::open(&server, Some("roomB"));
    let format = room.started();
    assert_eq!(
        format,
        DeviceFormat { device: "roomB".into(), rate: 48_000, channels: 2, quantum: 1024, latency_ns: 0 }
    );
    room.plays();
    let now = monotonic_ns();
    let ahead = room.seen.last_heard_at.load(Ordering::Relaxed) - now;
    assert!(ahead.abs() < 1_000_000_000, "{ahead} ns from now");
    let counters = room.output.counters();
    assert!(counters.blocks > 5);
    room.counts_every_gap();
}

#[test]
fn follows_a_graph_at_another_rate_and_quantum() {
    let setup = Setup { sinks: vec!["roomA".into()], rate: 44_100, quantum: 256 };
    let Some(server) = Server::start_with(&setup) else { return };
    let room = Room::open(&server, None);
    let format = room.started();
    assert_eq!((format.rate, format.quantum, format.device.as_str()), (44_100, 256, "roomA"));

    server.set("clock.force-rate", 48_000);
    let rate = room.wait("rate", |event| match event {
        OutputEvent::RateChanged { rate } => Some(*rate),
        _ => None,
    });
    assert_eq!(rate, 48_000);
    assert_eq!(room.started().rate, 48_000);

    server.set("clock.force-quantum", 512);
    room.wait("quantum", |event| (*event == OutputEvent::QuantumChanged { quantum: 512 }).then_some(()));
    room.plays();
}

#[test]
fn waits_for_a_device_that_is_away_and_plays_to_no_other() {
    let Some(server) = Server::start(&["other", "wanted"]) else { return };
    let room = Room::open(&server, Some("wanted"));
    room.started();
    server.remove_sink("wanted");
    room.wait("loss", |event| (*event == OutputEvent::DeviceVanished { device: Some("wanted".into()) }).then_some(()));
    std::thread::sleep(Duration::from_millis(500));
    let blocks = room.seen.blocks.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(room.seen.blocks.load(Ordering::Relaxed), blocks, "it plays somewhere else");

    server.add_sink("wanted");
    assert_eq!(room.started().device, "wanted");
    room.plays();
}

#[test]
fn a_device_that_never_was_is_told_and_taken_when_it_comes() {
    let Some(server) = Server::start(&["other"]) else { return };
    let room = Room::open(&server, Some("later"));
    room.wait("loss", |event| (*event == OutputEvent::DeviceVanished { device: Some("later".into()) }).then_some(()));
    server.add_sink("later");
    assert_eq!(room.started().device, "later");
}

#[test]
fn follows_the_default_device_when_it_changes_or_vanishes() {
    let Some(server) = Server::start(&["one", "two"]) else { return };
    let room = Room::open(&server, None);
    let first = room.started().device;
    let second = if first == "one" { "two" } else { "one" };
    server.run(
        "pw-metadata",
        &["0", "default.configured.audio.sink", &format!("{{ \"name\": \"{second}\" }}"), "Spa:String:JSON"],
    );
    room.wait("move", |event| (*event == OutputEvent::Moved { from: first.clone(), to: second.into() }).then_some(()));
    assert_eq!(room.started().device, second);
    let default: Vec<_> = server.devices().into_iter().filter(|device| device.default).collect();
    assert_eq!(default.iter().map(|device| device.name.as_str()).collect::<Vec<_>>(), [second]);

    server.remove_sink(second);
    assert_eq!(room.started().device, first);
    room.plays();
}

#[test]
fn moves_when_it_is_told_to() {
    let Some(server) = Server::start(&["one", "two"]) else { return };
    let room = Room::open(&server, Some("one"));
    room.started();
    room.output.set_device(Some("two".into()));
    assert_eq!(room.started().device, "two");
    room.output.set_device(None);
    let default = room.started().device;
    assert!(server.devices().iter().any(|device| device.default && device.name == default), "{default}");
}

#[test]
fn the_user_may_move_a_stream_that_has_no_device_of_its_own() {
    let Some(server) = Server::start(&["one", "two"]) else { return };
    let room = Room::open(&server, None);
    let from = room.started().device;
    let to = if from == "one" { "two" } else { "one" };
    let (stream, sink) = (server.node("unisono").unwrap().to_string(), server.node(to).unwrap().to_string());
    server.run("pw-metadata", &[&stream, "target.node", &sink, "Spa:Id"]);
    room.wait("move", |event| (*event == OutputEvent::Moved { from: from.clone(), to: to.into() }).then_some(()));
    assert_eq!(room.started().device, to);
    room.plays();
}

#[test]
fn plays_on_after_a_stall() {
    let Some(server) = Server::start(&["roomA"]) else { return };
    let room = Room::open(&server, None);
    room.started();
    room.plays();
    server.stall(Duration::from_millis(400));
    room.plays();
    let now = || room.seen.last_heard_at.load(Ordering::Relaxed) - monotonic_ns();
    // The time line catches up: blocks are heard about now again.
    until("the present", || now().abs() < 200_000_000);
    room.counts_every_gap();
}

#[test]
fn comes_back_when_the_sound_server_does() {
    let Some(mut server) = Server::start(&["roomA"]) else { return };
    let room = Room::open(&server, Some("roomA"));
    room.started();
    server.pause();
    room.wait("loss", |event| matches!(event, OutputEvent::Reconnecting { .. }).then_some(()));
    server.resume();
    assert_eq!(room.started().device, "roomA");
    room.plays();
}

#[test]
fn stops_promptly_whatever_it_does() {
    let Some(mut server) = Server::start(&["roomA"]) else { return };
    let playing = Room::open(&server, None);
    playing.started();
    let waiting = Room::open(&server, Some("never"));
    for room in [playing, waiting] {
        let before = Instant::now();
        drop(room.output);
        assert!(before.elapsed() < Duration::from_secs(3), "{:?}", before.elapsed());
        assert_eq!(Arc::strong_count(&room.seen), 1, "the renderer outlives the output");
    }
    let lost = Room::open(&server, None);
    lost.started();
    server.pause();
    let before = Instant::now();
    drop(lost.output);
    assert!(before.elapsed() < Duration::from_secs(3), "{:?}", before.elapsed());
}

#[test]
fn lists_devices_with_their_descriptions() {
    let Some(server) = Server::start(&["kitchen", "den"]) else { return };
    let devices = list_devices(Some(&server.socket())).unwrap();
    let kitchen = devices.iter().find(|device| device.name == "kitchen").unwrap();
    assert_eq!(kitchen.description, "Test kitchen");
    assert_eq!(devices.iter().filter(|device| device.default).count(), 1);
}

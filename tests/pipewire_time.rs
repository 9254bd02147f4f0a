//! What the PipeWire output says about time is what a sink sees: a sink of our own gets each block in the cycle for
//! which it was rendered, and the latency that it reports is in `heard_at`. And none of it allocates.
#![cfg(feature = "pipewire")]

mod support;

use pipewire as pw;
use pw::spa;
use pw::stream::{StreamFlags, StreamRc};
use spa::pod::serialize::PodSerializer;
use spa::pod::{Object, Pod, Property, Value};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use support::pipewire::{Server, until};
use unisono::audio::output::pipewire::PipeWireOutput;
use unisono::audio::output::{Block, Output, OutputConfig, OutputEvent, Renderer};

/// Blocks that are told apart by the value of their samples: `number / SCALE`, exact in f32.
const SCALE: f32 = 32_768.0;
/// Blocks that are looked at.
const ENOUGH: usize = 50;

/// Counts what the output's real-time thread allocates and frees.
struct Counting;

thread_local! {
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

fn count() {
    if COUNTED.with(Cell::get) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Writes the number of the block into its samples and notes when it is said to be heard.
struct Stamp {
    heard: Arc<Vec<AtomicI64>>,
    next: usize,
    /// Whether to count what this thread allocates.
    counted: bool,
}

impl Renderer for Stamp {
    fn render(&mut self, block: Block<'_>) {
        if self.counted {
            COUNTED.with(|counted| counted.set(true));
        }
        block.samples.fill(self.next as f32 / SCALE);
        if let Some(heard) = self.heard.get(self.next) {
            heard.store(block.heard_at, Ordering::Relaxed);
        }
        self.next += 1;
    }
}

#[derive(Clone, Copy)]
struct Latency {
    quanta: f32,
    frames: i32,
    ns: i64,
}

enum Order {
    Report(Latency),
    End,
}

/// A sink that notes in which cycle each block comes.
struct Probe {
    orders: pw::channel::Sender<Order>,
    /// (time of the cycle, first sample)
    blocks: Arc<Mutex<Vec<(i64, f32)>>>,
    thread: Option<JoinHandle<()>>,
}

impl Probe {
    fn start(server: &Server, latency: Latency) -> Self {
        let (orders, receiver) = pw::channel::channel();
        let blocks = Arc::new(Mutex::new(Vec::new()));
        let (socket, filled) = (server.socket(), blocks.clone());
        let thread = std::thread::spawn(move || run_probe(&socket, latency, filled, receiver));
        server.wait_for_sink("probe");
        Self { orders, blocks, thread: Some(thread) }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::End);
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || std::thread::panicking());
        }
    }
}

fn run_probe(
    socket: &str,
    latency: Latency,
    blocks: Arc<Mutex<Vec<(i64, f32)>>>,
    receiver: pw::channel::Receiver<Order>,
) {
    pw::init();
    let main_loop = pw::main_loop::MainLoopRc::new(None).unwrap();
    let context = pw::context::ContextRc::new(&main_loop, None).unwrap();
    let mut properties = pw::properties::PropertiesBox::new();
    properties.insert("remote.name", socket);
    let core = context.connect_rc(Some(properties)).unwrap();
    let mut properties = pw::properties::PropertiesBox::new();
    properties.insert("media.class", "Audio/Sink");
    properties.insert("node.name", "probe");
    properties.insert("media.type", "Audio");
    let stream = StreamRc::new(core, "probe", properties).unwrap();
    let _listener = stream
        .add_local_listener_with_user_data(())
        .process(move |stream, ()| {
            let Some(mut buffer) = stream.dequeue_buffer() else { return };
            let now = stream.time().unwrap().now();
            let data = &mut buffer.datas_mut()[0];
            let offset = data.chunk().offset() as usize;
            if let Some(bytes) = data.data().and_then(|bytes| bytes.get(offset..offset + 4)) {
                blocks.lock().unwrap().push((now, f32::from_ne_bytes(bytes.try_into().unwrap())));
            }
        })
        .register()
        .unwrap();
    let mut format = spa::param::audio::AudioInfoRaw::new();
    format.set_format(spa::param::audio::AudioFormat::F32LE);
    format.set_rate(48_000);
    format.set_channels(2);
    let format = pod(spa::sys::SPA_TYPE_OBJECT_Format, spa::sys::SPA_PARAM_EnumFormat, format.into());
    let reported = latency_pod(latency);
    let mut params = [Pod::from_bytes(&format).unwrap(), Pod::from_bytes(&reported).unwrap()];
    let flags = StreamFlags::MAP_BUFFERS | StreamFlags::RT_PROCESS;
    stream.connect(spa::utils::Direction::Input, None, flags, &mut params).unwrap();
    let (quit, reporting) = (main_loop.clone(), stream.clone());
    let _orders = receiver.attach(main_loop.loop_(), move |order| match order {
        Order::End => quit.quit(),
        Order::Report(latency) => {
            let reported = latency_pod(latency);
            reporting.update_params(&mut [Pod::from_bytes(&reported).unwrap()]).unwrap();
        }
    });
    main_loop.run();
    stream.disconnect().unwrap();
}

fn pod(type_: u32, id: u32, properties: Vec<Property>) -> Vec<u8> {
    let object = Value::Object(Object { type_, id, properties });
    PodSerializer::serialize(std::io::Cursor::new(Vec::new()), &object).unwrap().0.into_inner()
}

fn latency_pod(latency: Latency) -> Vec<u8> {
    use spa::sys;
    let properties = vec![
        Property::new(sys::SPA_PARAM_LATENCY_direction, Value::Id(spa::utils::Id(sys::SPA_DIRECTION_INPUT))),
        Property::new(sys::SPA_PARAM_LATENCY_minQuantum, Value::Float(latency.quanta)),
        Property::new(sys::SPA_PARAM_LATENCY_maxQuantum, Value::Float(latency.quanta)),
        Property::new(sys::SPA_PARAM_LATENCY_minRate, Value::Int(latency.frames)),
        Property::new(sys::SPA_PARAM_LATENCY_maxRate, Value::Int(latency.frames)),
        Property::new(sys::SPA_PARAM_LATENCY_minNs, Value::Long(latency.ns)),
        Property::new(sys::SPA_PARAM_LATENCY_maxNs, Value::Long(latency.ns)),
    ];
    pod(sys::SPA_TYPE_OBJECT_ParamLatency, sys::SPA_PARAM_Latency, properties)
}

fn play(server: &Server, device: &str, counted: bool) -> (PipeWireOutput, Arc<Vec<AtomicI64>>) {
    let heard: Arc<Vec<AtomicI64>> = Arc::new((0..SCALE as usize).map(|_| AtomicI64::new(0)).collect());
    let config = OutputConfig { device: Some(device.into()), server: Some(server.socket()), ..OutputConfig::default() };
    let stamp = Stamp { heard: heard.clone(), next: 1, counted };
    (PipeWireOutput::open(config, Box::new(stamp)).unwrap(), heard)
}

/// Of the blocks that the probe got: how much later than their cycle they were said to be heard, in ns.
fn said(probe: &Probe, heard: &[AtomicI64]) -> Vec<i64> {
    let blocks = probe.blocks.lock().unwrap();
    let played = blocks.iter().filter(|(_, sample)| *sample > 0.0);
    played.map(|(now, sample)| heard[(sample * SCALE) as usize].load(Ordering::Relaxed) - now).collect()
}

#[test]
fn a_block_is_heard_in_its_own_cycle_plus_what_the_sink_reports() {
    let Some(server) = Server::start(&["clockwork"]) else { return };
    let latency = Latency { quanta: 1.0, frames: 256, ns: 2_500_001 };
    let probe = Probe::start(&server, latency);
    let (output, heard) = play(&server, "probe", false);
    let events = output.events();
    until("blocks", || said(&probe, &heard).len() > ENOUGH);
    let cycle = 21_333_333;
    // One cycle of 1024 frames, 256 frames, and to the nanosecond what the sink reports as such.
    let expected = cycle + 5_333_334 + 2_500_001;
    let off: Vec<i64> = said(&probe, &heard).into_iter().filter(|said| (said - expected).abs() > 1).collect();
    // The first block may be rendered before the sink's report has come.
    assert!(off.len() <= 2, "{off:?} instead of {expected}");

    let started = || {
        events.try_recv().ok().and_then(|event| match event {
            OutputEvent::Started(format) => Some(format.latency_ns),
            _ => None,
        })
    };
    let mut reported = None;
    until("the start", || {
        reported = reported.or_else(started);
        reported.is_some()
    });
    assert!(reported.is_some_and(|reported| reported == 0 || (reported - expected).abs() <= 1), "{reported:?}");

    // A user that compensates more than there is.
    let _ = probe.orders.send(Order::Report(Latency { quanta: 0.0, frames: 0, ns: -4_000_000 }));
    let changed = AtomicBool::new(false);
    until("the change of latency", || {
        if events.try_recv() == Ok(OutputEvent::LatencyChanged { latency_ns: -4_000_000 }) {
            changed.store(true, Ordering::Relaxed);
        }
        changed.load(Ordering::Relaxed)
    });
    until("blocks with it", || said(&probe, &heard).last() == Some(&-4_000_000));
}

#[test]
fn nothing_is_allocated_in_the_callback() {
    let Some(server) = Server::start(&["roomA"]) else { return };
    let (output, _) = play(&server, "roomA", true);
    until("blocks", || output.counters().blocks > ENOUGH as u64);
    // A change of quantum is told from within the callback.
    server.set("clock.force-quantum", 256);
    let before = output.counters().blocks;
    until("blocks", || output.counters().blocks > before + ENOUGH as u64);
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), 0);
}

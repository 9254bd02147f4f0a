//! The reference sender as a receiver hears and sees it: decoded by the stock elements, with the capture times that
//! rtspsrc puts on the buffers.

#![cfg(feature = "sender")]

mod support;

use gst::prelude::*;
use gst_video::VideoFrameExt;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use support::sender::Sender;
use unisono::programme::picture::cells;
use unisono::programme::{Programme, Sound, index_at_or_after};

/// Generous: the tests share the machine with others.
const LONG: Duration = Duration::from_secs(60);
const SECOND: u64 = 1_000_000_000;

/// A decoded buffer and the capture time on it, ns since the NTP epoch.
struct Decoded {
    sample: gst::Sample,
    time: Option<u64>,
}

/// A pipeline that receives and decodes one mount, stopped when it is dropped.
struct Player {
    pipeline: gst::Pipeline,
    decoded: Receiver<Decoded>,
}

impl Player {
    /// `rest` is what follows the decoder, e.g. a conversion.
    fn start(url: &str, rest: &str) -> Self {
        gst::init().expect("GStreamer");
        let description = format!(
            "rtspsrc name=source add-reference-timestamp-meta=true latency=200 ! decodebin ! {rest} ! \
             fakesink name=sink sync=false signal-handoffs=true"
        );
        let pipeline =
            gst::parse::launch(&description).expect("the elements").downcast::<gst::Pipeline>().expect("one");
        pipeline.by_name("source").expect("named").set_property("location", url);
        let (decoded_in, decoded) = channel();
        let sink = pipeline.by_name("sink").expect("named");
        let caps = gst::Caps::new_empty_simple("timestamp/x-ntp");
        sink.connect("handoff", false, move |values| {
            let (buffer, pad) = (values[1].get::<gst::Buffer>().ok()?, values[2].get::<gst::Pad>().ok()?);
            let time = buffer
                .iter_meta::<gst::ReferenceTimestampMeta>()
                .find(|meta| meta.reference().is_subset(&caps))
                .map(|meta| meta.timestamp().nseconds());
            let sample = gst::Sample::builder().buffer(&buffer).caps_if_some(pad.current_caps().as_ref()).build();
            // The test may have seen enough.
            let _ = decoded_in.send(Decoded { sample, time });
            None
        });
        pipeline.set_state(gst::State::Playing).expect("plays");
        Self { pipeline, decoded }
    }

    /// The next `count` buffers with a capture time.
    fn timed(&self, count: usize) -> Vec<(gst::Sample, u64)> {
        let deadline = Instant::now() + LONG;
        let mut timed = Vec::new();
        while timed.len() < count {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(decoded) = self.decoded.recv_timeout(left) else {
                panic!("only {} buffers with a time; {:?}", timed.len(), self.error());
            };
            if let Some(time) = decoded.time {
                timed.push((decoded.sample, time));
            }
        }
        timed
    }

    fn error(&self) -> Option<gst::Message> {
        self.pipeline.bus()?.pop_filtered(&[gst::MessageType::Error])
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.pipeline.set_state(gst::State::Null);
    }
}

/// The time that is painted into a frame, µs since the NTP epoch.
fn painted(sample: &gst::Sample) -> Option<u64> {
    let info = gst_video::VideoInfo::from_caps(sample.caps()?).ok()?;
    let frame = gst_video::VideoFrameRef::from_buffer_ref_readable(sample.buffer()?, &info).ok()?;
    let (width, height) = (info.width() as usize, info.height() as usize);
    cells::read(frame.plane_data(0).ok()?, frame.plane_stride()[0] as usize, width, height)
}

#[test]
fn every_picture_shows_the_time_that_its_packets_carry() {
    for options in [
        &["--video-codec", "h264"][..],
        &["--video-codec", "vp8", "--size", "640x360"],
        &["--size", "320x180", "--fps", "30000/1001"],
    ] {
        let sender = Sender::start(options);
        let player = Player::start(&sender.mount("/video"), "videoconvert ! video/x-raw,format=I420");
        let frames = player.timed(75);
        let rate: u64 = if options.contains(&"30000/1001") { 30_000 } else { 25_000 };
        let part = if rate == 30_000 { 1_001 } else { 1_000 };
        for (sample, time) in &frames {
            let painted = painted(sample).unwrap_or_else(|| panic!("{options:?}: the cells of {time} cannot be read"));
            // In whole µs, rounded down; the time in the packet is rounded twice, below 2 ns.
            assert!(
                (*time + 2).abs_diff(painted * 1_000) <= 1_002,
                "{options:?}: {painted} µs painted, {time} ns carried"
            );
            // On the raster of the shared clock.
            let raster = u128::from(*time + 2) * u128::from(rate) % (u128::from(SECOND) * part) / u128::from(rate);
            assert!(raster < 5, "{options:?}: {raster} ns off the raster");
        }
        let gaps = frames.windows(2).map(|pair| pair[1].1 - pair[0].1);
        assert!(gaps.clone().all(|gap| gap > SECOND / 31), "{options:?}: {:?}", gaps.collect::<Vec<_>>());
    }
}

#[test]
fn reports_alone_give_every_picture_its_time_to_a_tick() {
    let sender = Sender::start(&["--no-ntp64", "--size", "320x180"]);
    let player = Player::start(&sender.mount("/video"), "videoconvert ! video/x-raw,format=I420");
    for (sample, time) in player.timed(75) {
        let painted = painted(&sample).expect("readable") * 1_000;
        // A report pairs its time with an RTP timestamp in whole ticks of 11.1 µs.
        assert!(time.abs_diff(painted) < 15_000, "{painted} painted, {time} carried");
    }
}

/// Where in the programme the sound is, against the time that it carries, in samples; the level of what does not match.
fn displacement(player: &Player, programme: &Programme, blocks: usize) -> (i64, f64) {
    let rate = programme.rate();
    // The first blocks may hold the decoder's start.
    let blocks = player.timed(blocks + 10).split_off(10);
    // Each block is placed by its own time.
    let heard: Vec<(u64, f64)> = blocks
        .iter()
        .flat_map(|(sample, time)| {
            let map = sample.buffer().expect("a buffer").map_readable().expect("readable");
            let samples = map.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]]));
            let first = index_at_or_after(time - SECOND / 2 / u64::from(rate), rate);
            (first..).zip(samples.map(|sample| f64::from(sample) / 32_768.0)).collect::<Vec<_>>()
        })
        .collect();
    let expected = |index: u64, lag: i64| f64::from(programme.sample(index.wrapping_add_signed(lag)));
    let product = |lag| heard.iter().map(|(index, sample)| sample * expected(*index, lag)).sum::<f64>();
    let best =
        (-1_000..=1_000).map(|lag| (lag, product(lag))).max_by(|one, other| one.1.total_cmp(&other.1)).expect("lags").0;
    let rest: f64 = heard.iter().map(|(index, sample)| (sample - expected(*index, best)).powi(2)).sum();
    (best, rest / heard.iter().map(|(_, sample)| sample * sample).sum::<f64>())
}

#[test]
fn coded_sound_is_where_its_time_says() {
    for (mount, rate, rest) in [("/audio-opus", 48_000, 0.2), ("/audio-l16", 48_000, 0.0), ("/audio-pcmu", 8_000, 0.01)]
    {
        let sender = Sender::start(&["--sound", "noise"]);
        let convert = format!("audioconvert ! audio/x-raw,format=S16LE,channels=1,rate={rate}");
        let player = Player::start(&sender.mount(mount), &convert);
        let programme = Programme::new(Sound::Noise, rate).expect("a programme");
        let (lag, noise) = displacement(&player, &programme, 50);
        assert_eq!(lag, 0, "{mount}");
        assert!(noise <= rest + 1e-6, "{mount}: {noise} of the energy does not match");
        // Also after the sender has been stopped for a while: an encoder must not carry on by counting.
        sender.signal(libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(700));
        sender.signal(libc::SIGCONT);
        while let Ok(decoded) = player.decoded.recv_timeout(LONG) {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
            let now = (now + unisono::clock::NTP_UNIX_OFFSET).as_nanos() as u64;
            if decoded.time.is_some_and(|time| time + SECOND > now) {
                break;
            }
        }
        let (lag, noise) = displacement(&player, &programme, 50);
        assert_eq!(lag, 0, "{mount} after a stop");
        assert!(noise <= rest + 1e-6, "{mount} after a stop: {noise} of the energy does not match");
    }
}

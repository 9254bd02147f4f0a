//! The scripted camera as receivers see it: plain GStreamer and ffprobe play the honest one.

mod support;

use gst::prelude::*;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use support::camera::auth::{Auth, Scheme};
use support::camera::{Camera, Event, MS, Media, Nanos, Ntp64, Recording, SECOND, Script, Stream, Udp};
use support::timeline::NTP_UNIX_SECONDS;

/// For anything that takes well below a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// RTP timestamps have 11 µs (90 kHz) to 125 µs (8 kHz); the rest is for rounding on the way.
const STAMP_TOLERANCE: Nanos = 200_000;

/// A decoded frame or block of sound.
#[derive(Debug)]
struct Decoded {
    /// From the reference timestamp meta, ns since 1970.
    captured: Option<Nanos>,
    width: Option<i32>,
}

/// A plain receiver: rtspsrc, one chain of elements, and a probe at its end.
struct Plain {
    pipeline: gst::Pipeline,
    frames: Receiver<Decoded>,
}

impl Plain {
    fn play(camera: &Camera, protocols: &str, chain: &str) -> Self {
        Self::play_url(&camera.url(), protocols, chain)
    }

    fn play_url(url: &str, protocols: &str, chain: &str) -> Self {
        gst::init().unwrap();
        let description = format!(
            "rtspsrc location={url} protocols={protocols} latency=100 add-reference-timestamp-meta=true ! {chain} ! \
             fakesink name=end sync=false"
        );
        let pipeline = gst::parse::launch(&description).unwrap().downcast::<gst::Pipeline>().unwrap();
        let (sender, frames) = channel();
        let end = pipeline.by_name("end").unwrap().static_pad("sink").unwrap();
        end.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
            if let Some(buffer) = info.buffer() {
                let meta = buffer.meta::<gst::ReferenceTimestampMeta>();
                let captured =
                    meta.map(|meta| meta.timestamp().nseconds().cast_signed().wrapping_sub(NTP_UNIX_SECONDS * SECOND));
                let caps = pad.current_caps();
                let width = caps.and_then(|caps| caps.structure(0)?.get("width").ok());
                // After the test has seen enough nobody listens any more.
                let _ = sender.send(Decoded { captured, width });
            }
            gst::PadProbeReturn::Ok
        });
        pipeline.set_state(gst::State::Playing).unwrap();
        Self { pipeline, frames }
    }

    fn next(&self) -> Decoded {
        self.frames.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            let bus = self.pipeline.bus().unwrap();
            let error = bus.pop_filtered(&[gst::MessageType::Error]);
            panic!("no frame; {error:?}")
        })
    }

    /// The capture times of the next so many frames that have one.
    fn captured(&self, count: usize) -> Vec<Nanos> {
        std::iter::repeat_with(|| self.next().captured).flatten().take(count).collect()
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        let _ = self.pipeline.set_state(gst::State::Null);
    }
}

// GStreamer 1.22's rtph264depay loses the meta of frames that in-band parameter sets precede: of each key frame here.
const VIDEO: &str = "rtph264depay ! h264parse ! avdec_h264";

/// Every capture time stands on the grid that the camera films by, in the near past.
fn assert_on_grid(camera: &Camera, stream: usize, captured: &[Nanos]) {
    let truth = camera.log().sessions()[0].iter().copied().find(|truth| truth.stream == stream).unwrap();
    for &time in captured {
        let frames = (time - truth.captured) as f64 / truth.period as f64;
        let off = ((frames - frames.round()) * truth.period as f64) as Nanos;
        assert!(off.abs() < STAMP_TOLERANCE, "{off} ns beside the grid");
        let age = camera.utc() - time;
        assert!((0..PATIENCE.as_nanos() as Nanos).contains(&age), "{age} ns old");
    }
    assert!(captured.is_sorted(), "in order of display");
}

#[test]
fn video_plays_with_true_capture_times_from_reports() {
    let camera = Camera::start(Script::video());
    let plain = Plain::play(&camera, "tcp", VIDEO);
    assert_on_grid(&camera, 0, &plain.captured(60));
}

#[test]
fn video_plays_over_udp() {
    let camera = Camera::start(Script::video());
    let plain = Plain::play(&camera, "udp", VIDEO);
    assert_on_grid(&camera, 0, &plain.captured(30));
    let udp =
        camera.log().requests("SETUP").iter().any(|setup| setup.header("Transport").unwrap().contains("client_port"));
    assert!(udp, "the transport was UDP");
}

#[test]
fn a_firewall_sends_the_receiver_to_tcp() {
    let camera = Camera::start(Script::video().with(|script| script.rtsp.udp = Udp::Swallowed));
    let plain = Plain::play(&camera, "udp+tcp", VIDEO);
    plain.next();
    let setups = camera.log().requests("SETUP");
    assert!(setups.last().unwrap().header("Transport").unwrap().contains("interleaved"));
}

#[test]
fn ntp64_gives_the_first_frame_its_time_without_any_report_of_time() {
    let camera = Camera::start(Script::video().each_stream(|stream: &mut Stream| {
        stream.ntp64 = Some(Ntp64::default());
        stream.reports.first_after = 3600 * SECOND;
    }));
    let plain = Plain::play(&camera, "tcp", VIDEO);
    let first = plain.next().captured.expect("the first frame has its time");
    assert_on_grid(&camera, 0, &[first]);
}

#[test]
fn every_sound_plays_with_true_capture_times() {
    for (media, chain) in
        [(Media::Pcmu, "rtppcmudepay ! mulawdec"), (Media::L16, "rtpL16depay"), (Media::Opus, "rtpopusdepay ! opusdec")]
    {
        let camera = Camera::start(Script::of([media]));
        let plain = Plain::play(&camera, "tcp", chain);
        assert_on_grid(&camera, 0, &plain.captured(100));
    }
}

#[test]
fn frames_in_another_order_of_display_carry_their_own_times() {
    let camera = Camera::start(Script::of([Media::H264(Recording::BFrames)]));
    let plain = Plain::play(&camera, "tcp", VIDEO);
    let captured: Vec<Option<Nanos>> = std::iter::repeat_with(|| plain.next().captured).take(60).collect();
    assert_on_grid(&camera, 0, &captured.iter().copied().flatten().collect::<Vec<_>>());
    // The decoder puts the frames in order: each is 40 ms later than the one before.
    let numbered: Vec<(usize, Nanos)> =
        captured.iter().enumerate().filter_map(|(index, time)| Some((index, (*time)?))).collect();
    assert!(numbered.len() > 40, "most frames have their time");
    let (first, start) = numbered[0];
    for (index, time) in numbered {
        let expected = (index - first) as Nanos * 40 * MS;
        assert!((time - start - expected).abs() < STAMP_TOLERANCE, "frame {index}: {} ns", time - start - expected);
    }
}

#[test]
fn the_picture_changes_size_in_mid_stream() {
    let script = Script::video().at(SECOND, Event::Switch(Recording::Large));
    let camera = Camera::start(script);
    let plain = Plain::play(&camera, "tcp", VIDEO);
    assert_eq!(plain.next().width, Some(160));
    let mut widths = std::iter::repeat_with(|| plain.next().width).take(500);
    assert!(widths.any(|width| width == Some(320)), "the large picture comes");
}

#[test]
fn ffprobe_reads_video_and_sound() {
    let camera = Camera::start(Script::both());
    let output = Command::new("ffprobe")
        .args(["-loglevel", "error", "-rtsp_transport", "tcp", "-show_entries", "stream=codec_name,width,sample_rate"])
        .args(["-of", "compact", &camera.url()])
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else {
        eprintln!("skipped: ffprobe is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("codec_name=h264|width=160"), "{output:?}");
    assert!(text.contains("codec_name=pcm_mulaw|sample_rate=8000"), "{output:?}");
}

#[test]
fn a_plain_receiver_shows_the_password() {
    for scheme in [Scheme::Basic, Scheme::DigestMd5] {
        let auth = Auth::new("viewer", "secret", &[scheme]);
        let camera = Camera::start(Script::video().with(|script| script.rtsp.auth = Some(auth)));
        let plain = Plain::play_url(&camera.url().replace("rtsp://", "rtsp://viewer:secret@"), "tcp", VIDEO);
        plain.next();
    }
}

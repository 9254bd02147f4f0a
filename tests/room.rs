//! A room against the scripted camera: what the status says of honest and of odd senders.

mod support;

use serde_json::Value;
use std::time::{Duration, Instant};
use support::camera::stream::{Epoch, Ntp64};
use support::camera::{Camera, Script};
use support::room::Room;
use support::timeline::{HOUR, SECOND};
use support::timeserver::{Answer, TimeScript, TimeServer};

/// Generous: the tests share the machine with others.
const LONG: Duration = Duration::from_secs(40);

fn in_band() -> Script {
    Script::video().each_stream(|stream| stream.ntp64 = Some(Ntp64::default()))
}

#[test]
fn an_honest_camera_is_synced_and_every_frame_has_its_time() {
    let camera = Camera::start(in_band());
    let mut room = Room::start(&camera.url(), &[]);
    let status = room.wait_for_verdict("synced", LONG);
    let video = &status["video"];
    assert_eq!(video["error_us"]["source"], "measured");
    // The camera's clock is the host's: the last frame was captured within the last seconds.
    let age = (camera.utc() - video["sender_time_ns"].as_i64().unwrap()) as f64 / SECOND as f64;
    assert!((0.5..30.0).contains(&age), "captured {age} s ago");
    let first_frames = video["frames"].as_u64().unwrap();
    let with_time = video["with_sender_time"].as_u64().unwrap();
    assert!(first_frames - with_time <= 2, "{with_time} of {first_frames} frames have the sender's time");
}

#[test]
fn a_room_ends_in_order_when_it_is_told() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let camera = Camera::start(in_band());
        let mut room = Room::start(&camera.url(), &[]);
        room.wait_for("a frame", LONG, |line| line["video"]["frames"].as_u64() > Some(0));
        let told = Instant::now();
        room.signal(signal);
        let (status, _, said) = room.wait_for_end(LONG);
        assert_eq!(status.code(), Some(0));
        assert!(told.elapsed() < Duration::from_secs(5), "{:?}", told.elapsed());
        assert_eq!(said.last().unwrap()["type"], "end");
        assert_eq!(camera.log().requests("TEARDOWN").len(), 1);
    }
}

#[test]
fn reports_alone_are_enough() {
    let camera = Camera::start(Script::video().each_stream(|stream| stream.reports.first_after = 3 * SECOND));
    let mut room = Room::start(&camera.url(), &[]);
    room.wait_for_reason("waiting_for_reports", LONG);
    let status = room.wait_for_verdict("synced", LONG);
    assert_eq!(status["reason"], Value::Null);
}

#[test]
fn a_sender_without_clock_is_played_and_named() {
    let camera = Camera::start(Script::video().each_stream(|stream| stream.reports.sent = false));
    let mut room = Room::start(&camera.url(), &[]);
    let status = room.wait_for_reason("no_sender_reports", LONG);
    assert_eq!(status["verdict"], "unsynced");
    let before = status["video"]["frames"].as_u64().unwrap();
    assert!(before > 0);
    room.wait_for("more frames", LONG, |line| line["video"]["frames"].as_u64() > Some(before + 20));
}

#[test]
fn strict_ends_without_reports() {
    let camera = Camera::start(Script::video().each_stream(|stream| stream.reports.sent = false));
    let (status, stderr, _) = Room::start(&camera.url(), &["--sync", "strict"]).wait_for_end(LONG);
    assert_eq!(status.code(), Some(4), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("gives no clock"), "{stderr}");
}

#[test]
fn a_sender_on_another_clock_is_played_at_once_and_its_offset_named() {
    let camera = Camera::start(in_band().with(|script| script.clock.offset = HOUR));
    let mut room = Room::start(&camera.url(), &[]);
    let status = room.wait_for_reason("sender_clock_differs", LONG);
    assert_eq!(status["verdict"], "unsynced");
    assert!(status["reason"]["text"].as_str().unwrap().contains("1 h ahead"), "{status}");
    assert_eq!(status["video"]["error_us"], Value::Null);
    let frames = status["video"]["frames"].as_u64().unwrap();
    room.wait_for("the picture", LONG, |line| line["video"]["frames"].as_u64() > Some(frames + 50));
}

#[test]
fn reports_of_time_zero_are_not_believed() {
    let camera = Camera::start(Script::video().each_stream(|stream| stream.reports.epoch = Epoch::Zero));
    let mut room = Room::start(&camera.url(), &[]);
    let status = room.wait_for_reason("implausible_reports", LONG);
    assert_eq!(status["verdict"], "unsynced");
    let frames = status["video"]["frames"].as_u64().unwrap();
    room.wait_for("the picture", LONG, |line| line["video"]["frames"].as_u64() > Some(frames + 50));
}

#[test]
fn a_silent_time_server_is_named_and_followed_when_it_comes() {
    let camera = Camera::start(in_band());
    let server = TimeServer::start(TimeScript { answer: Answer::Silent, ..TimeScript::default() });
    let mut room = Room::start(&camera.url(), &["--clock", &server.url(), "--clock-timeout", "1s"]);
    let status = room.wait_for("the picture without clock", LONG, |line| {
        line["reason"]["code"] == "clock_unreachable" && line["video"]["frames"].as_u64() > Some(0)
    });
    assert_eq!(status["verdict"], "unsynced");
    assert_eq!(status["video"]["error_us"], Value::Null);
    server.change(|script| script.answer = Answer::Honest);
    let status = room.wait_for_verdict("synced", LONG);
    assert_eq!(status["clock"]["synced"], true);
}

#[test]
fn strict_ends_without_a_clock() {
    let camera = Camera::start(in_band());
    let server = TimeServer::start(TimeScript { answer: Answer::Silent, ..TimeScript::default() });
    let options = ["--clock", &server.url(), "--clock-timeout", "1s", "--sync", "strict"];
    let (status, stderr, _) = Room::start(&camera.url(), &options).wait_for_end(LONG);
    assert_eq!(status.code(), Some(5), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(camera.log().requests("DESCRIBE").is_empty(), "it connected although it could never be in sync");
}

#[test]
fn sync_off_plays_and_says_so() {
    let camera = Camera::start(in_band());
    let mut room = Room::start(&camera.url(), &["--sync", "off"]);
    let status = room.wait_for("the picture", LONG, |line| line["video"]["frames"].as_u64() > Some(25));
    assert_eq!((&status["verdict"], &status["reason"]["code"]), (&"unsynced".into(), &"sync_off".into()));
}

#[test]
fn a_server_that_comes_back_is_played_again() {
    let mut camera = Camera::start(in_band());
    let mut room = Room::start(&camera.url(), &[]);
    room.wait_for_verdict("synced", LONG);
    camera.kill();
    room.wait_for("the loss", LONG, |line| line["event"] == "lost");
    camera.revive();
    let status = room.wait_for("sync again", LONG, |line| {
        line["type"] == "status" && line["verdict"] == "synced" && line["reconnects"].as_u64() > Some(0)
    });
    assert!(status["video"]["frames"].as_u64() > Some(0));
}

#[test]
fn the_latency_that_would_do_is_named() {
    // Frames leave the camera 400 ms after their capture: 200 ms cannot do.
    let camera = Camera::start(in_band().with(|script| script.delay = 400_000_000));
    let mut room = Room::start(&camera.url(), &["--latency", "200ms"]);
    let status = room.wait_for_reason("late_frames", LONG);
    let text = status["reason"]["text"].as_str().unwrap().to_owned();
    let needed: u64 = text.split("at least ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((400..2_000).contains(&needed), "{text}");
    drop(room);
    let mut room = Room::start(&camera.url(), &["--latency", &format!("{needed}ms")]);
    room.wait_for_verdict("synced", LONG);
}

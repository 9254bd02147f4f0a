//! What is wrong is said in one to three lines, with what to do, and by the exit code; passwords never.

mod support;

use std::process::Output;
use std::time::Duration;
use support::camera::auth::{Auth, Scheme};
use support::camera::{Answer, Camera, Script};
use support::room::{Room, program};

fn run(args: &[&str]) -> Output {
    program().args(args).output().expect("run the program")
}

/// The error of a run: asserts the code and the form, returns the text.
fn error_of(args: &[&str], code: i32) -> String {
    let output = run(args);
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
    let lines = text.lines().count();
    assert!((1..=3).contains(&lines), "{args:?}: {lines} lines: {text}");
    assert!(!text.contains("panicked") && !text.contains("GStreamer-CRITICAL"), "{args:?}: {text}");
    text
}

#[test]
fn addresses() {
    for (url, part) in [
        ("http://cam.example/x", "rtsp://"),
        ("rtsp://", "names no host"),
        ("rtsp://cam.example:99999/x", "port"),
        ("rtsp://cam.example:0/x", "port"),
        ("rtsp://cam.example:abc/x", "port"),
        ("nonsense", "rtsp://"),
        ("rtsp://a b/", "blanks"),
        ("rtsp://u:topsecret@[::1/x", "host"),
    ] {
        let text = error_of(&["--headless", url], 2);
        assert!(text.contains(part) && !text.contains("topsecret"), "{url}: {text}");
    }
    assert!(error_of(&["--headless"], 2).contains("rtsp://"));
    assert!(error_of(&["--headless", "rtsp://a.example/", "rtsp://b.example/"], 2).contains("one URL"));
}

#[test]
fn options() {
    let url = "rtsp://127.0.0.1:1/x";
    for (options, part) in [
        (&["--latency", "abc"][..], "duration"),
        (&["--latency", "-1s"], "out of range"),
        (&["--latency", "10h"], "out of range"),
        (&["--latency", "0"], "out of range"),
        (&["--latency", "100ms", "--jitter", "200ms"], "latency must be larger"),
        (&["--no-audio", "--no-video"], "cannot be used with"),
        (&["--no-video", "--video-sink", "fakesink"], "cannot be used with"),
        (&["--video-sink", "nosuchelement"], "nosuchelement"),
        (&["--clock", "sundial"], "is no clock"),
        (&["--clock", "ntp://"], "names no host"),
        (&["--volume", "130"], "0 to 100"),
        (&["--retries", "x"], "--retries"),
        (&["--sync", "maybe"], "auto, strict, off"),
        (&["--password-file", "/nonexistent/file", "--user", "x"], "cannot be read"),
        (&["--frame-log", "/nonexistent/folder/file"], "cannot be written"),
        (&["--nosuchoption"], "--nosuchoption"),
    ] {
        let text = error_of(&[&["--headless", url], options].concat(), 2);
        assert!(text.contains(part), "{options:?}: {text}");
    }
}

#[test]
fn servers_that_are_not_there() {
    let text = error_of(&["--headless", "rtsp://nosuch.invalid/x"], 3);
    assert!(text.contains("nosuch.invalid") && text.contains("resolved"), "{text}");
    let free = support::ports::free_address(std::net::Ipv4Addr::LOCALHOST.into());
    let text = error_of(&["--headless", &format!("rtsp://{free}/x"), "--retries", "0"], 3);
    assert!(text.contains("refused"), "{text}");
}

#[test]
fn servers_that_say_no() {
    let camera = Camera::start(Script::video());
    let text = error_of(&["--headless", &format!("rtsp://{}/elsewhere", camera.address())], 3);
    assert!(text.contains("404"), "{text}");

    for status in [(453, "Not Enough Bandwidth"), (503, "Service Unavailable")] {
        let camera = Camera::start(Script::video().answer("DESCRIBE", Answer::Status(status.0, status.1)));
        let text = error_of(&["--headless", &camera.url(), "--retries", "0"], 3);
        assert!(text.contains(&status.0.to_string()), "{text}");
    }
}

#[test]
fn a_server_that_wants_a_password() {
    let auth = Auth::new("room", "top:secret@1", &[Scheme::DigestMd5]);
    let camera = Camera::start(Script::video().with(|script| script.rtsp.auth = Some(auth)));
    let text = error_of(&["--headless", &camera.url()], 3);
    assert!(text.contains("401") && text.contains("--user"), "{text}");

    let wrong = camera.url().replace("rtsp://", "rtsp://room:wrongpassword@");
    let text = error_of(&["--headless", &wrong], 3);
    assert!(text.contains("401") && !text.contains("wrongpassword"), "{text}");
}

/// Whatever is printed, the password is not in it: from the address, raw and encoded, and from the file.
#[test]
fn passwords_are_never_printed() {
    let auth = Auth::new("room", "top:secret@1", &[Scheme::Basic, Scheme::DigestMd5]);
    let camera = Camera::start(Script::video().with(|script| script.rtsp.auth = Some(auth)));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "top:secret@1\n").unwrap();
    let raw = camera.url().replace("rtsp://", "rtsp://room:top:secret@1@");
    let encoded = camera.url().replace("rtsp://", "rtsp://room:top%3Asecret%401@");
    let path = file.path().to_str().unwrap();
    for (url, options) in
        [(raw, vec![]), (encoded, vec![]), (camera.url(), vec!["--user", "room", "--password-file", path])]
    {
        let mut room = Room::start(&url, &[&["--duration", "60s", "-vvv"], &options[..]].concat());
        room.wait_for("a frame", Duration::from_secs(20), |line| line["video"]["frames"].as_u64() > Some(0));
        room.signal(libc::SIGTERM);
        let (status, stderr, said) = room.wait_for_end(Duration::from_secs(10));
        assert_eq!(status.code(), Some(0), "{stderr}");
        let said: Vec<String> = said.iter().map(ToString::to_string).collect();
        let printed = said.join("\n") + &stderr;
        for form in ["top:secret", "secret@1", "top%3Asecret", "cm9vbTp0b3A6c2VjcmV0QDE="] {
            assert!(!printed.contains(form), "{form} in {printed}");
        }
    }
}

#[test]
fn codecs_that_are_not_there() {
    let script = Script::video()
        .each_stream(|stream| stream.rtpmap = support::camera::stream::Line::Text("NOSUCHCODEC/90000".into()));
    let camera = Camera::start(script);
    let text = error_of(&["--headless", &camera.url()], 1);
    assert!(text.contains("NOSUCHCODEC") && text.contains("installed"), "{text}");
}

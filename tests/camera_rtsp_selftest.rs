//! The scripted camera's control connection: methods, sessions, authentication, URLs, descriptions, coming and going.

mod support;

use gst::glib;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use support::camera::auth::{Auth, Scheme};
use support::camera::{Answer, Camera, Event, Line, MS, Media, RtpInfo, SECOND, Script, Udp, What};
use support::rtsp_client::{Client, rtp_of};

/// For anything that takes well below a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Long enough for an answer on a busy machine, short enough to wait for one that must not come.
const SILENCE: Duration = Duration::from_millis(700);

fn connect(script: Script) -> (Camera, Client) {
    let camera = Camera::start(script);
    let client = Client::connect(&camera.url()).expect("the camera listens");
    (camera, client)
}

fn play(script: Script) -> (Camera, Client) {
    let camera = Camera::start(script);
    let client = Client::playing(&camera.url(), false).expect("the camera plays");
    (camera, client)
}

#[test]
fn a_method_is_never_answered() {
    let (camera, mut client) = play(Script::video().answer("GET_PARAMETER", Answer::Never));
    client.send("GET_PARAMETER", &camera.url(), &[]).unwrap();
    let asked = camera.log().wait(PATIENCE, |records| {
        records.iter().position(|record| matches!(&record.what, What::Request(r) if r.method() == "GET_PARAMETER"))
    });
    assert!(asked.is_some(), "the request is in the log");
    let answer = client.request("OPTIONS", &camera.url(), &[]).unwrap();
    assert_eq!(answer.header("CSeq"), Some("5"), "the next answer is for the next request");
    assert!(!client.collect(SILENCE).is_empty(), "media go on");
}

#[test]
fn other_answers_come_as_often_as_told() {
    let script = Script::video()
        .answer_times("DESCRIBE", 2, Answer::Status(503, "Service Unavailable"))
        .answer_times("DESCRIBE", 1, Answer::Redirect("rtsp://elsewhere.invalid/live".into()))
        .answer_times("DESCRIBE", 1, Answer::Raw(b"RTSP/1.0 200 Odd\r\nCSeq: 4\r\n\r\n".to_vec()))
        .answer_times("DESCRIBE", 1, Answer::After(300 * MS));
    let (camera, mut client) = connect(script);
    let mut describe = || client.request("DESCRIBE", &camera.url(), &[]).unwrap();
    assert_eq!([describe().status(), describe().status()], [503, 503]);
    let moved = describe();
    assert_eq!((moved.status(), moved.header("location")), (302, Some("rtsp://elsewhere.invalid/live")));
    assert_eq!(describe().start, "RTSP/1.0 200 Odd");
    let start = Instant::now();
    assert_eq!(describe().status(), 200);
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert!(describe().header("Content-Type").is_some());
}

#[test]
fn a_method_closes_the_connection() {
    let (camera, mut client) = connect(Script::video().answer("DESCRIBE", Answer::Close));
    assert_eq!(client.request("DESCRIBE", &camera.url(), &[]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn keep_alive_may_need_the_session_header() {
    let (camera, mut client) = play(Script::video().answer("GET_PARAMETER", Answer::NeedsSession));
    assert_eq!(client.request("GET_PARAMETER", &camera.url(), &[]).unwrap().status(), 200);
    client.session = None;
    assert_eq!(client.request("GET_PARAMETER", &camera.url(), &[]).unwrap().status(), 454);
}

#[test]
fn sessions_expire_unless_they_are_kept_alive() {
    let script = Script::sound().with(|script| {
        script.rtsp.session_timeout = 2 * SECOND;
        script.rtsp.sessions_expire = true;
    });
    let (camera, mut client) = play(script);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(4) {
        assert_eq!(client.request("GET_PARAMETER", &camera.url(), &[]).unwrap().status(), 200, "still alive");
        client.collect(Duration::from_millis(200));
    }
    let session = client.session.take();
    assert!(client.closed_within(PATIENCE), "the camera ends the session");
    let expired = camera
        .log()
        .wait(PATIENCE, |records| records.iter().find(|record| matches!(record.what, What::Expired)).map(|_| ()));
    assert!(expired.is_some() && session.is_some());
}

#[test]
fn digests_are_those_of_the_standard() {
    // RFC 2069, section 2.4 with its erratum 749; the second computed with another implementation.
    let mut auth = Auth::new("Mufasa", "CircleOfLife", &[]);
    auth.realm = "testrealm@host.com".into();
    let response = |hash| auth.response(hash, "GET", "/dir/index.html", "dcd98b7102dd2f0e8b11d0f600bfb0c093");
    assert_eq!(response(glib::ChecksumType::Md5), "1949323746fe6a43ef61f9606e7febea");
    assert_eq!(
        response(glib::ChecksumType::Sha256),
        "89381827616a396139e299fae10b3a81aaa7bb9e04bee0dcb56ca48dd58af998"
    );
}

#[test]
fn basic_and_digest_open_the_camera() {
    let auth = Auth::new("viewer", "p@ss:word", &[Scheme::DigestSha256, Scheme::DigestMd5, Scheme::Basic]);
    let (camera, mut client) = connect(Script::video().with(|script| script.rtsp.auth = Some(auth.clone())));
    let url = camera.url();
    let refused = client.request("DESCRIBE", &url, &[]).unwrap();
    assert_eq!(refused.status(), 401);
    let challenges: Vec<&str> =
        refused.headers.iter().filter(|(key, _)| key == "WWW-Authenticate").map(|(_, value)| value.as_str()).collect();
    assert_eq!(challenges.len(), 3);
    assert!(challenges[0].starts_with("Digest ") && challenges[0].contains("algorithm=SHA-256"), "{challenges:?}");
    let nonce = challenges[0].split("nonce=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let digest = |hash, algorithm: &str| {
        let response = auth.response(hash, "DESCRIBE", &url, &nonce);
        format!(
            "Digest username=\"viewer\", realm=\"{}\", nonce=\"{nonce}\", uri=\"{url}\", response=\"{response}\"{algorithm}",
            auth.realm
        )
    };
    let basic = |password: &str| format!("Basic {}", glib::base64_encode(format!("viewer:{password}").as_bytes()));
    for (authorization, status) in [
        (digest(glib::ChecksumType::Md5, ""), 200),
        (digest(glib::ChecksumType::Sha256, ", algorithm=SHA-256"), 200),
        (digest(glib::ChecksumType::Md5, ", algorithm=SHA-256"), 401),
        (basic("p@ss:word"), 200),
        (basic("wrong"), 401),
    ] {
        client.authorization = Some(authorization.clone());
        assert_eq!(client.request("DESCRIBE", &url, &[]).unwrap().status(), status, "{authorization}");
    }
}

#[test]
fn nonces_grow_stale() {
    let auth = Auth { nonce_uses: 2, ..Auth::new("viewer", "secret", &[Scheme::DigestMd5]) };
    let (camera, mut client) = connect(Script::video().with(|script| script.rtsp.auth = Some(auth.clone())));
    let url = camera.url();
    let mut nonce = String::new();
    let mut statuses = Vec::new();
    for _ in 0..5 {
        let response = auth.response(glib::ChecksumType::Md5, "DESCRIBE", &url, &nonce);
        client.authorization = Some(format!(
            "Digest username=\"viewer\", realm=\"{}\", nonce=\"{nonce}\", uri=\"{url}\", response=\"{response}\"",
            auth.realm
        ));
        let answer = client.request("DESCRIBE", &url, &[]).unwrap();
        if let Some(challenge) = answer.header("WWW-Authenticate") {
            assert_eq!(challenge.contains("stale=true"), !nonce.is_empty());
            nonce = challenge.split("nonce=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        }
        statuses.push(answer.status());
    }
    assert_eq!(statuses, [401, 200, 401, 200, 200]);
}

#[test]
fn paths_and_queries_are_exact() {
    let (camera, mut client) = connect(Script::video().with(|script| script.rtsp.path = "/cam?channel=1&sub=0".into()));
    assert_eq!(client.request("DESCRIBE", &camera.url(), &[]).unwrap().status(), 200);
    let other = camera.url().replace("sub=0", "sub=1");
    assert_eq!(client.request("DESCRIBE", &other, &[]).unwrap().status(), 404);
}

#[test]
fn base_and_control_urls_are_as_told() {
    let base = |content_base| {
        let (_camera, mut client) = connect(Script::video().with(|script| script.rtsp.content_base = content_base));
        let url = _camera.url();
        let answer = client.request("DESCRIBE", &url, &[]).unwrap();
        (url, answer.header("Content-Base").map(str::to_owned))
    };
    let (url, honest) = base(Line::Honest);
    assert_eq!(honest, Some(format!("{url}/")));
    assert_eq!(base(Line::Missing).1, None);
    assert_eq!(base(Line::Text("/live/".into())).1.as_deref(), Some("/live/"));

    let script = Script::both().with(|script| {
        script.streams[0].control = "{base}/video?kind=1".into();
        script.sdp.control = None;
    });
    let (camera, mut client) = connect(script);
    let sdp = client.describe().unwrap();
    let control = format!("{}/video?kind=1", camera.url());
    assert!(sdp.contains(&format!("a=control:{control}\r\n")) && !sdp.contains("a=control:*"), "{sdp}");
    let setup = client.request("SETUP", &control, &[("Transport", "RTP/AVP/TCP;unicast;interleaved=0-1")]).unwrap();
    assert_eq!(setup.status(), 200);
    let unknown = client.request("SETUP", &format!("{}/nothing", camera.url()), &[]).unwrap();
    assert_eq!(unknown.status(), 404);
}

#[test]
fn rtp_info_is_as_told() {
    let info = |rtp_info| {
        let script = Script::video().with(|script| {
            script.rtsp.rtp_info = rtp_info;
            script.streams[0].timestamp = Some(1_000);
            script.streams[0].sequence = Some(7);
        });
        let (_camera, mut client) = connect(script);
        client.setup("trackID=0", false).unwrap();
        client.play().unwrap().header("RTP-Info").map(str::to_owned)
    };
    assert!(info(RtpInfo::Honest).unwrap().ends_with("/live/trackID=0;seq=7;rtptime=1000"));
    assert!(info(RtpInfo::Zero).unwrap().ends_with(";seq=7;rtptime=0"));
    assert!(info(RtpInfo::Wrong(5)).unwrap().ends_with(";rtptime=1005"));
    assert_eq!(info(RtpInfo::Missing), None);
    assert_eq!(info(RtpInfo::Text("url=;;".into())).as_deref(), Some("url=;;"));
}

#[test]
fn transports_are_refused_swallowed_or_moved() {
    let (_camera, mut client) = connect(Script::video().with(|script| script.rtsp.udp = Udp::Refused));
    assert_eq!(client.setup("trackID=0", true).unwrap().status(), 461);

    let (_camera, mut client) = connect(Script::video().with(|script| script.rtsp.interleaved = false));
    assert_eq!(client.setup("trackID=0", false).unwrap().status(), 461);

    let camera = Camera::start(Script::sound().with(|script| script.rtsp.udp = Udp::Swallowed));
    let mut client = Client::playing(&camera.url(), true).unwrap();
    assert!(client.collect(SILENCE).is_empty(), "nothing passes the firewall");

    let (_camera, mut client) = connect(Script::video().with(|script| script.rtsp.first_channel = Some(8)));
    let setup = client.setup("trackID=0", false).unwrap();
    assert!(setup.header("Transport").unwrap().contains("interleaved=8-9"));
    client.play().unwrap();
    let arrivals = client.collect_until(PATIENCE, |arrivals| !arrivals.is_empty());
    assert!(matches!(arrivals[0].channel, 8 | 9));
}

#[test]
fn descriptions_are_as_told() {
    let sdp = |script: Script| connect(script).1.describe().unwrap();
    let honest = sdp(Script::both());
    for line in ["v=0", "t=0 0", "m=video 0 RTP/AVP 96", "a=rtpmap:96 H264/90000", "m=audio 0 RTP/AVP 0"] {
        assert!(honest.contains(&format!("{line}\r\n")), "{honest}");
    }
    assert!(honest.contains("a=fmtp:96 packetization-mode=1;profile-level-id=42"), "{honest}");

    let odd = sdp(Script::both().with(|script| {
        script.sdp.newline = "  \n";
        script.sdp.ssrc_cname = true;
        script.sdp.session_lines.push("a=ts-refclk:ntp=192.0.2.1".into());
        script.streams[0].ssrc = Some(99);
        script.streams[0].fmtp = Line::Text(String::new());
        script.streams[1].rtpmap = Line::Missing;
        script.sdp.edit = Some(|text| text.replace("t=0 0  \n", ""));
    }));
    assert!(!odd.contains('\r') && !odd.contains("t=0") && !odd.contains("PCMU"), "{odd}");
    for line in
        ["v=0  \n", "a=fmtp:96   \n", "a=ssrc:99 cname:camera@scripted.invalid  \n", "a=ts-refclk:ntp=192.0.2.1  \n"]
    {
        assert!(odd.contains(line), "{odd}");
    }
    assert_eq!(sdp(Script::video().with(|script| script.sdp.text = Some("v=0\r\n".into()))), "v=0\r\n");

    let hidden = Script::both().with(|script| script.streams[1].described = false);
    assert!(!sdp(hidden).contains("m=audio"));
    assert!(sdp(Script::of([Media::Metadata])).contains("m=application 0 RTP/AVP 107\r\n"));
}

#[test]
fn several_clients_see_the_same_frames() {
    let camera = Camera::start(Script::video());
    let _clients: Vec<Client> = (0..2).map(|_| Client::playing(&camera.url(), false).unwrap()).collect();
    let sessions = camera.log().wait_for_sessions(2, PATIENCE);
    let [first, second] = &sessions.unwrap()[..] else { panic!("two sessions") };
    let apart = (second[0].captured - first[0].captured).rem_euclid(first[0].period);
    assert!(apart < 2 || apart > first[0].period - 2, "on one grid: {apart} ns");
    assert_ne!(first[0].ssrc, second[0].ssrc);
}

#[test]
fn the_camera_closes_in_mid_stream() {
    let (_camera, mut client) = play(Script::sound().at(300 * MS, Event::CloseTcp));
    assert!(client.closed_within(PATIENCE));
}

#[test]
fn an_event_may_hit_one_session_only() {
    let (camera, mut first) = play(Script::sound().in_session(0, 300 * MS, Event::CloseTcp));
    assert!(first.closed_within(PATIENCE));
    let mut second = Client::playing(&camera.url(), false).unwrap();
    assert!(!second.closed_within(Duration::from_secs(1)));
}

#[test]
fn a_killed_camera_comes_back_on_its_port() {
    let mut camera = Camera::start(Script::sound());
    for round in 0..3 {
        let mut client = Client::playing(&camera.url(), false).expect("the camera plays");
        assert!(!client.collect_until(PATIENCE, |arrivals| !arrivals.is_empty()).is_empty());
        camera.kill();
        assert!(client.closed_within(PATIENCE), "connections end");
        assert_eq!(Client::connect(&camera.url()).err().unwrap().kind(), ErrorKind::ConnectionRefused);
        camera.revive();
        assert_eq!(camera.log().sessions().len(), round + 1);
    }
    let truths = camera.log().sessions();
    let apart = (truths[2][0].captured - truths[0][0].captured).rem_euclid(truths[0][0].period);
    assert!(apart < 2 || apart > truths[0][0].period - 2, "the frames stay on their grid: {apart} ns");
}

#[test]
fn what_clients_send_is_in_the_log() {
    let (camera, client) = play(Script::video());
    drop(client);
    let mut stream = TcpStream::connect(camera.address()).unwrap();
    stream.write_all(b"$\x07\x00\x02hi").unwrap();
    let frame = camera.log().wait(PATIENCE, |records| {
        records.iter().find_map(|record| match &record.what {
            What::Interleaved { channel: 7, data } => Some(data.clone()),
            _ => None,
        })
    });
    assert_eq!(frame.as_deref(), Some(&b"hi"[..]));
    // What is no RTSP ends the connection, and nothing else.
    stream.write_all(b"GET / HTTP/1.1\r\nno colon\r\n\r\n").unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(matches!(stream.read(&mut [0; 16]), Ok(0) | Err(_)));
    assert!(
        !rtp_of(&Client::playing(&camera.url(), false).unwrap().collect_until(PATIENCE, |a| !a.is_empty()), 0)
            .is_empty()
    );
}

#[test]
fn pause_and_teardown_end_the_media() {
    let (camera, mut client) = play(Script::sound());
    let ended = |client: &mut Client, method: &str| {
        assert!(!client.collect_until(PATIENCE, |arrivals| !arrivals.is_empty()).is_empty());
        assert_eq!(client.request(method, &camera.url(), &[]).unwrap().status(), 200);
        // What was on its way before the answer.
        client.collect_until(PATIENCE, |_| true);
        assert!(client.collect(SILENCE).is_empty(), "{method}");
    };
    ended(&mut client, "PAUSE");
    assert_eq!(client.play().unwrap().status(), 200);
    ended(&mut client, "TEARDOWN");
    assert_eq!(client.play().unwrap().status(), 454);
}

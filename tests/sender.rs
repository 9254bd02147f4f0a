//! The reference sender, on the wire and through the players of others: what it says, and that capture times are true.

#![cfg(feature = "sender")]

mod support;

use std::io::Read;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::chrony::Chrony;
use support::rtsp_client::{Arrival, Client, Rtcp, RtpPacket, rtcp_of, rtp_of};
use support::sender::{Sender, program};
use unisono::clock::NTP_UNIX_OFFSET;
use unisono::programme::{Programme, Sound, index_at_or_after, time_of_index, to_i16};

/// Generous: the tests share the machine with others.
const LONG: Duration = Duration::from_secs(60);
const SECOND: u64 = 1_000_000_000;
/// The user that owns nothing.
const NOBODY: u32 = 65_534;
const NTP64: &str = "urn:ietf:params:rtp-hdrext:ntp-64";

fn describe(url: &str) -> String {
    let sdp = Client::connect(url).and_then(|mut client| client.describe()).expect("an SDP");
    sdp.replace("\r\n", "\n")
}

/// Plays until there are so many packets of stream 0 and so many sender reports of it.
fn watch(url: &str, packets: usize, reports: usize) -> Vec<Arrival> {
    let mut client = Client::playing(url, false).expect("plays");
    let enough = |seen: &[Arrival]| {
        let of = |channel| seen.iter().filter(|arrival| arrival.channel == channel).count();
        of(0) >= packets && of(1) >= reports
    };
    let arrivals = client.collect_until(LONG, enough);
    assert!(enough(&arrivals), "only {} packets", arrivals.len());
    arrivals
}

/// The capture time that a packet carries (RFC 6051), ns since the NTP epoch, rounded to the nearest.
fn ntp64(packet: &RtpPacket) -> Option<u64> {
    let (profile, data) = packet.extension.as_ref()?;
    assert_eq!((*profile, data[0]), (0xbede, 0x17), "one-byte header, id 1, eight bytes");
    let time = data[1..9].iter().fold(0u64, |time, byte| time << 8 | u64::from(*byte));
    Some(ntp_to_ns(time))
}

fn ntp_to_ns(time: u64) -> u64 {
    ((u128::from(time) * u128::from(SECOND) + (1 << 31)) >> 32) as u64
}

fn now_ntp() -> u64 {
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    (unix + NTP_UNIX_OFFSET).as_nanos() as u64
}

/// Whether a program is there; says so when it is not.
fn installed(program: &str, package: &str) -> bool {
    let found = Command::new("which").arg(program).stdout(Stdio::null()).status().is_ok_and(|status| status.success());
    if !found {
        eprintln!("skipped: {program} is not installed (apt install {package})");
    }
    found
}

/// Runs a player to its end, or kills it after `LONG`. Returns all that it said.
fn run(command: &mut Command) -> String {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start the player");
    let mut pipes: Vec<Box<dyn Read + Send>> =
        vec![Box::new(child.stdout.take().expect("a pipe")), Box::new(child.stderr.take().expect("a pipe"))];
    let readers: Vec<_> = pipes
        .drain(..)
        .map(|mut pipe| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = pipe.read_to_end(&mut bytes);
                String::from_utf8_lossy(&bytes).into_owned()
            })
        })
        .collect();
    let deadline = Instant::now() + LONG;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > deadline {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    readers.into_iter().map(|reader| reader.join().unwrap_or_default()).collect()
}

#[test]
fn the_description_announces_capture_times_clock_and_latency() {
    let sender = Sender::start(&["--latency", "750ms"]);
    assert!(sender.url.starts_with("rtsp://127.0.0.1:") && sender.url.ends_with("/test"), "{}", sender.url);
    assert_eq!(sender.room_command, format!("unisono --headless {} --clock system --latency 750ms", sender.url));
    let sdp = describe(&sender.url);
    let (session, media) = sdp.split_once("\nm=").expect("a medium");
    assert!(session.lines().any(|line| line == "a=x-unisono:latency=750;clock=system"), "{sdp}");
    assert_eq!(media.matches(&format!("a=extmap:1 {NTP64}")).count(), 2, "{sdp}");
    assert!(media.contains("video ") && media.contains("\nm=audio "), "{sdp}");
    for (mount, line) in [
        ("/video", "m=video"),
        ("/audio", "OPUS/48000/2"),
        ("/audio-opus", "OPUS/48000/2"),
        ("/audio-l16", "L16/48000/2"),
        ("/audio-pcmu", "PCMU/8000"),
    ] {
        let sdp = describe(&sender.mount(mount));
        assert!(sdp.contains(line) && sdp.matches("\nm=").count() == 1, "{mount}: {sdp}");
    }
    assert!(!describe(&Sender::start(&["--no-ntp64"]).url).contains("extmap"));
}

/// What the packets of an uncompressed stream say: each carries the programme's samples of its very capture time.
fn assert_exact(arrivals: &[Arrival], programme: &Programme, channels: usize, in_band: bool) {
    let packets = rtp_of(arrivals, 0);
    let rate = programme.rate();
    // Without in-band times the first report gives the time of the first packet, to a sample.
    let reports: Vec<(u64, u32)> = rtcp_of(arrivals, 0)
        .concat()
        .iter()
        .filter_map(|packet| match packet {
            Rtcp::SenderReport { ntp, rtp, .. } => Some((ntp_to_ns(*ntp), *rtp)),
            _ => None,
        })
        .collect();
    let first = &packets[0];
    let origin = match ntp64(first) {
        Some(time) => index_at_or_after(time - SECOND / u64::from(rate) / 2, rate),
        None => {
            let (time, rtp) = reports[0];
            let at_report = index_at_or_after(time, rate);
            let guess = at_report.wrapping_add_signed(i64::from(first.timestamp.wrapping_sub(rtp) as i32));
            // A report is rounded to a sample of the RTP clock.
            let fits = |origin: &u64| {
                let samples = first.payload.chunks_exact(2 * channels).zip(*origin..);
                samples
                    .into_iter()
                    .all(|(frame, index)| i16::from_be_bytes([frame[0], frame[1]]) == to_i16(programme.sample(index)))
            };
            (guess - 1..=guess + 1).find(fits).expect("the report is true to one sample")
        }
    };
    for packet in &packets {
        assert_eq!(ntp64(packet).is_some(), in_band);
        let index = origin.wrapping_add_signed(i64::from(packet.timestamp.wrapping_sub(first.timestamp) as i32));
        if let Some(time) = ntp64(packet) {
            let exact = time_of_index(index, rate);
            assert!(time.abs_diff(exact) <= 1, "{time} instead of {exact}");
        }
        for (frame, index) in packet.payload.chunks_exact(2 * channels).zip(index..) {
            let expected = to_i16(programme.sample(index)).to_be_bytes();
            assert!(frame.chunks_exact(2).all(|sample| sample == expected), "sample {index} differs");
        }
    }
    assert!(!reports.is_empty());
    for (time, rtp) in &reports {
        // The report continues the line of the packets to its own time, rounded to a sample.
        let index = origin.wrapping_add_signed(i64::from(rtp.wrapping_sub(first.timestamp) as i32));
        let error = time_of_index(index, rate) as i64 - *time as i64;
        assert!(error.unsigned_abs() <= SECOND / u64::from(rate) + 1_000, "a report is {error} ns off");
    }
}

#[test]
fn every_sample_is_at_its_place_on_the_shared_clock() {
    for (options, rate, channels) in [
        (&["--audio-codec", "l16"][..], 48_000, 2),
        (&["--audio-codec", "l16", "--rate", "44100", "--channels", "1", "--sound", "noise"], 44_100, 1),
        (&["--audio-codec", "l16", "--rate", "96000", "--channels", "8", "--sound", "tick"], 96_000, 8),
    ] {
        let sender = Sender::start(options);
        let sound = options.iter().skip_while(|option| **option != "--sound").nth(1);
        let sound = sound.map_or(Sound::Music, |name| name.parse().expect("a sound"));
        let programme = Programme::new(sound, rate).expect("a programme");
        let began = now_ntp();
        let arrivals = watch(&sender.mount("/audio"), 600, 2);
        assert_exact(&arrivals, &programme, channels, true);
        let time = ntp64(&rtp_of(&arrivals, 0)[0]).expect("a time");
        assert!(time + SECOND > began && time < now_ntp(), "captured now, on the host's clock");
    }
}

#[test]
fn reports_alone_say_the_same() {
    let sender = Sender::start(&["--no-ntp64", "--sound", "noise"]);
    let arrivals = watch(&sender.mount("/audio-l16"), 400, 2);
    assert_exact(&arrivals, &Programme::new(Sound::Noise, 48_000).expect("a programme"), 2, false);
}

#[test]
fn a_sender_that_was_stopped_goes_on_at_the_right_place() {
    let sender = Sender::start(&["--sound", "noise"]);
    let mut client = Client::playing(&sender.mount("/audio-l16"), false).expect("plays");
    let packets =
        |count: usize| move |seen: &[Arrival]| seen.iter().filter(|arrival| arrival.channel == 0).count() >= count;
    let mut arrivals = client.collect_until(LONG, packets(100));
    sender.signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_millis(1_500));
    sender.signal(libc::SIGCONT);
    arrivals.extend(client.collect_until(LONG, packets(300)));
    arrivals.extend(client.collect_until(LONG, |seen| seen.iter().any(|arrival| arrival.channel == 1)));
    assert_exact(&arrivals, &Programme::new(Sound::Noise, 48_000).expect("a programme"), 2, true);
    let times: Vec<u64> = rtp_of(&arrivals, 0).iter().filter_map(ntp64).collect();
    let gap = times.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(gap > Some(SECOND), "what was missed is left out: {gap:?}");
    assert!(times.last().is_some_and(|last| now_ntp() - last < 10 * SECOND));
}

#[test]
fn rooms_share_one_media_and_may_want_less_of_it() {
    let sender = Sender::start(&[]);
    // One plays only the sound (stream 1), the next wants the picture too.
    let mut sound_only = Client::connect(&sender.url).expect("connects");
    let sdp = sound_only.describe().expect("an SDP");
    sound_only.setup("stream=1", false).expect("set up");
    sound_only.play().expect("plays");
    let some = |seen: &[Arrival]| seen.iter().filter(|arrival| arrival.channel == 0).count() >= 50;
    assert!(some(&sound_only.collect_until(LONG, some)), "no sound: {sdp}");
    let mut both = Client::playing(&sender.url, true).expect("plays");
    let all =
        |seen: &[Arrival]| [0, 1, 2, 3].iter().all(|channel| seen.iter().any(|arrival| arrival.channel == *channel));
    let arrivals = both.collect_until(LONG, all);
    assert!(all(&arrivals), "picture, sound and reports of both");
    assert!(some(&sound_only.collect_until(LONG, some)), "the first goes on");
    // Both have the same sound: the same source, not only the same time.
    let ssrc = |arrivals: &[Arrival], stream| rtp_of(arrivals, stream).first().map(|packet| packet.ssrc);
    assert_eq!(ssrc(&sound_only.collect_until(LONG, some), 0), ssrc(&arrivals, 1));
}

#[test]
fn a_room_may_come_in_the_moment_in_which_the_last_one_leaves() {
    let sender = Sender::start(&["--size", "320x180"]);
    for round in 0..60 {
        // Asks what there is, and is gone: the media is taken down while the next one asks for it.
        describe(&sender.mount("/audio-l16"));
        let mut client = Client::playing(&sender.mount("/audio-l16"), false).expect("plays");
        let some = |seen: &[Arrival]| seen.len() > 2;
        assert!(some(&client.collect_until(LONG, some)), "round {round}");
    }
}

#[test]
fn rooms_that_come_and_go_leave_nothing_behind() {
    let sender = Sender::start(&["--size", "320x180"]);
    let count = |what: &str| {
        std::fs::read_dir(format!("/proc/{}/{what}", sender.id())).map(|entries| entries.count()).unwrap_or_default()
    };
    let visit = |udp: bool, goodbye: bool, mount: &str| {
        let mut client = Client::playing(&sender.mount(mount), udp).expect("plays");
        let some = |seen: &[Arrival]| seen.len() > 2;
        assert!(some(&client.collect_until(LONG, some)));
        if goodbye {
            let _ = client.request("TEARDOWN", &sender.mount(mount), &[]);
        }
    };
    for _ in 0..5 {
        visit(true, true, "/test");
        visit(false, false, "/audio");
    }
    let settled = |threads: usize, files: usize| {
        let deadline = Instant::now() + LONG;
        while (count("task") > threads || count("fd") > files) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
        (count("task"), count("fd"))
    };
    // Streams end a moment after their last room.
    std::thread::sleep(Duration::from_secs(2));
    let before = (count("task"), count("fd"));
    for visitor in 0..50 {
        visit(visitor % 2 == 0, visitor % 4 < 2, ["/test", "/audio", "/video"][visitor % 3]);
    }
    let after = settled(before.0 + 2, before.1 + 4);
    assert!(after.0 <= before.0 + 2 && after.1 <= before.1 + 4, "threads and files {before:?}, then {after:?}");
}

#[test]
fn it_ends_in_order_when_it_is_told() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let sender = Sender::start(&[]);
        let mut client = Client::playing(&sender.url, false).expect("plays");
        assert!(!client.collect_until(LONG, |seen| seen.len() > 20).is_empty());
        let told = Instant::now();
        sender.signal(signal);
        let (status, stderr) = sender.wait_for_end(LONG);
        assert_eq!(status.code(), Some(0), "{stderr}");
        assert_eq!(stderr, "");
        assert!(told.elapsed() < Duration::from_secs(5), "{:?}", told.elapsed());
        assert!(client.closed_within(LONG));
    }
}

/// Runs a sender that cannot start. Returns what it said.
fn refused(options: &[&str], code: i32) -> String {
    let output = program().args(options).output().expect("runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{options:?}: {stderr}");
    assert_eq!(stdout, "", "{options:?}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    stderr.into_owned()
}

#[test]
fn what_cannot_be_done_is_said_in_a_few_lines() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let clock = format!("ntp://{}", silent.local_addr().expect("bound"));
    for (options, code, part) in [
        (&["--port", &port][..], 1, "taken"),
        (&["--port", "0", "--address", "192.0.2.7"], 1, "--address"),
        (&["--port", "0", "--clock", &clock, "--clock-timeout", "300ms"], 5, "did not answer within 0.3 s"),
        (&["--port", "0", "--clock", "ntp://nosuch.invalid", "--clock-timeout", "300ms"], 5, "cannot be resolved"),
        (&["--port", "0", "--clock", "ptp://"], 2, "not supported yet"),
        (&["--port", "0", "--rate", "44100"], 2, "48000"),
    ] {
        let text = refused(options, code);
        assert!(text.contains(part), "{options:?}: {text}");
        assert!((1..=3).contains(&text.trim().lines().count()), "{options:?}: {text}");
    }
    assert!(refused(&["--sound", "jazz"], 2).contains("music, noise, tick or silence"));
    assert!(refused(&["--size", "10x10"], 2).contains("320x180"));
}

#[test]
fn it_follows_an_ntp_server_and_says_so() {
    let Some(server) = Chrony::start() else { return };
    let sender = Sender::start(&["--clock", &server.clock(), "--clock-timeout", "60s"]);
    assert!(sender.room_command.ends_with(&format!("--clock {}", server.clock())), "{}", sender.room_command);
    let sdp = describe(&sender.mount("/audio-l16"));
    assert!(sdp.contains(&format!("a=x-unisono:latency=1000;clock={}\n", server.clock())), "{sdp}");
    assert!(sdp.contains(&format!("a=ts-refclk:ntp={}\n", server.address())), "{sdp}");
    let arrivals = watch(&sender.mount("/audio-l16"), 300, 2);
    assert_exact(&arrivals, &Programme::new(Sound::Music, 48_000).expect("a programme"), 2, true);
    let time = ntp64(rtp_of(&arrivals, 0).last().expect("a packet")).expect("a time");
    assert!(now_ntp().abs_diff(time) < 10 * SECOND, "the server serves the host's clock");
}

#[test]
fn ffprobe_reads_it() {
    if !installed("ffprobe", "ffmpeg") {
        return;
    }
    let sender = Sender::start(&[]);
    for transport in ["udp", "tcp"] {
        let said = run(Command::new("ffprobe")
            .args(["-v", "error", "-rtsp_transport", transport, "-show_entries"])
            .args(["stream=codec_name,width,height,sample_rate", "-of", "compact", &sender.url]));
        for part in ["width=1280|height=720", "codec_name=opus|sample_rate=48000"] {
            assert!(said.contains(part), "{transport}: {said}");
        }
    }
}

#[test]
fn gst_play_plays_it() {
    if !installed("gst-play-1.0", "gstreamer1.0-plugins-base-apps") {
        return;
    }
    let sender = Sender::start(&["--video-codec", "vp8"]);
    // It plays a live stream for ever: `timeout` ends it as the keyboard would.
    let player =
        ["-s", "INT", "10", "gst-play-1.0", "--no-interactive", "--videosink=fakesink", "--audiosink=fakesink"];
    let said = run(Command::new("timeout").args(player).arg(&sender.url));
    assert!(said.contains("0:00:02") && !said.to_lowercase().contains("error"), "{said}");
}

#[test]
fn vlc_plays_it() {
    if !installed("vlc", "vlc-bin vlc-plugin-base") {
        return;
    }
    let sender = Sender::start(&[]);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("seen.ts");
    // A file is all that it needs: the modules that receive are the same as with a window.
    let output = format!("#std{{access=file,mux=ts,dst={}}}", file.display());
    let vlc = || {
        let mut command = Command::new("vlc");
        command.env("HOME", directory.path());
        // SAFETY: geteuid has no preconditions.
        if unsafe { libc::geteuid() } == 0 {
            // VLC refuses to run as root.
            command.uid(NOBODY).gid(NOBODY);
            std::os::unix::fs::chown(directory.path(), Some(NOBODY), Some(NOBODY)).expect("root may");
        }
        command
    };
    if !run(vlc().arg("--list")).contains("live555") {
        eprintln!("skipped: this VLC was built without live555, so it plays no RTSP at all");
        return;
    }
    let mut command = vlc();
    command.args(["-I", "dummy", "--run-time", "6", "--sout", &output, &sender.url, "vlc://quit"]);
    let said = run(&mut command);
    let size = std::fs::metadata(&file).map(|data| data.len()).unwrap_or_default();
    assert!(size > 100_000, "{size} bytes; {said}");
}

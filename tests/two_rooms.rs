//! Rooms of a house: one sender, one time server, rooms whose own clocks are off; what they present is compared frame by
//! frame, on one clock.

#![cfg(feature = "sender")]

mod support;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use support::chrony::Chrony;
use support::room::{Room, program};
use support::sender::Sender;

const LONG: Duration = Duration::from_secs(60);
/// The monotonic clock of the room in a time namespace is ahead by so much, s.
const MONOTONIC_OFFSET_S: i64 = 86_400;
/// Generous, since the tests share the machine; the demo prints what an idle one does.
const SKEW_MEDIAN_NS: i64 = 5_000_000;

/// Whether a program started so is in the new namespace (older kernels move its children only).
fn time_namespaces_work(namespace: &[&str]) -> bool {
    let uptime = |output: Option<String>| output?.split('.').next()?.parse::<i64>().ok();
    let inside = Command::new("unshare").args(namespace).args(["cat", "/proc/uptime"]).stderr(Stdio::null()).output();
    let inside = uptime(inside.ok().and_then(|output| String::from_utf8(output.stdout).ok()));
    let outside = uptime(std::fs::read_to_string("/proc/uptime").ok());
    let works = matches!((inside, outside), (Some(inside), Some(outside)) if inside - outside > MONOTONIC_OFFSET_S / 2);
    if !works {
        eprintln!("skipped: unshare --time does not work here (it needs root and a recent kernel)");
    }
    works
}

/// The library that bends a process's wall clock. (The program of that name would stand between us and the room.)
fn faketime() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found = folders.map(|folder| folder.join("faketime/libfaketime.so.1")).filter(|path| path.exists());
    let library = found.next();
    if library.is_none() {
        eprintln!("skipped: libfaketime is not installed (apt install faketime)");
    }
    library
}

/// Capture time of each frame → when it was presented, on this host's CLOCK_MONOTONIC less `offset`.
fn presented(log: &Path, offset_s: i64) -> HashMap<u64, i64> {
    let text = std::fs::read_to_string(log).expect("the frame log");
    let lines = text.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        Some((fields.get(1)?.parse().ok()?, fields.get(3)?.parse::<i64>().ok()? - offset_s * 1_000_000_000))
    });
    lines.collect()
}

/// A room by `command`, to which the room's own options are added.
fn room(mut command: Command, url: &str, clock: &str, log: &Path) -> Room {
    command.args(["--headless", "--json", url, "--no-audio", "--clock", clock]).arg("--frame-log").arg(log);
    Room::spawn(command)
}

/// `unisono` started by another program.
fn within(launcher: &str, args: &[&str]) -> Command {
    let mut command = Command::new(launcher);
    command.args(args).arg(program().get_program());
    command
}

#[test]
fn rooms_with_wrong_clocks_of_their_own_are_in_sync() {
    let Some(chrony) = Chrony::start() else { return };
    let clock = chrony.clock();
    let sender = Sender::start(&["--clock", &clock, "--size", "320x180"]);
    let url = sender.mount("/video");
    let folder = tempfile::tempdir().expect("a folder");
    let log = |name: &str| folder.path().join(name);

    let mut rooms = vec![(room(program(), &url, &clock, &log("plain")), log("plain"), 0)];
    if let Some(library) = faketime() {
        let mut command = program();
        command.env("LD_PRELOAD", library).env("FAKETIME", "+1h").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        rooms.push((room(command, &url, &clock, &log("hour")), log("hour"), 0));
    }
    let offset = MONOTONIC_OFFSET_S.to_string();
    let namespace = ["--time", "--monotonic", &offset, "--boottime", &offset];
    if time_namespaces_work(&namespace) {
        let command = within("unshare", &namespace);
        rooms.push((room(command, &url, &clock, &log("day")), log("day"), MONOTONIC_OFFSET_S));
    }
    for (room, _, _) in &mut rooms {
        let status = room.wait_for_verdict("synced", LONG);
        assert_eq!(status["clock"]["kind"], "ntp");
    }
    // The last to join comes late.
    let late = log("late");
    let mut last = room(program(), &url, &clock, &late);
    last.wait_for_verdict("synced", LONG);
    last.wait_for("some seconds of pictures", LONG, |line| line["video"]["frames"].as_u64() > Some(100));
    rooms.push((last, late, 0));

    let mut shown = Vec::new();
    for (room, log, offset) in rooms {
        room.signal(libc::SIGTERM);
        let (status, stderr, said) = room.wait_for_end(LONG);
        assert_eq!(status.code(), Some(0), "{stderr}");
        let last = said.iter().rev().find(|line| line["type"] == "status").expect("a status").clone();
        let (frames, timed) = (&last["video"]["frames"], &last["video"]["with_sender_time"]);
        let (frames, timed) = (frames.as_f64().expect("a number"), timed.as_f64().expect("a number"));
        assert!(timed >= 0.97 * frames, "{timed} of {frames} frames have the sender's time");
        shown.push(presented(&log, offset));
    }
    let (first, others) = shown.split_first().expect("rooms");
    for other in others {
        let mut skews: Vec<i64> =
            first.iter().filter_map(|(captured, at)| other.get(captured).map(|there| at - there)).collect();
        assert!(skews.len() > 50, "{} frames were presented in both rooms", skews.len());
        skews.sort_unstable();
        let median = skews[skews.len() / 2];
        assert!(median.abs() < SKEW_MEDIAN_NS, "{median} ns apart in the median");
    }
}

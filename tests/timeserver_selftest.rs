//! The scripted time server: a plain GstNtpClock follows the honest one; the bytes of the others are as promised.

mod support;

use gst::prelude::*;
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use support::timeline::{HOUR, MS, NTP_UNIX_SECONDS, Nanos, SECOND};
use support::timeserver::{Answer, Delay, TimeScript, TimeServer};

/// For anything that takes well below a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Long enough for an answer on a busy machine, short enough to wait for one that must not come.
const SILENCE: Duration = Duration::from_millis(500);

/// An answer, read by hand.
#[derive(Debug)]
struct Reading {
    leap: u8,
    version: u8,
    mode: u8,
    stratum: u8,
    reference: [u8; 4],
    origin: u64,
    /// Receive and transmit time, ns since 1970.
    receive: Nanos,
    transmit: Nanos,
}

const COOKIE: u64 = 0x0123_4567_89ab_cdef;

/// One request of version 4, and the answer if one comes.
fn ask(server: &TimeServer, patience: Duration) -> Option<Reading> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    let mut request = [0; 48];
    request[0] = 4 << 3 | 3;
    request[40..].copy_from_slice(&COOKIE.to_be_bytes());
    socket.send_to(&request, server.address()).unwrap();
    let mut answer = [0; 100];
    let length = socket.recv(&mut answer).ok()?;
    assert_eq!(length, 48);
    let number = |at: usize| u64::from_be_bytes(answer[at..at + 8].try_into().unwrap());
    let unix = |at: usize| {
        let (seconds, fraction) = (number(at) >> 32, number(at) & 0xffff_ffff);
        (seconds as Nanos - NTP_UNIX_SECONDS) * SECOND + ((fraction as u128 * SECOND as u128) >> 32) as Nanos
    };
    Some(Reading {
        leap: answer[0] >> 6,
        version: answer[0] >> 3 & 7,
        mode: answer[0] & 7,
        stratum: answer[1],
        reference: answer[12..16].try_into().unwrap(),
        origin: number(24),
        receive: unix(32),
        transmit: unix(40),
    })
}

fn host_time() -> Nanos {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as Nanos
}

/// Asks, and asserts that the answer tells the host's time plus `offset`, to what the exchange itself takes.
fn assert_tells(server: &TimeServer, offset: Nanos) -> Reading {
    let before = host_time();
    let reading = ask(server, PATIENCE).expect("an answer");
    let after = host_time();
    // A host whose clock is being slewed drifts from the server's timeline by microseconds meanwhile.
    let tolerance = 5 * MS;
    let told = reading.receive - offset;
    assert!((before - tolerance..after + tolerance).contains(&told), "told {told}, host {before} to {after}");
    reading
}

fn server(change: impl FnOnce(&mut TimeScript)) -> TimeServer {
    let mut script = TimeScript::default();
    change(&mut script);
    TimeServer::start(script)
}

fn clock(server: &TimeServer) -> gst_net::NtpClock {
    gst::init().unwrap();
    let address = server.address();
    gst_net::NtpClock::new(None, &address.ip().to_string(), address.port().into(), gst::ClockTime::ZERO)
}

/// How far the clock is ahead of the server.
fn ahead(clock: &gst_net::NtpClock, server: &TimeServer) -> Nanos {
    let time = clock.time().nseconds().cast_signed();
    time - (server.now() + NTP_UNIX_SECONDS * SECOND)
}

#[test]
fn the_honest_server_speaks_by_the_book() {
    let reading = assert_tells(&TimeServer::honest(), 0);
    assert_eq!((reading.leap, reading.version, reading.mode, reading.stratum), (0, 4, 4, 1));
    assert_eq!(reading.origin, COOKIE, "the client's transmit time comes back");
    assert!(reading.transmit >= reading.receive);
}

#[test]
fn a_plain_ntp_clock_follows_the_honest_server() {
    let server = TimeServer::honest();
    let clock = clock(&server);
    clock.wait_for_sync(Some(gst::ClockTime::from_seconds(PATIENCE.as_secs()))).expect("synchronized");
    let ahead = ahead(&clock, &server);
    assert!(ahead.abs() < 20 * MS, "{ahead} ns ahead");
}

#[test]
fn a_plain_ntp_clock_follows_a_server_that_is_an_hour_off() {
    let server = server(|script| script.offset = HOUR);
    let clock = clock(&server);
    clock.wait_for_sync(Some(gst::ClockTime::from_seconds(PATIENCE.as_secs()))).expect("synchronized");
    assert!(ahead(&clock, &server).abs() < 20 * MS);
    let host_ahead = clock.time().nseconds().cast_signed() - (host_time() + NTP_UNIX_SECONDS * SECOND);
    assert!((host_ahead - HOUR).abs() < SECOND, "{host_ahead}");
}

#[test]
fn the_time_steps_drifts_and_stands_still_as_told() {
    let server = TimeServer::honest();
    server.change(|script| script.offset = 5 * SECOND);
    assert_tells(&server, 5 * SECOND);
    server.change(|script| script.steps.push((0, -HOUR)));
    assert_tells(&server, 5 * SECOND - HOUR);
    server.change(|script| script.frozen_at = Some(1_000 * SECOND));
    for _ in 0..2 {
        let frozen = ask(&server, PATIENCE).unwrap();
        assert!((frozen.transmit - 1_000 * SECOND).abs() < 2, "{frozen:?}");
    }
    // 10 % fast: after 0.2 s at least 20 ms ahead, beyond the tolerance.
    let fast = self::server(|script| script.ppm = 100_000.0);
    std::thread::sleep(Duration::from_millis(200));
    let before = host_time();
    let told = ask(&fast, PATIENCE).unwrap().receive;
    assert!(told - before > 15 * MS, "{} ns ahead", told - before);
}

#[test]
fn a_step_comes_at_its_time() {
    let server = server(|script| script.steps.push((SECOND, HOUR)));
    let first = ask(&server, PATIENCE).unwrap().receive - host_time();
    std::thread::sleep(Duration::from_millis(1_100));
    assert_tells(&server, HOUR);
    // On a machine so busy that the first exchange took a second the step may have come already.
    assert!(first.abs() < SECOND || (first - HOUR).abs() < SECOND, "{first}");
}

#[test]
fn silence_is_heard_by_the_server_alone() {
    let server = server(|script| script.answer = Answer::Silent);
    assert!(ask(&server, SILENCE).is_none());
    assert_eq!(server.requests().len(), 1);
    assert_eq!(server.requests()[0].bytes.len(), 48);
    let clock = clock(&server);
    assert!(clock.wait_for_sync(Some(gst::ClockTime::from_mseconds(500))).is_err());
    server.change(|script| script.answer = Answer::Honest);
    clock.wait_for_sync(Some(gst::ClockTime::from_seconds(PATIENCE.as_secs()))).expect("the server speaks now");
}

#[test]
fn old_versions_kisses_and_servers_without_time_are_told_apart() {
    let server = server(|script| script.answer = Answer::Version(3));
    assert_eq!(assert_tells(&server, 0).version, 3);
    server.change(|script| script.answer = Answer::Kiss(*b"DENY"));
    let kiss = ask(&server, PATIENCE).unwrap();
    assert_eq!((kiss.leap, kiss.stratum, &kiss.reference), (3, 0, b"DENY"));
    server.change(|script| script.answer = Answer::Unsynchronized);
    let unsynchronized = ask(&server, PATIENCE).unwrap();
    assert_eq!((unsynchronized.leap, unsynchronized.stratum), (3, 16));
    server.change(|script| script.answer = Answer::Raw(vec![0; 48]));
    assert_eq!(ask(&server, PATIENCE).unwrap().version, 0);
}

#[test]
fn a_plain_ntp_clock_never_follows_version_3_or_a_kiss() {
    for answer in [Answer::Version(3), Answer::Kiss(*b"DENY")] {
        let server = server(|script| script.answer = answer);
        assert!(clock(&server).wait_for_sync(Some(gst::ClockTime::from_seconds(2))).is_err());
        assert!(!server.requests().is_empty(), "it asked");
    }
}

#[test]
fn delays_are_where_they_should_be() {
    let (way, work) = (100 * MS, 50 * MS);
    let server = server(|script| {
        script.request_delay = Delay::of(way);
        script.processing = Delay::of(work);
        script.answer_delay = Delay { fixed: 0, random: way };
    });
    let (before, start) = (host_time(), Instant::now());
    let reading = ask(&server, PATIENCE).unwrap();
    assert!(start.elapsed() >= Duration::from_nanos((way + work) as u64), "the answer takes its time");
    assert!(reading.receive - before >= way - 5 * MS, "the request travelled");
    assert!((reading.transmit - reading.receive - work).abs() < 2, "the server worked");
}

#[test]
fn requests_are_lost() {
    let server = server(|script| script.loss = 1.0);
    assert!(ask(&server, SILENCE).is_none());
}

#[test]
fn a_killed_server_comes_back_on_its_port() {
    let mut server = server(|script| script.offset = HOUR);
    let address = server.address();
    assert_tells(&server, HOUR);
    for _ in 0..3 {
        server.kill();
        assert!(ask(&server, SILENCE).is_none());
        server.revive();
        assert_eq!(server.address(), address);
        assert_tells(&server, HOUR);
    }
}

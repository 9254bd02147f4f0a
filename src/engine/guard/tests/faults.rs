//! What is not on the list: suspended receivers, single bad reports, sources that change, garbage.

use super::camera::{Camera, FRAME, HOUR, MS, RATE, SECOND, SSRC, START, TRANSIT};
use crate::engine::guard::*;
use proptest::prelude::*;

#[test]
fn a_suspended_receiver_does_not_doubt_its_camera() {
    let mut camera = Camera::new();
    for _ in 0..5 {
        camera.frames(1);
        camera.report(0);
    }
    // 20 s of packets and reports wait in the socket and arrive at once.
    let woken = camera.now + 20 * SECOND;
    let mut sent = camera.now;
    while sent < woken {
        sent += FRAME;
        camera.now = woken;
        assert!(camera.packet_of(0, TRANSIT + woken - sent).0.is_empty());
        if sent % SECOND == 0 {
            let ntp = camera.shows(sent);
            camera.report_with(sent, ntp);
        }
    }
    camera.frames(1);
    camera.report(0);
    assert_eq!(camera.state(), SenderState::Accepted);
    let codes: Vec<Code> = camera.findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [Code::Followed]);
}

#[test]
fn a_clock_that_stands_still_is_refused() {
    let mut camera = Camera::new();
    camera.frames(1);
    let frozen = camera.shows(camera.now);
    for _ in 0..10 {
        camera.frames(1);
        let now = camera.now;
        camera.report_with(now, frozen);
    }
    let SenderState::Implausible(why) = camera.state() else { panic!("{:?}", camera.state()) };
    assert!(why.contains("does not go on"), "{why}");
}

#[test]
fn one_bad_report_changes_nothing() {
    let mut camera = Camera::new();
    for _ in 0..5 {
        camera.frames(1);
        camera.report(0);
    }
    camera.frames(1);
    assert!(camera.report(17 * SECOND).is_some_and(|error| error.abs() < MS), "the line's time in its place");
    camera.frames(1);
    assert_eq!(camera.report(0), Some(0));
    assert_eq!(camera.state(), SenderState::Accepted);
    assert!(camera.has(Code::Disagreeing) && !camera.has(Code::Stepped));
}

#[test]
fn a_first_report_that_is_wrong_gives_way_to_a_right_one() {
    let mut camera = Camera::new();
    camera.frames(1);
    camera.report(-HOUR);
    assert!(camera.differs().contains("local time"));
    camera.frames(1);
    assert_eq!(camera.report(0), Some(0));
    assert_eq!(camera.state(), SenderState::Accepted);
}

#[test]
fn a_report_without_a_name_gets_one() {
    let mut camera = Camera::new();
    camera.frames(1);
    let report = SenderReport { ssrc: SSRC, ntp: camera.shows(camera.now), rtp: camera.timestamp(camera.now) };
    let bytes = rtcp::sender_report(report);
    let out = camera.compound(0, &bytes);
    assert!(out.starts_with(&bytes));
    let names: Vec<u32> =
        rtcp::packets(&out).flat_map(|packet| packet.cnames().map(|name| name.0).collect::<Vec<_>>()).collect();
    assert_eq!(names, [SSRC]);
    assert!(camera.has(Code::Unnamed));

    let named = StreamInfo { clock_rate: RATE, named: true, ..StreamInfo::default() };
    camera.guard.set_stream(0, named);
    camera.frames(1);
    assert_eq!(camera.guard.rtcp(0, &bytes, camera.arrival()), None, "the SDP gives the name");
}

#[test]
fn a_goodbye_passes_and_is_told() {
    let mut camera = Camera::new();
    camera.frames(1);
    let report = SenderReport { ssrc: SSRC, ntp: 0, rtp: 0 };
    let bye = [0x81, 203, 0, 1, 0x11, 0x22, 0x33, 0x44];
    let out = camera.compound(0, &[&rtcp::sender_report(report)[..], &rtcp::cname(SSRC, b"c"), &bye].concat());
    assert!(out.ends_with(&bye), "even with a report that is refused");
    assert!(camera.has(Code::Bye));
}

#[test]
fn another_source_starts_afresh() {
    let mut camera = Camera::new();
    camera.frames(1);
    camera.report(0);
    camera.ssrc = 0x5566_7788;
    camera.base = 77;
    camera.clock = HOUR;
    camera.frame();
    assert_eq!(camera.guard.stream(0).unwrap().ssrc, SSRC, "one packet is no source");
    camera.frames(1);
    assert_eq!(camera.guard.stream(0).unwrap().ssrc, 0x5566_7788);
    assert!(camera.has(Code::SourceChanged) && !camera.has(Code::TimestampsRestarted));
    assert_eq!(camera.state(), SenderState::Silent(Duration::from_secs(1)));
    camera.report(0);
    assert!(camera.differs().contains("1 h ahead"));
}

#[test]
fn what_is_no_rtcp_passes_and_is_told() {
    let mut camera = Camera::new();
    for garbage in [&b"hello"[..], &[0x80, 200, 0, 200, 1], &[]] {
        assert_eq!(camera.guard.rtcp(0, garbage, START), None);
    }
    camera.findings.extend(camera.guard.take_findings());
    assert_eq!(camera.count(Code::Malformed), 1);
}

proptest! {
    #[test]
    fn garbage_is_survived(
        packets in prop::collection::vec(
            (any::<bool>(), 0usize..40, prop::collection::vec(any::<u8>(), 0..80), any::<u64>()), 0..60
        ),
        rate: u32,
    ) {
        let mut guard = Guard::new(Limits::default());
        guard.set_stream(0, StreamInfo { clock_rate: rate, ntp64_id: Some(1), replay_id: Some(2), named: false });
        for (is_rtp, number, mut bytes, arrived) in packets {
            // Half of it looks like a packet.
            if arrived % 2 == 0 && bytes.len() > 8 {
                bytes[0] = 0x90;
                bytes[1] = if is_rtp { 96 } else { 200 };
                bytes[2] = 0;
            }
            if is_rtp {
                guard.rtp(number, &bytes, arrived).apply(&mut bytes);
            } else {
                let _ = guard.rtcp(number, &bytes, arrived);
            }
            let _ = (guard.sender_state(Duration::ZERO), guard.stream(number), guard.substitute_report(number));
            let _ = (guard.may_schedule(), guard.sender_time(number, 1, arrived), guard.take_findings());
        }
    }

    #[test]
    fn any_constant_offset_ends_in_one_verdict(clock in -60_000_000_000i64..60_000_000_000, in_band: bool) {
        let mut camera = Camera { in_band, clock, ..Camera::new() };
        for _ in 0..4 {
            camera.frames(1);
            let passed = camera.report(0);
            prop_assert!(passed.is_some_and(|error| error.abs() < MS), "{:?}", passed);
        }
        let followed = camera.state() == SenderState::Accepted;
        prop_assert_eq!(followed, camera.guard.may_schedule());
        // Near the limits the transit and the hysteresis decide.
        if (-800 * MS..=400 * MS).contains(&clock) {
            prop_assert!(followed);
        } else if !(-SECOND - TRANSIT..=500 * MS + TRANSIT).contains(&clock) {
            prop_assert!(!followed);
        }
    }
}

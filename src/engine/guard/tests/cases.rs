//! S1 to S15: a simulated camera sends, the guard judges.

use super::camera::{Camera, FRAME, HOUR, MS, NTP64_ID, RATE, SECOND, SSRC, START, TRANSIT, capture};
use crate::engine::guard::fixed::{difference, plus};
use crate::engine::guard::*;

#[test]
fn an_honest_camera_passes_untouched() {
    for in_band in [false, true] {
        let mut camera = Camera { in_band, ..Camera::new() };
        for _ in 0..30 {
            for _ in 0..25 {
                assert!(camera.frame().0.is_empty());
            }
            let (now, ntp) = (camera.now, camera.shows(camera.now));
            let report = SenderReport { ssrc: SSRC, ntp, rtp: camera.timestamp(now) };
            let bytes = [rtcp::sender_report(report), rtcp::cname(SSRC, b"camera")].concat();
            assert_eq!(camera.guard.rtcp(0, &bytes, camera.arrival()), None);
        }
        camera.findings.extend(camera.guard.take_findings());
        assert_eq!(camera.state(), SenderState::Accepted);
        assert!(camera.guard.may_schedule());
        let codes: Vec<Code> = camera.findings.iter().map(|finding| finding.code).collect();
        assert_eq!(codes, [Code::Followed]);
        let view = camera.guard.stream(0).unwrap();
        assert_eq!((view.ssrc, view.smoothed, view.named), (SSRC, false, true));
        assert!((view.transit.unwrap() - TRANSIT).abs() < MS, "{view:?}");
        let timestamp = camera.timestamp(camera.now - TRANSIT);
        let time = camera.guard.sender_time(0, timestamp, camera.arrival()).unwrap();
        assert!(time.abs_diff(camera.arrival() - TRANSIT as u64) < MS as u64);
    }
}

#[test]
fn s1_without_reports_nothing_is_known() {
    let mut camera = Camera::new();
    camera.frames(20);
    assert_eq!(camera.state(), SenderState::Silent(Duration::from_secs(1)));
    assert!(camera.findings.is_empty());
    assert_eq!(camera.guard.sender_time(0, camera.timestamp(camera.now), camera.arrival()), None);
}

#[test]
fn s2_zero_times_are_taken_out() {
    for in_band in [false, true] {
        let mut camera = Camera::new();
        camera.frames(1);
        for _ in 0..5 {
            let now = camera.now;
            let out = camera.report_with(now, 0);
            let kinds: Vec<u8> = rtcp::packets(&out).map(|packet| packet.bytes()[1]).collect();
            assert_eq!(kinds, [201, 202], "a receiver report, and the CNAME");
            if in_band {
                let mut bytes = vec![0x90, 96, 0, 0];
                bytes.extend(camera.timestamp(camera.now).to_be_bytes());
                bytes.extend(SSRC.to_be_bytes());
                bytes.extend([0xbe, 0xde, 0, 3, NTP64_ID << 4 | 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                let edits = camera.guard.rtp(0, &bytes, camera.arrival());
                edits.apply(&mut bytes);
                assert_eq!(capture(&bytes), None);
            }
            camera.frames(1);
        }
        let SenderState::Implausible(why) = camera.state() else { panic!("{:?}", camera.state()) };
        assert!(why.contains("zero"), "{why}");
        assert_eq!(camera.count(Code::ZeroTime), 1, "said once");
    }
}

#[test]
fn s3_unix_time_is_named() {
    for in_band in [false, true] {
        let mut camera = Camera { in_band, clock: -2_208_988_800 * SECOND, ..Camera::new() };
        for _ in 0..3 {
            camera.frames(1);
            assert!(camera.report(0).is_some_and(|error| error.abs() < MS), "lips go by it");
        }
        assert!(camera.differs().contains("Unix time"), "{}", camera.differs());
    }
}

#[test]
fn s3_clocks_that_were_never_set_are_named() {
    let epoch = 2_208_988_800 * SECOND;
    let since_1900 = i64::try_from(START).unwrap();
    for (clock, word) in [
        (HOUR - since_1900, "since its start"),
        (HOUR + epoch - since_1900, "started at 1970"),
        (epoch, "twice"),
        (37 * SECOND, "TAI"),
        (37 * SECOND - epoch, "PTP time"),
        (-20 * 365 * 24 * HOUR, "ever set"),
    ] {
        let mut camera = Camera { clock, ..Camera::new() };
        for _ in 0..3 {
            camera.frames(1);
            camera.report(0);
        }
        assert!(camera.differs().contains(word), "{}", camera.differs());
    }
}

#[test]
fn times_that_can_be_none_are_taken_out() {
    // About 1960: before there was such a clock, and no known cause.
    let mut camera = Camera { clock: -66 * 365 * 24 * HOUR, ..Camera::new() };
    for _ in 0..3 {
        camera.frames(1);
        assert_eq!(camera.report(0), None);
    }
    let SenderState::Implausible(why) = camera.state() else { panic!("{:?}", camera.state()) };
    assert!(why.contains("before 1970"), "{why}");
}

#[test]
fn s4_local_time_is_named_at_once_and_never_scheduled_by() {
    for (clock, words) in [
        (HOUR, "1 h ahead: local time"),
        (-5 * HOUR - HOUR / 2, "5 h 30 min behind: local time"),
        (100 * SECOND, "1 min 40 s ahead"),
        (-3 * SECOND, "3.0 s behind"),
        (800 * MS, "800 ms ahead"),
    ] {
        for in_band in [false, true] {
            let mut camera = Camera { in_band, clock, ..Camera::new() };
            camera.frame();
            if !in_band {
                camera.report(0);
            }
            assert!(!camera.guard.may_schedule(), "with the first time that comes");
            camera.frames(2);
            let error = camera.report(0);
            assert!(error.is_some_and(|error| error.abs() < MS), "its time is still shown: {error:?}");
            let text = camera.differs();
            assert!(text.starts_with(words), "{text}");
            assert!(camera.has(Code::OtherClock) && !camera.has(Code::Followed));
        }
    }
}

#[test]
fn s5_a_step_is_held_back_then_believed() {
    for in_band in [false, true] {
        let mut camera = Camera { in_band, ..Camera::new() };
        for _ in 0..10 {
            camera.frames(1);
            camera.report(0);
        }
        camera.clock = 5 * SECOND;
        if in_band {
            let (_, first) = camera.frame();
            let held = difference(capture(&first).unwrap(), camera.shows(camera.now - TRANSIT));
            assert!((held + 5 * SECOND).abs() < MS, "the old line goes on for one frame: {held}");
            let (edits, _) = camera.frame();
            assert!(edits.is_empty());
        } else {
            let held = camera.report(0).unwrap();
            assert!((held + 5 * SECOND).abs() < MS, "the old line goes on for one report: {held}");
            assert_eq!(camera.state(), SenderState::Accepted);
            camera.frames(1);
            assert!(camera.report(0).unwrap().abs() < MS);
        }
        assert_eq!(camera.count(Code::Stepped), 1);
        let step = camera.findings.iter().find(|finding| finding.code == Code::Stepped).unwrap();
        assert!(step.text.contains("5.0 s ahead"), "{}", step.text);
        assert!(camera.differs().contains("s ahead"));

        // And back: synchronized again.
        camera.clock = 0;
        for _ in 0..2 {
            camera.frames(1);
            camera.report(0);
        }
        assert_eq!(camera.state(), SenderState::Accepted);
        assert!(camera.guard.may_schedule());
    }
}

#[test]
fn s6_stale_reports_are_as_good() {
    let mut camera = Camera::new();
    for _ in 0..10 {
        camera.frames(1);
        let then = camera.now - 700 * MS;
        let ntp = camera.shows(then);
        let out = camera.report_with(then, ntp);
        assert_eq!(rtcp::packets(&out).next().unwrap().sender_report().unwrap().ntp, ntp);
    }
    assert_eq!(camera.state(), SenderState::Accepted);
    // Even when they are older than any latency.
    let mut camera = Camera::new();
    camera.frames(5);
    for _ in 0..5 {
        camera.frames(1);
        let then = camera.now - 4 * SECOND;
        let ntp = camera.shows(then);
        camera.report_with(then, ntp);
    }
    assert_eq!(camera.state(), SenderState::Accepted);
}

#[test]
fn s7_swapped_sources_are_named() {
    let mut camera = Camera::new();
    camera.frames(1);
    for _ in 0..3 {
        let swapped = SSRC.swap_bytes();
        let report = SenderReport { ssrc: swapped, ntp: camera.shows(camera.now), rtp: camera.timestamp(camera.now) };
        let bytes = [rtcp::sender_report(report), rtcp::cname(swapped, b"camera")].concat();
        let out = camera.compound(0, &bytes);
        assert_eq!(rtcp::packets(&out).filter_map(|packet| packet.sender_report()).count(), 0);
        camera.frames(1);
    }
    let SenderState::Implausible(why) = camera.state() else { panic!("{:?}", camera.state()) };
    assert!(why.contains("swapped bytes"), "{why}");
    assert_eq!(camera.count(Code::SwappedSource), 1);
}

#[test]
fn s8_a_late_first_report_is_followed_at_once() {
    let mut camera = Camera::new();
    camera.frames(5);
    assert_eq!(camera.state(), SenderState::Silent(Duration::from_secs(1)));
    assert_eq!(camera.report(0), Some(0));
    assert_eq!(camera.state(), SenderState::Accepted);
}

#[test]
fn a_report_before_the_first_packet_counts_with_it() {
    let mut camera = Camera { now: SECOND, ..Camera::new() };
    assert_eq!(camera.report(0), Some(0));
    camera.frame();
    assert_eq!(camera.state(), SenderState::Accepted);
}

#[test]
fn s9_streams_that_are_apart_are_said_to_be() {
    for (error, apart) in [(-400 * MS, true), (400 * MS, true), (-100 * MS, false)] {
        let mut camera = Camera::with_streams(2);
        for _ in 0..5 {
            for _ in 0..25 {
                camera.now += FRAME;
                camera.packet_of(0, TRANSIT);
                camera.packet_of(1, TRANSIT);
            }
            for (number, off) in [(0, 0), (1, error)] {
                let ssrc = SSRC + number as u32;
                let ntp = plus(camera.shows(camera.now), off);
                let report = SenderReport { ssrc, ntp, rtp: camera.timestamp(camera.now) };
                camera.compound(number, &[rtcp::sender_report(report), rtcp::cname(ssrc, b"camera")].concat());
            }
        }
        assert_eq!(camera.state(), SenderState::Accepted);
        assert_eq!(camera.count(Code::LipsApart), usize::from(apart));
        if apart {
            let finding = camera.findings.iter().find(|finding| finding.code == Code::LipsApart).unwrap();
            assert!(finding.text.contains("400 ms"), "{}", finding.text);
        }
        let transits = [0, 1].map(|number| camera.guard.stream(number).unwrap().transit.unwrap());
        assert!((transits[0] - transits[1] - error).abs() < MS, "{transits:?}");
    }
}

#[test]
fn s10_a_small_offset_is_followed_and_shown() {
    for clock in [300 * MS, -300 * MS] {
        let mut camera = Camera { clock, ..Camera::new() };
        for _ in 0..5 {
            camera.frames(1);
            assert_eq!(camera.report(0), Some(0));
        }
        assert_eq!(camera.state(), SenderState::Accepted);
        let Belief::Followed { offset } = camera.guard.stream(0).unwrap().belief else { panic!("followed") };
        assert!((offset - clock).abs() < MS, "{offset}");
    }
}

#[test]
fn s11_jitter_is_smoothed_and_said() {
    for in_band in [false, true] {
        let mut camera = Camera { in_band, ..Camera::new() };
        let mut random = 1u64;
        let mut noise = move || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((random >> 40) as f64 / f64::from(1 << 23) - 1.0) * 12.0 * MS as f64
        };
        let mut previous: Option<i64> = None;
        for round in 0..200 {
            let off = if in_band {
                camera.now += FRAME;
                camera.clock = noise() as i64;
                let (_, bytes) = camera.packet_of(0, TRANSIT);
                let passed = capture(&bytes).unwrap();
                camera.clock = 0;
                difference(passed, camera.shows(camera.now - TRANSIT))
            } else {
                camera.frames(1);
                camera.report(noise() as i64).unwrap()
            };
            if let Some(previous) = previous {
                assert!((off - previous).abs() < MS, "{round}: {previous} to {off}");
            }
            previous = Some(off);
        }
        assert!(camera.guard.stream(0).unwrap().smoothed && camera.has(Code::Smoothed));
        assert_eq!(camera.state(), SenderState::Accepted);
    }
}

#[test]
fn s12_the_wrap_changes_nothing() {
    let mut camera = Camera { base: u32::MAX - 5 * RATE, ..Camera::new() };
    for _ in 0..20 {
        for _ in 0..25 {
            assert!(camera.frame().0.is_empty());
        }
        assert_eq!(camera.report(0), Some(0));
    }
    assert!(!camera.has(Code::TimestampsRestarted) && !camera.has(Code::Stepped));
}

#[test]
fn s13_a_restart_of_the_timestamps_costs_one_frame_and_waits_for_a_report() {
    let mut camera = Camera::new();
    for _ in 0..5 {
        camera.frames(1);
        camera.report(0);
    }
    camera.base = 3_000_000_000;
    let (edits, bytes) = camera.frame();
    assert!(!edits.is_empty());
    let expected = Camera::new().timestamp(camera.now - TRANSIT);
    let used = header::parse(&bytes, None).unwrap().timestamp;
    assert!(used.abs_diff(expected) < RATE / 100, "{used} {expected}");
    assert!(camera.frame().0.is_empty());
    assert_eq!(camera.count(Code::TimestampsRestarted), 1);
    // A report that still counts from the old base says nothing of the stream.
    let new_base = std::mem::replace(&mut camera.base, 1_000_000);
    assert_eq!(camera.report(0), None);
    assert!(camera.has(Code::ForeignTimestamp));
    camera.base = new_base;
    camera.frames(1);
    assert_eq!(camera.report(0), Some(0));
    assert_eq!(camera.state(), SenderState::Accepted);
}

#[test]
fn a_stray_timestamp_is_put_right() {
    let mut camera = Camera::new();
    camera.frames(2);
    camera.report(0);
    for by in [9_000_000u32, 0u32.wrapping_sub(9_000_000), 200_000] {
        camera.base = 1_000_000u32.wrapping_add(by);
        let (_, bytes) = camera.frame();
        camera.base = 1_000_000;
        let used = header::parse(&bytes, None).unwrap().timestamp;
        let expected = camera.timestamp(camera.now - TRANSIT);
        assert!(used.abs_diff(expected) < RATE / 100, "{used} {expected}");
        assert!(camera.frame().0.is_empty());
    }
    assert!(camera.has(Code::StrayTimestamp) && !camera.has(Code::TimestampsRestarted));
    assert_eq!(camera.state(), SenderState::Accepted);
}

#[test]
fn s14_times_on_packets_alone_give_a_substitute_report() {
    let mut camera = Camera { in_band: true, ..Camera::new() };
    assert_eq!(camera.guard.substitute_report(0), None);
    camera.frames(2);
    assert_eq!(camera.state(), SenderState::Accepted);
    assert!(!camera.guard.stream(0).unwrap().named, "rtpbin does not synchronize it yet");
    let substitute = camera.guard.substitute_report(0).expect("a report");
    let packets: Vec<_> = rtcp::packets(&substitute).collect();
    let report = packets[0].sender_report().unwrap();
    assert_eq!((report.ssrc, report.rtp), (SSRC, camera.timestamp(camera.now - TRANSIT)));
    assert!(difference(report.ntp, camera.shows(camera.now - TRANSIT)).abs() < MS);
    assert_eq!(packets[1].cnames().count(), 1);
    camera.report(0);
    assert_eq!(camera.guard.substitute_report(0), None, "it reports itself now");
}

#[test]
fn s15_the_onvif_extension_becomes_ntp64() {
    let mut camera = Camera::new();
    let info = StreamInfo { clock_rate: RATE, replay_id: Some(9), ..StreamInfo::default() };
    camera.guard.set_stream(0, info);
    for _ in 0..10 {
        camera.now += FRAME;
        let captured = camera.now - TRANSIT;
        let mut bytes = vec![0x90, 96, 0, 0];
        bytes.extend(camera.timestamp(captured).to_be_bytes());
        bytes.extend(SSRC.to_be_bytes());
        bytes.extend([0xab, 0xac, 0, 3]);
        bytes.extend(camera.shows(captured).to_be_bytes());
        bytes.extend([0x80, 1, 0, 0]);
        camera.guard.rtp(0, &bytes, camera.arrival()).apply(&mut bytes);
        let capture = header::parse(&bytes, Some(9)).unwrap().capture.unwrap();
        assert_eq!((capture.ntp, capture.form), (camera.shows(captured), Form::OneByte));
    }
    assert_eq!(camera.state(), SenderState::Accepted);
}

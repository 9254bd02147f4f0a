//! The scripted camera on the wire: what RTP and RTCP hold, read by a client of our own.

mod support;

use std::time::Duration;
use support::camera::{
    Camera, Epoch, Event, HOUR, MS, Media, Nanos, Ntp64, OnvifReplay, Recording, SECOND, Script, Sdes, Stream, Truth,
};
use support::rtsp_client::{Arrival, Client, Rtcp, RtpPacket, rtcp, rtcp_of, rtp_of};
use support::timeline::NTP_UNIX_SECONDS;

/// For anything that takes well below a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// One tick of 90 kHz is 11 µs, one of 8 kHz is 125 µs.
const TICK_TOLERANCE: Nanos = 150_000;

/// A camera, its first client, and what has arrived there.
struct Seen {
    camera: Camera,
    client: Client,
    arrivals: Vec<Arrival>,
}

/// Plays a script in the connection until `enough`.
fn watch(script: Script, enough: impl Fn(&[Arrival]) -> bool) -> Seen {
    let camera = Camera::start(script);
    let mut client = Client::playing(&camera.url(), false).expect("the camera plays");
    let arrivals = client.collect_until(PATIENCE, enough);
    Seen { camera, client, arrivals }
}

/// Until so many RTP packets of the first stream have come, and then the first report.
fn packets(count: usize) -> impl Fn(&[Arrival]) -> bool {
    move |arrivals| {
        arrivals.iter().filter(|arrival| arrival.channel == 0).count() >= count
            && arrivals.iter().any(|arrival| arrival.channel == 1)
    }
}

/// Until so many RTCP packets of the first stream have come.
fn reports(count: usize) -> impl Fn(&[Arrival]) -> bool {
    move |arrivals| arrivals.iter().filter(|arrival| arrival.channel == 1).count() >= count
}

impl Seen {
    fn rtp(&self, stream: u8) -> Vec<RtpPacket> {
        rtp_of(&self.arrivals, stream)
    }

    fn truth(&self, stream: usize) -> Truth {
        self.camera.log().sessions()[0][stream]
    }

    /// NTP and RTP time of every sender report of a stream.
    fn sender_reports(&self, stream: u8) -> Vec<(u64, u32)> {
        let compounds = rtcp_of(&self.arrivals, stream).into_iter().flatten();
        compounds
            .filter_map(|packet| match packet {
                Rtcp::SenderReport { ntp, rtp, .. } => Some((ntp, rtp)),
                _ => None,
            })
            .collect()
    }

    /// By how much each report of a stream is ahead of the truth.
    fn report_errors(&self, stream: u8, clock_rate: i64) -> Vec<Nanos> {
        let truth = self.truth(stream.into());
        self.sender_reports(stream).into_iter().map(|(ntp, rtp)| error(ntp, rtp, &truth, clock_rate)).collect()
    }
}

/// An NTP field as Unix time, taken for a time of this era.
fn unix(ntp: u64) -> Nanos {
    let fraction = (u128::from(ntp as u32) * SECOND as u128) >> 32;
    ((ntp >> 32) as Nanos - NTP_UNIX_SECONDS) * SECOND + fraction as Nanos
}

/// By how much the NTP time that goes with an RTP timestamp is ahead of the truth.
fn error(ntp: u64, timestamp: u32, truth: &Truth, clock_rate: i64) -> Nanos {
    let ticks = i64::from(timestamp.wrapping_sub(truth.timestamp).cast_signed());
    unix(ntp) - (truth.captured + ticks * SECOND / clock_rate)
}

fn near(value: Nanos, expected: Nanos) -> bool {
    (value - expected).abs() < TICK_TOLERANCE
}

/// The first packets of frames.
fn frames(packets: &[RtpPacket]) -> Vec<RtpPacket> {
    let mut frames: Vec<RtpPacket> = Vec::new();
    for packet in packets {
        if frames.last().is_none_or(|last| last.timestamp != packet.timestamp) {
            frames.push(packet.clone());
        }
    }
    frames
}

fn video(change: impl Fn(&mut Stream)) -> Script {
    Script::video().each_stream(change)
}

#[test]
fn the_honest_camera_is_honest() {
    let seen = watch(Script::both(), packets(60));
    for (stream, rate, ticks) in [(0, 90_000, 3_600), (1, 8_000, 160)] {
        let (packets, truth) = (seen.rtp(stream), seen.truth(stream.into()));
        assert_eq!((packets[0].sequence, packets[0].timestamp), (truth.sequence, truth.timestamp));
        for pair in packets.windows(2) {
            assert_eq!(pair[1].sequence, pair[0].sequence.wrapping_add(1));
            assert_eq!(pair[1].ssrc, truth.ssrc);
            assert_eq!(pair[1].timestamp == pair[0].timestamp, stream == 0 && !pair[0].marker);
        }
        for pair in frames(&packets).windows(2) {
            assert_eq!(pair[1].timestamp.wrapping_sub(pair[0].timestamp), ticks);
        }
        let errors = seen.report_errors(stream, rate);
        assert!(!errors.is_empty() && errors.iter().all(|error| near(*error, 0)), "{errors:?}");
        let compound = &rtcp_of(&seen.arrivals, stream)[0];
        assert!(matches!(&compound[1], Rtcp::Cname { ssrc, .. } if *ssrc == truth.ssrc), "{compound:?}");
        assert!(
            seen.arrivals.iter().position(|a| a.channel == 2 * stream).unwrap()
                < seen.arrivals.iter().position(|a| a.channel == 2 * stream + 1).unwrap()
        );
    }
}

#[test]
fn packets_travel_over_udp() {
    let camera = Camera::start(Script::video());
    let mut client = Client::playing(&camera.url(), true).unwrap();
    let arrivals = client.collect_until(PATIENCE, packets(20));
    assert!(rtp_of(&arrivals, 0).len() >= 20 && !rtcp_of(&arrivals, 0).is_empty());
}

#[test]
fn the_clock_of_the_camera_may_be_off_and_drift() {
    let seen = watch(Script::video().with(|script| script.clock.offset = HOUR), reports(1));
    assert!(near(seen.report_errors(0, 90_000)[0], HOUR));
    // 1 % fast from the start of the camera on, which is a little before the first frame.
    let seen = watch(Script::video().with(|script| script.clock.ppm = 10_000.0), reports(3));
    let errors = seen.report_errors(0, 90_000);
    let gained = errors[2] - errors[0];
    let passed = seen.sender_reports(0)[2].1.wrapping_sub(seen.sender_reports(0)[0].1);
    assert!(near(gained, i64::from(passed) * SECOND / 90_000 / 100), "{gained} ns gained");
}

#[test]
fn the_sampling_may_drift_alone() {
    // RTP runs 1 % fast; the NTP times stay right.
    let seen = watch(video(|stream| stream.sampling_ppm = 10_000.0), reports(3));
    let reports = seen.sender_reports(0);
    let (ntp, rtp) = (unix(reports[2].0) - unix(reports[0].0), reports[2].1.wrapping_sub(reports[0].1));
    let nominal = i64::from(rtp) * SECOND / 90_000;
    assert!(near(nominal - ntp, ntp / 100), "{nominal} ns of samples in {ntp} ns");
}

#[test]
fn fields_count_from_every_epoch() {
    let seventy_years = NTP_UNIX_SECONDS * SECOND;
    for (epoch, expected) in [(Epoch::Ntp, 0), (Epoch::Unix, -seventy_years), (Epoch::Tai, 37 * SECOND)] {
        let seen = watch(video(|stream| stream.reports.epoch = epoch), reports(1));
        let error = seen.report_errors(0, 90_000)[0];
        assert!(near(error, expected), "{epoch:?}: {error}");
    }
    let first = |epoch| watch(video(|stream| stream.reports.epoch = epoch), reports(1)).sender_reports(0)[0].0;
    assert_eq!(first(Epoch::Zero), 0);
    let minute = 60 * SECOND;
    assert!((0..minute).contains(&unix(first(Epoch::BootedIn1970))));
    assert!((0..minute).contains(&(unix(first(Epoch::Uptime)) + seventy_years)));
    // 70 years too late is beyond 2036: it wraps.
    let era = SECOND << 32;
    let now = watch(Script::video(), reports(1)).camera.utc();
    let twice = unix(first(Epoch::Twice)) + era - seventy_years;
    assert!((now - minute..now + minute).contains(&twice), "{twice}");
}

#[test]
fn one_stream_may_report_another_time() {
    let seen = watch(Script::both().with(|script| script.streams[1].reports.offset = -400 * MS), |arrivals| {
        reports(1)(arrivals) && arrivals.iter().any(|arrival| arrival.channel == 3)
    });
    assert!(near(seen.report_errors(0, 90_000)[0], 0));
    assert!(near(seen.report_errors(1, 8_000)[0], -400 * MS));
}

#[test]
fn reports_jitter_within_their_bound() {
    let seen =
        watch(video(|stream| (stream.reports.jitter, stream.reports.interval) = (12 * MS, 50 * MS)), reports(40));
    let errors = seen.report_errors(0, 90_000);
    assert!(errors.iter().all(|error| error.abs() <= 12 * MS + TICK_TOLERANCE), "{errors:?}");
    let spread = errors.iter().max().unwrap() - errors.iter().min().unwrap();
    assert!(spread > 12 * MS, "{spread}");
}

#[test]
fn stale_reports_are_old_and_consistent() {
    let seen = watch(video(|stream| stream.reports.stale = 700 * MS), reports(2));
    let errors = seen.report_errors(0, 90_000);
    assert!(errors.iter().all(|error| near(*error, 0)), "{errors:?}");
    let age = seen.camera.utc() - unix(seen.sender_reports(0)[1].0);
    assert!(age >= 700 * MS, "{age}");
}

#[test]
fn reports_may_be_missing_late_or_for_nobody() {
    let seen = watch(video(|stream| stream.reports.sent = false), |arrivals| arrivals.len() >= 60);
    assert!(rtcp_of(&seen.arrivals, 0).is_empty());

    let seen = watch(video(|stream| stream.reports.first_after = 2 * SECOND), reports(1));
    let before = seen.arrivals.iter().filter(|arrival| arrival.channel == 0).map(|arrival| arrival.at).min().unwrap();
    assert!(seen.arrivals.last().unwrap().at.duration_since(before) > Duration::from_millis(1_500));

    let seen = watch(video(|stream| stream.reports.swapped_ssrc = true), reports(1));
    let compound = &rtcp_of(&seen.arrivals, 0)[0];
    let ssrc = seen.truth(0).ssrc;
    assert!(matches!(compound[0], Rtcp::SenderReport { ssrc: swapped, .. } if swapped == ssrc.swap_bytes()));
}

#[test]
fn the_cname_may_travel_apart_or_not_at_all() {
    let seen = watch(video(|stream| stream.reports.sdes = Sdes::Apart), reports(2));
    let compounds = rtcp_of(&seen.arrivals, 0);
    assert!(matches!(compounds[0][..], [Rtcp::SenderReport { .. }]), "{compounds:?}");
    assert!(matches!(compounds[1][..], [Rtcp::Cname { .. }]), "{compounds:?}");

    let seen = watch(video(|stream| stream.reports.sdes = Sdes::Missing), reports(2));
    let compounds = rtcp_of(&seen.arrivals, 0);
    assert!(compounds.iter().all(|compound| matches!(compound[..], [Rtcp::SenderReport { .. }])), "{compounds:?}");
}

#[test]
fn ntp64_comes_in_both_forms() {
    for two_byte in [false, true] {
        let seen =
            watch(video(|stream| stream.ntp64 = Some(Ntp64 { id: 5, two_byte, ..Ntp64::default() })), packets(30));
        let truth = seen.truth(0);
        for packet in seen.rtp(0) {
            let (profile, words) = packet.extension.expect("on every packet");
            let data = match profile {
                0xbede if words[0] == 5 << 4 | 7 => &words[1..9],
                0x1000 if words[..2] == [5, 8] => &words[2..10],
                _ => panic!("{profile:#x} {words:?}"),
            };
            assert_eq!(profile == 0x1000, two_byte);
            let ntp = u64::from_be_bytes(data.try_into().unwrap());
            assert!(near(error(ntp, packet.timestamp, &truth, 90_000), 0));
        }
    }
}

#[test]
fn ntp64_may_come_once_a_frame_and_from_another_clock() {
    let ntp64 = Ntp64 { first_packet_only: true, offset: HOUR, ..Ntp64::default() };
    // The large picture has frames of several packets.
    let script = Script::of([Media::H264(Recording::Large)]).each_stream(|stream| stream.ntp64 = Some(ntp64.clone()));
    let seen = watch(script, packets(60));
    let mut previous = None;
    for packet in seen.rtp(0) {
        assert_eq!(packet.extension.is_some(), previous != Some(packet.timestamp));
        previous = Some(packet.timestamp);
        if let Some((_, words)) = &packet.extension {
            let ntp = u64::from_be_bytes(words[1..9].try_into().unwrap());
            assert!(near(error(ntp, packet.timestamp, &seen.truth(0), 90_000), HOUR));
        }
    }
}

#[test]
fn the_onvif_replay_extension_marks_clean_points() {
    let seen = watch(video(|stream| stream.onvif_replay = Some(OnvifReplay::default())), packets(60));
    let mut clean = 0;
    for packet in frames(&seen.rtp(0)) {
        let (profile, words) = packet.extension.expect("on the first packet of each frame");
        assert_eq!((profile, words.len()), (0xabac, 12));
        let ntp = u64::from_be_bytes(words[..8].try_into().unwrap());
        assert!(near(error(ntp, packet.timestamp, &seen.truth(0), 90_000), 0));
        clean += usize::from(words[8] >> 7);
    }
    assert!((2..20).contains(&clean), "{clean} clean points");
}

#[test]
fn timestamps_wrap() {
    let start = u32::MAX - 45_000;
    let seen = watch(video(|stream| stream.timestamp = Some(start)), reports(3));
    let packets = seen.rtp(0);
    assert_eq!(packets[0].timestamp, start);
    assert!(packets.iter().any(|packet| packet.timestamp < start), "it has wrapped");
    assert!(frames(&packets).windows(2).all(|pair| pair[1].timestamp.wrapping_sub(pair[0].timestamp) == 3_600));
    assert!(seen.report_errors(0, 90_000).iter().all(|error| near(*error, 0)));
}

#[test]
fn timestamps_restart_and_stray() {
    let script = Script::video()
        .at(500 * MS, Event::RestartTimestamps(1_000_000))
        .at(SECOND, Event::OutlierTimestamp(-9_000_000));
    let seen = watch(script, packets(60));
    let frames = frames(&seen.rtp(0));
    let start = frames.iter().position(|frame| frame.timestamp == 1_000_000).expect("the restart");
    assert!(frames.iter().all(|frame| frame.ssrc == seen.truth(0).ssrc));
    let regular = |frame: &&RtpPacket| {
        frame.timestamp.wrapping_sub(1_000_000).is_multiple_of(3_600) && frame.timestamp >= 1_000_000
    };
    let outliers: Vec<_> = frames[start..].iter().filter(|frame| !regular(frame)).collect();
    assert_eq!(outliers.len(), 1, "one frame alone is off");
    assert!(outliers[0].timestamp > 1_000_000u32.wrapping_sub(9_000_000));
}

#[test]
fn reports_follow_a_restart_of_the_timestamps() {
    let script = video(|stream| stream.reports.interval = 100 * MS).at(500 * MS, Event::RestartTimestamps(7));
    let seen = watch(script, reports(20));
    let start = seen.rtp(0).iter().position(|packet| packet.timestamp == 7).unwrap();
    assert!(start > 0);
    let (ntp, rtp) = *seen.sender_reports(0).last().unwrap();
    assert!(rtp < 90_000 * 60, "counts from the restart");
    let grid = (unix(ntp) - i64::from(rtp - 7) * SECOND / 90_000 - seen.truth(0).captured) % (40 * MS);
    assert!(near(grid, 0) || near(grid, 40 * MS), "{grid}");
}

#[test]
fn sequence_numbers_jump_and_sources_change() {
    let script = Script::video().at(300 * MS, Event::JumpSequence(500)).at(800 * MS, Event::ChangeSource { bye: true });
    let seen = watch(script, packets(60));
    let packets = seen.rtp(0);
    let old = seen.truth(0).ssrc;
    let jumps = packets.windows(2).filter(|pair| pair[1].sequence == pair[0].sequence.wrapping_add(501)).count();
    assert_eq!(jumps, 1);
    let change = packets.iter().position(|packet| packet.ssrc != old).expect("the change");
    assert!(packets[change..].iter().all(|packet| packet.ssrc == packets[change].ssrc));
    let farewells: Vec<Rtcp> = rtcp_of(&seen.arrivals, 0).concat();
    assert!(farewells.contains(&Rtcp::Bye { ssrc: old }), "{farewells:?}");
}

#[test]
fn the_clock_steps_in_reports_and_on_packets() {
    let script = video(|stream| {
        stream.ntp64 = Some(Ntp64::default());
        stream.reports.interval = 200 * MS;
    })
    .at(600 * MS, Event::StepClock(5 * SECOND));
    let seen = watch(script, reports(8));
    let errors = seen.report_errors(0, 90_000);
    assert!(near(errors[0], 0) && near(*errors.last().unwrap(), 5 * SECOND), "{errors:?}");
    let last = seen.rtp(0).pop().unwrap();
    let ntp = u64::from_be_bytes(last.extension.unwrap().1[1..9].try_into().unwrap());
    assert!(near(error(ntp, last.timestamp, &seen.truth(0), 90_000), 5 * SECOND));
}

#[test]
fn payload_types_differ_and_media_stay_silent() {
    let script = Script::both().with(|script| {
        script.streams[0].wire_payload_type = Some(112);
        script.streams[1].silent = true;
    });
    let seen = watch(script, packets(30));
    assert!(seen.rtp(0).iter().all(|packet| packet.payload_type == 112));
    assert!(seen.rtp(1).is_empty());
}

#[test]
fn parameter_sets_may_be_in_the_sdp_alone() {
    let kinds = |in_band| {
        let seen = watch(video(|stream| stream.in_band_parameter_sets = in_band), packets(30));
        seen.rtp(0).iter().filter(|packet| matches!(packet.payload[0] & 31, 7 | 8)).count()
    };
    assert_eq!(kinds(false), 0);
    assert!(kinds(true) > 0);
}

#[test]
fn the_network_loses_and_reorders() {
    let order = |seen: &Seen| -> Vec<u16> {
        let first = seen.truth(0).sequence;
        seen.rtp(0).iter().map(|packet| packet.sequence.wrapping_sub(first)).collect()
    };
    let lossy = Script::video().with(|script| script.network.loss = 0.3);
    let order_seen = order(&watch(lossy.clone(), packets(60)));
    assert!(
        order_seen.is_sorted() && usize::from(*order_seen.last().unwrap()) > order_seen.len() + 5,
        "{order_seen:?}"
    );
    let again = order(&watch(lossy, packets(60)));
    assert_eq!(order_seen[..60], again[..60], "the same seed loses the same packets");

    let seen = watch(Script::video().with(|script| script.network.reorder = 0.2), packets(60));
    let mut sequence = order(&seen);
    assert!(!sequence.is_sorted());
    sequence.sort_unstable();
    sequence.truncate(50);
    assert_eq!(sequence, (0..50).collect::<Vec<u16>>(), "nothing is lost");
}

#[test]
fn the_network_holds_packets_and_lets_them_go_together() {
    let seen = watch(Script::sound().with(|script| script.network.burst = Some(500 * MS)), packets(100));
    let times: Vec<_> = seen.arrivals.iter().filter(|arrival| arrival.channel == 0).map(|arrival| arrival.at).collect();
    let pauses = times.windows(2).filter(|pair| pair[1] - pair[0] > Duration::from_millis(250)).count();
    assert!(pauses >= 2, "{pauses} pauses");
    let seen = watch(Script::sound().with(|script| script.network.jitter = 100 * MS), packets(100));
    assert!(!seen.rtp(0).is_sorted_by_key(|packet| packet.sequence), "packets overtake each other");
}

#[test]
fn silence_comes_and_goes() {
    let script = Script::video().at(500 * MS, Event::Silence).at(1_800 * MS, Event::Resume);
    let seen = watch(script, |arrivals| {
        let times: Vec<_> = arrivals.iter().map(|arrival| arrival.at).collect();
        times.windows(2).any(|pair| pair[1] - pair[0] > Duration::from_millis(800))
    });
    let frames = frames(&seen.rtp(0));
    let (last, before) = (frames.last().unwrap().timestamp, frames[frames.len() - 2].timestamp);
    assert!(last.wrapping_sub(before) > 90_000 / 2, "what was captured meanwhile is not sent");
}

#[test]
fn a_relay_sends_nothing_at_first() {
    let camera = Camera::start(Script::video().with(|script| script.first_packet_after = 2 * SECOND));
    let mut client = Client::playing(&camera.url(), false).unwrap();
    assert!(client.collect(Duration::from_millis(1_500)).is_empty());
    assert!(!client.collect_until(PATIENCE, packets(1)).is_empty());
}

#[test]
fn bye_ends_every_stream() {
    let seen = watch(Script::both().at(SECOND, Event::Bye), |arrivals| {
        arrivals.iter().filter(|arrival| rtcp_has_bye(arrival)).count() == 2
    });
    let mut client = seen.client;
    assert!(client.collect(Duration::from_millis(500)).is_empty(), "and then there is silence");
}

fn rtcp_has_bye(arrival: &Arrival) -> bool {
    arrival.channel % 2 == 1 && matches!(rtcp(&arrival.bytes).last(), Some(Rtcp::Bye { .. }))
}

#[test]
fn stray_frames_and_raw_reports_are_sent_as_they_are() {
    let script = Script::video()
        .at(200 * MS, Event::StrayFrame { channel: 42 })
        .at(300 * MS, Event::Rtcp(b"\x80\xc9\x00\x01what".to_vec()));
    let seen = watch(script, |arrivals| {
        arrivals.iter().any(|arrival| arrival.channel == 42) && arrivals.iter().any(|a| a.bytes.ends_with(b"what"))
    });
    assert!(seen.arrivals.iter().any(|arrival| arrival.channel == 42));
    assert!(seen.arrivals.iter().any(|arrival| arrival.channel == 1 && arrival.bytes.ends_with(b"what")));
}

#[test]
fn streams_change_while_they_play() {
    let camera = Camera::start(video(|stream| stream.reports.interval = 100 * MS));
    let mut client = Client::playing(&camera.url(), false).unwrap();
    assert!(reports(1)(&client.collect_until(PATIENCE, reports(1))));
    camera.happen(Event::Change(|_, stream| stream.reports.epoch = Epoch::Zero));
    let zero = |arrivals: &[Arrival]| {
        let mut reports = rtcp_of(arrivals, 0).concat().into_iter();
        reports.any(|packet| matches!(packet, Rtcp::SenderReport { ntp: 0, .. }))
    };
    assert!(zero(&client.collect_until(PATIENCE, zero)));
}

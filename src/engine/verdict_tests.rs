use super::*;
use proptest::prelude::*;

const T: fn() -> Thresholds = Thresholds::default;

fn clock(uncertainty_us: u64) -> ClockState {
    ClockState::Synced {
        uncertainty: Some(Duration::from_micros(uncertainty_us)),
        silent_for: Some(Duration::from_secs(1)),
        undisciplined: false,
    }
}

fn room() -> RoomState {
    RoomState { sync: true, clock: clock(100), connected: true, sender: SenderState::Accepted }
}

fn video() -> StreamState {
    StreamState {
        watch: Watch::Measured,
        frames: 25,
        with_sender_time: 25,
        late: 0,
        error_ns: Some(90_000),
        bound_ns: 40_000_000,
        needed_latency: None,
        locking: None,
        no_output: None,
    }
}

fn verdict(room: &RoomState, stream: &StreamState) -> (&'static str, Option<&'static str>) {
    let stream = judge_stream(room, stream, &T());
    let verdict = judge_room(room, std::slice::from_ref(&stream), &T());
    (verdict.name(), verdict.reason().map(Reason::code))
}

#[test]
fn synced_needs_everything() {
    assert_eq!(verdict(&room(), &video()), ("synced", None));
    for (change, wanted) in [
        (RoomState { sync: false, ..room() }, ("unsynced", Some("sync_off"))),
        (RoomState { clock: clock(1_500), ..room() }, ("approximate", Some("clock_uncertain"))),
        (RoomState { clock: clock(21_000), ..room() }, ("unsynced", Some("clock_uncertain"))),
        (RoomState { clock: ClockState::Unreachable, ..room() }, ("unsynced", Some("clock_unreachable"))),
        (
            RoomState { clock: ClockState::Waiting(Duration::from_secs(1)), ..room() },
            ("acquiring", Some("waiting_for_clock")),
        ),
        (RoomState { connected: false, ..room() }, ("acquiring", Some("connecting"))),
        (
            RoomState { sender: SenderState::Silent(Duration::from_secs(9)), ..room() },
            ("acquiring", Some("waiting_for_reports")),
        ),
        (
            RoomState { sender: SenderState::Silent(Duration::from_secs(10)), ..room() },
            ("unsynced", Some("no_sender_reports")),
        ),
        (
            RoomState { sender: SenderState::Implausible("zero".into()), ..room() },
            ("unsynced", Some("implausible_reports")),
        ),
        (
            RoomState { sender: SenderState::Differs { offset_ns: 3_600_000_000_000, text: "1 h".into() }, ..room() },
            ("unsynced", Some("sender_clock_differs")),
        ),
    ] {
        assert_eq!(verdict(&change, &video()), wanted, "{change:?}");
    }
}

#[test]
fn a_stream_has_to_be_watched_and_on_time() {
    for (change, wanted) in [
        (StreamState { watch: Watch::Unsteered, ..video() }, ("approximate", Some("audio_unsteered"))),
        (StreamState { watch: Watch::Predicted, ..video() }, ("approximate", Some("error_predicted"))),
        (StreamState { frames: 0, ..video() }, ("acquiring", Some("waiting_for_frames"))),
        (StreamState { with_sender_time: 0, ..video() }, ("acquiring", Some("waiting_for_reports"))),
        (StreamState { error_ns: Some(-41_000_000), ..video() }, ("unsynced", Some("presentation_error"))),
        (
            StreamState { late: 20, needed_latency: Some(Duration::from_millis(1300)), ..video() },
            ("unsynced", Some("late_frames")),
        ),
        (StreamState { locking: Some(Duration::ZERO), ..video() }, ("acquiring", Some("waiting_for_servo"))),
        (StreamState { locking: Some(Duration::from_secs(11)), ..video() }, ("unsynced", Some("presentation_error"))),
        (StreamState { no_output: Some("none".into()), ..video() }, ("unsynced", Some("no_audio_output"))),
    ] {
        assert_eq!(verdict(&room(), &change), wanted, "{change:?}");
    }
}

#[test]
fn one_late_frame_of_a_second_is_no_verdict() {
    assert_eq!(verdict(&room(), &StreamState { late: 1, ..video() }), ("synced", None));
}

#[test]
fn a_lost_clock_is_held_over_for_a_while() {
    let silent = |seconds| RoomState {
        clock: ClockState::Synced {
            uncertainty: Some(Duration::from_micros(200)),
            silent_for: Some(Duration::from_secs(seconds)),
            undisciplined: false,
        },
        ..room()
    };
    assert_eq!(verdict(&silent(15), &video()).0, "synced");
    assert_eq!(verdict(&silent(300), &video()).0, "holdover");
    // 5 ppm for 16 minutes is 4.8 ms, and 0.2 ms were there before.
    assert_eq!(verdict(&silent(959), &video()).0, "holdover");
    assert_eq!(verdict(&silent(970), &video()), ("unsynced", Some("clock_lost")));
}

#[test]
fn an_undisciplined_host_is_never_called_synced() {
    let clock = ClockState::Synced { uncertainty: None, silent_for: None, undisciplined: true };
    assert_eq!(verdict(&RoomState { clock, ..room() }, &video()), ("approximate", Some("clock_not_disciplined")));
}

fn any_clock() -> impl Strategy<Value = ClockState> {
    prop_oneof![
        (0..20_000u64).prop_map(|ms| ClockState::Waiting(Duration::from_millis(ms))),
        Just(ClockState::Unreachable),
        (prop::option::of(0..50_000u64), prop::option::of(0..2_000u64), any::<bool>()).prop_map(
            |(uncertainty, silent, undisciplined)| ClockState::Synced {
                uncertainty: uncertainty.map(Duration::from_micros),
                silent_for: silent.map(Duration::from_secs),
                undisciplined,
            }
        ),
    ]
}

fn any_sender() -> impl Strategy<Value = SenderState> {
    prop_oneof![
        (0..20_000u64).prop_map(|ms| SenderState::Silent(Duration::from_millis(ms))),
        Just(SenderState::Accepted),
        any::<i64>().prop_map(|offset_ns| SenderState::Differs { offset_ns, text: String::new() }),
        Just(SenderState::Implausible(String::new())),
    ]
}

proptest! {
    /// Never silently wrong: whatever is known, `synced` comes out only when every condition of the table holds.
    #[test]
    fn synced_is_proven(
        sync: bool, connected: bool, clock in any_clock(), sender in any_sender(), frames in 0..50u64,
        with_time in 0..50u64, late in 0..50u64, error in prop::option::of(-100_000_000..100_000_000i64),
        watch in 0..3usize,
    ) {
        let room = RoomState { sync, clock: clock.clone(), connected, sender: sender.clone() };
        let watch = [Watch::Measured, Watch::Predicted, Watch::Unsteered][watch];
        let stream = StreamState {
            watch, frames, with_sender_time: with_time, late, error_ns: error, ..video()
        };
        if verdict(&room, &stream).0 == "synced" {
            prop_assert!(sync && connected && sender == SenderState::Accepted && watch == Watch::Measured);
            prop_assert!(frames > 0 && with_time > 0 && error.unwrap().abs() <= 40_000_000);
            let ClockState::Synced { uncertainty, silent_for, undisciplined } = clock else {
                return Err(TestCaseError::fail("clock"));
            };
            prop_assert!(!undisciplined && uncertainty.unwrap_or_default() <= T().clock_synced);
            prop_assert!(silent_for.unwrap_or_default() <= T().clock_lost_after);
        }
    }

    #[test]
    fn every_reason_is_a_sentence(clock in any_clock(), sender in any_sender()) {
        let room = RoomState { sync: true, clock, connected: true, sender };
        let verdict = judge_stream(&room, &video(), &T());
        if let Some(reason) = verdict.reason() {
            prop_assert!(reason.text().len() > 15 && !reason.text().contains('\n'));
        }
    }
}

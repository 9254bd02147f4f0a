use super::super::fixed::from_ns;
use super::*;
use proptest::prelude::*;

const RATE: u32 = 90_000;
/// 2026-12-01 in the NTP epoch.
const START: u64 = 4_005_072_000_000_000_000;
const MS: i64 = 1_000_000;

/// The pair of a report `at` ns after the start whose time is off by `error`.
fn pair(at: i64, error: i64) -> Pair {
    let place = 1_000 + i64::try_from(i128::from(at) * i128::from(RATE) / i128::from(SECOND)).unwrap();
    Pair { place, ntp: plus(from_ns(START), at + error) }
}

/// How far a time is from the truth of its moment.
fn error(ntp: u64, at: i64) -> i64 {
    difference(ntp, plus(from_ns(START), at))
}

fn agreed(fit: Fit) -> u64 {
    match fit {
        Fit::Agrees { ntp } => ntp,
        other => panic!("{other:?}"),
    }
}

/// Even noise between −1 and 1, the same in every run.
fn noise(index: i64) -> f64 {
    let mut bits = (index as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits ^= bits >> 27;
    (bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

#[test]
fn an_exact_sender_is_left_alone() {
    // With 100 ppm of drift in the sampling clock, which shows as a drift of the times.
    let mut line = PairLine::new(RATE);
    let limits = Limits::default();
    assert_eq!(line.add(pair(0, 0), &limits), Fit::First);
    for second in 1..200 {
        let pair = pair(second * SECOND, second * 100_000);
        assert_eq!(line.add(pair, &limits), Fit::Agrees { ntp: pair.ntp });
    }
    assert!(!line.is_smoothed());
    let ahead = error(line.at(pair(210 * SECOND, 0).place).unwrap(), 210 * SECOND);
    assert!((ahead - 210 * 100_000).abs() < MS / 10, "the line goes on with the drift: {ahead}");
}

#[test]
fn jittering_reports_are_smoothed_from_the_first_on() {
    for (seed, drift_ppm) in [(0, 0.0), (1_000, 40.0), (2_000, -90.0)] {
        let mut line = PairLine::new(RATE);
        let limits = Limits::default();
        let mut previous: Option<(i64, i64)> = None;
        for second in 0..600 {
            let at = second * SECOND;
            let true_error = (at as f64 * drift_ppm * 1e-6) as i64;
            let pair = pair(at, true_error + (12.0 * MS as f64 * noise(seed + second)) as i64);
            let ntp = match line.add(pair, &limits) {
                Fit::First => pair.ntp,
                fit => agreed(fit),
            };
            let off = error(ntp, at) - true_error;
            if let Some((_, before)) = previous {
                assert!((off - before).abs() < MS, "a step of {} µs at {second} s", (off - before) / 1_000);
            }
            // Four minutes fill the line; what is left is its noise (0.9 ms in the mean) and its lag behind the drift.
            assert!(second < 300 || off.abs() < 3 * MS, "{} µs off at {second} s", off / 1_000);
            previous = Some((at, off));
        }
        assert!(line.is_smoothed());
        assert!(line.spread() > 2 * MS, "{}", line.spread());
    }
}

#[test]
fn a_sender_that_stops_jittering_is_exact_again() {
    let mut line = PairLine::new(RATE);
    let limits = Limits::default();
    for second in 0..60 {
        line.add(pair(second * SECOND, (5.0 * MS as f64 * noise(second)) as i64), &limits);
    }
    assert!(line.is_smoothed());
    let mut last = None;
    for second in 60..400 {
        let pair = pair(second * SECOND, 0);
        last = Some(agreed(line.add(pair, &limits)) == pair.ntp);
    }
    assert_eq!((line.is_smoothed(), last), (false, Some(true)));
}

#[test]
fn one_bad_pair_is_held_back() {
    let mut line = PairLine::new(RATE);
    let limits = Limits::default();
    for second in 0..10 {
        line.add(pair(second * SECOND, 0), &limits);
    }
    let Fit::Off { by, ntp } = line.add(pair(10 * SECOND, 700 * MS), &limits) else { panic!("it is off") };
    assert!((by - 700 * MS).abs() < MS && error(ntp, 10 * SECOND).abs() < 1_000, "{by}");
    assert_eq!(agreed(line.add(pair(11 * SECOND, 0), &limits)), pair(11 * SECOND, 0).ntp);
}

#[test]
fn a_step_is_believed_when_it_is_confirmed() {
    for by in [5 * SECOND, -5 * SECOND, 200 * MS, -3_600 * SECOND] {
        let mut line = PairLine::new(RATE);
        let limits = Limits::default();
        for second in 0..10 {
            line.add(pair(second * SECOND, 0), &limits);
        }
        assert!(matches!(line.add(pair(10 * SECOND, by), &limits), Fit::Off { .. }));
        assert!(
            matches!(line.add(pair(11 * SECOND, by), &limits), Fit::Stepped { by: seen } if (seen - by).abs() < MS)
        );
        let next = pair(12 * SECOND, by);
        assert_eq!(agreed(line.add(next, &limits)), next.ntp);
        assert!((error(line.at(next.place).unwrap(), 12 * SECOND) - by).abs() < 1_000);
    }
}

#[test]
fn a_clock_that_stands_still_loses_the_line() {
    let mut line = PairLine::new(RATE);
    let limits = Limits::default();
    line.add(pair(0, 0), &limits);
    let fits: Vec<Fit> = (1..6).map(|second| line.add(pair(second * SECOND, -second * SECOND), &limits)).collect();
    assert!(fits[..4].iter().all(|fit| matches!(fit, Fit::Off { .. })), "{fits:?}");
    assert_eq!(fits[4], Fit::Lost);
    assert_eq!((line.at(0), line.len()), (None, 0));
}

#[test]
fn pairs_on_every_packet_are_thinned_out() {
    let mut line = PairLine::new(RATE);
    let limits = Limits::default();
    for frame in 0..1_000 {
        let pair = pair(frame * 20 * MS, 0);
        line.add(pair, &limits);
        assert_eq!(line.at(pair.place), Some(pair.ntp));
    }
    assert!((70..90).contains(&line.len()), "{} pairs in 20 s", line.len());
}

#[test]
fn a_late_joiner_of_an_exact_sender_computes_the_same_times() {
    let limits = Limits::default();
    let (mut early, mut late) = (PairLine::new(RATE), PairLine::new(RATE));
    for second in 0..400 {
        let pair = pair(second * SECOND, 20_000 * second);
        let first = early.add(pair, &limits);
        if second >= 300 {
            let second = late.add(pair, &limits);
            assert!(second == Fit::First || first == second, "{first:?} {second:?}");
            let apart = difference(early.at(pair.place).unwrap(), late.at(pair.place).unwrap());
            assert!(apart.abs() <= 2, "{apart} ns apart");
        }
    }
}

#[test]
fn a_late_joiner_of_a_jittery_sender_comes_to_the_same_times() {
    let limits = Limits::default();
    let (mut early, mut late) = (PairLine::new(RATE), PairLine::new(RATE));
    let mut apart = 0;
    for second in 0..1_000 {
        let pair = pair(second * SECOND, (12.0 * MS as f64 * noise(second)) as i64);
        early.add(pair, &limits);
        if second >= 500 {
            late.add(pair, &limits);
            apart = difference(early.at(pair.place).unwrap(), late.at(pair.place).unwrap());
        }
    }
    assert!(apart.abs() < MS / 20, "{apart} ns apart");
}

proptest! {
    #[test]
    fn nothing_panics(pairs in prop::collection::vec((any::<i64>(), any::<u64>()), 0..200), rate: u32) {
        let mut line = PairLine::new(rate);
        let limits = Limits::default();
        for (place, ntp) in pairs {
            let _ = line.add(Pair { place, ntp }, &limits);
            let _ = line.at(place);
            prop_assert!(line.len() <= limits.window);
        }
    }

    #[test]
    fn what_is_given_out_is_near_what_came(
        errors in prop::collection::vec(-15_000_000i64..15_000_000, 2..300), interval in 1i64..6
    ) {
        let mut line = PairLine::new(RATE);
        let limits = Limits::default();
        for (index, own) in errors.iter().enumerate() {
            let at = index as i64 * interval * SECOND;
            if let Fit::Agrees { ntp } = line.add(pair(at, *own), &limits) {
                // Never outside the band that the reports themselves fill, and its own slope's share.
                prop_assert!(error(ntp, at).abs() <= 40 * MS, "{}", error(ntp, at));
            }
        }
    }

    #[test]
    fn drift_below_the_limit_never_loses_the_line(ppm in -900.0f64..900.0, interval in 1i64..30) {
        let mut line = PairLine::new(RATE);
        let limits = Limits::default();
        for index in 0..200 {
            let at = index * interval * SECOND;
            let fit = line.add(pair(at, (at as f64 * ppm * 1e-6) as i64), &limits);
            prop_assert!(matches!(fit, Fit::First | Fit::Agrees { .. }), "{:?} at {}", fit, index);
        }
    }
}

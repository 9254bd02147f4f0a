//! Rooms whose clock line comes from exchanges that real GstNtpClocks had with chronyd, recorded by the ignored test
//! `record` in `tests/clock_filter.rs`: two asked directly on a busy host, two through relays with 0 to 20 ms of random
//! delay in each direction.

use crate::report::Row;
use crate::rooms::{EPOCH, Room, SECOND, Sender, worst, worst_skew};
use unisono::audio::output::simulated::SimulatedConfig;
use unisono::clock::{ClockFilter, FilterConfig, Observation};

const RECORDED: &str = include_str!("../fixtures/ntp-observations.csv");
/// The lines are published so often, s.
const INTERVAL: f64 = 0.25;
const END: f64 = 190.0;

/// The exchanges of one recorded clock, on the simulation's clocks.
fn exchanges(room: &str) -> Vec<Observation> {
    let rows = RECORDED.lines().filter_map(|line| line.strip_prefix(room)?.strip_prefix(','));
    let exchange = |row: &str| {
        let values: Vec<i64> = row.split(',').map(|value| value.parse().expect("a number")).collect();
        Observation {
            sequence: 0,
            local_send: values[0] as u64,
            local_receive: values[1] as u64,
            remote: (EPOCH + values[2]) as u64,
            round_trip: values[3] as u64,
        }
    };
    rows.map(exchange).collect()
}

/// A room that follows recorded exchanges from its start on.
fn play(recorded: &str, ppm: f64) -> Room {
    let sender = Sender::default();
    let mut room = Room::new(SimulatedConfig { ppm, period: 512, ..Default::default() }, &sender, 1.0, 0.3);
    room.clock.publish(None);
    let mut filter = ClockFilter::new(FilterConfig::default());
    let mut exchanges = exchanges(recorded).into_iter().peekable();
    let mut now = 1.0;
    while now < END {
        let monotonic = (now * SECOND as f64) as i64;
        while let Some(seen) = exchanges.next_if(|seen| (seen.local_receive as i64) < monotonic) {
            filter.observe(&seen);
        }
        room.clock.publish(filter.line(monotonic));
        now += INTERVAL;
        room.run_until(now);
    }
    room
}

pub fn recorded() -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, bounds) in [("quiet", [25.0, 25.0]), ("delayed", [2_000.0, 3_000.0])] {
        let (a, b) = (play(&format!("{name}-a"), 80.0), play(&format!("{name}-b"), -120.0));
        let title = format!("recorded NTP exchanges, {name}");
        rows.push(Row::new(&title, "largest error from 60 s on", worst(&a.log, 60.0, END), "µs", bounds[0]));
        rows.push(Row::new(
            &title,
            "largest skew from 60 s on",
            worst_skew(&a.log, &b.log, 60.0, END),
            "µs",
            bounds[1],
        ));
        let mut skews: Vec<f64> =
            (0..120).map(|n| worst_skew(&a.log, &b.log, 60.0 + f64::from(n), 61.0 + f64::from(n))).collect();
        skews.sort_unstable_by(f64::total_cmp);
        rows.push(Row::new(&title, "median skew from 60 s on", skews[skews.len() / 2], "µs", bounds[1] / 2.0));
        rows.push(Row::new(&title, "reseeks from 60 s on", reseeks_after_a_minute(&a), "", 0.0));
    }
    rows
}

/// Jumps between blocks, of more than half a millisecond.
fn reseeks_after_a_minute(room: &Room) -> f64 {
    let jumps = |pair: &&[crate::rooms::Sample]| pair[0].at > 60.0 && (pair[1].error - pair[0].error).abs() > 500.0;
    room.log.windows(2).filter(jumps).count() as f64
}

//! What happens to devices, clocks and streams, and how rooms come back from it.

use crate::report::Row;
use crate::rooms::{Room, Sender, recovery, silence, worst, worst_skew};
use unisono::audio::output::simulated::SimulatedConfig;

/// Every fault strikes here: the room has settled by then.
const FAULT: f64 = 40.0;
const END: f64 = 70.0;
/// Once back, rooms without jitter stay within this, µs.
const BOUND: f64 = 5.0;
/// A room must be back in bounds so soon, s.
const BACK: f64 = 10.0;

/// A room without jitter that has played until the fault.
fn room() -> Room {
    settled(SimulatedConfig { ppm: 150.0, ..Default::default() }, &Sender::default())
}

fn settled(device: SimulatedConfig, sender: &Sender) -> Room {
    let mut room = Room::new(device, sender, 3.0, 0.3);
    room.run_until(FAULT);
    room
}

fn rows(name: &str, room: &mut Room, bound: f64, silent: f64) -> Vec<Row> {
    room.run_until(END);
    vec![
        Row::new(name, "back in bounds after", recovery(&room.log, FAULT, END, bound), "s", BACK),
        Row::new(name, "largest error from 10 s after", worst(&room.log, FAULT + BACK, END), "µs", bound),
        Row::new(name, "silence", silence(&room.log, FAULT, END), "s", silent),
    ]
}

pub fn of_the_device() -> Vec<Row> {
    let mut all = Vec::new();
    let mut stalled = room();
    stalled.device.stall(307e6);
    all.extend(rows("stall of 307 ms", &mut stalled, BOUND, 0.4));
    let mut suspended = room();
    suspended.device.stall(20.017e9);
    suspended.run_until(END + 20.0);
    // Its blocks go on 20 s later.
    let back = FAULT + 20.0;
    all.push(Row::new(
        "suspended for 20 s",
        "back in bounds after",
        recovery(&suspended.log, back, END + 20.0, BOUND),
        "s",
        BACK,
    ));
    let mut burst = room();
    burst.device.change(|device| device.jitter = 3e6);
    burst.run_until(FAULT + 2.0);
    burst.device.change(|device| device.jitter = 0.0);
    all.extend(rows("2 s of reports with ±3 ms jitter", &mut burst, BOUND, 0.0));
    let mut period = room();
    period.device.change(|device| device.period = 256);
    all.extend(rows("period 1024 to 256", &mut period, BOUND, 0.0));
    let mut rate = room();
    rate.device.change(|device| device.rate = 44_100);
    all.extend(rows("device from 48 to 44.1 kHz", &mut rate, BOUND, 0.0));
    let mut crystal = room();
    crystal.device.change(|device| device.ppm = -150.0);
    all.extend(rows("device from +150 to −150 ppm", &mut crystal, BOUND, 0.0));
    all
}

pub fn of_the_clock() -> Vec<Row> {
    let mut all = Vec::new();
    for step in [50_000_000, -50_000_000, 800_000, 30_000] {
        let mut stepped = room();
        stepped.step_clock(step);
        // A jump forward needs nothing; one back needs what the ring still has.
        all.extend(rows(&format!("shared clock stepped by {} ms", step as f64 / 1e6), &mut stepped, BOUND, 0.0));
    }
    let mut lost = room();
    lost.clock.publish(None);
    lost.run_until(FAULT + 1.0);
    lost.step_clock(0);
    all.extend(rows("no shared clock for 1 s", &mut lost, BOUND, 1.1));
    all
}

pub fn of_the_stream() -> Vec<Row> {
    let mut all = Vec::new();
    let mut lossy = room();
    // 27 buffers of 20 ms in a row, and then every tenth.
    let start = ((FAULT + 0.1) * 50.0) as u64;
    lossy.run(FAULT + 5.0, |buffer| !(start..start + 27).contains(&buffer) && buffer % 10 != 0);
    all.extend(rows("lost: 540 ms, then a tenth for 4 s", &mut lossy, BOUND, 1.5));
    let mut unflagged = room();
    unflagged.flags_loss = false;
    unflagged.run(FAULT + 2.0, |buffer| !(start..start + 27).contains(&buffer));
    all.extend(rows("lost without a word: 540 ms", &mut unflagged, BOUND, 1.5));
    let mut reconnected = room();
    reconnected.reconnect();
    all.extend(rows("a new pipeline", &mut reconnected, BOUND, 0.4));
    let mut starved = room();
    starved.run(FAULT + 3.0, |_| false);
    all.extend(rows("no data for 3 s", &mut starved, BOUND, 3.4));
    let mut late = room();
    late.controls.set_delay(137_000_000);
    late.run_until(FAULT + 5.0);
    late.controls.set_delay(0);
    all.extend(rows("own delay of 137 ms, and back", &mut late, BOUND, 0.0));
    all
}

pub fn sender_clocks() -> Vec<Row> {
    let mut all = Vec::new();
    let reports = |drift_ppm, noise, step| Sender { drift_ppm, report_interval: 5.0, noise, step, ..Sender::default() };
    let device = |seed| SimulatedConfig { ppm: 120.0, seed, ..Default::default() };
    for drift in [100.0, -100.0] {
        let sender = reports(drift, 0.0, None);
        let mut room = settled(device(1), &sender);
        room.run_until(90.0);
        let name = format!("sender drifts by {drift:+} ppm, a report each 5 s");
        all.push(Row::new(&name, "largest error from 37 s on", worst(&room.log, FAULT, 90.0), "µs", 21.0));
        all.push(Row::new(&name, "reseeks", room.stats.latest().reseeks as f64, "", 0.0));
    }
    // Reports that jitter by ±12 ms: nobody knows the truth, but all rooms must agree, and nothing may jump.
    let sender = reports(20.0, 12e6, None);
    let (mut early, mut late) = (Room::new(device(1), &sender, 3.0, 0.3), Room::new(device(2), &sender, 100.0, 0.3));
    early.run_until(290.0);
    late.run_until(290.0);
    let name = "reports jitter by ±12 ms, a room joins after 97 s";
    all.push(Row::new(name, "skew from 150 s after", worst_skew(&early.log, &late.log, 250.0, 290.0), "µs", 60.0));
    let leap =
        |pair: &[crate::rooms::Sample]| if pair[0].at > 20.0 { (pair[1].error - pair[0].error).abs() } else { 0.0 };
    let largest = early.log.windows(2).map(leap).fold(0.0, f64::max);
    all.push(Row::new(name, "largest step between blocks", largest, "µs", 100.0));
    // The sender's times step by 25 ms.
    let sender = reports(20.0, 0.0, Some((FAULT, 25_000_000)));
    let mut room = Room::new(device(1), &sender, 3.0, 0.3);
    room.run_until(END + 10.0);
    let name = "sender's times step by 25 ms";
    let back = recovery(&room.log, FAULT, END + 10.0, 21.0);
    all.push(Row::new(name, "within 21 µs after (with the report's 5 s)", back, "s", 16.0));
    all
}

/// A room that has been through everything, against one that has just joined.
pub fn histories() -> Vec<Row> {
    let mut all = Vec::new();
    for (jitter, bound) in [(0.0, 5.0), (100e3, 21.0), (500e3, 60.0)] {
        let sender = Sender { drift_ppm: 30.0, ..Sender::default() };
        let old = SimulatedConfig { ppm: -180.0, period: 512, jitter, seed: 5, ..Default::default() };
        let mut old = Room::new(old, &sender, 1.0, 0.3);
        old.run_until(10.0);
        old.device.stall(250e6);
        old.run_until(20.0);
        old.reconnect();
        old.run(30.0, |buffer| buffer % 7 != 0);
        old.controls.set_delay(50_000_000);
        old.run_until(35.0);
        old.controls.set_delay(0);
        old.device.stall(5e9);
        old.run_until(80.0);
        let new = SimulatedConfig { ppm: 200.0, period: 1024, jitter, seed: 6, ..Default::default() };
        let mut new = Room::new(new, &sender, 45.0, 0.3);
        new.run_until(100.0);
        old.run_until(100.0);
        let name = format!("old and faulty against new, jitter ±{} µs", jitter / 1e3);
        all.push(Row::new(
            &name,
            "skew from 30 s after the start",
            worst_skew(&old.log, &new.log, 75.0, 100.0),
            "µs",
            2.0 * bound,
        ));
        all.push(Row::new(&name, "error of the old", worst(&old.log, 75.0, 100.0), "µs", bound));
        all.push(Row::new(&name, "error of the new", worst(&new.log, 75.0, 100.0), "µs", bound));
    }
    all
}

//! Rooms in virtual time: what their devices recorded, against what was due. Deterministic.
//!
//! Each scenario gives rows of figures with the bound that they must keep. `cargo test --test simulation -- --nocapture`
//! prints them; `cargo test --test simulation -- --ignored` writes them and the plots to `docs/sync.md` and `docs/sync/`.

mod faults;
mod noise;
mod plot;
mod pull_in;
mod report;
mod rooms;
mod servo;
mod steady;

use report::Row;

/// What is played, and its figures.
type Scenario = fn() -> Vec<Row>;

/// Every scenario by name.
const SCENARIOS: &[(&str, Scenario)] = &[
    ("steady_without_jitter", steady::without_jitter),
    ("steady_with_100_us", steady::with_100_us),
    ("steady_with_500_us", steady::with_500_us),
    ("servo_for_a_day", servo::for_a_day),
    ("pull_in_from_4_9_ms", pull_in::from_4_9_ms),
    ("histories", faults::histories),
    ("faults_of_the_device", faults::of_the_device),
    ("faults_of_the_clock", faults::of_the_clock),
    ("faults_of_the_stream", faults::of_the_stream),
    ("sender_clocks", faults::sender_clocks),
    ("ntp_noise", noise::recorded),
];

/// A test for each scenario, so that they run side by side.
macro_rules! scenario_tests {
    ($($name:ident),* $(,)?) => {
        mod scenario {
            $(#[test] fn $name() { super::check(stringify!($name)); })*

            #[test]
            fn each_has_a_test() {
                assert_eq!([$(stringify!($name)),*].as_slice(), super::SCENARIOS.iter().map(|s| s.0).collect::<Vec<_>>());
            }
        }
    };
}

scenario_tests!(
    steady_without_jitter,
    steady_with_100_us,
    steady_with_500_us,
    servo_for_a_day,
    pull_in_from_4_9_ms,
    histories,
    faults_of_the_device,
    faults_of_the_clock,
    faults_of_the_stream,
    sender_clocks,
    ntp_noise,
);

fn check(name: &str) {
    let (_, scenario) = SCENARIOS.iter().find(|(known, _)| *known == name).expect("a scenario");
    let rows = scenario();
    assert!(!rows.is_empty());
    report::print(&rows);
    let bad: Vec<&Row> = rows.iter().filter(|row| !row.holds()).collect();
    assert!(bad.is_empty(), "out of bounds: {bad:#?}");
}

/// Writes the table and the plots of `docs/sync.md`.
#[test]
#[ignore = "writes the documentation"]
fn document() {
    let rows: Vec<Row> = SCENARIOS.iter().flat_map(|(_, scenario)| scenario()).collect();
    report::document(&rows);
    plot::document();
}

//! From exchanges with a time server to a line: the envelope filter. Pure.
//!
//! An exchange cannot lie about one thing: the server read its clock after the request left and before the answer came.
//! So each gives an upper and a lower bound for the offset of the clocks, `offset ± round trip/2`, and how loose they
//! are depends on the delay of *one* direction each:
//!
//! ```text
//!   offset ▲   ×       ×           ×         upper bounds: truth + delay of the request
//!          │ ×     ×       ×   ×       ×
//!          │────────────────────────────     the line that keeps furthest from both hulls
//!          │   ×  ×     ×        ×    ×
//!          │ ×      ×      ×  ×              lower bounds: truth − delay of the answer
//!          └──────────────────────────▶ local time
//! ```
//!
//! Why this filter: averaging offsets (as GstNtpClock does, after dropping round trips above twice the median) averages
//! the asymmetry of the delays, which is the error. The shortest request and the shortest answer of five minutes are far
//! closer to the same minimum, even if no single exchange had both short. And bounds that contradict each other prove
//! that a clock was stepped, whatever the noise.

use super::{ClockLine, Observation};
use std::collections::VecDeque;

/// Every number of the filter. Times in ns, rates as fractions.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterConfig {
    /// Exchanges older than this are forgotten: long enough for a short delay in each direction at one exchange a second,
    /// short enough for the frequency of both clocks to stay the same.
    pub window: f64,
    /// So many exchanges are kept at most.
    pub exchanges: usize,
    /// Half of all rate differences are below this (two disciplined hosts), the others may be far above (a free-running
    /// crystal): the prior of the slope, which decides while the exchanges span a few seconds only.
    pub rate_typical: f64,
    /// And the largest that is believed: what NTP can correct.
    pub rate_max: f64,
    /// How far bounds loosen with age, for the frequency wanders.
    pub wander: f64,
    /// Bounds contradict the line when they exclude it by more than this and an eighth of the usual asymmetry.
    pub tolerance: f64,
    /// So many of the last four exchanges must contradict the line in the same direction before it is believed that a
    /// clock was stepped.
    pub contradictions: usize,
    /// An error of the published line is slewed away with this time constant, so that the servo has a smooth line to
    /// follow, …
    pub slew_time: f64,
    /// … at no more than this rate; …
    pub slew_rate: f64,
    /// … errors above this are jumped, …
    pub jump: f64,
    /// … and those above this and a tenth of the usual asymmetry for so long after the start or a step as `settling` says,
    /// when the bounds still improve by leaps.
    pub jump_settling: f64,
    /// See `jump_settling`.
    pub settling: f64,
}

impl Default for FilterConfig {
    fn default() -> Self {
        Self {
            window: 300e9,
            exchanges: 400,
            rate_typical: 2e-6,
            rate_max: 500e-6,
            wander: 0.05e-6,
            tolerance: 20e3,
            contradictions: 2,
            slew_time: 4e9,
            slew_rate: 200e-6,
            jump: 20e6,
            jump_settling: 0.2e6,
            settling: 10e9,
        }
    }
}

impl FilterConfig {
    /// For a clock of this host, read between two readings of CLOCK_MONOTONIC: bounds are a microsecond wide at most, the
    /// kernel slews both clocks alike, and so any change is a step.
    pub fn local() -> Self {
        Self { window: 20e9, exchanges: 128, rate_typical: 0.1e-6, tolerance: 5e3, ..Self::default() }
    }
}

/// One exchange, relative to the filter's origin.
#[derive(Debug, Clone, Copy)]
struct Exchange {
    /// Its middle on CLOCK_MONOTONIC, ns after the origin.
    at: f64,
    /// The bounds of shared − CLOCK_MONOTONIC, ns above the origin's.
    lower: f64,
    upper: f64,
    /// Whether it contradicted the line when it came, and on which side the truth is then: −1, 0, 1. Such an exchange is
    /// left out of the fit unless others confirm it: a glitch of the server.
    contradicts: i8,
}

/// How the clocks stand: offset (ns above the origin's) = offset + rate · (time − at).
#[derive(Debug, Clone, Copy)]
struct Fit {
    at: f64,
    offset: f64,
    rate: f64,
}

impl Fit {
    fn offset_at(&self, at: f64) -> f64 {
        self.offset + self.rate * (at - self.at)
    }
}

/// The filter.
#[derive(Debug, Clone)]
pub struct ClockFilter {
    config: FilterConfig,
    /// CLOCK_MONOTONIC and shared − CLOCK_MONOTONIC of the first exchange.
    origin: Option<(i64, i64)>,
    exchanges: VecDeque<Exchange>,
    fit: Option<Fit>,
    published: Option<ClockLine>,
    /// When the first line since the start or the last step was published, CLOCK_MONOTONIC.
    settling_since: Option<i64>,
    steps: u64,
}

/// So many of the last exchanges are looked at for contradictions.
const CONTRADICTION_WINDOW: usize = 4;
/// Exchanges before the first line: one alone could have any delay.
const EXCHANGES_MIN: usize = 3;

impl ClockFilter {
    pub fn new(config: FilterConfig) -> Self {
        Self {
            config,
            origin: None,
            exchanges: VecDeque::new(),
            fit: None,
            published: None,
            settling_since: None,
            steps: 0,
        }
    }

    /// How often one of the clocks was found to have been stepped.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Takes one exchange in; older ones than the last are ignored.
    pub fn observe(&mut self, seen: &Observation) {
        let (Ok(send), Ok(receive), Ok(remote)) =
            (i64::try_from(seen.local_send), i64::try_from(seen.local_receive), i64::try_from(seen.remote))
        else {
            return;
        };
        let middle = send + receive.saturating_sub(send) / 2;
        let (at0, offset0) = *self.origin.get_or_insert((middle, remote - middle));
        let at = (middle - at0) as f64;
        if receive < send || self.exchanges.back().is_some_and(|last| at < last.at) {
            return;
        }
        let offset = (remote - middle - offset0) as f64;
        let half = seen.round_trip as f64 / 2.0;
        let mut seen = Exchange { at, lower: offset - half, upper: offset + half, contradicts: 0 };
        seen.contradicts = self.contradicts(&seen);
        self.exchanges.push_back(seen);
        while self.exchanges.len() > self.config.exchanges
            || self.exchanges.front().is_some_and(|oldest| at - oldest.at > self.config.window)
        {
            self.exchanges.pop_front();
        }
        self.forget_before_a_step();
        self.fit = self.fitted();
    }

    /// On which side of the line the truth is by this exchange, if it is not on the line.
    fn contradicts(&self, seen: &Exchange) -> i8 {
        let Some(fit) = self.fit else {
            return 0;
        };
        let tolerance = self.config.tolerance + self.asymmetry() / 8.0;
        let expected = fit.offset_at(seen.at);
        if expected > seen.upper + tolerance {
            -1
        } else if expected < seen.lower - tolerance {
            1
        } else {
            0
        }
    }

    /// When the newest exchanges agree that the line is wrong, what was before the first of them is forgotten.
    fn forget_before_a_step(&mut self) {
        let start = self.exchanges.len().saturating_sub(CONTRADICTION_WINDOW);
        let recent = || self.exchanges.iter().enumerate().skip(start);
        let direction = self.exchanges.back().map_or(0, |newest| newest.contradicts);
        let agreeing = recent().filter(|(_, seen)| seen.contradicts == direction).count();
        if direction == 0 || agreeing < self.config.contradictions {
            return;
        }
        if let Some((first, _)) = recent().find(|(_, seen)| seen.contradicts == direction) {
            self.exchanges.drain(..first);
            self.exchanges.iter_mut().for_each(|seen| seen.contradicts = 0);
            self.settling_since = None;
            self.steps += 1;
        }
    }

    /// The usual asymmetry of an exchange, ns: by how much half a round trip exceeds the shortest, in the median.
    fn asymmetry(&self) -> f64 {
        let mut halves: Vec<f64> = self.trusted().map(|seen| (seen.upper - seen.lower) / 2.0).collect();
        halves.sort_unstable_by(f64::total_cmp);
        halves.get(halves.len() / 2).zip(halves.first()).map_or(0.0, |(median, shortest)| median - shortest)
    }

    fn trusted(&self) -> impl Iterator<Item = &Exchange> {
        self.exchanges.iter().filter(|seen| seen.contradicts == 0)
    }

    /// The room between the bounds at `at` for a rate, and its middle.
    fn room(&self, rate: f64, at: f64) -> (f64, f64) {
        let (mut lower, mut upper) = (f64::NEG_INFINITY, f64::INFINITY);
        for seen in self.trusted() {
            let (moved, slack) = (rate * (at - seen.at), self.config.wander * (at - seen.at));
            lower = lower.max(seen.lower + moved - slack);
            upper = upper.min(seen.upper + moved + slack);
        }
        (upper - lower, (upper + lower) / 2.0)
    }

    /// The mean line over all rates, each weighted by how likely it is: with delays of density 1/scale near their
    /// minimum, n exchanges make a rate that leaves the room r between the bounds exp(n·r/scale) times as likely. (The
    /// single most likely rate rests on four exchanges and jumps with them.)
    fn fitted(&self) -> Option<Fit> {
        // After a step a single exchange is better than the old line.
        if self.fit.is_none() && self.exchanges.len() < EXCHANGES_MIN {
            return None;
        }
        let at = self.exchanges.back()?.at;
        let scale = (2.0 * self.asymmetry() / self.trusted().count().max(1) as f64).max(1.0);
        let explained = |rate: f64| self.room(rate, at).0 / scale;
        // Most hosts are disciplined and agree to a ppm or so; one that is not may be far off: a prior with long tails.
        let likelihood = |rate: f64| explained(rate) - (rate / self.config.rate_typical).powi(2).ln_1p();
        let rates = self.rates_to_try(explained);
        let most = rates.iter().map(|rate| likelihood(*rate)).fold(f64::NEG_INFINITY, f64::max);
        let (mut weights, mut mean_rate, mut mean_offset) = (0.0, 0.0, 0.0);
        for (n, rate) in rates.iter().enumerate() {
            let neighbours = rates[(n + 1).min(rates.len() - 1)] - rates[n.saturating_sub(1)];
            let weight = (likelihood(*rate) - most).exp() * neighbours;
            weights += weight;
            mean_rate += weight * rate;
            mean_offset += weight * self.room(*rate, at).1;
        }
        (weights > 0.0).then(|| Fit { at, offset: mean_offset / weights, rate: mean_rate / weights })
    }

    /// Rates around zero and around the one that explains the bounds best, rising: the mean is taken over these.
    fn rates_to_try(&self, explained: impl Fn(f64) -> f64) -> Vec<f64> {
        /// Golden section: each round leaves 0.618 of the interval, 40 leave 1e-5 ppm of 1000 ppm.
        const ROUNDS: usize = 40;
        const GOLDEN: f64 = 0.618_033_988_749_894_9;
        /// Rates to either side of each centre.
        const STEPS: i32 = 16;
        /// What is e^−8 times as likely as the most likely rate counts for nothing.
        const NEGLIGIBLE: f64 = 8.0;
        let (mut low, mut high) = (-self.config.rate_max, self.config.rate_max);
        let (mut a, mut b) = (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
        let (mut value_a, mut value_b) = (explained(a), explained(b));
        for _ in 0..ROUNDS {
            if value_a >= value_b {
                (high, b, value_b) = (b, a, value_a);
                a = high - GOLDEN * (high - low);
                value_a = explained(a);
            } else {
                (low, a, value_a) = (a, b, value_b);
                b = low + GOLDEN * (high - low);
                value_b = explained(b);
            }
        }
        let best = (low + high) / 2.0;
        let most = explained(best);
        let mut reach = self.config.rate_max;
        while reach > 1e-12 && explained(best - reach / 2.0).max(explained(best + reach / 2.0)) < most - NEGLIGIBLE {
            reach /= 2.0;
        }
        let around = |centre: f64, reach: f64| {
            // Closer together near the centre.
            (-STEPS..=STEPS).map(move |step| {
                let part = f64::from(step) / f64::from(STEPS);
                centre + reach * part * part.abs()
            })
        };
        let near_zero = around(0.0, 10.0 * self.config.rate_typical);
        let mut rates: Vec<f64> = around(best, reach).chain(near_zero).collect();
        rates.sort_unstable_by(f64::total_cmp);
        rates
    }

    /// What the filter believes, without the smoothing of [`line`](Self::line).
    pub fn target(&self, now: i64) -> Option<ClockLine> {
        let ((at0, offset0), fit) = self.origin.zip(self.fit)?;
        let offset = fit.offset_at((now - at0) as f64);
        Some(ClockLine { monotonic: now, shared: now + offset0 + offset.round() as i64, rate: fit.rate })
    }

    /// The line to publish at `now` (CLOCK_MONOTONIC, ns), to be asked for a few times a second: it starts where the last
    /// one is now and runs to meet what the filter believes. `None` before there were exchanges enough.
    pub fn line(&mut self, now: i64) -> Option<ClockLine> {
        let target = self.target(now)?;
        let since = self.settling_since.get_or_insert(now);
        let settling = ((now - *since) as f64) < self.config.settling;
        let jump = if settling { self.config.jump_settling + self.asymmetry() / 10.0 } else { self.config.jump };
        let line = match self.published {
            Some(last) => {
                let here = last.shared_at(now);
                let error = target.shared.saturating_sub(here) as f64;
                if error.abs() > jump {
                    target
                } else {
                    let slew = (error / self.config.slew_time).clamp(-self.config.slew_rate, self.config.slew_rate);
                    ClockLine { monotonic: now, shared: here, rate: target.rate + slew }
                }
            }
            None => target,
        };
        self.published = Some(line);
        self.published
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::output::simulated::Random;

    const SECOND: i64 = 1_000_000_000;
    const START: i64 = 12_345 * SECOND;
    const SHARED: i64 = 3_973_000_000 * SECOND;

    /// Exchanges each second over a path whose delays are evenly distributed below `delay` in each direction, with a
    /// step of the shared clock by `step` ns at 100 s. Calls back with the time, the truth and the filter.
    fn run(
        seed: u64,
        delay: f64,
        rate: f64,
        step: i64,
        seconds: i64,
        mut check: impl FnMut(i64, i64, &mut ClockFilter),
    ) {
        let mut random = Random::new(seed);
        let mut filter = ClockFilter::new(FilterConfig::default());
        let shared = |monotonic: i64| {
            let elapsed = monotonic - START;
            SHARED + elapsed + (elapsed as f64 * rate) as i64 + if elapsed >= 100 * SECOND { step } else { 0 }
        };
        for tick in 0..4 * seconds {
            let now = START + tick * SECOND / 4;
            // Four a second at first, one a second later, as GstNtpClock asks.
            if tick < 40 || tick % 4 == 0 {
                let (there, back) = ((delay * random.unit()) as i64, (delay * random.unit()) as i64);
                filter.observe(&Observation {
                    sequence: 0,
                    local_send: now as u64,
                    local_receive: (now + there + back) as u64,
                    remote: shared(now + there) as u64,
                    round_trip: (there + back) as u64,
                });
            }
            // The answers are in by then.
            let later = now + SECOND / 5;
            check(later, shared(later), &mut filter);
        }
    }

    fn percentile(errors: &mut [f64], percent: usize) -> f64 {
        errors.sort_unstable_by(f64::total_cmp);
        errors[(errors.len() * percent / 100).min(errors.len() - 1)]
    }

    #[test]
    fn twenty_milliseconds_of_random_delay_leave_some_hundred_microseconds() {
        for (from, to, median_max, p99_max) in [(10, 60, 600e3, 5e6), (120, 400, 200e3, 2e6)] {
            let mut errors = Vec::new();
            for seed in 0..20 {
                let rate = (seed as f64 - 10.0) * 8e-6;
                run(seed, 20e6, rate, 0, to, |now, truth, filter| {
                    let line = filter.line(now);
                    if now > START + from * SECOND {
                        errors.push((line.unwrap().shared_at(now) - truth).abs() as f64);
                    }
                });
            }
            let (median, p99) = (percentile(&mut errors, 50), percentile(&mut errors, 99));
            println!("{from} s to {to} s: median {median:.0} ns, p99 {p99:.0} ns");
            assert!(median < median_max && p99 < p99_max, "{from} s to {to} s: {median} {p99}");
        }
    }

    #[test]
    fn a_quiet_path_is_followed_to_a_microsecond_without_steps() {
        let (mut errors, mut last) = (Vec::new(), None::<ClockLine>);
        run(42, 30e3, 35e-6, 0, 600, |now, truth, filter| {
            let line = filter.line(now);
            if now > START + 60 * SECOND {
                let line = line.unwrap();
                errors.push((line.shared_at(now) - truth).abs() as f64);
                assert!((last.unwrap().shared_at(now) - line.shared_at(now)).abs() <= 1, "a step");
                last = Some(line);
            } else {
                last = line;
            }
        });
        let (median, max) = (percentile(&mut errors, 50), percentile(&mut errors, 100));
        println!("median {median:.0} ns, max {max:.0} ns");
        assert!(median < 1e3 && max < 5e3, "{median} {max}");
    }

    #[test]
    fn a_step_is_followed_within_ten_seconds_and_a_glitch_is_not() {
        for (delay, step) in [(20e6, 50_000_000), (20e6, -50_000_000), (100e3, 1_000_000), (100e3, -3_600 * SECOND)] {
            run(42, delay, 20e-6, step, 160, |now, truth, filter| {
                let line = filter.line(now);
                if now > START + 110 * SECOND {
                    let error = (line.unwrap().shared_at(now) - truth).abs() as f64;
                    assert!(error < delay / 2.0, "{delay} {step}: {error} at {}", now - START);
                }
                if !(START + 100 * SECOND..START + 110 * SECOND).contains(&now) {
                    assert_eq!(filter.steps(), u64::from(now > START + 105 * SECOND), "{delay} {step}");
                }
                if now < START + 100 * SECOND && now > START + 50 * SECOND && (now - START) % (10 * SECOND) < SECOND / 4
                {
                    // One answer that is an hour off, between the regular ones.
                    let sent = (now - SECOND / 10) as u64;
                    filter.observe(&Observation {
                        sequence: 0,
                        local_send: sent,
                        local_receive: sent + 1_000_000,
                        remote: (truth + 3_600 * SECOND) as u64,
                        round_trip: 1_000_000,
                    });
                }
            });
        }
    }

    #[test]
    fn absurd_exchanges_do_no_harm() {
        let mut filter = ClockFilter::new(FilterConfig::default());
        for (local_send, local_receive, remote, round_trip) in
            [(0, 0, 0, 0), (u64::MAX, 0, 5, u64::MAX), (9, 3, 5, 0), (1 << 62, u64::MAX >> 1, u64::MAX >> 1, 1)]
        {
            filter.observe(&Observation { sequence: 0, local_send, local_receive, remote, round_trip });
            let _ = filter.line(START);
        }
    }
}

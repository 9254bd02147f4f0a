//! The result, for people and for programs.

use super::Outcome;
use super::compare::{Point, Series};
use super::recording::Recording;
use super::summary::Summary;
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// Counts up when a field is renamed, removed or changes its meaning; new fields may come at any time.
const VERSION: u32 = 1;

/// Everything that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Report {
    version: u32,
    window_ms: f64,
    rooms: Vec<RoomReport>,
    skews: Vec<SkewReport>,
}

/// One room.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct RoomReport {
    room: String,
    /// Hz.
    rate: u32,
    recorded_s: f64,
    /// What the device reports, from the start of a cycle until it is heard.
    device_latency_us: f64,
    /// Steps of the device's time line while it was recorded.
    time_jumps: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    absolute_error: Option<Summary>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trace: Vec<Point>,
}

/// Two rooms.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SkewReport {
    /// Positive figures: this one is late …
    room: String,
    /// … against this one.
    against: String,
    skew: Summary,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trace: Vec<Point>,
}

impl RoomReport {
    pub fn new(recording: &Recording, absolute: Option<Series>, trace: bool) -> Self {
        let about = &recording.about;
        Self {
            room: about.room.clone(),
            rate: about.rate,
            recorded_s: recording.samples.len() as f64 / f64::from(about.rate.max(1)),
            device_latency_us: about.latency_ns as f64 / 1e3,
            time_jumps: recording.jumps(),
            absolute_error: absolute.as_ref().map(Series::summary),
            trace: absolute.filter(|_| trace).map(|series| series.points).unwrap_or_default(),
        }
    }
}

impl SkewReport {
    pub fn new(room: &Recording, against: &Recording, series: &Series, trace: bool) -> Self {
        Self {
            room: room.about.room.clone(),
            against: against.about.room.clone(),
            skew: series.summary(),
            trace: if trace { series.points.clone() } else { Vec::new() },
        }
    }
}

impl Report {
    pub fn new(rooms: Vec<RoomReport>, skews: Vec<SkewReport>, window: Duration) -> Self {
        Self { version: VERSION, window_ms: window.as_secs_f64() * 1e3, rooms, skews }
    }

    fn summaries(&self) -> impl Iterator<Item = &Summary> {
        let absolute = self.rooms.iter().filter_map(|room| room.absolute_error.as_ref());
        absolute.chain(self.skews.iter().map(|skew| &skew.skew))
    }

    /// `limit` is for 95 % of the windows; a window without the sound is beyond any limit.
    pub fn outcome(&self, limit: Option<Duration>) -> Outcome {
        if self.summaries().any(|summary| summary.windows == 0) {
            return Outcome::NotFound;
        }
        match limit {
            Some(limit)
                if self.summaries().any(|summary| summary.p95_us > limit.as_secs_f64() * 1e6 || summary.bad > 0) =>
            {
                Outcome::BeyondLimit
            }
            _ => Outcome::Measured,
        }
    }

    /// One line.
    pub fn json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    /// A few lines.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        for room in &self.rooms {
            let _ = writeln!(
                text,
                "{}: {:.1} s recorded at {} Hz, device latency {:.2} ms, {} jumps of its time line",
                room.room,
                room.recorded_s,
                room.rate,
                room.device_latency_us / 1e3,
                room.time_jumps
            );
            if let Some(error) = &room.absolute_error {
                let _ = writeln!(text, "{}: absolute error: {error}", room.room);
            }
            trace(&mut text, &room.trace);
        }
        for skew in &self.skews {
            let _ = writeln!(text, "{} plays after {}: {}", skew.room, skew.against, skew.skew);
            trace(&mut text, &skew.trace);
        }
        text
    }
}

fn trace(text: &mut String, points: &[Point]) {
    for point in points {
        let _ = writeln!(
            text,
            "  {:8.2} s  {:+10.2} µs  correlation {:.3}",
            point.at_s,
            point.error_ns / 1e3,
            point.quality
        );
    }
}

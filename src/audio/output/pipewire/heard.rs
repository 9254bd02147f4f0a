//! When will the block that is asked for now be heard? All that PipeWire reports about it, combined once.
//!
//! What each figure contains (PipeWire 0.3.65 and 1.4, from their sources):
//!
//! | figure | contains |
//! |---|---|
//! | `clock.nsec` | when the driver *scheduled* this cycle, CLOCK_MONOTONIC. The ALSA driver steers its wake-ups by a delay-locked loop that holds the fill of the device's buffer at the nominal value, so the figure is free of wake-up lateness and of the steps in which a USB device reports its position. |
//! | Latency of the path (`SPA_PARAM_Latency` towards the sink) | the nominal delay from the start of the cycle to the ear, summed over every filter on the way to *our* sink: quanta, frames and ns. ALSA: one quantum + headroom + the user's offset. Bluetooth: packets, codec, transport, offset. Null sink: nothing. |
//! | `clock.delay` | what the *driver* of the graph measured, in frames, at wake-up. ALSA: the fill of the buffer, which is the one quantum + headroom of the path again, with the wake-up jitter in it. Bluetooth: 0.3.65 repeats the transport's delay and offset, 1.4 has 0. Null sink: 0. The header says negative for playback; every driver writes it positive. |
//! | `pw_time.delay` | the latency of the path in whole frames (rounded down: up to 20.8 µs too early at 48 kHz). |
//! | `pw_time.buffered` | frames that PipeWire's converter holds back; 0 unless it resamples. |
//!
//! So the path's latency and `clock.delay` are two views of one delay and must not be added. The path's is taken: it
//! belongs to our sink (the driver of the graph may be another device), and its jitter is filtered already. Only where
//! no latency is reported along the path, `clock.delay` is. The path's latency is taken from the parameter itself and
//! not from `pw_time`, which rounds it.
//!
//! What no figure contains: what is behind the device's buffer (converters, HDMI receivers, loudspeakers). That is what
//! the user's output latency is for.

use crate::published::{WORDS, Words};
use pipewire::spa;
use spa::pod::Pod;
use spa::utils::Id;

const NS_PER_S: f64 = 1e9;

/// One cycle of the graph, as its driver scheduled it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cycle {
    /// When the cycle was scheduled to start: CLOCK_MONOTONIC, ns.
    pub nsec: i64,
    /// Frames a second of the graph, Hz. Never 0.
    pub rate: u32,
    /// Frames of this cycle.
    pub duration: u32,
    /// Count of frames at the start of this cycle.
    pub position: u64,
    /// What the driver measured between its position and the hardware, frames, of either sign.
    pub driver_delay: i64,
    /// Which driver; another number means another time line.
    pub driver: u32,
}

/// The nominal delay from the start of a cycle to the ear, as reported along the path to the sink. The parts are
/// summed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct PathLatency {
    /// In cycles of the graph.
    pub quanta: f32,
    /// In frames at the graph's rate.
    pub frames: f32,
    /// In ns; negative when the user set a negative offset.
    pub ns: i64,
}

impl PathLatency {
    /// Reads a `SPA_PARAM_Latency`; `None` when it is none, or tells of the other direction. Of a range, the middle is
    /// taken, as PipeWire's own sum does.
    ///
    /// `direction` is that of the ports which report: `SPA_DIRECTION_INPUT` is the delay towards a sink.
    pub fn parse(param: &Pod, direction: u32) -> Option<Self> {
        let object = param.as_object().ok()?;
        let value = |key| object.find_prop(Id(key)).map(|property| property.value());
        let said = value(spa::sys::SPA_PARAM_LATENCY_direction)?.get_id().ok()?;
        if said.0 != direction {
            return None;
        }
        let float = |key| value(key).and_then(|value| value.get_float().ok()).unwrap_or(0.0);
        let int = |key| value(key).and_then(|value| value.get_int().ok()).unwrap_or(0);
        let long = |key| value(key).and_then(|value| value.get_long().ok()).unwrap_or(0);
        let min_ns = long(spa::sys::SPA_PARAM_LATENCY_minNs);
        let max_ns = long(spa::sys::SPA_PARAM_LATENCY_maxNs);
        Some(Self {
            quanta: (float(spa::sys::SPA_PARAM_LATENCY_minQuantum) + float(spa::sys::SPA_PARAM_LATENCY_maxQuantum))
                / 2.0,
            frames: (int(spa::sys::SPA_PARAM_LATENCY_minRate) as f32 + int(spa::sys::SPA_PARAM_LATENCY_maxRate) as f32)
                / 2.0,
            ns: min_ns.saturating_add(max_ns) / 2,
        })
    }

    /// In ns, in a cycle of `duration` frames at `rate` Hz.
    pub fn ns_at(&self, rate: u32, duration: u32) -> i64 {
        let frames = f64::from(self.quanta) * f64::from(duration) + f64::from(self.frames);
        (frames * NS_PER_S / f64::from(rate.max(1))).round() as i64 + self.ns
    }

    fn is_reported(&self) -> bool {
        *self != Self::default()
    }
}

impl Words for PathLatency {
    fn pack(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words[..3].copy_from_slice(&[self.quanta.to_bits().into(), self.frames.to_bits().into(), self.ns as u64]);
        words
    }

    fn unpack(words: &[u64; WORDS]) -> Self {
        Self { quanta: f32::from_bits(words[0] as u32), frames: f32::from_bits(words[1] as u32), ns: words[2] as i64 }
    }
}

/// From the scheduled start of the cycle until its first frame is heard, in ns.
pub(super) fn latency_ns(cycle: &Cycle, path: &PathLatency) -> i64 {
    if path.is_reported() {
        path.ns_at(cycle.rate, cycle.duration)
    } else {
        let frames = cycle.driver_delay.unsigned_abs() as f64;
        (frames * NS_PER_S / f64::from(cycle.rate.max(1))).round() as i64
    }
}

/// When the first frame that is written in this cycle will be heard: CLOCK_MONOTONIC, ns. `converter_frames` are what
/// PipeWire's converter holds back, at the stream's own rate `stream_rate` (0 frames while the stream runs at the
/// graph's rate).
pub(super) fn heard_at(cycle: &Cycle, path: &PathLatency, converter_frames: u64, stream_rate: u32) -> i64 {
    let converter = (converter_frames as f64 * NS_PER_S / f64::from(stream_rate.max(1))).round() as i64;
    cycle.nsec.saturating_add(latency_ns(cycle, path)).saturating_add(converter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spa::pod::{Object, Property, Value, serialize::PodSerializer};

    fn cycle() -> Cycle {
        Cycle { nsec: 7_000_000_000, rate: 48_000, duration: 1024, position: 4096, driver_delay: 0, driver: 1 }
    }

    #[test]
    fn a_null_sink_is_heard_when_the_cycle_starts() {
        assert_eq!(heard_at(&cycle(), &PathLatency::default(), 0, 48_000), 7_000_000_000);
    }

    #[test]
    fn alsa_reports_its_fill_twice_and_it_counts_once() {
        // One quantum and 256 frames of headroom; the driver measured 1290 frames (10 late), the path says 1280.
        let cycle = Cycle { driver_delay: 1270, ..cycle() };
        let path = PathLatency { quanta: 1.0, frames: 256.0, ns: 0 };
        assert_eq!(heard_at(&cycle, &path, 0, 48_000) - cycle.nsec, 26_666_667);
    }

    #[test]
    fn the_drivers_delay_stands_in_where_the_path_reports_none_whatever_its_sign() {
        for driver_delay in [480, -480] {
            let cycle = Cycle { driver_delay, ..cycle() };
            assert_eq!(heard_at(&cycle, &PathLatency::default(), 0, 48_000) - cycle.nsec, 10_000_000);
        }
    }

    #[test]
    fn bluetooth_adds_up_and_a_negative_offset_takes_away() {
        let path = PathLatency { quanta: 0.5, frames: 48.0, ns: 150_000_000 };
        assert_eq!(latency_ns(&cycle(), &path), 10_666_667 + 1_000_000 + 150_000_000);
        let path = PathLatency { ns: -3_000_000, ..PathLatency::default() };
        assert_eq!(heard_at(&cycle(), &path, 0, 48_000), 6_997_000_000);
    }

    #[test]
    fn nanoseconds_are_not_rounded_to_frames() {
        let path = PathLatency { ns: 12_345, ..PathLatency::default() };
        assert_eq!(heard_at(&cycle(), &path, 0, 48_000) - cycle().nsec, 12_345);
    }

    #[test]
    fn what_the_converter_holds_counts_at_the_streams_rate() {
        let cycle = Cycle { rate: 44_100, ..cycle() };
        assert_eq!(heard_at(&cycle, &PathLatency::default(), 48, 48_000) - cycle.nsec, 1_000_000);
    }

    #[test]
    fn absurd_reports_do_not_overflow() {
        let cycle =
            Cycle { nsec: i64::MAX, rate: 0, duration: u32::MAX, position: 0, driver_delay: i64::MIN, driver: 0 };
        heard_at(&cycle, &PathLatency::default(), u64::MAX, 0);
        let path = PathLatency { quanta: f32::INFINITY, frames: f32::NAN, ns: 0 };
        heard_at(&cycle, &path, 0, 1);
    }

    fn pod(properties: Vec<Property>) -> Vec<u8> {
        let object = Value::Object(Object {
            type_: spa::sys::SPA_TYPE_OBJECT_ParamLatency,
            id: spa::sys::SPA_PARAM_Latency,
            properties,
        });
        PodSerializer::serialize(std::io::Cursor::new(Vec::new()), &object).unwrap().0.into_inner()
    }

    #[test]
    fn reads_the_parameter_of_its_own_direction() {
        let bytes = pod(vec![
            Property::new(spa::sys::SPA_PARAM_LATENCY_direction, Value::Id(Id(spa::sys::SPA_DIRECTION_INPUT))),
            Property::new(spa::sys::SPA_PARAM_LATENCY_minQuantum, Value::Float(1.0)),
            Property::new(spa::sys::SPA_PARAM_LATENCY_maxQuantum, Value::Float(2.0)),
            Property::new(spa::sys::SPA_PARAM_LATENCY_minRate, Value::Int(100)),
            Property::new(spa::sys::SPA_PARAM_LATENCY_maxRate, Value::Int(101)),
            Property::new(spa::sys::SPA_PARAM_LATENCY_minNs, Value::Long(-5)),
            Property::new(spa::sys::SPA_PARAM_LATENCY_maxNs, Value::Long(15)),
        ]);
        let pod = Pod::from_bytes(&bytes).unwrap();
        let expected = PathLatency { quanta: 1.5, frames: 100.5, ns: 5 };
        assert_eq!(PathLatency::parse(pod, spa::sys::SPA_DIRECTION_INPUT), Some(expected));
        assert_eq!(PathLatency::parse(pod, spa::sys::SPA_DIRECTION_OUTPUT), None);
    }

    #[test]
    fn comes_through_publication_unchanged() {
        let path = PathLatency { quanta: 1.5, frames: -0.25, ns: -7 };
        assert_eq!(PathLatency::unpack(&path.pack()), path);
    }

    #[test]
    fn other_parameters_are_no_latency() {
        let bytes = pod(vec![]);
        assert_eq!(PathLatency::parse(Pod::from_bytes(&bytes).unwrap(), 0), None);
        let bytes = PodSerializer::serialize(std::io::Cursor::new(Vec::new()), &Value::Int(3)).unwrap().0.into_inner();
        assert_eq!(PathLatency::parse(Pod::from_bytes(&bytes).unwrap(), 0), None);
    }
}

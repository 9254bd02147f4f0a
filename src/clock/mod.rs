//! The shared clock: one clock that the sender and every receiver follow.
//!
//! Every clock here counts in the NTP epoch (nanoseconds since 1900-01-01 UTC), whatever its own epoch is: the outer
//! calibration of the [`gst::Clock`] carries it there. So rtpbin's `ntp-time-source=clock-time` compares like with like
//! on the sender and on every receiver.

mod epoch;
mod filter;
mod line;
mod mapping;
mod shared;
mod spec;

pub use epoch::{NTP_UNIX_OFFSET, NtpTime, monotonic_ns, ntp_to_unix_ns, unix_to_ntp_ns};
pub use filter::{ClockFilter, FilterConfig};
pub use line::{ClockLine, LinePublisher, LineReader, clock_line};
pub use mapping::ClockMapping;
pub use shared::{ClockError, ClockStatus, Observation, SharedClock};
pub use spec::{ClockSpec, ClockSpecError, NTP_PORT};

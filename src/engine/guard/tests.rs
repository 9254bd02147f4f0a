//! The guard against the cases from the field, as sequences of packets.

mod camera;
mod cases;
mod faults;

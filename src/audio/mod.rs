//! The steered audio output: measure when a block will be heard, control the speed, act on the samples.

pub mod output;

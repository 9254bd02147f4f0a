//! What the integration tests share.

#[cfg(feature = "pipewire")]
#[allow(dead_code, reason = "each test program uses its own part")]
pub mod pipewire;

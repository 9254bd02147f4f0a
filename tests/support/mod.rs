//! What the integration tests share: the parts that play the world around a receiver. See `docs/testing.md`.

#![allow(dead_code, unused_imports, reason = "each test program uses its own part")]

pub mod camera;
pub mod chrony;
#[cfg(feature = "pipewire")]
pub mod pipewire;
pub mod ports;
pub mod random;
pub mod relay;
pub mod room;
pub mod rtsp_client;
#[cfg(feature = "sender")]
pub mod sender;
pub mod timeline;
pub mod timeserver;

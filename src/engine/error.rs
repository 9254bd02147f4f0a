//! What can end a room, with the exit code of each kind.

use super::url::UrlError;
use crate::clock::{ClockError, ClockSpecError};

/// The documented exit codes of the receiver.
pub mod exit {
    /// Ended as asked.
    pub const OK: u8 = 0;
    /// A failure while playing.
    pub const PLAYING: u8 = 1;
    /// Wrong usage.
    pub const USAGE: u8 = 2;
    /// Cannot connect to the sender.
    pub const CONNECT: u8 = 3;
    /// Synchronization was not reached under `--sync strict`.
    pub const NO_SYNC: u8 = 4;
    /// The shared clock was not reached under `--sync strict`.
    pub const NO_CLOCK: u8 = 5;
}

/// Why a room ended although nobody asked. Each text says what happened and what to do, in at most three lines, without
/// credentials.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    ClockSpec(#[from] ClockSpecError),
    #[error("{0}")]
    Usage(String),
    #[error("the host '{host}' cannot be resolved ({why}): check its name, or give its address")]
    Unresolvable { host: String, why: String },
    #[error("cannot connect to {address}: {why}")]
    Connect { address: String, why: String },
    #[error("the server has no stream at {location} (404 Not Found): check the path of the address")]
    NotFound { location: String },
    #[error(
        "the server wants a user and a password for {location} (401 Unauthorized): give --user and --password-file"
    )]
    Unauthorized { location: String },
    #[error("the server refused {location}: {status}")]
    Refused { location: String, status: String },
    #[error("the stream cannot be played: {missing} is not installed ({hint})")]
    MissingPlugin { missing: String, hint: String },
    #[error("the stream at {location} has nothing that this room plays ({offered}): check --no-video and --no-audio")]
    NothingToPlay { location: String, offered: String },
    #[error("{0}")]
    Stream(String),
    #[error("the connection was lost: {0}")]
    Lost(String),
    #[error("not in sync within {seconds} s, and --sync strict was asked: {why}")]
    NoSync { seconds: u64, why: String },
    #[error("{0}; --sync strict was asked: use --sync auto to play without it")]
    NoClock(ClockError),
    #[error(transparent)]
    Clock(#[from] ClockError),
    #[error("{0}")]
    Internal(String),
}

impl EngineError {
    /// The exit code of a program that ends for this reason.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Url(_) | Self::ClockSpec(_) | Self::Usage(_) | Self::Clock(ClockError::NotSupported(_)) => {
                exit::USAGE
            }
            Self::Unresolvable { .. }
            | Self::Connect { .. }
            | Self::NotFound { .. }
            | Self::Unauthorized { .. }
            | Self::Refused { .. }
            | Self::NothingToPlay { .. } => exit::CONNECT,
            Self::NoSync { .. } => exit::NO_SYNC,
            Self::NoClock(_) | Self::Clock(_) => exit::NO_CLOCK,
            Self::MissingPlugin { .. } | Self::Stream(_) | Self::Lost(_) | Self::Internal(_) => exit::PLAYING,
        }
    }

    /// Whether trying again without a change by the user cannot help.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Lost(_) | Self::Stream(_) | Self::Refused { .. } => false,
            // A server or a network that is still starting gives these too: the caller decides by what went before.
            Self::Unresolvable { .. } | Self::NotFound { .. } => false,
            _ => true,
        }
    }

    /// Whether this is more likely a wrong address than a server that is still starting.
    pub fn is_likely_final_at_start(&self) -> bool {
        self.is_final() || matches!(self, Self::Unresolvable { .. } | Self::NotFound { .. } | Self::Refused { .. })
    }
}

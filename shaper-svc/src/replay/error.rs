//! Why a capture cannot be replayed or inspected, and what to do about it.

use crate::capture::CaptureError;
use crate::engine::{ConfigError, MAX_FRAME_BYTES};
use std::io;
use thiserror::Error;

/// What went wrong.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The capture cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The wire cannot be made.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Write(io::Error),
    /// Time goes back.
    #[error(
        "frame {number} is {back_ns} ns older than the frame before it: sort the capture with `reordercap IN OUT`"
    )]
    Unordered {
        /// The frame, counted from 1.
        number: u64,
        /// By how much, ns, rounded up.
        back_ns: u128,
    },
    /// Longer than a wire carries.
    #[error(
        "frame {number} has {bytes} bytes, a wire carries at most {MAX_FRAME_BYTES}: the capture saw frames that the NIC had not cut yet or had put together; capture with `ethtool -K DEV tso off gso off gro off lro off`"
    )]
    TooLong {
        /// The frame, counted from 1.
        number: u64,
        /// Its length, bytes.
        bytes: u32,
    },
    /// Nothing for a month.
    #[error(
        "more than 30 days before frame {number}: split the capture there with `editcap -A/-B`"
    )]
    Gap {
        /// The frame after the gap, counted from 1.
        number: u64,
    },
}

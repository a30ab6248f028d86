//! The safe layer over DPDK: the EAL once, pools that it owns, devices by name, and
//! ports that stay on the thread that made them.
//!
//! ```text
//! Eal ── owns ──> pools          Device (Send: configure, count, stop)
//!  ^                               │ port(): once
//!  └── kept alive by ── Device <── DpdkPort (!Send: receive, transmit)
//! ```
//!
//! **Why tokens of frames are sound.** A [`HeldMbuf`] can only come out of a
//! [`DpdkPort`]; it points into a pool, and pools live until the EAL is cleaned up,
//! which happens after the last port is gone and never twice in a process. The shim
//! marks an mbuf when it is received and takes the mark away when the mbuf goes to a
//! driver or back to its pool, so a token that is used twice is refused.

// The safe layer right above the binding: each block says why it is sound.
#![allow(unsafe_code)]

mod bypass;
mod clock;
mod device;
mod eal;
mod error;
mod pool;
mod port;

pub use bypass::HardwareBypass;
pub use clock::TscClock;
pub use device::{Device, DeviceOptions};
pub use eal::{Eal, EalOptions, WorkerThread};
pub use error::DpdkError;
pub use pool::Pool;
pub use port::{DpdkPort, HeldMbuf};

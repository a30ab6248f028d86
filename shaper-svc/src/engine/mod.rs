//! The shaping engine: a wire of a given rate, exact to the frame.
//!
//! Pure: frames and `now` go in, departures come out. It reads no clock, does no
//! I/O, logs nothing, and takes no memory after start.
//!
//! - A frame of `len` bytes occupies `(max(len, 60) + 24) * 8 / rate`.
//! - `start = max(next_free, arrived, now - catch_up)`,
//!   `next_free = start + occupancy`; `catch_up` is the wire time of 64 frames of the
//!   configured MTU.
//! - A frame may go to the port when `now >= start`.
//!
//! So no frame leaves before a real wire could have sent it, and an idle wire saves
//! up nothing.

mod backlog;
mod clock;
mod divisor;
mod histogram;
mod keys;
mod policy;
mod stats;
pub mod time;
mod turns;
mod wire;

pub use clock::{FRAME_OVERHEAD_BYTES, MIN_FRAME_BYTES, line_bytes};
pub use histogram::Histogram;
pub use policy::{Expiry, MAX_EXPIRY_PS, MAX_RULES, Match, Policy, PolicyError, Rule, Speed};
pub use stats::WireStats;
pub use wire::{BURST, Burst, CATCH_UP_FRAMES, Intake, Wire};

use thiserror::Error;

/// Wires on one engine thread: the virtual functions that one card's port is split
/// into, at most.
pub const MAX_WIRES: usize = 16;

/// Sub-queues of a wire unless configured: as many keys get a turn of their own.
pub const DEFAULT_SUB_QUEUES: u32 = 1024;

/// Frames that a wire holds unless configured, as the original shaper did: 268 MB
/// of 1 KiB frames, 86 ms of a 25 Gbit/s wire.
pub const DEFAULT_QUEUE_FRAMES: u32 = 262_144;

/// Most frames that a wire can be configured to hold: 16 million, 38 GB of buffers.
pub const MAX_QUEUE_FRAMES: u32 = 1 << 24;

/// Smallest MTU, bytes: what IPv4 demands of a link (RFC 791).
pub const MIN_MTU_BYTES: u16 = 68;

/// Longest frame of a wire as in the buffer, without FCS, bytes: what NICs call jumbo.
pub const MAX_FRAME_BYTES: u16 = 9_216;

/// Largest MTU, bytes: a frame of 9,216 bytes less its Ethernet header.
pub const MAX_MTU_BYTES: u16 = MAX_FRAME_BYTES - ETHERNET_HEADER_BYTES;

/// Ethernet header without tags, bytes.
const ETHERNET_HEADER_BYTES: u16 = 14;

/// One frame that the port received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<H = u64> {
    /// The port's own word for its buffer; the engine only carries it.
    pub handle: H,
    /// Whose turn it takes: see [`crate::classify`].
    pub key: u64,
    /// When it arrived, ps; not after the next poll, and not before the frame
    /// pushed ahead of it.
    pub arrived_ps: u64,
    /// Length as in the buffer, no FCS, bytes.
    pub len: u16,
    /// A congestion notification packet: goes ahead of data, and is charged.
    pub is_cnp: bool,
}

impl Frame<()> {
    /// The same with a handle.
    #[inline]
    #[must_use]
    pub fn with_handle<H>(self, handle: H) -> Frame<H> {
        Frame {
            handle,
            key: self.key,
            arrived_ps: self.arrived_ps,
            len: self.len,
            is_cnp: self.is_cnp,
        }
    }
}

/// When one frame that may go to the port leaves. Its handle lies beside it, see
/// [`Burst::handles`], so that a port can be given all handles as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Departure {
    /// When the wire starts to send it, ps, rounded up.
    pub depart_at_ps: u64,
    /// From arrival to departure, ps.
    pub waited_ps: u64,
    /// Length as in the buffer, no FCS, bytes.
    pub len: u16,
    /// A congestion notification packet.
    pub is_cnp: bool,
}

/// Size and first speed of a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireConfig {
    /// Speed until a policy is set.
    pub speed: Speed,
    /// Largest payload of a frame, bytes; sets what the catch-up of 64 frames is.
    pub mtu_bytes: u16,
    /// Frames that may wait.
    pub queue_frames: u32,
    /// Keys that get a turn of their own.
    pub sub_queues: u32,
}

impl WireConfig {
    /// A wire of the default size.
    #[must_use]
    pub const fn new(speed: Speed, mtu_bytes: u16) -> Self {
        Self {
            speed,
            mtu_bytes,
            queue_frames: DEFAULT_QUEUE_FRAMES,
            sub_queues: DEFAULT_SUB_QUEUES,
        }
    }

    const fn max_frame_bytes(&self) -> u16 {
        self.mtu_bytes + ETHERNET_HEADER_BYTES
    }

    /// Whether the wire can be made.
    ///
    /// # Errors
    /// The first limit that is not kept.
    pub const fn check(&self) -> Result<(), ConfigError> {
        if self.mtu_bytes < MIN_MTU_BYTES || self.mtu_bytes > MAX_MTU_BYTES {
            return Err(ConfigError::Mtu {
                mtu_bytes: self.mtu_bytes,
            });
        }
        if self.queue_frames == 0 || self.queue_frames > MAX_QUEUE_FRAMES {
            return Err(ConfigError::QueueFrames {
                queue_frames: self.queue_frames,
            });
        }
        if self.sub_queues == 0 || self.sub_queues > turns::MAX_PLACES {
            return Err(ConfigError::SubQueues {
                sub_queues: self.sub_queues,
            });
        }
        Ok(())
    }
}

/// Why a wire or an engine cannot be made.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// MTU out of range.
    #[error("mtu is {mtu_bytes} bytes: set {MIN_MTU_BYTES} to {MAX_MTU_BYTES}")]
    Mtu {
        /// What was configured, bytes.
        mtu_bytes: u16,
    },
    /// Queue size out of range.
    #[error("queue_frames is {queue_frames}: set 1 to {MAX_QUEUE_FRAMES}")]
    QueueFrames {
        /// What was configured.
        queue_frames: u32,
    },
    /// Number of sub-queues out of range.
    #[error("sub_queues is {sub_queues}: set 1 to {}", turns::MAX_PLACES)]
    SubQueues {
        /// What was configured.
        sub_queues: u32,
    },
    /// Number of wires out of range.
    #[error("{wires} wires on one engine thread: configure 1 to {MAX_WIRES}")]
    Wires {
        /// How many were configured.
        wires: usize,
    },
}

/// The wires of one engine thread.
#[derive(Debug)]
pub struct Engine<H = u64> {
    wires: Vec<Wire<H>>,
}

impl<H: Default> Engine<H> {
    /// An engine with a wire for each configuration, all idle at `now_ps`.
    ///
    /// # Errors
    /// [`ConfigError`] when a configuration is out of its limits.
    pub fn new(configs: &[WireConfig], now_ps: u64) -> Result<Self, ConfigError> {
        if configs.is_empty() || configs.len() > MAX_WIRES {
            return Err(ConfigError::Wires {
                wires: configs.len(),
            });
        }
        let wires = configs.iter().map(|config| Wire::new(config, now_ps));
        Ok(Self {
            wires: wires.collect::<Result<_, _>>()?,
        })
    }

    /// Memory that [`Engine::new`] takes, bytes, frame buffers not included.
    #[must_use]
    pub fn memory_bytes(configs: &[WireConfig]) -> u64 {
        configs.iter().map(Wire::<H>::memory_bytes).sum()
    }

    /// The wires, in the order of their configuration.
    #[must_use]
    pub fn wires(&self) -> &[Wire<H>] {
        &self.wires
    }

    /// The wires, to push to and to poll.
    pub fn wires_mut(&mut self) -> &mut [Wire<H>] {
        &mut self.wires
    }
}

//! What can go wrong between the shaper and DPDK.

use std::ffi::{CStr, NulError};

use rdmesh_dpdk_sys as sys;

/// A failure of DPDK, with what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum DpdkError {
    /// The EAL can start once in a process.
    #[error("DPDK was started before in this process; it starts once: restart the service")]
    StartedBefore,
    /// The EAL did not start.
    #[error(
        "DPDK's environment did not start with `{arguments}`: {reason}; the lines of EAL above \
         say more, and `[dpdk]` of the configuration sets memory, huge pages and file prefix"
    )]
    Eal {
        /// How it was started.
        arguments: String,
        /// What DPDK says.
        reason: String,
    },
    /// A thread could not be made known to DPDK.
    #[error(
        "this thread cannot be made a worker of DPDK: {reason}; DPDK takes at most 128 threads"
    )]
    Thread {
        /// What DPDK says.
        reason: String,
    },
    /// A device did not probe.
    #[error(
        "device `{device}` did not come up: {reason}; check its name and arguments (an interface \
         that it names must exist in this network namespace), and that no other process has it"
    )]
    Probe {
        /// As configured.
        device: String,
        /// What DPDK says.
        reason: String,
    },
    /// No port has this name.
    #[error(
        "there is no port `{name}`: no device came up under that name; name a port after its \
         device (`net_af_packet0`, or a PCI address)"
    )]
    NoPort {
        /// As configured.
        name: String,
    },
    /// A port was taken twice.
    #[error("port `{name}` is in use already; stop the other service, or name another port")]
    PortInUse {
        /// As configured.
        name: String,
    },
    /// A step of setting a port up failed.
    #[error("port `{name}`: {step} failed: {reason}")]
    Port {
        /// As configured.
        name: String,
        /// Which step.
        step: &'static str,
        /// What DPDK says.
        reason: String,
    },
    /// A pool does not fit.
    #[error(
        "the frame pool `{name}` needs {needed_mb} MB and {available_mb} MB are available: give \
         fewer `queue_frames` or `rx_descriptors`, or more memory (`dpdk.memory_mb`)"
    )]
    PoolMemory {
        /// Which pool.
        name: String,
        /// Megabytes asked for, rounded up.
        needed_mb: u64,
        /// Megabytes there are.
        available_mb: u64,
    },
    /// A pool could not be made although there is memory.
    #[error("the frame pool `{name}` of {mbufs} frames was not made: {reason}")]
    Pool {
        /// Which pool.
        name: String,
        /// Frames.
        mbufs: u32,
        /// What DPDK says.
        reason: String,
    },
    /// The device has no such rule.
    #[error(
        "port `{name}` cannot be bypassed in hardware: {reason}; it is bypassed in software while \
         the service runs"
    )]
    Bypass {
        /// The port whose function would go around the shaper.
        name: String,
        /// What DPDK says.
        reason: String,
    },
    /// A name cannot be passed to C.
    #[error("`{text}` has a zero byte in it, which no name may have")]
    ZeroByte {
        /// The text.
        text: String,
    },
}

impl DpdkError {
    pub(super) fn zero_byte(error: &NulError) -> Self {
        let text = String::from_utf8_lossy(&error.clone().into_vec()).into_owned();
        Self::ZeroByte { text }
    }
}

/// What DPDK says about an error number of either sign.
pub(super) fn reason(code: i32) -> String {
    let code = code.saturating_abs();
    // SAFETY: takes any number and returns a static or thread-local string.
    let text = unsafe { sys::rte_strerror(code) };
    // SAFETY: never null, NUL-terminated, and copied before the next call.
    let text = unsafe { CStr::from_ptr(text) };
    format!("{} ({code})", text.to_string_lossy())
}

/// What DPDK says about the last failure on this thread.
pub(super) fn last_reason() -> String {
    // SAFETY: reads a thread-local number.
    reason(unsafe { sys::rdmesh_errno() })
}

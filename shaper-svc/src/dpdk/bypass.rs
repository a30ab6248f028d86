//! Bypass in hardware: a transfer rule that sends what a function sends straight to
//! the uplink.

use std::ffi::{CStr, c_char};
use std::ptr::NonNull;
use std::sync::Arc;

use rdmesh_dpdk_sys as sys;

use super::{Device, DpdkError};

/// Longest message of a driver that is kept, bytes.
const MESSAGE_BYTES: usize = 256;

/// A rule that is in force until it is dropped.
#[derive(Debug)]
pub struct HardwareBypass {
    raw: NonNull<sys::Flow>,
    from: Arc<Device>,
    // The rule names this port.
    _to: Arc<Device>,
}

// SAFETY: DPDK makes rule calls on a port safe between threads (`rte_flow` takes the
// port's lock); the pointer is not handed out.
unsafe impl Send for HardwareBypass {}

impl HardwareBypass {
    /// Sends what the function behind `from` sends to `to`, in hardware.
    ///
    /// # Errors
    /// [`DpdkError::Bypass`] when the device cannot; every device but a card in
    /// switch mode.
    pub fn new(from: &Arc<Device>, to: &Arc<Device>) -> Result<Self, DpdkError> {
        let mut message: [c_char; MESSAGE_BYTES] = [0; MESSAGE_BYTES];
        // SAFETY: both are started ports; the shim writes at most the length it gets,
        // with a zero at the end.
        let raw = unsafe {
            sys::rdmesh_bypass_create(from.id(), to.id(), message.as_mut_ptr(), MESSAGE_BYTES)
        };
        NonNull::new(raw)
            .map(|raw| Self {
                raw,
                from: Arc::clone(from),
                _to: Arc::clone(to),
            })
            .ok_or_else(|| {
                // SAFETY: the array ends in a zero, whether the shim wrote to it or not.
                let reason = unsafe { CStr::from_ptr(message.as_ptr()) };
                let reason = reason.to_string_lossy().into_owned();
                DpdkError::Bypass {
                    name: from.name().to_owned(),
                    reason,
                }
            })
    }
}

impl Drop for HardwareBypass {
    fn drop(&mut self) {
        // SAFETY: the rule was made on this port and is destroyed once.
        unsafe { sys::rdmesh_bypass_destroy(self.from.id(), self.raw.as_ptr()) };
    }
}

//! The processor's own counter: `rdtsc`, on Arm `cntvct_el0`.

use std::sync::Arc;

use rdmesh_dpdk_sys as sys;

use super::Eal;
use crate::datapath::{Clock, TickScale};

/// Picoseconds since the clock was made, from the processor's counter. Costs 10 ns:
/// read it once for a burst.
#[derive(Clone, Debug)]
pub struct TscClock {
    scale: TickScale,
    zero: u64,
    _eal: Arc<Eal>,
}

impl TscClock {
    /// A clock that starts at zero.
    #[must_use]
    pub fn new(eal: &Arc<Eal>) -> Self {
        // SAFETY: the environment is up and has measured its counter.
        let hertz = unsafe { sys::rte_get_tsc_hz() };
        Self {
            scale: TickScale::from_hertz(hertz),
            zero: ticks(),
            _eal: Arc::clone(eal),
        }
    }
}

impl Clock for TscClock {
    #[inline]
    fn now_ps(&self) -> u64 {
        self.scale.picoseconds(ticks().wrapping_sub(self.zero))
    }
}

#[inline]
fn ticks() -> u64 {
    // SAFETY: reads a counter.
    unsafe { sys::rdmesh_ticks() }
}

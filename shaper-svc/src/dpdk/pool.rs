//! Pools of frame buffers.

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Arc;

use rdmesh_dpdk_sys as sys;

use super::error::last_reason;
use super::{DpdkError, Eal};
use crate::datapath::{POOL_CACHE, PoolPlan, on_pages};

/// A pool of frame buffers. Lives until the environment is cleaned up.
#[derive(Debug)]
pub struct Pool {
    raw: NonNull<sys::Mempool>,
    plan: PoolPlan,
}

// SAFETY: DPDK's pools are made for use by several threads at once; the pointer is
// never handed out and is valid until the drop.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// Makes a pool; the environment keeps it.
    ///
    /// # Errors
    /// [`DpdkError::PoolMemory`] when the environment's memory does not hold it,
    /// [`DpdkError::Pool`] when DPDK refuses it for another reason.
    pub fn new(eal: &Arc<Eal>, name: &str, plan: PoolPlan) -> Result<Arc<Self>, DpdkError> {
        let c_name = CString::new(name).map_err(|e| DpdkError::zero_byte(&e))?;
        // SAFETY: computes a number.
        let each = unsafe { sys::rdmesh_mbuf_footprint(plan.data_room()) };
        let needed = on_pages(plan.mbufs.into(), each.into(), eal.page_bytes());
        let available = eal.heap_free_bytes();
        if needed > available {
            return Err(DpdkError::PoolMemory {
                name: name.to_owned(),
                needed_mb: needed.div_ceil(1 << 20),
                available_mb: available >> 20,
            });
        }
        // A cache may hold half of a small pool at the most.
        let cache = POOL_CACHE.min(plan.mbufs / 3);
        // SAFETY: the environment is up; the name is copied by DPDK.
        let raw = unsafe {
            sys::rdmesh_pool_create(
                c_name.as_ptr(),
                plan.mbufs,
                cache,
                plan.data_room(),
                eal.packs_buffers().into(),
            )
        };
        let raw = NonNull::new(raw).ok_or_else(|| DpdkError::Pool {
            name: name.to_owned(),
            mbufs: plan.mbufs,
            reason: last_reason(),
        })?;
        let pool = Arc::new(Self { raw, plan });
        eal.keep(&pool);
        Ok(pool)
    }

    /// Buffers that are in the pool now; the rest is with ports, wires and caches.
    #[must_use]
    pub fn free_mbufs(&self) -> u32 {
        // SAFETY: the pool lives.
        unsafe { sys::rte_mempool_avail_count(self.raw.as_ptr()) }
    }

    /// How large it was made.
    #[must_use]
    pub fn plan(&self) -> PoolPlan {
        self.plan
    }

    pub(super) fn raw(&self) -> *mut sys::Mempool {
        self.raw.as_ptr()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the environment holds one count until every device is closed, so no
        // buffer of this pool is in use.
        unsafe { sys::rte_mempool_free(self.raw.as_ptr()) };
    }
}

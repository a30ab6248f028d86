//! Raw declarations of DPDK 22.11 and 24.11, with a C shim for what DPDK has only
//! as inline functions or as structs that differ between the two.
//!
//! This crate never decides anything: no policy, no ownership, no checks. The
//! safe layer is `rdmesh_shaper::dpdk`; nothing else may call this.
//!
//! Every function is as unsafe as its C original: see DPDK's API reference for
//! `rte_*` and `shim/shim.h` for `rdmesh_*`.

// The one purpose of this crate is to declare foreign functions.
#![allow(unsafe_code)]

use core::ffi::{c_char, c_int, c_uint};

/// Contiguous header bytes that a frame in short segments is gathered into.
pub const HEAD_BYTES: usize = 128;

/// Most frames that [`rdmesh_rx_burst`] takes at a time.
pub const MAX_BURST: u16 = 64;

/// Opaque: a packet buffer.
#[repr(C)]
pub struct Mbuf {
    _opaque: [u8; 0],
}

/// Opaque: a pool of packet buffers.
#[repr(C)]
pub struct Mempool {
    _opaque: [u8; 0],
}

/// Opaque: a rule in a device.
#[repr(C)]
pub struct Flow {
    _opaque: [u8; 0],
}

/// One received frame.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Frame {
    /// The buffer.
    pub mbuf: *mut Mbuf,
    /// First bytes of the frame, contiguous.
    pub head: *const u8,
    /// Whole frame without FCS, bytes.
    pub bytes: u32,
    /// Bytes at `head`.
    pub head_bytes: u16,
}

/// The first bytes of a frame that is held, in place.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Head {
    /// Null: no frame.
    pub at: *mut u8,
    /// Bytes there.
    pub bytes: u16,
}

impl Default for Head {
    fn default() -> Self {
        Self {
            at: core::ptr::null_mut(),
            bytes: 0,
        }
    }
}

/// What a device can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PortLimits {
    /// Smallest buffer that it takes, bytes.
    pub min_rx_bytes: u32,
    /// Most RX queues.
    pub max_rx_queues: u16,
    /// Most TX queues.
    pub max_tx_queues: u16,
    /// Fewest RX descriptors of a queue.
    pub rx_descriptors_min: u16,
    /// Most RX descriptors of a queue; 0: the driver does not say.
    pub rx_descriptors_max: u16,
    /// Fewest TX descriptors of a queue.
    pub tx_descriptors_min: u16,
    /// Most TX descriptors of a queue; 0: the driver does not say.
    pub tx_descriptors_max: u16,
    /// Smallest MTU, bytes.
    pub min_mtu: u16,
    /// Largest MTU, bytes.
    pub max_mtu: u16,
}

/// A device's counters since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PortCounters {
    /// Frames received.
    pub rx_frames: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Dropped by the device because the RX queue was full.
    pub imissed: u64,
    /// Received with errors.
    pub rx_errors: u64,
    /// Not sent because of errors.
    pub tx_errors: u64,
    /// Dropped because the pool was empty.
    pub rx_nombuf: u64,
    /// Times that the receive ring fell below its threshold of free descriptors.
    pub filled_up: u64,
}

// Documented where they are defined: DPDK's API reference, `shim/shim.h`.
#[allow(missing_docs)]
unsafe extern "C" {
    pub fn rte_eal_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    pub fn rte_eal_cleanup() -> c_int;
    pub fn rte_strerror(errnum: c_int) -> *const c_char;
    pub fn rte_version() -> *const c_char;
    pub fn rte_get_tsc_hz() -> u64;
    pub fn rte_thread_register() -> c_int;
    pub fn rte_thread_unregister();

    pub fn rte_dev_probe(devargs: *const c_char) -> c_int;
    pub fn rte_eth_dev_get_port_by_name(name: *const c_char, port: *mut u16) -> c_int;
    pub fn rte_eth_dev_socket_id(port: u16) -> c_int;
    pub fn rte_eth_dev_is_valid_port(port: u16) -> c_int;
    pub fn rte_eth_dev_adjust_nb_rx_tx_desc(port: u16, rx: *mut u16, tx: *mut u16) -> c_int;
    pub fn rte_eth_rx_queue_setup(
        port: u16,
        queue: u16,
        descriptors: u16,
        socket: c_uint,
        conf: *const core::ffi::c_void,
        pool: *mut Mempool,
    ) -> c_int;
    pub fn rte_eth_tx_queue_setup(
        port: u16,
        queue: u16,
        descriptors: u16,
        socket: c_uint,
        conf: *const core::ffi::c_void,
    ) -> c_int;
    pub fn rte_eth_promiscuous_enable(port: u16) -> c_int;
    pub fn rte_eth_dev_start(port: u16) -> c_int;
    pub fn rte_eth_dev_stop(port: u16) -> c_int;
    pub fn rte_eth_dev_close(port: u16) -> c_int;

    pub fn rte_pktmbuf_pool_create(
        name: *const c_char,
        n: c_uint,
        cache_size: c_uint,
        priv_size: u16,
        data_room_size: u16,
        socket: c_int,
    ) -> *mut Mempool;
    pub fn rte_mempool_avail_count(pool: *const Mempool) -> c_uint;
    pub fn rte_mempool_free(pool: *mut Mempool);

    pub fn rdmesh_rx_burst(
        port: u16,
        queue: u16,
        frames: *mut Frame,
        scratch: *mut u8,
        max: u16,
    ) -> u16;
    pub fn rdmesh_tx_burst(port: u16, queue: u16, mbufs: *mut *mut Mbuf, n: u16) -> u16;
    pub fn rdmesh_heads(mbufs: *const *mut Mbuf, heads: *mut Head, n: u16);
    pub fn rdmesh_free_burst(mbufs: *mut *mut Mbuf, n: u16) -> u16;
    pub fn rdmesh_mbuf_from(
        pool: *mut Mempool,
        bytes: *const u8,
        n: u32,
        segment_bytes: u16,
    ) -> *mut Mbuf;
    pub fn rdmesh_mbuf_read(mbuf: *const Mbuf, to: *mut u8, n: u32) -> u32;
    pub fn rdmesh_ticks() -> u64;
    pub fn rdmesh_errno() -> c_int;
    pub fn rdmesh_pool_create(
        name: *const c_char,
        mbufs: u32,
        cache: u32,
        data_room: u16,
        packed: c_int,
    ) -> *mut Mempool;
    pub fn rdmesh_mbuf_footprint(data_room: u16) -> u32;
    pub fn rdmesh_has_driver(device: *const c_char) -> c_int;
    pub fn rdmesh_heap_free() -> u64;
    pub fn rdmesh_port_limits(port: u16, limits: *mut PortLimits) -> c_int;
    pub fn rdmesh_port_configure(port: u16, mtu: u16) -> c_int;
    pub fn rdmesh_port_watch(port: u16, percent: u8) -> c_int;
    pub fn rdmesh_port_removed(port: u16) -> c_int;
    pub fn rdmesh_port_link_is_down(port: u16) -> c_int;
    pub fn rdmesh_packet_drops(interface: c_uint) -> u64;
    pub fn rdmesh_port_counters(port: u16, counters: *mut PortCounters) -> c_int;
    pub fn rdmesh_bypass_create(r#in: u16, out: u16, message: *mut c_char, n: usize) -> *mut Flow;
    pub fn rdmesh_bypass_destroy(r#in: u16, flow: *mut Flow) -> c_int;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    unsafe extern "C" {
        static rdmesh_frame_layout: [usize; 5];
        static rdmesh_head_layout: [usize; 3];
        static rdmesh_port_limits_layout: [usize; 10];
        static rdmesh_port_counters_layout: [usize; 10];
    }

    #[test]
    fn frame_is_laid_out_as_in_c() {
        // SAFETY: a constant of the shim, declared with its own length.
        let c = unsafe { rdmesh_frame_layout };
        let rust = [
            size_of::<Frame>(),
            offset_of!(Frame, mbuf),
            offset_of!(Frame, head),
            offset_of!(Frame, bytes),
            offset_of!(Frame, head_bytes),
        ];
        assert_eq!(rust, c);
    }

    #[test]
    fn heads_are_laid_out_as_in_c() {
        // SAFETY: a constant of the shim, declared with its own length.
        let c = unsafe { rdmesh_head_layout };
        let rust = [
            size_of::<Head>(),
            offset_of!(Head, at),
            offset_of!(Head, bytes),
        ];
        assert_eq!(rust, c);
    }

    #[test]
    fn port_limits_are_laid_out_as_in_c() {
        // SAFETY: a constant of the shim, declared with its own length.
        let c = unsafe { rdmesh_port_limits_layout };
        let rust = [
            size_of::<PortLimits>(),
            offset_of!(PortLimits, min_rx_bytes),
            offset_of!(PortLimits, max_rx_queues),
            offset_of!(PortLimits, max_tx_queues),
            offset_of!(PortLimits, rx_descriptors_min),
            offset_of!(PortLimits, rx_descriptors_max),
            offset_of!(PortLimits, tx_descriptors_min),
            offset_of!(PortLimits, tx_descriptors_max),
            offset_of!(PortLimits, min_mtu),
            offset_of!(PortLimits, max_mtu),
        ];
        assert_eq!(rust, c);
    }

    #[test]
    fn port_counters_are_laid_out_as_in_c() {
        // SAFETY: a constant of the shim, declared with its own length.
        let c = unsafe { rdmesh_port_counters_layout };
        let rust = [
            size_of::<PortCounters>(),
            offset_of!(PortCounters, rx_frames),
            offset_of!(PortCounters, tx_frames),
            offset_of!(PortCounters, rx_bytes),
            offset_of!(PortCounters, tx_bytes),
            offset_of!(PortCounters, imissed),
            offset_of!(PortCounters, rx_errors),
            offset_of!(PortCounters, tx_errors),
            offset_of!(PortCounters, rx_nombuf),
            offset_of!(PortCounters, filled_up),
        ];
        assert_eq!(rust, c);
    }
}

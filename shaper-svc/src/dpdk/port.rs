//! A DPDK port as the data path sees it.

use std::marker::PhantomData;
use std::sync::Arc;

use rdmesh_dpdk_sys as sys;

use super::Device;
use crate::port::{BURST, Port};

/// A frame in an mbuf that the data path holds, or none. Stays on its thread. There is
/// one for each mbuf; it cannot be copied, so what it points to is nobody else's. One
/// that is dropped is lost to its pool: give it back.
#[derive(Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct HeldMbuf(*mut sys::Mbuf);

impl Default for HeldMbuf {
    fn default() -> Self {
        Self(std::ptr::null_mut())
    }
}

/// Both directions of a device, on the thread that made it.
#[derive(Debug)]
pub struct DpdkPort {
    device: Arc<Device>,
    burst: Box<[sys::Frame; BURST]>,
    /// Header bytes of frames whose first segment is short.
    scratch: Box<[u8; BURST * sys::HEAD_BYTES]>,
    _stays: PhantomData<*const ()>,
}

const NO_FRAME: sys::Frame = sys::Frame {
    mbuf: std::ptr::null_mut(),
    head: std::ptr::null(),
    bytes: 0,
    head_bytes: 0,
};

// What the shim is called with.
const BURST_U16: u16 = 32;
const _: () = assert!(BURST_U16 as usize == BURST && BURST_U16 <= sys::MAX_BURST);

impl DpdkPort {
    pub(super) fn new(device: Arc<Device>) -> Self {
        Self {
            device,
            burst: Box::new([NO_FRAME; BURST]),
            scratch: Box::new([0; BURST * sys::HEAD_BYTES]),
            _stays: PhantomData,
        }
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// A new frame with these bytes, in segments of at most `segment_bytes`: what a
    /// traffic source for tests and measurements sends. `None` when the pool is empty.
    #[must_use]
    pub fn frame_from(&self, bytes: &[u8], segment_bytes: u16) -> Option<HeldMbuf> {
        let n = u32::try_from(bytes.len()).ok()?;
        // SAFETY: the pool lives as long as the environment; `bytes` has n bytes.
        let raw = unsafe {
            sys::rdmesh_mbuf_from(
                self.device.pool().raw(),
                bytes.as_ptr(),
                n,
                segment_bytes.max(1),
            )
        };
        (!raw.is_null()).then_some(HeldMbuf(raw))
    }

    /// Copies the first bytes of a frame into `to`; returns its whole length, 0 for none.
    pub fn read(&self, frame: &HeldMbuf, to: &mut [u8]) -> usize {
        let n = u32::try_from(to.len()).unwrap_or(u32::MAX);
        // SAFETY: the token is null or an mbuf that is the token's alone; the shim writes
        // at most n bytes.
        unsafe { sys::rdmesh_mbuf_read(frame.0, to.as_mut_ptr(), n) as usize }
    }
}

/// What is left of a received burst: given back should whoever reads it fail.
struct Received<'a>(std::slice::Iter<'a, sys::Frame>);

impl Drop for Received<'_> {
    #[inline]
    fn drop(&mut self) {
        for frame in self.0.by_ref() {
            free(&mut [HeldMbuf(frame.mbuf)]);
        }
    }
}

/// Gives frames back, [`BURST`] at the most; returns how many there were.
fn free(frames: &mut [HeldMbuf]) -> usize {
    let n = u16::try_from(frames.len())
        .unwrap_or(BURST_U16)
        .min(BURST_U16);
    // SAFETY: the first n tokens are null or mbufs that are theirs alone, laid out as
    // pointers; they are cleared below.
    let freed = unsafe { sys::rdmesh_free_burst(frames.as_mut_ptr().cast(), n) };
    frames[..n.into()].fill_with(HeldMbuf::default);
    freed.into()
}

impl Port for DpdkPort {
    type Frame = HeldMbuf;

    #[inline]
    fn receive<R>(
        &mut self,
        max: usize,
        mut read: impl FnMut(&[u8], u32) -> R,
        mut hold: impl FnMut(HeldMbuf, R),
    ) -> usize {
        let max = u16::try_from(max).unwrap_or(BURST_U16).min(BURST_U16);
        // SAFETY: the device is started and this handle is the only user of its queue
        // 0; burst and scratch have room for BURST frames.
        let n = unsafe {
            sys::rdmesh_rx_burst(
                self.device.id(),
                0,
                self.burst.as_mut_ptr(),
                self.scratch.as_mut_ptr(),
                max,
            )
        };
        let n = usize::from(n).min(BURST);
        let mut received = Received(self.burst[..n].iter());
        while let Some(frame) = received.0.as_slice().first() {
            // SAFETY: head points at head_bytes bytes of an mbuf whose token nobody has
            // yet, or of the scratch; the slice is gone before the token is given.
            let head = unsafe { std::slice::from_raw_parts(frame.head, frame.head_bytes.into()) };
            let known = read(head, frame.bytes);
            received.0.next();
            hold(HeldMbuf(frame.mbuf), known);
        }
        n
    }

    #[inline]
    fn transmit(&mut self, frames: &mut [HeldMbuf]) -> usize {
        let n = u16::try_from(frames.len())
            .unwrap_or(BURST_U16)
            .min(BURST_U16);
        let (id, mbufs) = (self.device.id(), frames.as_mut_ptr().cast());
        // SAFETY: the first n tokens are null or mbufs that are theirs alone, laid out as
        // pointers; those that are sent are cleared below. This handle is the only user
        // of the device's queue 0.
        let sent = unsafe { sys::rdmesh_tx_burst(id, 0, mbufs, n) };
        let sent = usize::from(sent).min(frames.len());
        frames[..sent].fill_with(HeldMbuf::default);
        sent
    }

    fn rewrite(&mut self, frames: &mut [HeldMbuf], which: u32, mut change: impl FnMut(&mut [u8])) {
        let n = u16::try_from(frames.len())
            .unwrap_or(BURST_U16)
            .min(BURST_U16);
        let mut heads = [sys::Head::default(); BURST];
        // SAFETY: the first n tokens are null or mbufs that are theirs alone, laid out as
        // pointers; there are as many heads.
        unsafe { sys::rdmesh_heads(frames.as_ptr().cast(), heads.as_mut_ptr(), n) };
        for (at, head) in heads.iter().enumerate().take(n.into()) {
            if which >> at & 1 == 1 && !head.at.is_null() {
                // SAFETY: the first bytes of an mbuf whose token is borrowed alone by this
                // call, in a piece of at least so many.
                change(unsafe { std::slice::from_raw_parts_mut(head.at, head.bytes.into()) });
            }
        }
    }

    fn discard(&mut self, frames: &mut [HeldMbuf]) -> usize {
        frames.chunks_mut(BURST).map(free).sum()
    }
}

impl Drop for DpdkPort {
    fn drop(&mut self) {
        self.device.port_returned();
    }
}

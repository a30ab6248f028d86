//! A DPDK port as the data path sees it.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use rdmesh_dpdk_sys as sys;

use super::Device;
use crate::port::{BURST, Port};

/// A frame in an mbuf that the data path holds. Stays on its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct HeldMbuf(NonNull<sys::Mbuf>);

/// Both directions of a device, on the thread that made it.
#[derive(Debug)]
pub struct DpdkPort {
    device: Arc<Device>,
    burst: Box<[sys::Frame; BURST]>,
    received: usize,
    /// Header bytes of frames whose first segment is short.
    scratch: Box<[u8; BURST * sys::HEAD_BYTES]>,
    _stays: PhantomData<*const ()>,
}

const NO_FRAME: sys::Frame = sys::Frame {
    mbuf: std::ptr::null_mut(),
    head: std::ptr::null(),
    bytes: 0,
    head_bytes: 0,
    segments: 0,
};

// What the shim is called with.
const BURST_U16: u16 = 32;
const _: () = assert!(BURST_U16 as usize == BURST && BURST_U16 <= sys::MAX_BURST);

impl DpdkPort {
    pub(super) fn new(device: Arc<Device>) -> Self {
        Self {
            device,
            burst: Box::new([NO_FRAME; BURST]),
            received: 0,
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
        NonNull::new(raw).map(HeldMbuf)
    }

    /// Copies the first bytes of a held frame into `to`; returns its whole length, 0
    /// when the frame is no longer held.
    pub fn read(&self, frame: HeldMbuf, to: &mut [u8]) -> usize {
        let n = u32::try_from(to.len()).unwrap_or(u32::MAX);
        // SAFETY: the token points into a pool that lives; the shim reads frames that
        // are marked as held alone, and at most n bytes.
        unsafe { sys::rdmesh_mbuf_read(frame.0.as_ptr(), to.as_mut_ptr(), n) as usize }
    }

    fn frame(&self, index: usize) -> Option<&sys::Frame> {
        self.burst[..self.received]
            .get(index)
            .filter(|frame| !frame.mbuf.is_null())
    }

    /// Gives back what was received and not taken.
    fn drop_burst(&mut self) {
        for index in 0..self.received {
            if let Some(frame) = self.take(index) {
                self.discard(&[frame]);
            }
        }
        self.received = 0;
    }
}

impl Port for DpdkPort {
    type Frame = HeldMbuf;

    #[inline]
    fn receive(&mut self, max: usize) -> usize {
        if self.burst[..self.received]
            .iter()
            .any(|frame| !frame.mbuf.is_null())
        {
            self.drop_burst();
        }
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
        self.received = usize::from(n).min(BURST);
        self.received
    }

    #[inline]
    fn head(&self, index: usize) -> &[u8] {
        let Some(frame) = self.frame(index) else {
            return &[];
        };
        // SAFETY: head points at head_bytes bytes of an mbuf that is in the burst, or
        // of the scratch; both stay as they are until a call that needs `&mut self`.
        unsafe { std::slice::from_raw_parts(frame.head, usize::from(frame.head_bytes)) }
    }

    #[inline]
    fn bytes(&self, index: usize) -> u32 {
        self.frame(index).map_or(0, |frame| frame.bytes)
    }

    #[inline]
    fn take(&mut self, index: usize) -> Option<HeldMbuf> {
        let frame = self.burst[..self.received].get_mut(index)?;
        NonNull::new(std::mem::replace(&mut frame.mbuf, std::ptr::null_mut())).map(HeldMbuf)
    }

    #[inline]
    fn transmit(&mut self, frames: &[HeldMbuf]) -> usize {
        let n = frames.len().min(BURST);
        if n == 0 {
            return 0;
        }
        let mut mbufs = [std::ptr::null_mut(); BURST];
        for (mbuf, frame) in mbufs.iter_mut().zip(frames) {
            *mbuf = frame.0.as_ptr();
        }
        // SAFETY: the first n pointers are mbufs of pools that live; the shim sends
        // those that are marked as held alone, and this handle is the only user of
        // the device's queue 0. n is at most BURST.
        let sent = unsafe {
            sys::rdmesh_tx_burst(
                self.device.id(),
                0,
                mbufs.as_mut_ptr(),
                u16::try_from(n).unwrap_or(BURST_U16),
            )
        };
        usize::from(sent)
    }

    fn discard(&mut self, frames: &[HeldMbuf]) -> usize {
        let mut freed = 0;
        for chunk in frames.chunks(BURST) {
            let mut mbufs = [std::ptr::null_mut(); BURST];
            for (mbuf, frame) in mbufs.iter_mut().zip(chunk) {
                *mbuf = frame.0.as_ptr();
            }
            // SAFETY: as in `transmit`; the shim frees held mbufs alone.
            freed += usize::from(unsafe {
                sys::rdmesh_free_burst(
                    mbufs.as_mut_ptr(),
                    u16::try_from(chunk.len()).unwrap_or(BURST_U16),
                )
            });
        }
        freed
    }
}

impl Drop for DpdkPort {
    fn drop(&mut self) {
        self.drop_burst();
        self.device.port_returned();
    }
}

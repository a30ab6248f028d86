//! One ioctl method of the kernel's own ABI, for calls that libibverbs does not make
//! with every device. Unsafe code as in `verbs.rs`.

#![allow(unsafe_code)]

use crate::sys;
use crate::verbs::{Device, Pd};
use std::io;

/// `RDMA_VERBS_IOCTL` of include/uapi/rdma/rdma_user_ioctl_cmds.h: read and write,
/// 24 bytes of header, magic 0x1b, number 1.
const RDMA_VERBS_IOCTL: u32 = 3 << 30 | 24 << 16 | 0x1b << 8 | 1;

/// `UVERBS_METHOD_REG_MR` and its attributes, of Linux 6.17: newer than the headers that
/// this program is built with.
const REG_MR: u32 = 5;
const REG_MR_HANDLE: u32 = 0;
const REG_MR_PD_HANDLE: u32 = 1;
const REG_MR_IOVA: u32 = 3;
const REG_MR_ADDRESS: u32 = 4;
const REG_MR_LENGTH: u32 = 5;
const REG_MR_ACCESS_FLAGS: u32 = 6;
const REG_MR_RESP_LKEY: u32 = 9;
const REG_MR_RESP_RKEY: u32 = 10;

/// A header and its attributes.
#[repr(C)]
struct Message<const N: usize> {
    header: sys::ib_uverbs_ioctl_hdr,
    attributes: [sys::ib_uverbs_attr; N],
}

/// An attribute with its value in it.
fn attribute(id: u32, bytes: usize, data: u64) -> sys::ib_uverbs_attr {
    let mut attribute = sys::ib_uverbs_attr {
        attr_id: u16::try_from(id).unwrap_or(u16::MAX),
        len: u16::try_from(bytes).unwrap_or(u16::MAX),
        flags: u16::try_from(sys::UVERBS_ATTR_F_MANDATORY).unwrap_or(0),
        ..Default::default()
    };
    attribute.__bindgen_anon_1.data = data;
    attribute
}

/// An object, or a descriptor: it has no length.
fn object(id: u32, number: u64) -> sys::ib_uverbs_attr {
    attribute(id, 0, number)
}

fn long(id: u32, number: u64) -> sys::ib_uverbs_attr {
    attribute(id, size_of::<u64>(), number)
}

fn word(id: u32, number: u32) -> sys::ib_uverbs_attr {
    attribute(id, size_of::<u32>(), number.into())
}

/// Where the kernel puts a word.
fn answer(id: u32, to: &mut u32) -> sys::ib_uverbs_attr {
    attribute(id, size_of::<u32>(), (&raw mut *to).addr() as u64)
}

impl Device {
    /// `UVERBS_METHOD_REG_MR`. A region that is made stays until the device is closed.
    pub(crate) fn reg_mr_method(
        &self,
        pd: &Pd<'_>,
        address: u64,
        bytes: u64,
        access: u32,
    ) -> io::Result<()> {
        let (mut lkey, mut rkey) = (0, 0);
        self.method(
            REG_MR,
            [
                object(REG_MR_HANDLE, 0),
                object(REG_MR_PD_HANDLE, pd.handle().into()),
                long(REG_MR_IOVA, address),
                long(REG_MR_ADDRESS, address),
                long(REG_MR_LENGTH, bytes),
                word(REG_MR_ACCESS_FLAGS, access),
                answer(REG_MR_RESP_LKEY, &mut lkey),
                answer(REG_MR_RESP_RKEY, &mut rkey),
            ],
        )
    }

    /// One method of memory regions, of soft-RoCE. What the attributes point to must
    /// live through the call, which it does in the functions above.
    fn method<const N: usize>(
        &self,
        method: u32,
        attributes: [sys::ib_uverbs_attr; N],
    ) -> io::Result<()> {
        let short = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
        let id = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        let mut message = Message {
            header: sys::ib_uverbs_ioctl_hdr {
                length: short(size_of::<Message<N>>()),
                object_id: id(sys::UVERBS_OBJECT_MR),
                method_id: id(method),
                num_attrs: short(N),
                driver_id: sys::RDMA_DRIVER_RXE,
                ..Default::default()
            },
            attributes,
        };
        let fd = self.command_fd();
        // SAFETY: the descriptor is the device file of an open context; the message
        // lives through the call, is as long as its header says, and its pointers lead
        // to words of the callers.
        let done = unsafe { libc::ioctl(fd, RDMA_VERBS_IOCTL.into(), &raw mut message) };
        if done == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

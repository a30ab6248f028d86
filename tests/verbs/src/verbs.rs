//! Verbs objects as owned handles. All unsafe code of this program is here.
//!
//! A wrong address, size or state is what this program exists to pass, so none is
//! checked: the kernel answers with an errno. No work request is ever posted, so no
//! memory is ever read or written through these objects.

#![allow(unsafe_code)]

use crate::sys;
use anyhow::{Context, Result, bail};
use std::ffi::CStr;
use std::io;
use std::marker::PhantomData;
use std::net::Ipv6Addr;
use std::ptr::{NonNull, null_mut};

/// An open device.
pub(crate) struct Device(NonNull<sys::ibv_context>);

// SAFETY: libibverbs allows any call on a context from any thread (ibv_open_device(3)
// and the library's documentation: "thread safe").
unsafe impl Send for Device {}
// SAFETY: as above; the context is not changed through this handle.
unsafe impl Sync for Device {}

/// A protection domain.
pub(crate) struct Pd<'d>(NonNull<sys::ibv_pd>, PhantomData<&'d Device>);
/// A completion queue.
pub(crate) struct Cq<'d>(NonNull<sys::ibv_cq>, PhantomData<&'d Device>);
/// A queue pair.
pub(crate) struct Qp<'d>(NonNull<sys::ibv_qp>, PhantomData<&'d Device>);
/// A memory region.
pub(crate) struct Mr<'p>(NonNull<sys::ibv_mr>, PhantomData<&'p Device>);
/// An address handle.
pub(crate) struct Ah<'p>(NonNull<sys::ibv_ah>, PhantomData<&'p Device>);

/// States of a queue pair that the scenarios use.
#[derive(Debug, Clone, Copy)]
pub(crate) enum State {
    Reset,
    Init,
    ReadyToReceive,
    ReadyToSend,
}

/// What a queue pair is to become.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) state: State,
    /// Slot of the GID table, and the peer's GID.
    pub(crate) path: Option<(u8, Ipv6Addr)>,
    /// Number of the peer's queue pair.
    pub(crate) peer_qp: Option<u32>,
}

impl Wanted {
    /// A state with nothing but the attributes that INIT needs.
    pub(crate) fn state(state: State) -> Self {
        Self {
            state,
            path: None,
            peer_qp: None,
        }
    }

    /// Ready to receive from a peer, but for one attribute.
    pub(crate) fn path(sgid_index: u8, peer: Ipv6Addr) -> Self {
        Self {
            state: State::ReadyToReceive,
            path: Some((sgid_index, peer)),
            peer_qp: None,
        }
    }

    /// Ready to receive from a queue pair of a peer.
    pub(crate) fn connected(sgid_index: u8, peer: Ipv6Addr, peer_qp: u32) -> Self {
        Self {
            peer_qp: Some(peer_qp),
            ..Self::path(sgid_index, peer)
        }
    }

    /// The attributes that it names.
    pub(crate) fn mask(&self) -> u32 {
        let peer_qp = match self.peer_qp {
            Some(_) => sys::IBV_QP_DEST_QPN,
            None => 0,
        };
        match self.state {
            State::Init => {
                sys::IBV_QP_STATE
                    | sys::IBV_QP_PKEY_INDEX
                    | sys::IBV_QP_PORT
                    | sys::IBV_QP_ACCESS_FLAGS
            }
            // This state needs the peer's queue pair, too.
            State::ReadyToReceive => {
                peer_qp
                    | sys::IBV_QP_STATE
                    | sys::IBV_QP_AV
                    | sys::IBV_QP_PATH_MTU
                    | sys::IBV_QP_RQ_PSN
                    | sys::IBV_QP_MAX_DEST_RD_ATOMIC
                    | sys::IBV_QP_MIN_RNR_TIMER
            }
            State::Reset | State::ReadyToSend => sys::IBV_QP_STATE,
        }
    }
}

/// Access flags that the scenarios use.
pub(crate) const LOCAL_WRITE: u32 = sys::IBV_ACCESS_LOCAL_WRITE;
pub(crate) const REMOTE_WRITE: u32 = sys::IBV_ACCESS_REMOTE_WRITE;

/// The limits of a device that the scenarios go over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_qp_wr: u32,
    pub(crate) max_cqe: i32,
}

fn owned<T>(pointer: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(io::Error::last_os_error)
}

fn zero_or_errno(answer: i32) -> io::Result<()> {
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(answer))
    }
}

impl Device {
    /// Opens the device of that name, or the first one.
    pub(crate) fn open(name: Option<&str>) -> Result<Self> {
        // SAFETY: a null count is allowed; the list is checked below.
        let list = unsafe { sys::ibv_get_device_list(null_mut()) };
        let list = owned(list).context("cannot list RDMA devices")?;
        let mut opened = None;
        for index in 0.. {
            // SAFETY: the list ends with a null pointer, where this loop ends too.
            let entry = unsafe { list.add(index) };
            // SAFETY: as above; entries are aligned pointers.
            let device = unsafe { entry.read() };
            if device.is_null() {
                break;
            }
            if name.is_none_or(|name| device_name(device) == name.as_bytes()) {
                // SAFETY: the device is from the list, which is not freed yet.
                opened = Some(owned(unsafe { sys::ibv_open_device(device) }));
                break;
            }
        }
        // SAFETY: the list is from ibv_get_device_list and not used afterwards.
        unsafe { sys::ibv_free_device_list(list.as_ptr()) };
        match (opened, name) {
            (Some(context), _) => Ok(Self(context.context("cannot open the RDMA device")?)),
            (None, Some(name)) => bail!("no RDMA device {name}"),
            (None, None) => bail!("no RDMA device"),
        }
    }

    pub(crate) fn limits(&self) -> io::Result<Limits> {
        let mut attributes = sys::ibv_device_attr::default();
        // SAFETY: the context is open and the struct is the one that the call fills.
        let answer = unsafe { sys::ibv_query_device(self.0.as_ptr(), &mut attributes) };
        zero_or_errno(answer)?;
        let max_qp_wr = u32::try_from(attributes.max_qp_wr).unwrap_or(0);
        Ok(Limits {
            max_qp_wr,
            max_cqe: attributes.max_cqe,
        })
    }

    /// The slot of port 1 that holds a GID.
    pub(crate) fn gid_index(&self, wanted: Ipv6Addr) -> io::Result<Option<u8>> {
        for index in 0..=u8::MAX {
            let mut gid = sys::ibv_gid::default();
            let slot = i32::from(index);
            // SAFETY: the context is open and the union is the one that the call fills.
            let answer = unsafe { sys::ibv_query_gid(self.0.as_ptr(), 1, slot, &mut gid) };
            // A slot behind the table's end.
            if answer != 0 {
                return Ok(None);
            }
            // SAFETY: all of the union's members are the same sixteen bytes.
            if unsafe { gid.raw } == wanted.octets() {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    pub(crate) fn alloc_pd(&self) -> io::Result<Pd<'_>> {
        // SAFETY: the context is open.
        owned(unsafe { sys::ibv_alloc_pd(self.0.as_ptr()) }).map(|pd| Pd(pd, PhantomData))
    }

    pub(crate) fn create_cq(&self, entries: i32) -> io::Result<Cq<'_>> {
        // SAFETY: the context is open; no channel and no user pointer are allowed.
        let cq = unsafe { sys::ibv_create_cq(self.0.as_ptr(), entries, null_mut(), null_mut(), 0) };
        owned(cq).map(|cq| Cq(cq, PhantomData))
    }

    /// The device file.
    pub(crate) fn command_fd(&self) -> i32 {
        // SAFETY: the context is open, so cmd_fd is the device file.
        unsafe { self.0.as_ref() }.cmd_fd
    }

    /// One command of the old ABI: header and body in one write() to the device file.
    fn write_command<T>(&self, command: u32, body: T, answer_bytes: usize) -> io::Result<()> {
        #[repr(C)]
        struct Message<T> {
            header: sys::ib_uverbs_cmd_hdr,
            body: T,
        }
        let words = |bytes: usize| u16::try_from(bytes / 4).unwrap_or(u16::MAX);
        let header = sys::ib_uverbs_cmd_hdr {
            command,
            in_words: words(size_of::<Message<T>>()),
            out_words: words(answer_bytes),
        };
        let message = Message { header, body };
        let fd = self.command_fd();
        let bytes = (&raw const message).cast();
        // SAFETY: the message lives through the call and is as long as said; it has no
        // padding, being made of the kernel's own structs of whole words.
        let written = unsafe { libc::write(fd, bytes, size_of::<Message<T>>()) };
        if written < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// `IB_USER_VERBS_CMD_REG_MR` by write(). A region that is made stays until the
    /// device is closed.
    pub(crate) fn write_reg_mr(
        &self,
        pd: &Pd<'_>,
        address: u64,
        bytes: u64,
        access: u32,
    ) -> io::Result<()> {
        let mut answer = sys::ib_uverbs_reg_mr_resp::default();
        let body = sys::ib_uverbs_reg_mr {
            response: (&raw mut answer).addr() as u64,
            start: address,
            length: bytes,
            hca_va: address,
            pd_handle: pd.handle(),
            access_flags: access,
            ..Default::default()
        };
        self.write_command(sys::IB_USER_VERBS_CMD_REG_MR, body, size_of_val(&answer))
    }

    /// `IB_USER_VERBS_CMD_MODIFY_QP` by write(), only the state asked for.
    pub(crate) fn write_modify_qp(&self, qp: &Qp<'_>, state: State) -> io::Result<()> {
        let body = sys::ib_uverbs_modify_qp {
            // SAFETY: the queue pair lives as long as its handle.
            qp_handle: unsafe { qp.0.as_ref() }.handle,
            attr_mask: sys::IBV_QP_STATE,
            qp_state: u8::try_from(state.number()).unwrap_or(0),
            ..Default::default()
        };
        self.write_command(sys::IB_USER_VERBS_CMD_MODIFY_QP, body, 0)
    }
}

fn device_name(device: *mut sys::ibv_device) -> Vec<u8> {
    // SAFETY: the caller has the device from a list that is not freed yet.
    let name = unsafe { sys::ibv_get_device_name(device) };
    if name.is_null() {
        return Vec::new();
    }
    // SAFETY: the name is a C string inside the device.
    unsafe { CStr::from_ptr(name) }.to_bytes().to_vec()
}

impl State {
    pub(crate) fn number(self) -> sys::ibv_qp_state {
        match self {
            State::Reset => sys::IBV_QPS_RESET,
            State::Init => sys::IBV_QPS_INIT,
            State::ReadyToReceive => sys::IBV_QPS_RTR,
            State::ReadyToSend => sys::IBV_QPS_RTS,
        }
    }
}

impl Pd<'_> {
    /// The kernel's number of it.
    pub(crate) fn handle(&self) -> u32 {
        // SAFETY: the protection domain lives as long as its handle.
        unsafe { self.0.as_ref() }.handle
    }

    /// Registers memory for local writes.
    pub(crate) fn reg_mr(&self, address: u64, bytes: usize) -> io::Result<Mr<'_>> {
        let pointer = std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0));
        let access = i32::try_from(LOCAL_WRITE).unwrap_or(0);
        // SAFETY: the protection domain is alive; the kernel checks the address, and
        // nothing reads or writes through the region.
        let mr = unsafe { sys::ibv_reg_mr(self.0.as_ptr(), pointer, bytes, access) };
        owned(mr).map(|mr| Mr(mr, PhantomData))
    }

    /// Makes a reliable-connection queue pair with room for so many sends.
    pub(crate) fn create_qp(&self, cq: &Cq<'_>, max_send_wr: u32) -> io::Result<Qp<'_>> {
        let mut wanted = sys::ibv_qp_init_attr {
            send_cq: cq.0.as_ptr(),
            recv_cq: cq.0.as_ptr(),
            qp_type: sys::IBV_QPT_RC,
            ..Default::default()
        };
        wanted.cap.max_send_wr = max_send_wr;
        wanted.cap.max_recv_wr = 1;
        wanted.cap.max_send_sge = 1;
        wanted.cap.max_recv_sge = 1;
        // SAFETY: both objects are alive and the struct is the one that the call reads.
        let qp = unsafe { sys::ibv_create_qp(self.0.as_ptr(), &mut wanted) };
        owned(qp).map(|qp| Qp(qp, PhantomData))
    }

    /// Makes an address handle through the given slot of the GID table.
    pub(crate) fn create_ah(&self, sgid_index: u8, peer: Ipv6Addr) -> io::Result<Ah<'_>> {
        let mut wanted = sys::ibv_ah_attr {
            is_global: 1,
            port_num: 1,
            ..Default::default()
        };
        wanted.grh.sgid_index = sgid_index;
        wanted.grh.hop_limit = 64;
        wanted.grh.dgid.raw = peer.octets();
        // SAFETY: the protection domain is alive and the struct is the one read.
        let ah = unsafe { sys::ibv_create_ah(self.0.as_ptr(), &mut wanted) };
        owned(ah).map(|ah| Ah(ah, PhantomData))
    }
}

impl Qp<'_> {
    /// Its number on the device.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the queue pair lives as long as its handle.
        unsafe { self.0.as_ref() }.qp_num
    }

    /// Asks for a state, with the attributes that it needs.
    pub(crate) fn modify(&self, wanted: &Wanted) -> io::Result<()> {
        let mut attributes = sys::ibv_qp_attr {
            qp_state: wanted.state.number(),
            port_num: 1,
            path_mtu: sys::IBV_MTU_1024,
            dest_qp_num: wanted.peer_qp.unwrap_or(0),
            ..Default::default()
        };
        if let Some((sgid_index, peer)) = wanted.path {
            attributes.ah_attr.is_global = 1;
            attributes.ah_attr.port_num = 1;
            attributes.ah_attr.grh.sgid_index = sgid_index;
            attributes.ah_attr.grh.hop_limit = 64;
            attributes.ah_attr.grh.dgid.raw = peer.octets();
        }
        let mask = i32::try_from(wanted.mask()).unwrap_or(0);
        // SAFETY: the queue pair is alive and the struct is the one that the call reads.
        zero_or_errno(unsafe { sys::ibv_modify_qp(self.0.as_ptr(), &mut attributes, mask) })
    }
}

/// An address where nothing is mapped: position-independent programs begin at
/// 0x5555_5555_4000 (0xaaaa_aaaa_a000 on arm64) and the kernel hands out other
/// mappings from the top of the address space. A mapping made and removed would not
/// do: another thread may get its place.
pub(crate) const UNMAPPED_ADDRESS: u64 = 0x1234_5678_9000;

/// The processor's counter: under QEMU's -icount, instructions.
#[cfg(target_arch = "x86_64")]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it only reads.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// arm64's counter has a frequency of its own and counts no instructions.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn ticks() -> u64 {
    0
}

/// Ends the process at once, without any clean-up, as a crashing rank does.
pub(crate) fn exit_at_once(code: i32) -> ! {
    // SAFETY: _exit has no precondition; no clean-up is wanted.
    unsafe { libc::_exit(code) }
}

macro_rules! drops {
    ($($object:ident: $destroy:ident),* $(,)?) => {$(
        impl Drop for $object<'_> {
            fn drop(&mut self) {
                // SAFETY: the object is alive and this handle is its only owner.
                let answer = unsafe { sys::$destroy(self.0.as_ptr()) };
                debug_assert_eq!(answer, 0, stringify!($destroy));
            }
        }
    )*};
}

drops! {
    Pd: ibv_dealloc_pd,
    Cq: ibv_destroy_cq,
    Qp: ibv_destroy_qp,
    Mr: ibv_dereg_mr,
    Ah: ibv_destroy_ah,
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: the objects of this context borrow it, so none is left.
        let answer = unsafe { sys::ibv_close_device(self.0.as_ptr()) };
        debug_assert_eq!(answer, 0, "ibv_close_device");
    }
}

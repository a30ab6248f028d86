//! What the kernel side sends: one [`Record`] for each failing return and one
//! [`Identity`] for the first failure of each process.
//!
//! The layout is that of `bpf/record.h`. Decoding is by offset and copies every
//! field, so that a record that is too short is an error and not a read past
//! the ring. A test compares the offsets with the BTF of the compiled program.

mod arguments;

pub use arguments::{
    Arguments, COMMAND_OFFSETS, CREATE_OFFSETS, CommandArguments, CreateArguments, DEVX_OFFSETS,
    DevxArguments, Mapping, QP_OFFSETS, QpArguments, REG_MR_OFFSETS, RegMrArguments,
};

use std::fmt;

/// Place of a probe in the resolved plan. Stable for the life of a tracer: a
/// module that loads later only adds numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeId(pub u16);

impl ProbeId {
    /// The same as an index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// In the place of a probe's number, in the record of a process that a signal ended.
pub const EXIT_PROBE: ProbeId = ProbeId(0xffff);

/// Bytes of a task's command name in the kernel (`TASK_COMM_LEN`).
pub const COMM_BYTES: usize = 16;
/// Bytes of an RDMA device's name in the kernel (`IB_DEVICE_NAME_MAX`).
pub const DEVICE_BYTES: usize = 64;
/// Kernel stack addresses kept in one record: enough for the deepest chain of
/// the catalogue (nine functions) with the system call above it.
pub const STACK_DEPTH: usize = 16;
/// Words of the slot for a verb's arguments.
pub const ARG_WORDS: usize = 8;
/// Levels of a cgroup path that an identity carries.
pub const CGROUP_LEVELS: usize = 12;
/// Bytes of one cgroup name, terminator included.
pub const CGROUP_NAME_BYTES: usize = 128;

/// Bytes of `struct record`.
pub const RECORD_BYTES: usize = 336;
/// Bytes of `struct identity` without the environment that follows it.
pub const IDENTITY_BYTES: usize = 1592;

/// Offsets in `struct record`, by field name of `bpf/record.h`.
pub const RECORD_OFFSETS: [(&str, usize); 16] = [
    ("probe", 0),
    ("error", 2),
    ("args_kind", 4),
    ("stack_len", 5),
    ("sleeps", 6),
    ("tgid", 8),
    ("tid", 12),
    ("boot_ns", 16),
    ("start_boot_ns", 24),
    ("cgroup_id", 32),
    ("object", 40),
    ("entry", 48),
    ("drops_so_far", 56),
    ("comm", 64),
    ("device", 80),
    ("args", 144),
];
/// Offset of `stack` in `struct record`.
pub const RECORD_STACK_OFFSET: usize = 208;

/// Offsets in `struct identity`, by field name of `bpf/record.h`.
pub const IDENTITY_OFFSETS: [(&str, usize); 10] = [
    ("tgid", 0),
    ("environ_len", 4),
    ("boot_ns", 8),
    ("start_boot_ns", 16),
    ("cgroup_id", 24),
    ("environ_cut", 32),
    ("cgroup_levels", 33),
    ("cgroup_cut", 34),
    ("comm", 40),
    ("cgroup", 56),
];

/// What the words of [`Record::args`] mean. Numbers are those of
/// `bpf/record.h`; [`Record::arguments`] reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArgsKind {
    /// No arguments were taken.
    None,
    /// `[event, element]`: number of `enum ib_event_type` and the port or the
    /// kernel address of the QP, CQ or SRQ.
    AsyncEvent,
    /// Arguments of `modify_qp`.
    ModifyQp,
    /// Arguments of a memory registration.
    RegMr,
    /// Capacities that a create call asked for.
    Create,
    /// Opcode and syndrome of a firmware command.
    Command,
    /// Port and GIDs of a path.
    AddressHandle,
    /// A DEVX command: opcode, type of the object, the firmware's answer.
    Devx,
    /// No failure: a process ended by a signal. `[signal, 1 if its core was dumped]`.
    Exit,
    /// A kind that this version does not know.
    Other(u8),
}

impl From<u8> for ArgsKind {
    fn from(number: u8) -> Self {
        match number {
            0 => Self::None,
            1 => Self::AsyncEvent,
            2 => Self::ModifyQp,
            3 => Self::RegMr,
            4 => Self::Create,
            5 => Self::Command,
            6 => Self::AddressHandle,
            7 => Self::Devx,
            8 => Self::Exit,
            other => Self::Other(other),
        }
    }
}

/// One failing return of one hooked function.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// `CLOCK_BOOTTIME` at the return, nanoseconds.
    pub boot_ns: u64,
    /// Which probe.
    pub probe: ProbeId,
    /// The error as a positive errno, 1 to 4095; 0 for an asynchronous event.
    pub errno: u16,
    /// Process id in the initial namespace; 0, as all of the task's fields, for an
    /// asynchronous event, which comes from nobody.
    pub tgid: u32,
    /// Thread id in the initial namespace.
    pub tid: u32,
    /// `CLOCK_BOOTTIME` start of the process (its first thread), nanoseconds:
    /// with `tgid` it names a process for good.
    pub start_boot_ns: u64,
    /// Command name of the thread, NUL-padded, any bytes.
    pub comm: [u8; COMM_BYTES],
    /// cgroup of the task: the kernel's 64-bit id. On a v1 host the id of the
    /// first of the memory, cpuset, freezer and pids hierarchies that places the
    /// task, with the hierarchy's number in bits 48 to 63.
    pub cgroup_id: u64,
    /// Name of the RDMA device, NUL-padded; empty when the function's first
    /// argument does not lead to one.
    pub device: [u8; DEVICE_BYTES],
    /// Kernel address of the QP, CQ, PD or AH in hand, 0 when there is none.
    /// For joining records only: never shown, never sent.
    pub object: u64,
    /// Key of the user-space call that this return belongs to (a hash of the
    /// registers at the system call); the same in all records of one call.
    pub entry: u64,
    /// How often the thread has slept (voluntary switches), modulo 2^16. Threads that
    /// lose their processor or wait for a busy one do not sleep.
    pub sleeps: u16,
    /// Records lost on this host before this one, since the tracer's start.
    pub drops_so_far: u64,
    /// Kernel return addresses, innermost first; unused places are 0.
    pub stack: [u64; STACK_DEPTH],
    /// What `args` means.
    pub args_kind: ArgsKind,
    /// Arguments of the call, by `args_kind`.
    pub args: [u64; ARG_WORDS],
}

impl Record {
    /// The device's name up to its terminator.
    #[must_use]
    pub fn device_name(&self) -> &[u8] {
        until_nul(&self.device)
    }

    /// The command name up to its terminator.
    #[must_use]
    pub fn comm_name(&self) -> &[u8] {
        until_nul(&self.comm)
    }

    /// Decodes `struct record`.
    ///
    /// # Errors
    /// The buffer is shorter than the struct.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() < RECORD_BYTES {
            return Err(DecodeError {
                kind: "record",
                wanted: RECORD_BYTES,
                got: bytes.len(),
            });
        }
        let stack_len = usize::from(bytes[5]).min(STACK_DEPTH);
        let mut stack = [0; STACK_DEPTH];
        for (place, word) in stack.iter_mut().take(stack_len).enumerate() {
            *word = u64_at(bytes, RECORD_STACK_OFFSET + place * 8);
        }
        let mut args = [0; ARG_WORDS];
        for (place, word) in args.iter_mut().enumerate() {
            *word = u64_at(bytes, 144 + place * 8);
        }
        Ok(Self {
            probe: ProbeId(u16_at(bytes, 0)),
            errno: u16_at(bytes, 2),
            args_kind: bytes[4].into(),
            sleeps: u16_at(bytes, 6),
            tgid: u32_at(bytes, 8),
            tid: u32_at(bytes, 12),
            boot_ns: u64_at(bytes, 16),
            start_boot_ns: u64_at(bytes, 24),
            cgroup_id: u64_at(bytes, 32),
            object: u64_at(bytes, 40),
            entry: u64_at(bytes, 48),
            drops_so_far: u64_at(bytes, 56),
            comm: array_at(bytes, 64),
            device: array_at(bytes, 80),
            args,
            stack,
        })
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("boot_ns", &self.boot_ns)
            .field("probe", &self.probe.0)
            .field("errno", &self.errno)
            .field("tgid", &self.tgid)
            .field("tid", &self.tid)
            .field("comm", &String::from_utf8_lossy(self.comm_name()))
            .field("device", &String::from_utf8_lossy(self.device_name()))
            .field("drops_so_far", &self.drops_so_far)
            .finish_non_exhaustive()
    }
}

/// Who a process is, copied in the kernel at its first failure, so that a
/// process that fails and exits at once is known all the same.
///
/// The environment is raw: whoever takes this value keeps what the allow-list
/// names and drops the rest at once. It is not printed by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// `CLOCK_BOOTTIME` of the failure, nanoseconds.
    pub boot_ns: u64,
    /// Process id in the initial namespace.
    pub tgid: u32,
    /// As [`Record::start_boot_ns`].
    pub start_boot_ns: u64,
    /// As [`Record::comm`], of the thread that failed.
    pub comm: [u8; COMM_BYTES],
    /// As [`Record::cgroup_id`].
    pub cgroup_id: u64,
    /// The environment block: `NAME=value` strings, each with its NUL.
    pub environ: Vec<u8>,
    /// The block was longer than the room (16 KiB), or a page was not resident.
    pub environ_cut: bool,
    /// cgroup path from the root, `/a/b/c`, any bytes but NUL; `/` for the root.
    pub cgroup_path: Vec<u8>,
    /// The path had more than [`CGROUP_LEVELS`] levels; its upper part is missing.
    pub cgroup_cut: bool,
}

impl Identity {
    /// Decodes `struct identity` and the environment behind it.
    ///
    /// # Errors
    /// The buffer is shorter than the struct, or than the environment it names.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let short = |wanted| DecodeError {
            kind: "identity",
            wanted,
            got: bytes.len(),
        };
        if bytes.len() < IDENTITY_BYTES {
            return Err(short(IDENTITY_BYTES));
        }
        let end = IDENTITY_BYTES.saturating_add(u32_at(bytes, 4) as usize);
        let environ = bytes
            .get(IDENTITY_BYTES..end)
            .ok_or_else(|| short(end))?
            .to_vec();
        let levels = usize::from(bytes[33]).min(CGROUP_LEVELS);
        let mut cgroup_path = Vec::new();
        for level in (0..levels).rev() {
            let start = 56 + level * CGROUP_NAME_BYTES;
            let name = until_nul(&bytes[start..start + CGROUP_NAME_BYTES]);
            // The root has an empty name in one hierarchy and "/" in another.
            if name.is_empty() || name == b"/" {
                continue;
            }
            cgroup_path.push(b'/');
            cgroup_path.extend_from_slice(name);
        }
        if cgroup_path.is_empty() {
            cgroup_path.push(b'/');
        }
        Ok(Self {
            tgid: u32_at(bytes, 0),
            boot_ns: u64_at(bytes, 8),
            start_boot_ns: u64_at(bytes, 16),
            cgroup_id: u64_at(bytes, 24),
            environ_cut: bytes[32] != 0,
            cgroup_cut: bytes[34] != 0,
            comm: array_at(bytes, 40),
            environ,
            cgroup_path,
        })
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("tgid", &self.tgid)
            .field("start_boot_ns", &self.start_boot_ns)
            .field("cgroup_path", &String::from_utf8_lossy(&self.cgroup_path))
            .field("environ_bytes", &self.environ.len())
            .finish_non_exhaustive()
    }
}

/// What the rings carry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "almost all are records, and an allocation for each would cost more than the room"
)]
pub enum Event {
    /// A failing return, or an asynchronous event.
    Record(Record),
    /// The first failure of a process; sent before that failure's record.
    Identity(Box<Identity>),
}

/// A buffer from a ring is not what the program writes. It can only happen when
/// the binary and its embedded program are of different versions.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{kind} of {got} bytes from the kernel is shorter than {wanted}: report this as a bug")]
pub struct DecodeError {
    kind: &'static str,
    wanted: usize,
    got: usize,
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    &bytes[..end]
}

fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(part) = bytes.get(offset..offset + N) {
        out.copy_from_slice(part);
    }
    out
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_ne_bytes(array_at(bytes, offset))
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_ne_bytes(array_at(bytes, offset))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_ne_bytes(array_at(bytes, offset))
}

#[cfg(test)]
mod tests;

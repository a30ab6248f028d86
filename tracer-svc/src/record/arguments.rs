//! What the words of [`Record::args`] say, by the structs of `bpf/record.h`. What the
//! kernel side did not read is absent.

use super::{ARG_WORDS, ArgsKind, Record, array_at, u32_at, u64_at};

/// Bytes of a record's arguments.
const BYTES: usize = ARG_WORDS * 8;

/// Offsets in `struct args_qp`. A member's bit of `present` is its place in the
/// struct, here and in the structs below.
pub const QP_OFFSETS: [(&str, usize); 9] = [
    ("present", 0),
    ("qp_number", 4),
    ("current_state", 8),
    ("asked_state", 12),
    ("attribute_mask", 16),
    ("port", 20),
    ("gid_index", 24),
    ("gid_type", 28),
    ("destination_gid", 32),
];

/// Offsets in `struct args_reg_mr`.
pub const REG_MR_OFFSETS: [(&str, usize); 9] = [
    ("present", 0),
    ("access_flags", 4),
    ("address", 8),
    ("length", 16),
    ("dmabuf_offset", 24),
    ("dmabuf_fd", 32),
    ("mapping", 36),
    ("mapping_of_end", 37),
    ("reserved", 38),
];

/// Offsets in `struct args_create`.
pub const CREATE_OFFSETS: [(&str, usize); 10] = [
    ("present", 0),
    ("cqe", 4),
    ("max_send_wr", 8),
    ("max_recv_wr", 12),
    ("max_send_sge", 16),
    ("max_recv_sge", 20),
    ("max_inline_data", 24),
    ("completion_vector", 28),
    ("qp_type", 32),
    ("reserved", 36),
];

/// Offsets in `struct args_command`.
pub const COMMAND_OFFSETS: [(&str, usize); 4] = [
    ("present", 0),
    ("opcode", 4),
    ("status", 8),
    ("syndrome", 12),
];

/// Offsets in `struct args_devx`.
pub const DEVX_OFFSETS: [(&str, usize); 5] = [
    ("present", 0),
    ("opcode", 4),
    ("object_type", 8),
    ("status", 12),
    ("syndrome", 16),
];

/// What a failing call was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// Of `modify_qp`.
    ModifyQp(QpArguments),
    /// A path alone.
    AddressHandle(QpArguments),
    /// Of a memory registration.
    RegMr(RegMrArguments),
    /// Of a call that makes a queue pair or a completion queue.
    Create(CreateArguments),
    /// Of a firmware command.
    Command(CommandArguments),
    /// Of an object that is made or changed past the verbs.
    Devx(DevxArguments),
}

/// A queue pair and its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpArguments {
    /// Number on the device.
    pub qp_number: Option<u32>,
    /// `enum ib_qp_state`: in which it is.
    pub current_state: Option<u32>,
    /// And into which it was to go.
    pub asked_state: Option<u32>,
    /// `enum ib_qp_attr_mask`.
    pub attribute_mask: Option<u32>,
    /// Port of the device, from 1.
    pub port: Option<u32>,
    /// Slot of the port's GID table.
    pub gid_index: Option<u32>,
    /// `enum ib_gid_type` of that slot.
    pub gid_type: Option<u32>,
    /// The peer.
    pub destination_gid: Option<[u8; 16]>,
}

/// Memory to be registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegMrArguments {
    /// First byte, in the process's address space.
    pub address: Option<u64>,
    /// Bytes.
    pub length: Option<u64>,
    /// `enum ib_access_flags`.
    pub access_flags: Option<u32>,
    /// Offset into the dmabuf, bytes.
    pub dmabuf_offset: Option<u64>,
    /// The dmabuf.
    pub dmabuf_fd: Option<i32>,
    /// What the first byte maps.
    pub mapping: Mapping,
    /// What the last byte maps.
    pub mapping_of_end: Mapping,
}

/// What an address maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mapping {
    /// Not known: somebody was changing the process's mappings just then.
    #[default]
    Unknown,
    /// Nothing.
    None,
    /// Memory without a file.
    Anonymous,
    /// A file.
    File,
    /// Huge pages (hugetlbfs).
    HugePage,
    /// A device's own pages.
    Device,
}

impl From<u8> for Mapping {
    fn from(number: u8) -> Self {
        match number {
            1 => Self::None,
            2 => Self::Anonymous,
            3 => Self::File,
            4 => Self::HugePage,
            5 => Self::Device,
            _ => Self::Unknown,
        }
    }
}

/// Capacities asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreateArguments {
    /// Entries of a completion queue.
    pub cqe: Option<u32>,
    /// Work requests of the send queue.
    pub max_send_wr: Option<u32>,
    /// Work requests of the receive queue.
    pub max_recv_wr: Option<u32>,
    /// Segments of a send.
    pub max_send_sge: Option<u32>,
    /// Segments of a receive.
    pub max_recv_sge: Option<u32>,
    /// Inline bytes.
    pub max_inline_data: Option<u32>,
    /// Completion vector.
    pub completion_vector: Option<u32>,
    /// `enum ib_qp_type`.
    pub qp_type: Option<u32>,
}

/// A firmware command and its answer, in the device's own numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandArguments {
    /// The command.
    pub opcode: Option<u32>,
    /// 0: done, or never reached the device.
    pub status: Option<u32>,
    /// What went wrong.
    pub syndrome: Option<u32>,
}

/// A DEVX command and its answer, in the device's own numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DevxArguments {
    /// The command.
    pub opcode: Option<u32>,
    /// Type of the object, where the command makes a general one.
    pub object_type: Option<u32>,
    /// Absent where the firmware did not refuse the command.
    pub status: Option<u32>,
    /// What went wrong.
    pub syndrome: Option<u32>,
}

/// The words as bytes, with the members that are there.
struct Words {
    bytes: [u8; BYTES],
    present: u32,
}

impl Words {
    fn of(args: &[u64; ARG_WORDS]) -> Self {
        let mut bytes = [0; BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(args) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        Self {
            present: u32_at(&bytes, 0),
            bytes,
        }
    }

    /// The offset of a member that was read, by its place in a table above.
    fn offset(&self, table: &[(&str, usize)], place: usize) -> Option<usize> {
        let read = self.present >> place & 1 == 1;
        table.get(place).filter(|_| read).map(|(_, offset)| *offset)
    }

    fn u32(&self, table: &[(&str, usize)], place: usize) -> Option<u32> {
        let offset = self.offset(table, place)?;
        Some(u32_at(&self.bytes, offset))
    }

    fn u64(&self, table: &[(&str, usize)], place: usize) -> Option<u64> {
        let offset = self.offset(table, place)?;
        Some(u64_at(&self.bytes, offset))
    }
}

impl Record {
    /// What the call was asked to do; none where the probe reads nothing of it.
    #[must_use]
    pub fn arguments(&self) -> Option<Arguments> {
        let words = Words::of(&self.args);
        Some(match self.args_kind {
            ArgsKind::ModifyQp => Arguments::ModifyQp(qp(&words)),
            ArgsKind::AddressHandle => Arguments::AddressHandle(qp(&words)),
            ArgsKind::RegMr => Arguments::RegMr(reg_mr(&words)),
            ArgsKind::Create => Arguments::Create(create(&words)),
            ArgsKind::Command => Arguments::Command(command(&words)),
            ArgsKind::Devx => Arguments::Devx(devx(&words)),
            ArgsKind::None | ArgsKind::AsyncEvent | ArgsKind::Other(_) => return None,
        })
    }
}

fn qp(words: &Words) -> QpArguments {
    let number = |place| words.u32(&QP_OFFSETS, place);
    QpArguments {
        qp_number: number(1),
        current_state: number(2),
        asked_state: number(3),
        attribute_mask: number(4),
        port: number(5),
        gid_index: number(6),
        gid_type: number(7),
        destination_gid: words
            .offset(&QP_OFFSETS, 8)
            .map(|offset| array_at(&words.bytes, offset)),
    }
}

fn reg_mr(words: &Words) -> RegMrArguments {
    RegMrArguments {
        access_flags: words.u32(&REG_MR_OFFSETS, 1),
        address: words.u64(&REG_MR_OFFSETS, 2),
        length: words.u64(&REG_MR_OFFSETS, 3),
        dmabuf_offset: words.u64(&REG_MR_OFFSETS, 4),
        dmabuf_fd: words.u32(&REG_MR_OFFSETS, 5).map(u32::cast_signed),
        mapping: words.bytes[36].into(),
        mapping_of_end: words.bytes[37].into(),
    }
}

fn create(words: &Words) -> CreateArguments {
    let number = |place| words.u32(&CREATE_OFFSETS, place);
    CreateArguments {
        cqe: number(1),
        max_send_wr: number(2),
        max_recv_wr: number(3),
        max_send_sge: number(4),
        max_recv_sge: number(5),
        max_inline_data: number(6),
        completion_vector: number(7),
        qp_type: number(8),
    }
}

fn command(words: &Words) -> CommandArguments {
    let number = |place| words.u32(&COMMAND_OFFSETS, place);
    CommandArguments {
        opcode: number(1),
        status: number(2),
        syndrome: number(3),
    }
}

fn devx(words: &Words) -> DevxArguments {
    let number = |place| words.u32(&DEVX_OFFSETS, place);
    DevxArguments {
        opcode: number(1),
        object_type: number(2),
        status: number(3),
        syndrome: number(4),
    }
}

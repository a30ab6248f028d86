//! What a failing call was asked to do: which arguments a hook reads, where a
//! function takes them, and what the running kernel lets be read of them.
//!
//! The reading itself is `bpf/arguments.h` and what it includes, by CO-RE. Here is what can be known
//! before anything fails: [`Places`] finds the arguments in the function's own
//! prototype, and [`readable`] compares each member that the program reads with the
//! module's types, so that what cannot be read is told and not guessed.
//!
//! Pure: it reads types and never the kernel's memory.

mod places;
mod program;
mod readable;
mod wanted;

pub use places::Places;
pub(crate) use places::constant;
pub(crate) use program::object;
pub use program::{Program, ProgramError};
pub use readable::{Ids, Readable, readable, unseen};

use serde::Deserialize;

/// What a hook's records tell of the call's arguments. The numbers are those of
/// `bpf/spec.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
pub enum Reading {
    /// The queue pair, its states, the mask, the path.
    ModifyQp = 1,
    /// Address, length, access flags, and what the address maps.
    RegMr = 2,
    /// File descriptor, offset, length, access flags.
    RegDmabufMr = 3,
    /// As [`Reading::RegMr`], from the command of user space: for the function that
    /// checks it before anything else is called.
    RegMrCommand = 4,
    /// Capacities of a queue pair.
    CreateQp = 5,
    /// Capacity and vector of a completion queue.
    CreateCq = 6,
    /// Port and GIDs of a path.
    AddressHandle = 7,
    /// Opcode, status and syndrome of a firmware command, from the buffers of mlx5 or
    /// the arguments of mlx4.
    Command = 8,
    /// The same of irdma: the major code is the status, the minor the syndrome.
    CqpCommand = 9,
    /// Opcode and status of a command of bnxt_re.
    RcfwCommand = 10,
    /// The same of mana.
    GdmaCommand = 11,
    /// As [`Reading::RegDmabufMr`], from the attributes of the ioctl method.
    DmabufMethod = 12,
    /// DEVX: opcode and type of the object, status and syndrome.
    DevxCommand = 13,
    /// DEVX: as [`Reading::RegMr`].
    DevxUmem = 14,
    /// As [`Reading::RegMr`] and [`Reading::RegDmabufMr`], from the attributes of the
    /// ioctl method.
    RegMrMethod = 15,
}

impl Reading {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::ModifyQp,
        Self::RegMr,
        Self::RegDmabufMr,
        Self::RegMrCommand,
        Self::CreateQp,
        Self::CreateCq,
        Self::AddressHandle,
        Self::Command,
        Self::CqpCommand,
        Self::RcfwCommand,
        Self::GdmaCommand,
        Self::DmabufMethod,
        Self::DevxCommand,
        Self::DevxUmem,
        Self::RegMrMethod,
    ];
}

#[cfg(test)]
mod synthetic;
#[cfg(test)]
mod tests;

//! Machine code as a few steps that both processors share: what is copied,
//! loaded, stored and called.
//!
//! Only what can carry an address is told exactly; everything else clobbers the
//! registers that it writes.

mod arm64;
mod x86;

use super::module::{Arch, Module, Target};

/// A register: x86 in the order of its encoding (rsp is 4), arm64 x0 to x30 and
/// sp as 31.
pub(super) type Register = u8;

/// Registers of the larger of the two.
pub(super) const REGISTERS: usize = 32;

/// A place in a module's code.
pub(super) type Place = (usize, u64);

/// An address: a register and a distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) from: Register,
    pub(super) distance: i64,
}

/// What one instruction does to registers and stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Copies all 64 bits.
    Move { to: Register, from: Register },
    /// Copies or not, by a condition.
    Maybe { to: Register, from: Register },
    /// Address arithmetic with a constant.
    Add {
        to: Register,
        from: Register,
        distance: i64,
    },
    /// Takes the address of a symbol.
    Address { to: Register, target: Target },
    /// Loads eight bytes.
    Load { to: Register, at: Memory },
    /// Stores eight bytes.
    Store { from: Register, at: Memory },
    /// Writes something that is no address.
    Clobber(Register),
    /// Calls and comes back.
    Call(Callee),
}

/// Who is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Callee {
    Direct(Target),
    /// The address stands in a register.
    Register(Register),
    /// The address stands in memory.
    Memory(Memory),
    /// The address is computed in a way that is not followed.
    Computed,
}

/// Where an instruction leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Next,
    Jump(Place),
    Branch(Place),
    /// Leaves by a jump to another function, or through a table of places.
    Leave(Callee),
    Return,
}

/// One instruction.
#[derive(Clone, Debug)]
pub(super) struct Instruction {
    pub(super) place: Place,
    pub(super) steps: Vec<Step>,
    pub(super) flow: Flow,
}

/// What a processor's calling convention says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Convention {
    pub(super) stack: Register,
    pub(super) returns: Register,
    pub(super) arguments: &'static [Register],
    /// What a call may change.
    pub(super) scratch: &'static [Register],
}

/// The convention of a processor.
pub(super) fn convention(arch: Arch) -> Convention {
    match arch {
        Arch::Amd64 => x86::CONVENTION,
        Arch::Arm64 => arm64::CONVENTION,
    }
}

/// Decodes a range of a module's code. Bytes that are no instruction end the
/// range: what follows data cannot be trusted.
pub(super) fn decode(module: &Module, section: usize, range: (u64, u64)) -> Vec<Instruction> {
    let Some(code) = module.sections.get(&section) else {
        return Vec::new();
    };
    let (Ok(start), Ok(end)) = (usize::try_from(range.0), usize::try_from(range.1)) else {
        return Vec::new();
    };
    let Some(bytes) = code.bytes.get(start..end.min(code.bytes.len())) else {
        return Vec::new();
    };
    match module.arch {
        Arch::Amd64 => x86::decode(code, section, range.0, bytes),
        Arch::Arm64 => arm64::decode(code, section, range.0, bytes),
    }
}

#[cfg(test)]
pub(super) use {arm64::decode as decode_arm64, x86::decode as decode_x86};

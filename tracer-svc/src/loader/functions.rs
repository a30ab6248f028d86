//! What the kernel must know of a program's own functions.
//!
//! A program may hand one of its functions to a helper (`bpf_find_vma()` calls
//! back) only where it says, by a BTF of its own, that the function is static.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;

use aya_obj::generated::bpf_insn;

use crate::btf::{Kind, Writer};

use super::sys;

const CALL: u8 = 0x85;
const LOAD_64: u8 = 0x18;
/// Source register of a call to a function of the same program, and of a load of
/// its address (`BPF_PSEUDO_CALL`, `BPF_PSEUDO_FUNC`).
const PSEUDO_CALL: u8 = 1;
const PSEUDO_FUNC: u8 = 4;

/// A BTF with one static function, which stands for every function of a program.
#[derive(Debug)]
pub(super) struct FunctionTypes {
    /// Keeps it alive, and names it when loading a program.
    pub(super) fd: OwnedFd,
    function: u32,
}

/// `struct bpf_func_info`
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FunctionInfo {
    instruction: u32,
    type_id: u32,
}

impl FunctionTypes {
    pub(super) fn load() -> io::Result<Self> {
        let mut out = Writer::default();
        let int = out.string(b"int");
        // 32 bits, signed.
        let int = out.add(int, Kind::Int, (0, false), 4, &[32 | 1 << 24]);
        let proto = out.add(0, Kind::FuncProto, (0, false), int, &[]);
        let name = out.string(b"rdmesh");
        // No entries: BTF_FUNC_STATIC.
        let function = out.add(name, Kind::Func, (0, false), proto, &[]);
        let fd = sys::load_btf(&out.finish())?;
        Ok(Self { fd, function })
    }

    /// One row for each function of a program, in order.
    pub(super) fn rows(&self, instructions: &[bpf_insn]) -> Vec<FunctionInfo> {
        let row = |instruction| FunctionInfo {
            instruction,
            type_id: self.function,
        };
        starts(instructions).into_iter().map(row).collect()
    }
}

/// Where the functions of a program begin: at 0, and wherever a call or a load of a
/// function's address leads to.
fn starts(instructions: &[bpf_insn]) -> BTreeSet<u32> {
    let mut out = BTreeSet::from([0]);
    for (at, instruction) in (0_i64..).zip(instructions) {
        let refers = match instruction.code {
            CALL => instruction.src_reg() == PSEUDO_CALL,
            LOAD_64 => instruction.src_reg() == PSEUDO_FUNC,
            _ => false,
        };
        if refers {
            out.extend(u32::try_from(at + i64::from(instruction.imm) + 1));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::entry::instruction;
    use super::*;

    #[test]
    fn functions_begin_where_calls_and_addresses_lead() {
        let program = [
            instruction(CALL, 0, PSEUDO_CALL, 0, 2),
            instruction(CALL, 0, 0, 0, 112),
            instruction(0x95, 0, 0, 0, 0),
            instruction(LOAD_64, 1, PSEUDO_FUNC, 0, 2),
            instruction(0, 0, 0, 0, 0),
            instruction(0x95, 0, 0, 0, 0),
            instruction(0x95, 0, 0, 0, 0),
        ];
        assert_eq!(starts(&program), BTreeSet::from([0, 3, 6]));
    }
}

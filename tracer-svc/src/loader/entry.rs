//! The first instructions of every program: load the return value, compare,
//! return. They are the whole cost of a call that succeeds.
//!
//! They are written here and not compiled, because the place of the return value
//! and the width of the comparison differ by function and a constant costs
//! nothing. What follows them (`failed()` of `bpf/probes.bpf.c`) is the same for
//! every function of a module.

use aya_obj::generated::bpf_insn;

use crate::arguments::{Places, constant};
use crate::btf::{FirstArgument, Prototype, ReturnKind};

use super::arch::RETURN_REGISTER_OFFSET;

/// Smallest error as a signed number: the kernel's `MAX_ERRNO` is 4095.
const LEAST_ERROR: i32 = -4095;

/// Of an exit code, as wait(2) has it: the signal.
const SIGNAL_BITS: i32 = 0x7f;

const LDX_DW: u8 = 0x79;
const JLT_K: u8 = 0xa5;
const JLT32_K: u8 = 0xa6;
const JEQ32_K: u8 = 0x16;
const JSET_K: u8 = 0x45;
const MOV_K: u8 = 0xb7;
const MOV32_K: u8 = 0xb4;
const MOV_X: u8 = 0xbf;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Source register of a call to a function of the same program.
const PSEUDO_CALL: u8 = 1;

/// Registers of the calling convention.
const RESULT: u8 = 0;
const CONTEXT: u8 = 1;
const SECOND: u8 = 2;
const THIRD: u8 = 3;

/// One instruction.
pub(super) fn instruction(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> bpf_insn {
    // Both are four bits.
    bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: bpf_insn::new_bitfield_1(dst, src),
        off,
        imm,
    }
}

/// The entry of a probe, followed by `failed`, which starts right behind it.
///
/// An event has no comparison: every call is sent on.
///
/// # Panics
/// Never: the argument count is checked by the resolver.
pub(super) fn entry(
    probe: u16,
    prototype: &Prototype,
    arguments: Option<&Places>,
    event: bool,
) -> Vec<bpf_insn> {
    let first = if event {
        prototype.first
    } else {
        failure_argument(prototype.first)
    };
    // The same 32 bits, as the program takes them.
    let spec = constant(first, arguments.filter(|_| !event)).cast_signed();
    // call failed(ctx, probe, spec); return 0
    let report = [
        instruction(MOV_K, SECOND, 0, 0, i32::from(probe)),
        instruction(MOV32_K, THIRD, 0, 0, spec),
        // To what follows the two instructions behind the call.
        instruction(CALL, 0, PSEUDO_CALL, 0, 2),
    ];
    let end = [
        instruction(MOV32_K, RESULT, 0, 0, 0),
        instruction(EXIT, 0, 0, 0, 0),
    ];
    let mut out = Vec::with_capacity(8);
    if !event {
        let compare = comparison(prototype.returns);
        let at = i16::try_from(prototype.argument_words * 8).unwrap_or(i16::MAX);
        out.push(instruction(LDX_DW, SECOND, CONTEXT, at, 0));
        // Unsigned: everything below the smallest error is a success. The jump
        // skips the three instructions of the report.
        out.push(instruction(compare, SECOND, 0, 3, LEAST_ERROR));
    }
    out.extend(report);
    out.extend(end);
    out
}

/// The entry below a kretprobe, followed by `failed_return`, which starts right
/// behind it. The return value is a plain number here and is handed on.
pub(super) fn return_entry(probe: u16, returns: ReturnKind) -> Vec<bpf_insn> {
    vec![
        instruction(LDX_DW, SECOND, CONTEXT, RETURN_REGISTER_OFFSET, 0),
        instruction(comparison(returns), SECOND, 0, 3, LEAST_ERROR),
        instruction(MOV_X, THIRD, SECOND, 0, 0),
        instruction(MOV_K, SECOND, 0, 0, i32::from(probe)),
        instruction(CALL, 0, PSEUDO_CALL, 0, 2),
        instruction(MOV32_K, RESULT, 0, 0, 0),
        instruction(EXIT, 0, 0, 0, 0),
    ]
}

/// The entry at the end of processes, followed by `ended`, which starts right behind it.
/// A thread that is not its process's last, or that no signal ended, costs two loads and
/// two comparisons at the most.
pub(super) fn exit_entry() -> Vec<bpf_insn> {
    vec![
        // The last thread? An int: the upper half of its word says nothing.
        instruction(LDX_DW, THIRD, CONTEXT, 8, 0),
        instruction(JEQ32_K, THIRD, 0, 2, 0),
        // In the place of the context, as the only argument.
        instruction(LDX_DW, CONTEXT, CONTEXT, 0, 0),
        instruction(JSET_K, CONTEXT, 0, 2, SIGNAL_BITS),
        instruction(MOV32_K, RESULT, 0, 0, 0),
        instruction(EXIT, 0, 0, 0, 0),
        instruction(CALL, 0, PSEUDO_CALL, 0, 2),
        instruction(MOV32_K, RESULT, 0, 0, 0),
        instruction(EXIT, 0, 0, 0, 0),
    ]
}

/// Whether an error is told by 32 bits or by 64.
fn comparison(returns: ReturnKind) -> u8 {
    match returns {
        ReturnKind::Int => JLT32_K,
        ReturnKind::Long | ReturnKind::Pointer | ReturnKind::Nothing => JLT_K,
    }
}

/// A failing function that happens to take an event reads no event.
fn failure_argument(first: FirstArgument) -> FirstArgument {
    match first {
        FirstArgument::Event | FirstArgument::SecondEvent => FirstArgument::Other,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prototype(returns: ReturnKind) -> Prototype {
        Prototype {
            function_id: 7,
            argument_words: 6,
            returns,
            first: FirstArgument::Pd,
        }
    }

    fn codes(instructions: &[bpf_insn]) -> Vec<(u8, i16, i32)> {
        instructions
            .iter()
            .map(|i| (i.code, i.off, i.imm))
            .collect()
    }

    #[test]
    fn success_costs_a_load_a_comparison_and_the_return() {
        let out = entry(3, &prototype(ReturnKind::Int), None, false);
        assert_eq!(
            codes(&out),
            [
                (LDX_DW, 48, 0),
                (JLT32_K, 3, -4095),
                (MOV_K, 0, 3),
                (MOV32_K, 0, 0xffff_ff02_u32.cast_signed()),
                (CALL, 0, 2),
                (MOV32_K, 0, 0),
                (EXIT, 0, 0),
            ]
        );
        // From the comparison over the report to `return 0`.
        assert_eq!(1 + 1 + usize::try_from(out[1].off).unwrap(), 5);
        // From the call to the first instruction behind the entry.
        assert_eq!(4 + 1 + usize::try_from(out[4].imm).unwrap(), out.len());
    }

    #[test]
    fn pointers_and_longs_are_compared_in_64_bits() {
        for returns in [ReturnKind::Pointer, ReturnKind::Long] {
            assert_eq!(entry(0, &prototype(returns), None, false)[1].code, JLT_K);
        }
    }

    #[test]
    fn below_a_kretprobe_the_value_is_compared_and_handed_on() {
        let out = return_entry(5, ReturnKind::Pointer);
        assert_eq!(
            codes(&out),
            [
                (LDX_DW, RETURN_REGISTER_OFFSET, 0),
                (JLT_K, 3, -4095),
                (MOV_X, 0, 0),
                (MOV_K, 0, 5),
                (CALL, 0, 2),
                (MOV32_K, 0, 0),
                (EXIT, 0, 0),
            ]
        );
        assert_eq!(return_entry(5, ReturnKind::Int)[1].code, JLT32_K);
        // From the comparison over the report, and from the call to what follows.
        assert_eq!(1 + 1 + usize::try_from(out[1].off).unwrap(), 5);
        assert_eq!(4 + 1 + usize::try_from(out[4].imm).unwrap(), out.len());
    }

    #[test]
    fn an_end_by_a_signal_goes_on_and_others_return() {
        let out = exit_entry();
        let jump = |at: usize| at + 1 + usize::try_from(out[at].off).unwrap();
        // Not the last thread: to `return 0`; a signal: to the call.
        assert_eq!((out[jump(1)].code, out[jump(3)].code), (MOV32_K, CALL));
        assert_eq!(out[5].code, EXIT);
        // From the call to the first instruction behind the entry.
        assert_eq!(6 + 1 + usize::try_from(out[6].imm).unwrap(), out.len());
    }

    #[test]
    fn an_event_is_sent_on_without_a_comparison() {
        let mut event = prototype(ReturnKind::Nothing);
        event.first = FirstArgument::SecondEvent;
        let out = entry(9, &event, None, true);
        assert_eq!(
            codes(&out),
            [
                (MOV_K, 0, 9),
                (MOV32_K, 0, 0xffff_ff08_u32.cast_signed()),
                (CALL, 0, 2),
                (MOV32_K, 0, 0),
                (EXIT, 0, 0)
            ]
        );
    }
}

//! Whether two kernel stacks can belong to one call.

use crate::record::STACK_DEPTH;

/// Innermost frames of a record that are the tracer's own: the program, its
/// entry, the trampoline (three where measured, on 6.1, 6.12 and 7.3). Behind
/// them stands the hooked function, and what called it.
const OWN_FRAMES: usize = 4;

/// Frames that must be equal for a proof: the outer function itself and its
/// caller. One alone may be a common way into the kernel.
const PROOF_FRAMES: usize = 2;

/// What two stacks say about the calls that they were taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Agreement {
    /// The inner call was made below the outer function, on this very way.
    Proven,
    /// Nothing: a stack is missing or was cut too short.
    Unknown,
    /// The inner call was not below the outer function.
    Refuted,
}

/// Looks for the outer function and its callers in the inner record's stack.
/// Addresses innermost first, unused places 0.
pub(super) fn compare(inner: &[u64; STACK_DEPTH], outer: &[u64; STACK_DEPTH]) -> Agreement {
    let (inner, outer) = (used(inner), used(outer));
    if inner.is_empty() || outer.len() < PROOF_FRAMES {
        return Agreement::Unknown;
    }
    // With all places in use the outermost frames were cut off; what is left of
    // the outer function's callers then ends the inner stack.
    let inner_cut = inner.len() == STACK_DEPTH;
    let outer_cut = outer.len() == STACK_DEPTH;
    let callers = |own: usize| &outer[own.min(outer.len())..];
    let proven = (0..=OWN_FRAMES).map(callers).any(|callers| {
        let shared = |at: &usize| {
            let rest = &inner[*at..];
            let ends_together = inner_cut || outer_cut || rest.len() == callers.len();
            let length = rest.len().min(callers.len());
            ends_together && length >= PROOF_FRAMES && rest[..length] == callers[..length]
        };
        (0..inner.len()).any(|at| shared(&at))
    });
    match (proven, inner_cut || outer_cut) {
        (true, _) => Agreement::Proven,
        (false, true) => Agreement::Unknown,
        (false, false) => Agreement::Refuted,
    }
}

fn used(stack: &[u64; STACK_DEPTH]) -> &[u64] {
    let len = stack.iter().position(|a| *a == 0).unwrap_or(STACK_DEPTH);
    &stack[..len]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[u64]) -> [u64; STACK_DEPTH] {
        let mut out = [0; STACK_DEPTH];
        out[..frames.len()].copy_from_slice(frames);
        out
    }

    #[test]
    fn callers_of_the_outer_function_are_in_the_inner_stack() {
        let inner = stack(&[901, 50, 40, 30, 20, 10]);
        assert_eq!(
            compare(&inner, &stack(&[902, 30, 20, 10])),
            Agreement::Proven
        );
        assert_eq!(
            compare(&inner, &stack(&[902, 31, 21, 11])),
            Agreement::Refuted
        );
    }

    #[test]
    fn a_missing_or_cut_stack_refutes_nothing() {
        let full: Vec<u64> = (1..=16).collect();
        assert_eq!(compare(&stack(&[]), &stack(&[1, 2, 3])), Agreement::Unknown);
        assert_eq!(compare(&stack(&[1, 2, 3]), &stack(&[])), Agreement::Unknown);
        assert_eq!(
            compare(&stack(&full), &stack(&[70, 80, 90])),
            Agreement::Unknown
        );
        assert_eq!(
            compare(&stack(&[70, 80, 90]), &stack(&full)),
            Agreement::Unknown
        );
    }

    #[test]
    fn a_cut_stack_still_proves_by_what_is_left() {
        let full: Vec<u64> = (1..=16).collect();
        // The callers 13 to 16, and two more that the inner stack has no room for.
        let outer = stack(&[901, 902, 903, 13, 14, 15, 16, 17, 18]);
        assert_eq!(compare(&stack(&full), &outer), Agreement::Proven);
        // One frame alone is no proof.
        let outer = stack(&[901, 902, 903, 16, 17, 18]);
        assert_eq!(compare(&stack(&full), &outer), Agreement::Unknown);
    }

    /// `ib_umem_get` below `rxe_reg_user_mr` below `ib_uverbs_reg_mr`, taken on
    /// Debian's 6.1.192 by fexit (low halves of the addresses).
    #[test]
    fn a_call_as_the_kernel_shows_it() {
        let umem = stack(&[
            0xc003_b4b6,
            0xc003_9e37,
            0xc036_c079,
            0xc032_e975,
            0xc035_17ef,
            0xc034_dfd7,
            0xc031_6056,
            0xc034_df75,
            0xc032_3557,
            0xc023_e02e,
            0xc032_33d5,
            0xc032_cbfd,
            0xc032_a1c9,
            0xc032_a31e,
            0xa418_1dad,
            0xa484_3e1d,
        ]);
        let driver = stack(&[
            0xc003_5700,
            0xc003_403b,
            0xc031_6089,
            0xc034_df75,
            0xc032_3557,
            0xc023_e02e,
            0xc032_33d5,
            0xc032_cbfd,
            0xc032_a1c9,
            0xc032_a31e,
            0xa418_1dad,
            0xa484_3e1d,
            0xa4a0_0126,
        ]);
        let uverbs = stack(&[
            0xc002_65e6,
            0xc002_4e9a,
            0xc023_e061,
            0xc032_33d5,
            0xc032_cbfd,
            0xc032_a1c9,
            0xc032_a31e,
            0xa418_1dad,
            0xa484_3e1d,
            0xa4a0_0126,
        ]);
        assert_eq!(compare(&umem, &driver), Agreement::Proven);
        assert_eq!(compare(&driver, &uverbs), Agreement::Proven);
        assert_eq!(compare(&umem, &uverbs), Agreement::Proven);
        assert_eq!(compare(&uverbs, &driver), Agreement::Refuted);
    }
}

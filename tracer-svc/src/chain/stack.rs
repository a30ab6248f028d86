//! Whether two kernel stacks can belong to one call.

use crate::record::STACK_DEPTH;

/// Innermost frames of a record that are the tracer's own or the hooked
/// function's: the program, its trampoline, the place of return. They differ
/// between the records of one call; what called the function does not.
const OWN_FRAMES: usize = 4;

/// Whether the caller frames of the outer function are the outermost part of
/// the inner record's stack. Addresses innermost first, unused places 0. True
/// where a stack is missing or too short to tell.
pub(super) fn agree(inner: &[u64; STACK_DEPTH], outer: &[u64; STACK_DEPTH]) -> bool {
    let inner = used(inner);
    let outer = used(outer);
    // With all places in use the outermost frames were cut off: only what is
    // left of the overlap could be compared, and it may be nothing.
    if inner.is_empty() || inner.len() == STACK_DEPTH || outer.len() == STACK_DEPTH {
        return true;
    }
    if outer.len() <= 1 {
        return true;
    }
    (0..=OWN_FRAMES.min(outer.len() - 1)).any(|own| inner.ends_with(&outer[own..]))
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
        assert!(agree(&inner, &stack(&[902, 31, 20, 10])));
        assert!(!agree(&inner, &stack(&[902, 31, 21, 11])));
    }

    #[test]
    fn a_missing_or_cut_stack_refutes_nothing() {
        let full: Vec<u64> = (1..=16).collect();
        assert!(agree(&stack(&[]), &stack(&[1, 2, 3])));
        assert!(agree(&stack(&[1, 2, 3]), &stack(&[])));
        assert!(agree(&stack(&full), &stack(&[7, 8, 9])));
        assert!(agree(&stack(&[7, 8, 9]), &stack(&full)));
    }
}

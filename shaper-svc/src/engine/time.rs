//! Instants of the engine's clock: picoseconds in a `u64` that wraps after 213.5
//! days, so two instants are compared by their signed wrapping difference and must
//! lie less than 106.7 days apart.

/// One second in picoseconds.
pub const PS_PER_S: u64 = 1_000_000_000_000;

/// One nanosecond in picoseconds.
pub const PS_PER_NS: u64 = 1_000;

/// Whether instant `a_ps` comes strictly after `b_ps`.
#[inline]
#[must_use]
pub const fn is_after(a_ps: u64, b_ps: u64) -> bool {
    a_ps.wrapping_sub(b_ps).cast_signed() > 0
}

/// The later one of two instants.
#[inline]
#[must_use]
pub const fn later(a_ps: u64, b_ps: u64) -> u64 {
    if is_after(a_ps, b_ps) { a_ps } else { b_ps }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_across_the_wrap() {
        let before = u64::MAX - 5;
        let after = 7;
        assert!(is_after(after, before));
        assert!(!is_after(before, after));
        assert!(!is_after(before, before));
        assert_eq!(later(before, after), after);
    }
}

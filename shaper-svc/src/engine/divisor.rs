//! Division by a number that is known long before, without the instruction for it, which
//! takes longer than all else that a frame needs.

/// A divisor and its reciprocal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Divisor {
    value: u64,
    /// `(2^64 - 1) / value`.
    reciprocal: u64,
}

impl Divisor {
    pub(super) const ONE: Self = Self::new(1);

    /// `value` is not zero.
    pub(super) const fn new(value: u64) -> Self {
        Self {
            value,
            reciprocal: u64::MAX / value,
        }
    }

    #[inline]
    pub(super) const fn value(self) -> u64 {
        self.value
    }

    /// Quotient and rest.
    #[inline]
    pub(super) const fn split(self, number: u64) -> (u64, u64) {
        // The reciprocal is rounded down by less than one, so the estimate is right or
        // one too low.
        let estimate = high_half(number, self.reciprocal);
        let rest = number.wrapping_sub(estimate.wrapping_mul(self.value));
        let (carry, rest) = self.fold(rest);
        (estimate.wrapping_add(carry), rest)
    }

    /// The same for a number below twice the divisor.
    #[inline]
    pub(super) const fn fold(self, number: u64) -> (u64, u64) {
        if number >= self.value {
            (1, number.wrapping_sub(self.value))
        } else {
            (0, number)
        }
    }
}

/// The upper 64 bits of a product.
#[inline]
const fn high_half(a: u64, b: u64) -> u64 {
    ((a as u128 * b as u128) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_divides(
            value in prop_oneof![1_u64..70, 1..=u64::MAX, Just(1 << 63), Just(u64::MAX)],
            number in prop_oneof![0_u64..300, any::<u64>(), Just(u64::MAX)],
            times in any::<u64>(),
        ) {
            // Next to a multiple, too, where the quotient jumps.
            let multiple = value.wrapping_mul(times % (u64::MAX / value).max(1));
            for number in [number, multiple, multiple.wrapping_sub(1), multiple | 1] {
                let expected = (number / value, number % value);
                prop_assert_eq!(Divisor::new(value).split(number), expected);
            }
        }
    }
}

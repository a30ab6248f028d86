//! Counts of values over the whole range of `u64`, eight buckets to each power of
//! two: a quantile is at most an eighth above the value it stands for.

/// Buckets for each power of two, as a power of two.
const STEP_BITS: u32 = 3;
const STEPS: usize = 1 << STEP_BITS;

/// Buckets: values below eight exactly, then eight for each of 61 powers of two.
const BUCKETS: usize = (64 - STEP_BITS as usize + 1) * STEPS;

/// A histogram of fixed size; recording takes no memory and no division.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: [0; BUCKETS],
            total: 0,
            max: 0,
        }
    }
}

impl Histogram {
    /// Counts one value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.buckets[bucket_of(value)] += 1;
        self.total += 1;
        self.max = self.max.max(value);
    }

    /// Counts many values; the same as [`Histogram::record`] for each, cheaper where
    /// all are alike.
    #[inline]
    pub fn record_all(&mut self, values: impl Iterator<Item = u64> + Clone) {
        let (mut lowest, mut highest, mut count) = (u64::MAX, 0, 0_u64);
        for value in values.clone() {
            lowest = lowest.min(value);
            highest = highest.max(value);
            count = count.wrapping_add(1);
        }
        if bucket_of(lowest) == bucket_of(highest) {
            self.buckets[bucket_of(highest)] += count;
        } else {
            self.record_run_by_run(values);
        }
        self.max = self.max.max(highest);
        self.total += count;
    }

    #[inline]
    fn record_run_by_run(&mut self, values: impl Iterator<Item = u64>) {
        let (mut bucket, mut run) = (0, 0_u64);
        for value in values {
            let its_bucket = bucket_of(value);
            if its_bucket != bucket {
                // Counting runs keeps one counter from waiting for itself.
                self.buckets[bucket] += run;
                (bucket, run) = (its_bucket, 0);
            }
            run = run.wrapping_add(1);
        }
        self.buckets[bucket] += run;
    }

    /// Values counted.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The largest value counted, exactly; zero without any.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// The value that `per_mille` of a thousand do not exceed: the upper end of its
    /// bucket, and never above the largest value. Zero without any value.
    #[must_use]
    pub fn quantile(&self, per_mille: u32) -> u64 {
        let wanted = (u128::from(self.total) * u128::from(per_mille)).div_ceil(1000);
        let mut seen = 0_u128;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += u128::from(*count);
            if seen >= wanted && seen > 0 {
                return upper_end_of(bucket).min(self.max);
            }
        }
        self.max
    }

    /// Back to no value.
    pub fn clear(&mut self) {
        self.buckets.fill(0);
        self.total = 0;
        self.max = 0;
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "below sixteen")]
const fn bucket_of(value: u64) -> usize {
    // Below eight nothing is shifted; from there on the leading bit stays as an eight,
    // which is the step from one power of two to the next.
    let shift = (value | STEPS as u64).ilog2() - STEP_BITS;
    (shift as usize * STEPS).wrapping_add((value >> shift) as usize)
}

const fn upper_end_of(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let shift = bucket / STEPS - 1;
    let lower = ((STEPS + bucket % STEPS) as u64) << shift;
    lower + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_of_a_known_set() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.quantile(500), histogram.max()), (0, 0));
        for value in 1..=1000 {
            histogram.record(value);
        }
        assert_eq!(histogram.total(), 1000);
        assert_eq!(histogram.max(), 1000);
        assert!((500..=563).contains(&histogram.quantile(500)));
        assert!((990..=1000).contains(&histogram.quantile(990)));
        histogram.clear();
        assert_eq!(histogram, Histogram::default());
    }

    proptest! {
        #[test]
        fn many_at_once_are_counted_as_one_by_one(
            values in prop::collection::vec(
                prop_oneof![0_u64..99, 4_000_u64..5_000, any::<u64>()],
                0..50,
            ),
        ) {
            let (mut together, mut single) = (Histogram::default(), Histogram::default());
            together.record_all(values.iter().copied());
            values.into_iter().for_each(|value| single.record(value));
            prop_assert_eq!(together, single);
        }

        #[test]
        fn a_bucket_is_an_eighth_wide_at_most(value: u64) {
            let upper = upper_end_of(bucket_of(value));
            prop_assert!(upper >= value);
            prop_assert!(upper - value <= value / 8);
        }
    }
}

//! How long the poll loop was away: power-of-two buckets of nanoseconds.

/// Buckets: [1, 2), [2, 4), … up to 2^48 ns, three days.
pub const GAP_BUCKETS: usize = 48;

/// A histogram that only grows; windows show differences of it.
#[derive(Clone, Debug)]
pub(super) struct PollGaps {
    buckets: [u64; GAP_BUCKETS],
}

impl PollGaps {
    pub(super) const fn new() -> Self {
        Self {
            buckets: [0; GAP_BUCKETS],
        }
    }

    #[inline]
    pub(super) fn record(&mut self, gap_ns: u64) {
        let bucket = (gap_ns | 1).ilog2() as usize;
        self.buckets[bucket.min(GAP_BUCKETS - 1)] += 1;
    }

    /// What was counted since `earlier`, which becomes now.
    pub(super) fn since(&self, earlier: &mut Self) -> [u64; GAP_BUCKETS] {
        let difference = std::array::from_fn(|i| self.buckets[i] - earlier.buckets[i]);
        *earlier = self.clone();
        difference
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_fall_into_powers_of_two() {
        let (mut gaps, mut earlier) = (PollGaps::new(), PollGaps::new());
        for gap in [0, 1, 2, 3, 4, 1023, 1024, u64::MAX] {
            gaps.record(gap);
        }
        let seen = gaps.since(&mut earlier);
        assert_eq!(
            (seen[0], seen[1], seen[2], seen[9], seen[10]),
            (2, 2, 1, 1, 1)
        );
        assert_eq!(seen[GAP_BUCKETS - 1], 1);
        gaps.record(1);
        let seen = gaps.since(&mut earlier);
        assert_eq!((seen[0], seen.iter().sum::<u64>()), (1, 1));
    }
}

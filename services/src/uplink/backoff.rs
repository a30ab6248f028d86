//! How long to wait before the next attempt: pure, so that it is tested without time.

use std::time::Duration;

/// Doubles from `min` to `max`; each wait is drawn from the upper half, so that agents
/// which lost the same collector do not come back together.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
    random: SplitMix64,
}

impl Backoff {
    pub(crate) fn new(min: Duration, max: Duration, seed: u64) -> Self {
        Self {
            min,
            max,
            next: min,
            random: SplitMix64(seed),
        }
    }

    /// The next wait.
    pub(crate) fn wait(&mut self) -> Duration {
        let base = self.next;
        self.next = (base * 2).min(self.max);
        base / 2 + (base / 2).mul_f64(self.random.unit())
    }

    /// The peer took something: start over.
    pub(crate) fn reset(&mut self) {
        self.next = self.min;
    }

    /// The peer refused in a way that haste will not mend.
    pub(crate) fn slowest(&mut self) {
        self.next = self.max;
    }
}

/// Sebastiano Vigna's splitmix64: jitter needs spread, not secrecy.
#[derive(Clone, Debug)]
struct SplitMix64(u64);

impl SplitMix64 {
    /// In [0, 1).
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact in an f64")]
        let top = ((z ^ (z >> 31)) >> 11) as f64;
        top / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIN: Duration = Duration::from_millis(200);
    const MAX: Duration = Duration::from_secs(5);

    proptest! {
        #[test]
        fn waits_stay_between_the_bounds_and_grow(seed: u64) {
            let mut backoff = Backoff::new(MIN, MAX, seed);
            let waits: Vec<Duration> = (0..12).map(|_| backoff.wait()).collect();
            for (n, wait) in waits.iter().enumerate() {
                let base = (MIN * 2_u32.pow(u32::try_from(n).unwrap())).min(MAX);
                prop_assert!(*wait >= base / 2 && *wait <= base, "{n}: {wait:?}");
            }
            backoff.reset();
            prop_assert!(backoff.wait() <= MIN);
            backoff.slowest();
            prop_assert!(backoff.wait() >= MAX / 2);
        }
    }

    #[test]
    fn agents_with_other_seeds_come_back_at_other_times() {
        let waits: std::collections::BTreeSet<Duration> = (0..100)
            .map(|seed| Backoff::new(MIN, MAX, seed).wait())
            .collect();
        assert!(waits.len() > 95, "{}", waits.len());
    }
}

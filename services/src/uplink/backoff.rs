//! How long to wait before the next attempt: pure, so that it is tested without time.

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use std::time::Duration;

/// Doubles from `min` to `max`; each wait is drawn from the upper half, so that agents
/// which lost the same collector do not come back together.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
    /// Jitter needs spread, not secrecy.
    random: SmallRng,
}

impl Backoff {
    pub(crate) fn new(min: Duration, max: Duration, seed: u64) -> Self {
        Self {
            min,
            max,
            next: min,
            random: SmallRng::seed_from_u64(seed),
        }
    }

    /// The next wait.
    pub(crate) fn wait(&mut self) -> Duration {
        let base = self.next;
        self.next = (base * 2).min(self.max);
        base / 2 + (base / 2).mul_f64(self.random.random::<f64>())
    }

    /// A time or up to half as much more: those who were told the same do not come together.
    pub(crate) fn spread(&mut self, time: Duration) -> Duration {
        time + (time / 2).mul_f64(self.random.random::<f64>())
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
    fn a_time_that_many_were_told_is_spread() {
        let mut backoff = Backoff::new(MIN, MAX, 7);
        let waits: std::collections::BTreeSet<Duration> =
            (0..100).map(|_| backoff.spread(MAX)).collect();
        assert!(waits.iter().all(|w| (MAX..=MAX + MAX / 2).contains(w)));
        assert!(waits.len() > 95);
        assert_eq!(backoff.spread(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn agents_with_other_seeds_come_back_at_other_times() {
        let waits: std::collections::BTreeSet<Duration> = (0..100)
            .map(|seed| Backoff::new(MIN, MAX, seed).wait())
            .collect();
        assert!(waits.len() > 95, "{}", waits.len());
    }
}

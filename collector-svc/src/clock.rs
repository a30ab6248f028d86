//! What a host's clocks tell against the collector's.
//!
//! Events carry the host's boot clock, which no one sets. Every item carries a pair
//! (boot clock, wall clock) read at the same moment, and the collector notes when it
//! came. `received - boot` is the collector time at which the boot clock stood at 0,
//! plus the item's transit; the smallest of the last ones has the least transit (the
//! minimum filter of NTP, RFC 5905 section 10, by one way). The host's wall clock
//! plays no part in placing events: a jump of it is seen, marked, and harmless.

use std::collections::VecDeque;

/// Samples that the minimum is taken over: with one every five seconds, five minutes.
/// Long enough to bridge a burst of replays, short enough to follow drift (50 ppm are
/// 15 ms in that time).
const SAMPLES: usize = 64;

/// A wall clock that moves against the boot clock by more than this between two items
/// was set. NTP slews at 500 ppm at most: 2.5 ms in five seconds, 30 ms in a minute.
const JUMP_NS: i64 = 100_000_000;

/// An item that came so much later than the least transit waited at its agent: it says
/// nothing of the clocks. A loaded network or collector holds items up for a second or two.
const WAITED_NS: i64 = 10_000_000_000;

/// Items one after the other that all came late and at the pace of the boot clock: none of
/// them waited, but the boot clock stood still meanwhile, as in a virtual machine that was
/// paused.
const STOOD_STILL_ITEMS: u32 = 4;

/// Boot clock between two items from which on their pace is looked at.
const PACE_OVER_NS: i64 = 500_000_000;

/// Two clocks of a host, read at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// `CLOCK_BOOTTIME`, nanoseconds.
    pub boot_ns: i64,
    /// `CLOCK_REALTIME`, nanoseconds since 1970.
    pub real_ns: i64,
}

/// What is known after a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Collector time at which the boot clock stood at 0, nanoseconds since 1970.
    pub boot_epoch_ns: i64,
    /// Host wall clock minus collector clock, nanoseconds; transit included.
    pub offset_ns: i64,
    /// How far the wall clock was set since the reading before; 0: it was not.
    pub jump_ns: i64,
    /// Wall clock minus boot clock at this reading, nanoseconds.
    pub real_minus_boot_ns: i64,
}

/// The clocks of one host during one boot.
#[derive(Debug, Clone, Default)]
pub struct HostClock {
    epochs_ns: VecDeque<i64>,
    last_real_minus_boot_ns: Option<i64>,
    late: Option<Late>,
}

/// The last item that came late.
#[derive(Debug, Clone, Copy)]
struct Late {
    boot_ns: i64,
    received_ns: i64,
    /// Items before it that were late and came at the boot clock's pace.
    at_pace: u32,
}

impl HostClock {
    /// Takes a reading that came at `received_ns` (collector time).
    pub fn observe(&mut self, reading: Reading, received_ns: i64) -> Estimate {
        let sample = received_ns.saturating_sub(reading.boot_ns);
        let boot_epoch_ns = self.epoch_with(sample, reading.boot_ns, received_ns);
        let real_minus_boot_ns = reading.real_ns.saturating_sub(reading.boot_ns);
        let moved = self
            .last_real_minus_boot_ns
            .replace(real_minus_boot_ns)
            .map_or(0, |last| real_minus_boot_ns.saturating_sub(last));
        Estimate {
            boot_epoch_ns,
            offset_ns: real_minus_boot_ns.saturating_sub(boot_epoch_ns),
            jump_ns: if moved.saturating_abs() > JUMP_NS {
                moved
            } else {
                0
            },
            real_minus_boot_ns,
        }
    }

    /// The epoch after a sample. What an agent kept during an outage, or a run before it
    /// left, comes by the thousand and must not push the good samples out.
    fn epoch_with(&mut self, sample: i64, boot_ns: i64, received_ns: i64) -> i64 {
        let least = self.epochs_ns.iter().copied().min();
        if let Some(least) = least
            && sample.saturating_sub(least) > WAITED_NS
        {
            if !self.stood_still(boot_ns, received_ns) {
                return least;
            }
            self.epochs_ns.clear();
        }
        self.late = None;
        if self.epochs_ns.len() == SAMPLES {
            self.epochs_ns.pop_front();
        }
        self.epochs_ns.push_back(sample);
        self.epochs_ns.iter().copied().min().unwrap_or(sample)
    }

    /// Whether late items come as fast as the boot clock runs. Replays come much faster.
    fn stood_still(&mut self, boot_ns: i64, received_ns: i64) -> bool {
        let mut at_pace = 0;
        if let Some(late) = self.late {
            let booted = boot_ns.saturating_sub(late.boot_ns);
            if (0..PACE_OVER_NS).contains(&booted) {
                // Items of one interval say nothing of the pace.
                return late.at_pace >= STOOD_STILL_ITEMS;
            }
            let received = received_ns.saturating_sub(late.received_ns);
            if booted > 0 && received > booted / 10 * 9 {
                at_pace = late.at_pace + 1;
            }
        }
        self.late = Some(Late {
            boot_ns,
            received_ns,
            at_pace,
        });
        at_pace >= STOOD_STILL_ITEMS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;
    const MS: i64 = 1_000_000;
    /// Collector time when the host booted.
    const BOOTED: i64 = 1_700_000_000 * S;

    fn reading(boot_ns: i64, offset_ns: i64) -> Reading {
        Reading {
            boot_ns,
            real_ns: BOOTED + boot_ns + offset_ns,
        }
    }

    #[test]
    fn the_least_transit_decides() {
        let mut clock = HostClock::default();
        for (n, transit) in [(1, 40 * MS), (2, 3 * MS), (3, 70 * MS)] {
            clock.observe(reading(n * 5 * S, 250 * MS), BOOTED + n * 5 * S + transit);
        }
        let last = clock.observe(reading(20 * S, 250 * MS), BOOTED + 20 * S + 9 * MS);
        assert_eq!(last.boot_epoch_ns, BOOTED + 3 * MS);
        assert_eq!(last.offset_ns, 247 * MS);
        assert_eq!(last.jump_ns, 0);
    }

    #[test]
    fn replays_from_an_outage_do_not_move_the_estimate() {
        let mut clock = HostClock::default();
        clock.observe(reading(7_200 * S, 0), BOOTED + 7_200 * S + MS);
        let old = clock.observe(reading(5 * S, 0), BOOTED + 7_200 * S + 2 * MS);
        assert_eq!(old.boot_epoch_ns, BOOTED + MS);
    }

    #[test]
    fn regression_a_thousand_replays_do_not_push_the_good_samples_out() {
        let mut clock = HostClock::default();
        clock.observe(reading(7_200 * S, 0), BOOTED + 7_200 * S + MS);
        for n in 1..=1_000 {
            let received = BOOTED + 7_200 * S + n * 2 * MS;
            let old = clock.observe(reading(n * 5 * S, 0), received);
            assert_eq!(old.boot_epoch_ns, BOOTED + MS, "item {n}");
        }
    }

    #[test]
    fn a_boot_clock_that_stood_still_is_believed_after_some_items() {
        let mut clock = HostClock::default();
        clock.observe(reading(100 * S, 0), BOOTED + 100 * S);
        // The machine was paused for an hour.
        let moved = BOOTED + 3_600 * S;
        let epochs: Vec<i64> = (21..=30)
            .map(|n| clock.observe(reading(n * 5 * S, 0), moved + n * 5 * S))
            .map(|estimate| estimate.boot_epoch_ns)
            .collect();
        assert_eq!(epochs[..4], [BOOTED; 4]);
        assert_eq!(epochs[4..], [moved; 6]);
    }

    #[test]
    fn a_set_wall_clock_is_seen_and_does_not_move_events() {
        let mut clock = HostClock::default();
        clock.observe(reading(5 * S, 0), BOOTED + 5 * S + MS);
        let after = clock.observe(reading(10 * S, -3_600 * S), BOOTED + 10 * S + MS);
        assert_eq!(after.jump_ns, -3_600 * S);
        assert_eq!(after.boot_epoch_ns, BOOTED + MS);
        assert_eq!(after.offset_ns, -3_600 * S - MS);
        let later = clock.observe(reading(15 * S, -3_600 * S), BOOTED + 15 * S + MS);
        assert_eq!(later.jump_ns, 0);
    }

    #[test]
    fn the_estimate_follows_once_old_samples_are_forgotten() {
        let mut clock = HostClock::default();
        clock.observe(reading(0, 0), BOOTED);
        let mut last = None;
        for n in 1..=i64::try_from(SAMPLES).unwrap() {
            last = Some(clock.observe(reading(n * S, 0), BOOTED + n * S + 80 * MS));
        }
        assert_eq!(last.unwrap().boot_epoch_ns, BOOTED + 80 * MS);
    }

    #[test]
    fn absurd_readings_saturate() {
        let mut clock = HostClock::default();
        let reading = Reading {
            boot_ns: i64::MAX,
            real_ns: i64::MIN,
        };
        let estimate = clock.observe(reading, i64::MIN);
        assert_eq!(estimate.boot_epoch_ns, i64::MIN);
    }
}

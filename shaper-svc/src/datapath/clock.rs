//! The data path's clock: picoseconds, read once for a burst.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

/// Picoseconds of a second.
const PS_PER_S: u128 = 1_000_000_000_000;

/// Tells the time in picoseconds since a moment of its own choice; wraps like the
/// engine's instants.
pub trait Clock {
    /// Now.
    fn now_ps(&self) -> u64;
}

/// Turns ticks of a counter into picoseconds without a division: picoseconds of a
/// tick in units of 2^-32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickScale(u128);

impl TickScale {
    /// The scale of a counter that runs at `hertz` (a counter that says 0 is taken
    /// for 1 Hz).
    #[must_use]
    pub fn from_hertz(hertz: u64) -> Self {
        let hertz = u128::from(hertz.max(1));
        Self(((PS_PER_S << 32) + hertz / 2) / hertz)
    }

    /// Picoseconds of so many ticks, modulo 2^64. A scale is off by 2^-33 ps a tick
    /// at the most: 1 ps in 3 s at 2.5 GHz, the same for all frames.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "instants wrap")]
    pub fn picoseconds(self, ticks: u64) -> u64 {
        ((u128::from(ticks) * self.0) >> 32) as u64
    }
}

/// The operating system's monotonic clock: for builds without DPDK. Costs 25 ns.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock(Instant);

impl Default for MonotonicClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for MonotonicClock {
    #[expect(clippy::cast_possible_truncation, reason = "instants wrap")]
    fn now_ps(&self) -> u64 {
        (self.0.elapsed().as_nanos() * 1000) as u64
    }
}

/// A clock that a test moves.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Rc<Cell<u64>>);

impl ManualClock {
    /// Moves the clock.
    pub fn set_ps(&self, now_ps: u64) {
        self.0.set(now_ps);
    }

    /// Moves the clock on.
    pub fn advance_ps(&self, by_ps: u64) {
        self.0.set(self.0.get().wrapping_add(by_ps));
    }
}

impl Clock for ManualClock {
    fn now_ps(&self) -> u64 {
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_of_ticks_is_a_day_of_picoseconds() {
        const DAY_S: u64 = 86_400;
        for hertz in [2_500_000_000, 2_893_202_000, 62_500_000, 1_000_000_000] {
            let scale = TickScale::from_hertz(hertz);
            let day = scale.picoseconds(hertz * DAY_S);
            // 0.1 ns a second at the most; clocks of computers drift by microseconds.
            let off = day.abs_diff(DAY_S * 1_000_000_000_000);
            assert!(off < DAY_S * 100, "{hertz} Hz is off by {off} ps");
        }
    }

    #[test]
    fn the_monotonic_clock_runs() {
        let clock = MonotonicClock::default();
        let first = clock.now_ps();
        let deadline = Instant::now() + std::time::Duration::from_secs(5);
        while clock.now_ps() == first {
            assert!(Instant::now() < deadline, "it stands");
        }
        assert!(clock.now_ps() > first);
    }
}

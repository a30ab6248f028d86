//! How far a stream runs ahead of an ideal wire.
//!
//! Its own exact arithmetic, not the engine's, so that it can judge the engine too.

use crate::engine::line_bytes;
use crate::rate::LineRate;

/// Picoseconds that one byte takes at 1 bit/s.
const PS_PER_BYTE_AT_1_BPS: u128 = 8_000_000_000_000;

/// An ideal wire that is given each frame when it was seen.
#[derive(Debug, Clone)]
pub struct Meter {
    rate_bps: u128,
    /// When the wire would be free, in units of `1 / rate` picoseconds.
    free: u128,
}

/// Where one frame stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// How much earlier it was seen than the wire could have started it, ps, rounded
    /// down: instants are whole picoseconds, so a fraction of one means nothing.
    pub ahead_ps: u128,
    /// How long the wire had been idle before it, ps.
    pub idle_ps: u128,
}

impl Meter {
    /// A wire of this rate that has never been used.
    #[must_use]
    pub fn new(rate: LineRate) -> Self {
        Self {
            rate_bps: rate.bps().into(),
            free: 0,
        }
    }

    /// Takes a frame of `len` bytes without FCS, seen at `at_ps`, which does not go
    /// back.
    pub fn see(&mut self, at_ps: u128, len: u16) -> Standing {
        let at = at_ps * self.rate_bps;
        let standing = Standing {
            ahead_ps: self.free.saturating_sub(at) / self.rate_bps,
            idle_ps: at.saturating_sub(self.free) / self.rate_bps,
        };
        self.free = self.free.max(at) + u128::from(line_bytes(len)) * PS_PER_BYTE_AT_1_BPS;
        standing
    }

    /// What the wire carries in `span_ps`, bytes, rounded down.
    #[must_use]
    pub fn bytes_in(&self, span_ps: u128) -> u128 {
        span_ps * self.rate_bps / PS_PER_BYTE_AT_1_BPS
    }

    /// How long a frame of `len` bytes without FCS takes, ps, rounded up.
    #[must_use]
    pub fn time_of(&self, len: u16) -> u128 {
        (u128::from(line_bytes(len)) * PS_PER_BYTE_AT_1_BPS).div_ceil(self.rate_bps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_ahead_by_all_but_its_first_frame() {
        let mut meter = Meter::new(LineRate::new(1_000_000_000).expect("in range"));
        // 1,000 bytes with overhead: 8 µs.
        let frame_ps = 8_000_000;
        let start_ps = 5 * frame_ps;
        let standings: Vec<Standing> = (0..4).map(|_| meter.see(start_ps, 976)).collect();
        let ahead: Vec<u128> = standings.iter().map(|s| s.ahead_ps / frame_ps).collect();
        assert_eq!(ahead, [0, 1, 2, 3]);
        assert_eq!(standings[0].idle_ps, start_ps);
        let later = meter.see(start_ps + 10 * frame_ps, 976);
        assert_eq!((later.ahead_ps, later.idle_ps), (0, 6 * frame_ps));
        assert_eq!(meter.bytes_in(frame_ps), 1_000);
        assert_eq!(meter.time_of(976), frame_ps);
    }
}

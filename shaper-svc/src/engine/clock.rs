//! The wire clock: when the wire is free again, exact to a fraction of a
//! picosecond, without a division per frame.
//!
//! A frame of `len` bytes occupies `(max(len, 60) + 24) * 8 / rate` seconds. That is
//! a whole number of picoseconds per byte and a fraction with the rate (reduced) as
//! its denominator. Both parts are added up as integers, so nothing is ever rounded and
//! nothing drifts.

use super::divisor::Divisor;
use super::time::is_after;
use crate::rate::LineRate;

/// Shortest frame on an Ethernet wire without its FCS, bytes (IEEE 802.3, 64 with
/// FCS). Shorter ones are padded.
pub const MIN_FRAME_BYTES: u64 = 60;

/// What each frame occupies beyond its bytes: FCS 4, preamble and start of frame 8,
/// gap between frames 12 (IEEE 802.3).
pub const FRAME_OVERHEAD_BYTES: u64 = 24;

/// Picoseconds that one byte takes at 1 bit/s.
const PS_PER_BYTE_AT_1_BPS: u64 = 8_000_000_000_000;

/// Bytes that a frame of `len` bytes (as in the buffer, no FCS) occupies on the wire.
#[inline]
#[must_use]
pub const fn line_bytes(len: u16) -> u64 {
    let len = len as u64;
    let padded = if len < MIN_FRAME_BYTES {
        MIN_FRAME_BYTES
    } else {
        len
    };
    padded + FRAME_OVERHEAD_BYTES
}

/// A rate as the clock needs it: time per byte, and no division left to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    whole_ps_per_byte: u64,
    /// Numerator of the fraction of a picosecond per byte.
    part_per_byte: u64,
    /// Its denominator, below 2^38.
    denominator: Divisor,
}

impl Pace {
    /// A wire that is not shaped: frames take no time.
    pub(super) const UNSHAPED: Self = Self {
        whole_ps_per_byte: 0,
        part_per_byte: 0,
        denominator: Divisor::ONE,
    };

    /// The pace of a line rate.
    pub(super) const fn of(rate: LineRate) -> Self {
        let rate_bps = rate.bps();
        let part = PS_PER_BYTE_AT_1_BPS % rate_bps;
        let divisor = greatest_common_divisor(part, rate_bps);
        Self {
            whole_ps_per_byte: PS_PER_BYTE_AT_1_BPS / rate_bps,
            part_per_byte: part / divisor,
            denominator: Divisor::new(rate_bps / divisor),
        }
    }

    /// Whether each byte takes a whole number of picoseconds, as at all rates of real
    /// Ethernet: 80 ps at 100 Gbit/s, 320 ps at 25.
    pub(super) const fn is_whole(&self) -> bool {
        self.denominator.value() == 1
    }

    /// Time of `bytes` on the wire: whole picoseconds, and parts of one in units of
    /// the denominator. `bytes` below 2^25 keep every product within 64 bits.
    #[inline]
    fn time_of(&self, bytes: u64) -> (u64, u64) {
        let parts = bytes.wrapping_mul(self.part_per_byte);
        let (more, rest) = self.denominator.split(parts);
        let whole = bytes.wrapping_mul(self.whole_ps_per_byte);
        (whole.wrapping_add(more), rest)
    }

    /// Time of `bytes`, rounded up to the picosecond.
    pub(super) fn time_rounded_up_ps(&self, bytes: u64) -> u64 {
        let (whole, parts) = self.time_of(bytes);
        whole + u64::from(parts > 0)
    }
}

const fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// When the wire is free: `whole_ps` and a fraction below one picosecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clock {
    pub(super) whole_ps: u64,
    parts: u64,
}

impl Clock {
    pub(super) const fn at(whole_ps: u64) -> Self {
        Self { whole_ps, parts: 0 }
    }

    /// Free no earlier than `at_ps`.
    #[inline]
    pub(super) fn no_earlier_than(self, at_ps: u64) -> Self {
        // An instant equal to the whole part is not after it, fraction or not.
        if is_after(at_ps, self.whole_ps) {
            Self::at(at_ps)
        } else {
            self
        }
    }

    /// The first whole picosecond at which a frame may start.
    #[inline]
    pub(super) fn start_ps(self) -> u64 {
        self.whole_ps.wrapping_add(u64::from(self.parts > 0))
    }

    /// Free again after `bytes` more.
    #[inline]
    pub(super) fn after(self, bytes: u64, pace: &Pace) -> Self {
        let (whole, parts) = pace.time_of(bytes);
        let (carry, parts) = pace.denominator.fold(self.parts.wrapping_add(parts));
        Self {
            whole_ps: self.whole_ps.wrapping_add(whole).wrapping_add(carry),
            parts,
        }
    }

    /// The same at a pace that [is whole](Pace::is_whole), at which a clock has no
    /// fraction.
    #[inline]
    pub(super) fn after_whole(self, bytes: u64, pace: &Pace) -> Self {
        let whole = bytes.wrapping_mul(pace.whole_ps_per_byte);
        Self::at(self.whole_ps.wrapping_add(whole))
    }

    /// The same instant without its fraction, rounded up: what a change of rate
    /// starts from, since the fraction counts in units of the old rate.
    pub(super) fn rounded_up(self) -> Self {
        Self::at(self.start_ps())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pace(rate_bps: u64) -> Pace {
        Pace::of(LineRate::new(rate_bps).expect("rate in range"))
    }

    #[test]
    fn wire_times_of_roce_frames_as_measured() {
        // 1 KiB and 4 KiB of payload are 1,082 and 4,154 bytes with everything.
        assert_eq!(pace(10_000_000_000).time_rounded_up_ps(1106), 884_800);
        assert_eq!(pace(25_000_000_000).time_rounded_up_ps(1106), 353_920);
        assert_eq!(pace(10_000_000_000).time_rounded_up_ps(4178), 3_342_400);
        assert_eq!(line_bytes(64), 88);
        assert_eq!(line_bytes(14), 84);
    }

    proptest! {
        #[test]
        fn sums_equal_the_exact_fraction(
            rate_bps in prop_oneof![
                crate::rate::MIN_RATE_BPS..=crate::rate::MAX_RATE_BPS,
                prop::sample::select(vec![10_000_000_000, 25_000_000_000, 200_000_000_000]),
            ],
            lens in prop::collection::vec(1_u16..=u16::MAX, 1..200),
            from_ps in any::<u64>(),
        ) {
            let pace = pace(rate_bps);
            let mut clock = Clock::at(from_ps);
            let mut bytes = 0_u128;
            for len in lens {
                let before = clock;
                clock = clock.after(line_bytes(len), &pace);
                if pace.is_whole() {
                    prop_assert_eq!(before.after_whole(line_bytes(len), &pace), clock);
                }
                bytes += u128::from(line_bytes(len));
                let numerator = bytes * u128::from(PS_PER_BYTE_AT_1_BPS);
                let exact = numerator.div_ceil(u128::from(rate_bps));
                prop_assert_eq!(u128::from(clock.start_ps().wrapping_sub(from_ps)), exact);
            }
        }
    }
}

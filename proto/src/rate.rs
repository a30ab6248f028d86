//! Line rates: their range, and their text in the notation of `tc`.

use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The slowest wire, bit/s. A 9,216-byte frame takes 74 ms on it; below that a
/// study of stragglers would wait for single frames.
pub const MIN_RATE_BPS: u64 = 1_000_000;

/// The fastest wire, bit/s: the fastest port of a BlueField card.
pub const MAX_RATE_BPS: u64 = 200_000_000_000;

/// Longest text that is read as a rate. Twenty digits hold any `u64`; the rest is
/// room for a fraction and a suffix.
const MAX_TEXT_LEN: usize = 40;

/// Digits after the point that are read: one bit/s of a Tbit/s is the twelfth.
const MAX_FRACTION_DIGITS: usize = 12;

/// The rate of a wire in bit/s, frame overhead included, within
/// [`MIN_RATE_BPS`] and [`MAX_RATE_BPS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineRate(u64);

/// Why a rate was not taken.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RateError {
    /// Outside of what a wire can be.
    #[error(
        "a rate of {bps} bit/s is outside of 1mbit to 200gbit: give a line rate in that range, for example 25gbit"
    )]
    OutOfRange {
        /// What was asked for, bit/s.
        bps: u128,
    },
    /// Not a number with a suffix.
    #[error(
        "'{text}' is not a rate: write a number and one of bit, kbit, mbit, gbit, tbit (decimal), kibit, mibit, gibit, tibit (powers of 1,024), or the same with bps for bytes per second; a number alone is bit/s"
    )]
    NotARate {
        /// What was read, shortened.
        text: String,
    },
    /// A fraction of a bit per second.
    #[error("'{text}' is not a whole number of bit/s: write it in a smaller unit")]
    NotWhole {
        /// What was read.
        text: String,
    },
}

impl LineRate {
    /// A rate of `bps` bit/s.
    ///
    /// # Errors
    /// [`RateError::OutOfRange`] below 1 Mbit/s and above 200 Gbit/s.
    pub const fn new(bps: u64) -> Result<Self, RateError> {
        if bps < MIN_RATE_BPS || bps > MAX_RATE_BPS {
            return Err(RateError::OutOfRange { bps: bps as u128 });
        }
        Ok(Self(bps))
    }

    /// The rate in bit/s.
    #[must_use]
    pub const fn bps(self) -> u64 {
        self.0
    }
}

impl FromStr for LineRate {
    type Err = RateError;

    /// Reads what `tc(8)` calls RATE: upper and lower case, `bit` suffixes in
    /// bit/s, `bps` suffixes in byte/s, none for bit/s. Percentages of a device
    /// are not read.
    fn from_str(text: &str) -> Result<Self, RateError> {
        let bps = parse_bps(text.trim())?;
        let in_range = u64::try_from(bps).map_err(|_| RateError::OutOfRange { bps })?;
        Self::new(in_range)
    }
}

fn parse_bps(text: &str) -> Result<u128, RateError> {
    let not_a_rate = || RateError::NotARate {
        text: text.chars().take(MAX_TEXT_LEN).collect(),
    };
    if text.len() > MAX_TEXT_LEN {
        return Err(not_a_rate());
    }
    let number_len = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(number_len);
    let unit_bps = unit_of(suffix.trim_start()).ok_or_else(not_a_rate)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || fraction.len() > MAX_FRACTION_DIGITS {
        return Err(not_a_rate());
    }
    let digits: u128 = format!("{whole}{fraction}")
        .parse()
        .map_err(|_| not_a_rate())?;
    let scale = (0..fraction.len()).fold(1_u128, |scale, _| scale * 10);
    let scaled = digits.checked_mul(unit_bps).ok_or_else(not_a_rate)?;
    if scaled % scale != 0 {
        return Err(RateError::NotWhole {
            text: text.to_owned(),
        });
    }
    Ok(scaled / scale)
}

/// How many bit/s one of this unit is; the table of `tc`'s `get_rate64`.
fn unit_of(suffix: &str) -> Option<u128> {
    let lower = suffix.to_ascii_lowercase();
    let (prefix, bits) = if lower.is_empty() {
        ("", 1)
    } else if let Some(prefix) = lower.strip_suffix("bit") {
        (prefix, 1)
    } else {
        (lower.strip_suffix("bps")?, 8)
    };
    let scale: u128 = match prefix {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        "g" => 1_000_000_000,
        "t" => 1_000_000_000_000,
        "ki" => 1 << 10,
        "mi" => 1 << 20,
        "gi" => 1 << 30,
        "ti" => 1 << 40,
        _ => return None,
    };
    Some(bits * scale)
}

impl fmt::Display for LineRate {
    /// The largest decimal unit that shows the rate whole: `2500mbit`, `25gbit`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit_bps, suffix) in [
            (1_000_000_000, "gbit"),
            (1_000_000, "mbit"),
            (1_000, "kbit"),
        ] {
            if self.0.is_multiple_of(unit_bps) {
                return write!(f, "{}{suffix}", self.0 / unit_bps);
            }
        }
        write!(f, "{}bit", self.0)
    }
}

impl Serialize for LineRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bps(text: &str) -> u64 {
        text.parse::<LineRate>().expect(text).bps()
    }

    #[test]
    fn reads_the_units_of_tc() {
        for (text, expected) in [
            ("10gbit", 10_000_000_000),
            ("25Gbit", 25_000_000_000),
            ("2.5gbit", 2_500_000_000),
            ("100mbit", 100_000_000),
            ("1000kbit", 1_000_000),
            ("0.1tbit", 100_000_000_000),
            ("1000000", 1_000_000),
            ("1000000bit", 1_000_000),
            ("1mbps", 8_000_000),
            ("1gibit", 1 << 30),
            ("125000bps", 1_000_000),
            ("12.345678901gbit", 12_345_678_901),
            (" 40 gbit ", 40_000_000_000),
        ] {
            assert_eq!(bps(text), expected, "{text}");
        }
    }

    #[test]
    fn refuses_what_no_wire_can_be() {
        for text in ["0", "0gbit", "999999", "201gbit", "1000tbit"] {
            let error = text.parse::<LineRate>().expect_err(text);
            assert!(
                matches!(error, RateError::OutOfRange { .. }),
                "{text}: {error}"
            );
        }
        for text in [
            "",
            "fast",
            "gbit",
            "-1gbit",
            "1e9",
            ".5gbit",
            "1.2.3gbit",
            "10 gb",
            "10%",
        ] {
            let error = text.parse::<LineRate>().expect_err(text);
            assert!(
                matches!(error, RateError::NotARate { .. }),
                "{text}: {error}"
            );
        }
        let long = "9".repeat(4000);
        assert!(
            long.parse::<LineRate>()
                .expect_err("too long")
                .to_string()
                .len()
                < 400
        );
        assert!(matches!(
            "1000000.5".parse::<LineRate>(),
            Err(RateError::NotWhole { .. })
        ));
    }

    #[test]
    fn shows_the_largest_whole_unit() {
        for text in ["25gbit", "2500mbit", "1001kbit", "1000001bit"] {
            assert_eq!(text.parse::<LineRate>().expect(text).to_string(), text);
        }
    }
}

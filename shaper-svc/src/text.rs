//! Times and rates for people.

/// A time in the largest unit that leaves a whole part, with three digits behind the
/// point, rounded down.
#[must_use]
pub fn span(ns: u64) -> String {
    let (unit_ns, name) = match ns {
        0..=999 => return format!("{ns} ns"),
        1_000..=999_999 => (1_000, "µs"),
        1_000_000..=999_999_999 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    format!("{} {name}", thousandths(ns, unit_ns))
}

/// A rate in the largest unit that leaves a whole part, with three digits behind the
/// point, rounded down.
#[must_use]
pub fn bits_per_second(bps: u64) -> String {
    let (unit_bps, name) = match bps {
        0..=999 => return format!("{bps} bit/s"),
        1_000..=999_999 => (1_000, "kbit/s"),
        1_000_000..=999_999_999 => (1_000_000, "Mbit/s"),
        _ => (1_000_000_000, "Gbit/s"),
    };
    format!("{} {name}", thousandths(bps, unit_bps))
}

fn thousandths(value: u64, unit: u64) -> String {
    format!("{}.{:03}", value / unit, value % unit / (unit / 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fit_the_value() {
        assert_eq!(span(0), "0 ns");
        assert_eq!(span(1_230), "1.230 µs");
        assert_eq!(span(59_999_999_999), "59.999 s");
        assert_eq!(bits_per_second(25_000_000_000), "25.000 Gbit/s");
        assert_eq!(bits_per_second(1_500), "1.500 kbit/s");
    }
}

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
    if bps < 1_000 {
        return format!("{bps} bit/s");
    }
    let (unit_bps, name) = unit_of(bps);
    format!("{} {name}", thousandths(bps, unit_bps))
}

/// A rate as [`bits_per_second`], with every digit that it has beyond three.
#[must_use]
pub fn line_rate(bps: u64) -> String {
    if bps < 1_000_000 || bps.is_multiple_of(unit_of(bps).0 / 1000) {
        return bits_per_second(bps);
    }
    let (unit_bps, name) = unit_of(bps);
    let digits = usize::try_from(unit_bps.ilog10()).unwrap_or(0);
    let fraction = format!("{:0digits$}", bps % unit_bps);
    format!(
        "{}.{} {name}",
        bps / unit_bps,
        fraction.trim_end_matches('0')
    )
}

fn unit_of(bps: u64) -> (u64, &'static str) {
    match bps {
        0..=999_999 => (1_000, "kbit/s"),
        1_000_000..=999_999_999 => (1_000_000, "Mbit/s"),
        _ => (1_000_000_000, "Gbit/s"),
    }
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
        assert_eq!(bits_per_second(7), "7 bit/s");
        assert_eq!(line_rate(25_000_000_000), "25.000 Gbit/s");
        assert_eq!(line_rate(7_777_777), "7.777777 Mbit/s");
        assert_eq!(line_rate(2_500_000_010), "2.50000001 Gbit/s");
    }
}

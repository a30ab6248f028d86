//! Between the contract's timestamps and the times used inside.

use prost_types::Timestamp;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Reads the collector's clock.
pub(crate) type Now = fn() -> OffsetDateTime;

const NANOS_A_SECOND: i128 = 1_000_000_000;

/// The end of the year 2261, seconds since 1970.
const SECONDS_MAX: i64 = 9_214_646_399;

/// A time that the contract cannot hold or a sane host cannot mean.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{field} is {}; allowed are times from 1970-01-01T00:00:00Z to 2261-12-31T23:59:59Z",
    told(*.seconds, *.nanos)
)]
pub(crate) struct BadTime {
    field: &'static str,
    seconds: i64,
    nanos: i32,
}

/// As a date, where the calendar of RFC 3339 has one.
fn told(seconds: i64, nanos: i32) -> String {
    if !(0..1_000_000_000).contains(&nanos) {
        return format!("no time: its nanos are {nanos}, where 0 to 999999999 are allowed");
    }
    OffsetDateTime::from_unix_timestamp_nanos(in_nanos(seconds, nanos))
        .ok()
        .and_then(|at| at.format(&Rfc3339).ok())
        .unwrap_or_else(|| format!("no time: {seconds} s since 1970 is outside of the calendar"))
}

fn in_nanos(seconds: i64, nanos: i32) -> i128 {
    i128::from(seconds) * NANOS_A_SECOND + i128::from(nanos)
}

/// A timestamp of the contract, named by `field` when it is none.
pub(crate) fn from_proto(
    field: &'static str,
    timestamp: &Timestamp,
) -> Result<OffsetDateTime, BadTime> {
    let bad = BadTime {
        field,
        seconds: timestamp.seconds,
        nanos: timestamp.nanos,
    };
    // Where nanoseconds since 1970 end in 64 bits: sums with spans of days stay far from
    // the end of the calendar.
    let in_range = (0..=SECONDS_MAX).contains(&timestamp.seconds)
        && (0..1_000_000_000).contains(&timestamp.nanos);
    if !in_range {
        return Err(bad);
    }
    OffsetDateTime::from_unix_timestamp_nanos(in_nanos(timestamp.seconds, timestamp.nanos))
        .map_err(|_| bad)
}

/// The same for a field that may be absent.
pub(crate) fn optional(
    field: &'static str,
    timestamp: Option<&Timestamp>,
) -> Result<Option<OffsetDateTime>, BadTime> {
    timestamp
        .map(|timestamp| from_proto(field, timestamp))
        .transpose()
}

/// As the contract holds it.
pub(crate) fn to_proto(at: OffsetDateTime) -> Timestamp {
    Timestamp {
        seconds: at.unix_timestamp(),
        nanos: i32::try_from(at.nanosecond()).unwrap_or(0),
    }
}

/// Nanoseconds since 1970; `None` beyond the calendar (year 9999) and what Postgres holds.
pub(crate) fn from_unix_ns(nanos: i64) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(nanos)).ok()
}

/// Nanoseconds since 1970. Saturates in the year 2262, where i64 ends.
pub(crate) fn to_unix_ns(at: OffsetDateTime) -> i64 {
    i64::try_from(at.unix_timestamp_nanos()).unwrap_or(i64::MAX)
}

/// Nanoseconds as people read them: `+3.200 s`.
pub(crate) fn signed_seconds(nanos: i64) -> String {
    let sign = if nanos < 0 { '-' } else { '+' };
    let millis = nanos.unsigned_abs() / 1_000_000;
    format!("{sign}{}.{:03} s", millis / 1_000, millis % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn times_survive_the_way_there_and_back() {
        let at = datetime!(2026-11-25 12:00:00.123456789 UTC);
        assert_eq!(from_proto("at", &to_proto(at)).unwrap(), at);
    }

    #[test]
    fn what_is_no_time_is_named() {
        let no_nanos = "no time: its nanos are -1, where 0 to 999999999 are allowed";
        let no_date = "no time: 9223372036854775807 s since 1970 is outside of the calendar";
        for (seconds, nanos, told) in [
            (-5, 0, "1969-12-31T23:59:55Z"),
            (-5, 500_000_000, "1969-12-31T23:59:55.5Z"),
            (SECONDS_MAX + 1, 0, "2262-01-01T00:00:00Z"),
            (0, -1, no_nanos),
            (i64::MAX, 0, no_date),
        ] {
            let refused = from_proto("ended_at", &Timestamp { seconds, nanos });
            let allowed = "allowed are times from 1970-01-01T00:00:00Z to 2261-12-31T23:59:59Z";
            assert_eq!(
                refused.unwrap_err().to_string(),
                format!("ended_at is {told}; {allowed}")
            );
        }
        assert!(
            from_proto(
                "at",
                &Timestamp {
                    seconds: 0,
                    nanos: 1_000_000_000
                }
            )
            .is_err()
        );
    }

    #[test]
    fn jumps_are_written_with_their_sign() {
        assert_eq!(signed_seconds(3_200_000_000), "+3.200 s");
        assert_eq!(signed_seconds(-50_000_000), "-0.050 s");
    }
}

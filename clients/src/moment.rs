//! Points in time: read from people, taken from the wire, written as RFC 3339.

use std::fmt;

use serde::ser::{Serialize, Serializer};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime, UtcOffset};

/// A point in time, in UTC, to the nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(OffsetDateTime);

/// The years that a collector takes: the first and the last.
const YEARS: std::ops::RangeInclusive<i32> = 1970..=2261;

/// Why a text is no time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MomentError {
    /// It is not written as one.
    #[error(
        "{0:?} is no time; write an age such as 30s, 5m, 1h, 2d or 1h30m, a time with its offset \
         such as 2026-01-31T14:05:00Z, @SECONDS since 1970, or now"
    )]
    NoTime(String),
    /// It is one that no collector takes.
    #[error(
        "{0:?} is too long ago or too far ahead; allowed are times from 1970-01-01T00:00:00Z to \
         2261-12-31T23:59:59Z"
    )]
    OutOfRange(String),
}

impl Moment {
    /// The clock of this machine.
    pub fn now() -> Moment {
        Moment(OffsetDateTime::now_utc())
    }

    /// A moment of a clock that the caller holds.
    pub fn from_utc(at: OffsetDateTime) -> Moment {
        Moment(at.to_offset(UtcOffset::UTC))
    }

    /// Reads `now`, an age (`1h30m`, counted back from `now`), RFC 3339 with an
    /// offset, or `@SECONDS` since 1970.
    ///
    /// # Errors
    /// When the text is none of these, or outside of the years 1970 to 2261. A time
    /// without offset is refused: whose midnight it means is not known here.
    pub fn parse(text: &str, now: Moment) -> Result<Moment, MomentError> {
        let wrong = || MomentError::NoTime(text.to_owned());
        let far = || MomentError::OutOfRange(text.to_owned());
        let in_range = |at: OffsetDateTime| {
            let at = Moment::from_utc(at);
            YEARS.contains(&at.0.year()).then_some(at).ok_or_else(far)
        };
        let text_trimmed = text.trim();
        if text_trimmed == "now" {
            return Ok(now);
        }
        if let Some(seconds) = text_trimmed.strip_prefix('@') {
            let seconds: i64 = seconds.parse().map_err(|_| wrong())?;
            return OffsetDateTime::from_unix_timestamp(seconds)
                .map_err(|_| far())
                .and_then(in_range);
        }
        if let Some(age) = parse_age(text_trimmed) {
            return now.0.checked_sub(age).ok_or_else(far).and_then(in_range);
        }
        // A space between date and time is common in logs; RFC 3339 allows it.
        let with_t = text_trimmed.replacen(' ', "T", 1);
        OffsetDateTime::parse(&with_t, &Rfc3339)
            .map_err(|_| wrong())
            .and_then(in_range)
    }

    /// Seconds from this moment to `later`; negative when it lies before.
    pub fn seconds_until(self, later: Moment) -> i64 {
        (later.0 - self.0).whole_seconds()
    }

    /// Nanoseconds from this moment to `later`; negative when it lies before.
    pub fn nanoseconds_until(self, later: Moment) -> i128 {
        (later.0 - self.0).whole_nanoseconds()
    }

    /// A moment so many nanoseconds later; none beyond the calendar.
    pub fn later_by_nanoseconds(self, nanoseconds: i64) -> Option<Moment> {
        let later = self.0.checked_add(Duration::nanoseconds(nanoseconds))?;
        Some(Moment(later))
    }

    /// `2026-01-31 14:05:00Z`: for columns.
    pub fn to_seconds_text(self) -> String {
        let (date, at) = (self.0.date(), self.0.time());
        format!(
            "{date} {:02}:{:02}:{:02}Z",
            at.hour(),
            at.minute(),
            at.second()
        )
    }

    /// `2026-01-31 14:05:00.123Z`: where order matters.
    pub fn to_millis_text(self) -> String {
        let seconds = self.to_seconds_text();
        format!(
            "{}.{:03}Z",
            seconds.trim_end_matches('Z'),
            self.0.millisecond()
        )
    }
}

/// Reads a length of time such as `90s`, `10m` or `1h30m`.
///
/// # Errors
/// When the text is none, or is no time at all.
pub fn parse_span(text: &str) -> Result<std::time::Duration, String> {
    parse_age(text.trim())
        .and_then(|age| std::time::Duration::try_from(age).ok())
        .filter(|span| !span.is_zero())
        .ok_or_else(|| "write a length of time such as 90s, 10m, 2h or 1h30m".to_owned())
}

/// Longest wait for one answer: what a person would wait.
const TIMEOUT_MAX: std::time::Duration = std::time::Duration::from_secs(3_600);
/// Shortest: less than the way to a collector and back is a mistake.
const TIMEOUT_MIN: std::time::Duration = std::time::Duration::from_millis(1);

/// Reads how long to wait: seconds (`15`, `0.5`), or with a unit (`500ms`, `2s`, `5m`, `1h`).
///
/// # Errors
/// When the text is none of these, less than a millisecond or more than an hour.
pub fn parse_timeout(text: &str) -> Result<std::time::Duration, String> {
    let trimmed = text.trim();
    let digits = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (amount, unit) = trimmed.split_at(digits);
    let factor = match unit {
        "ms" => Some(0.001),
        "" | "s" => Some(1.0),
        "m" => Some(60.0),
        "h" => Some(3_600.0),
        _ => None,
    };
    let seconds = amount.parse::<f64>().ok().zip(factor);
    let Some((amount, factor)) = seconds else {
        return Err(
            "write seconds such as 15 or 0.5, or a unit with them: 500ms, 2s, 5m".to_owned(),
        );
    };
    std::time::Duration::try_from_secs_f64(amount * factor)
        .ok()
        .filter(|span| (TIMEOUT_MIN..=TIMEOUT_MAX).contains(span))
        .ok_or_else(|| "allowed are 1ms to 1h".to_owned())
}

/// An age too large for a number counts as the largest there is.
fn parse_age(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds: i64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        // More digits than a number holds are no other kind of text.
        let amount: i64 = match rest.get(..digits)? {
            "" => return None,
            digits => digits.parse().unwrap_or(i64::MAX),
        };
        let unit = rest.get(digits..=digits)?;
        let factor = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            "w" => 604_800,
            _ => return None,
        };
        seconds = seconds.saturating_add(amount.saturating_mul(factor));
        rest = rest.get(digits + 1..)?;
    }
    (!text.is_empty()).then(|| Duration::seconds(seconds))
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.format(&Rfc3339).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.format(&Rfc3339) {
            Ok(text) => serializer.serialize_str(&text),
            Err(error) => Err(serde::ser::Error::custom(error)),
        }
    }
}

impl TryFrom<prost_types::Timestamp> for Moment {
    type Error = String;

    /// Refuses what is outside the years 0 to 9999, which RFC 3339 cannot write.
    fn try_from(stamp: prost_types::Timestamp) -> Result<Moment, String> {
        let nanos = i128::from(stamp.seconds) * 1_000_000_000 + i128::from(stamp.nanos);
        OffsetDateTime::from_unix_timestamp_nanos(nanos)
            .ok()
            .filter(|at| {
                (0..=9999).contains(&at.year()) && (0..1_000_000_000).contains(&stamp.nanos)
            })
            .map(Moment)
            .ok_or_else(|| {
                format!(
                    "{} s {} ns since 1970 is no date",
                    stamp.seconds, stamp.nanos
                )
            })
    }
}

impl From<Moment> for prost_types::Timestamp {
    fn from(moment: Moment) -> prost_types::Timestamp {
        prost_types::Timestamp {
            seconds: moment.0.unix_timestamp(),
            nanos: i32::try_from(moment.0.nanosecond()).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use time::macros::datetime;

    const NOW: Moment = Moment(datetime!(2026-01-31 14:05:00.5 UTC));

    fn parse(text: &str) -> String {
        Moment::parse(text, NOW).unwrap().to_string()
    }

    #[test]
    fn reads_ages_and_times() {
        assert_eq!(parse("now"), "2026-01-31T14:05:00.5Z");
        assert_eq!(parse("1h30m"), "2026-01-31T12:35:00.5Z");
        assert_eq!(parse("2d"), "2026-01-29T14:05:00.5Z");
        assert_eq!(parse("2026-01-31T15:05:00+01:00"), "2026-01-31T14:05:00Z");
        assert_eq!(parse("2026-01-31 14:05:00.25Z"), "2026-01-31T14:05:00.25Z");
        assert_eq!(parse("@0"), "1970-01-01T00:00:00Z");
    }

    #[test]
    fn reads_lengths_of_time() {
        assert_eq!(parse_span("1h30m").unwrap().as_secs(), 5_400);
        for text in ["", "0s", "10", "-1h", "1y", "now"] {
            assert!(parse_span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_time() {
        for text in [
            "",
            "h",
            "1",
            "1y",
            "-1h",
            "yesterday",
            "2026-01-31",
            "2026-01-31T14:05:00",
            "@x",
        ] {
            assert!(Moment::parse(text, NOW).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_too_far_away_is_told_apart_from_none() {
        for text in [
            "99999999d",
            "99999999999999999w",
            "99999999999999999999s",
            "30000d",
            "@-1",
            "@9223372036854775807",
            "1969-12-31T23:59:59Z",
            "2262-01-01T00:00:00Z",
        ] {
            let refused = Moment::parse(text, NOW).unwrap_err();
            assert_eq!(refused, MomentError::OutOfRange(text.into()));
            assert!(refused.to_string().contains("from 1970-01-01T00:00:00Z"));
        }
        let no_time = Moment::parse("yesterday", NOW).unwrap_err();
        assert_eq!(no_time, MomentError::NoTime("yesterday".into()));
    }

    #[test]
    fn reads_how_long_to_wait() {
        for (text, millis) in [
            ("15", 15_000),
            ("0.5", 500),
            ("500ms", 500),
            ("2s", 2_000),
            ("1.5m", 90_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(parse_timeout(text).unwrap().as_millis(), millis, "{text}");
        }
        for text in [
            "", "s", "fast", "1d", "1.2.3", "1e3", "-1", "+1", "inf", "NaN",
        ] {
            let refused = parse_timeout(text).unwrap_err();
            assert!(refused.contains("500ms"), "{text}: {refused}");
        }
        for text in ["0", "0.0001", "3601", "2h", &"9".repeat(400)] {
            assert_eq!(
                parse_timeout(text).unwrap_err(),
                "allowed are 1ms to 1h",
                "{text}"
            );
        }
    }

    #[test]
    fn a_stamp_outside_the_calendar_is_refused() {
        for (seconds, nanos) in [(i64::MAX, 0), (i64::MIN, 0), (0, -1), (0, 1_000_000_000)] {
            assert!(Moment::try_from(prost_types::Timestamp { seconds, nanos }).is_err());
        }
    }

    #[test]
    fn columns_show_seconds_or_milliseconds() {
        assert_eq!(NOW.to_seconds_text(), "2026-01-31 14:05:00Z");
        assert_eq!(NOW.to_millis_text(), "2026-01-31 14:05:00.500Z");
    }

    proptest! {
        #[test]
        fn the_wire_carries_it_unchanged(seconds in -62_135_596_800_i64..253_402_300_799, nanos in 0..1_000_000_000_i32) {
            let stamp = prost_types::Timestamp { seconds, nanos };
            prop_assert_eq!(prost_types::Timestamp::from(Moment::try_from(stamp).unwrap()), stamp);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            let _ = Moment::parse(&text, NOW);
        }
    }
}

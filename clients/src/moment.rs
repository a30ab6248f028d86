//! Points in time: read from people, taken from the wire, written as RFC 3339.

use std::fmt;

use serde::ser::{Serialize, Serializer};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime, UtcOffset};

/// A point in time, in UTC, to the nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(OffsetDateTime);

/// Why a text is no time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no time; write an age such as 30s, 5m, 1h, 2d or 1h30m, a time with its offset such \
     as 2026-01-31T14:05:00Z, @SECONDS since 1970, or now"
)]
pub struct MomentError(String);

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
    /// When the text is none of these. A time without offset is refused: whose
    /// midnight it means is not known here.
    pub fn parse(text: &str, now: Moment) -> Result<Moment, MomentError> {
        let wrong = || MomentError(text.to_owned());
        let text_trimmed = text.trim();
        if text_trimmed == "now" {
            return Ok(now);
        }
        if let Some(seconds) = text_trimmed.strip_prefix('@') {
            let seconds: i64 = seconds.parse().map_err(|_| wrong())?;
            return OffsetDateTime::from_unix_timestamp(seconds)
                .map(Moment)
                .map_err(|_| wrong());
        }
        if let Some(age) = parse_age(text_trimmed) {
            return now.0.checked_sub(age).map(Moment).ok_or_else(wrong);
        }
        // A space between date and time is common in logs; RFC 3339 allows it.
        let with_t = text_trimmed.replacen(' ', "T", 1);
        OffsetDateTime::parse(&with_t, &Rfc3339)
            .map(Moment::from_utc)
            .map_err(|_| wrong())
    }

    /// Seconds from this moment to `later`; negative when it lies before.
    pub fn seconds_until(self, later: Moment) -> i64 {
        (later.0 - self.0).whole_seconds()
    }

    /// Nanoseconds from this moment to `later`; negative when it lies before.
    pub fn nanoseconds_until(self, later: Moment) -> i128 {
        (later.0 - self.0).whole_nanoseconds()
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

fn parse_age(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds: i64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let amount: i64 = rest.get(..digits)?.parse().ok()?;
        let unit = rest.get(digits..=digits)?;
        let factor = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            "w" => 604_800,
            _ => return None,
        };
        seconds = seconds.checked_add(amount.checked_mul(factor)?)?;
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
            .ok_or_else(|| format!("{} s {} ns is no time", stamp.seconds, stamp.nanos))
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
        assert!(Moment::parse("99999999999999999w", NOW).is_err());
        assert!(Moment::parse("9999999999d", NOW).is_err());
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

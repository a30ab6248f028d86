//! When a line says that it was written.

use std::sync::OnceLock;

use regex::bytes::{Captures, Regex};
use serde::Serialize;
use time::{Date, Month};

/// Which clock a time was read from. Times of different clocks are not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// Date and time; without an offset it is taken as UTC.
    Wall,
    /// Month, day and time, as syslog and glog write them.
    Yearless,
    /// Seconds since the host started: the kernel's log.
    Boot,
}

/// When a line was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LineMoment {
    /// Whose time it is.
    pub clock: Clock,
    /// Nanoseconds since the clock's beginning.
    pub ns: i64,
}

impl LineMoment {
    /// Whether it is surely before the other; none where they cannot be compared.
    pub fn is_before(self, other: LineMoment) -> Option<bool> {
        (self.clock == other.clock && self.ns != other.ns).then_some(self.ns < other.ns)
    }
}

/// A time stands within so many bytes of the line's start; launchers' tags of
/// host, pod and rank stand before it.
const PREFIX_BYTES: usize = 160;

const NS_PER_S: i64 = 1_000_000_000;

/// A count of seconds from here on is a Unix time and not an uptime: 1973, or a
/// host that has been up for three years.
const UNIX_FROM_S: i64 = 100_000_000;

struct Patterns {
    iso: Regex,
    glog: Regex,
    syslog: Regex,
    seconds: Regex,
}

fn patterns() -> &'static Patterns {
    static PATTERNS: OnceLock<Patterns> = OnceLock::new();
    let fixed = |text: &str| Regex::new(text).expect("a constant of this crate, built by a test");
    PATTERNS.get_or_init(|| Patterns {
        iso: fixed(
            r"(?-u)\b(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9})\d*)?(Z|[+-]\d\d:?\d\d)?",
        ),
        glog: fixed(r"(?-u)(?:^|[\[\s:])[EWIFC](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{1,9})"),
        syslog: fixed(
            r"(?-u)\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?",
        ),
        seconds: fixed(r"(?-u)\[ *(\d{1,10})\.(\d{3,9})\]"),
    })
}

/// The time in the line's prefix, if any.
pub(crate) fn find(line: &[u8]) -> Option<LineMoment> {
    let prefix = &line[..line.len().min(PREFIX_BYTES)];
    let patterns = patterns();
    if let Some(found) = patterns.iso.captures(prefix) {
        return wall(&found);
    }
    if let Some(found) = patterns.glog.captures(prefix) {
        let (month, day) = (number(&found, 1)?, number(&found, 2)?);
        return yearless(month, day, &found, 3);
    }
    if let Some(found) = patterns.syslog.captures(prefix) {
        let month = month_number(found.get(1)?.as_bytes())?;
        return yearless(month, number(&found, 2)?, &found, 3);
    }
    let found = patterns.seconds.captures(prefix)?;
    let seconds = number(&found, 1)?;
    let clock = if seconds >= UNIX_FROM_S {
        Clock::Wall
    } else {
        Clock::Boot
    };
    let ns = seconds.checked_mul(NS_PER_S)? + fraction_ns(&found, 2);
    Some(LineMoment { clock, ns })
}

fn month_number(name: &[u8]) -> Option<i64> {
    const NAMES: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let at = NAMES.chunks(3).position(|month| month == name)?;
    i64::try_from(at + 1).ok()
}

fn wall(found: &Captures<'_>) -> Option<LineMoment> {
    let year = i32::try_from(number(found, 1)?).ok()?;
    let month = Month::try_from(u8::try_from(number(found, 2)?).ok()?).ok()?;
    let day = u8::try_from(number(found, 3)?).ok()?;
    let date = Date::from_calendar_date(year, month, day).ok()?;
    let epoch = Date::from_calendar_date(1970, Month::January, 1).ok()?;
    let days = i64::from(date.to_julian_day() - epoch.to_julian_day());
    let seconds = days * 86_400 + of_day(found, 4)? - offset_s(found.get(8).map(|m| m.as_bytes()));
    let ns = seconds
        .checked_mul(NS_PER_S)?
        .checked_add(fraction_ns(found, 7))?;
    Some(LineMoment {
        clock: Clock::Wall,
        ns,
    })
}

/// Months count as 31 days: only the order matters.
fn yearless(month: i64, day: i64, found: &Captures<'_>, first: usize) -> Option<LineMoment> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let seconds = (month * 31 + day) * 86_400 + of_day(found, first)?;
    Some(LineMoment {
        clock: Clock::Yearless,
        ns: seconds * NS_PER_S + fraction_ns(found, first + 3),
    })
}

fn of_day(found: &Captures<'_>, first: usize) -> Option<i64> {
    Some(number(found, first)? * 3_600 + number(found, first + 1)? * 60 + number(found, first + 2)?)
}

fn number(found: &Captures<'_>, group: usize) -> Option<i64> {
    std::str::from_utf8(found.get(group)?.as_bytes())
        .ok()?
        .parse()
        .ok()
}

/// Nanoseconds of the digits after the point; 0 without any.
fn fraction_ns(found: &Captures<'_>, group: usize) -> i64 {
    let Some(digits) = found.get(group) else {
        return 0;
    };
    let mut ns = 0;
    for place in 0..9 {
        let digit = digits.as_bytes().get(place).map_or(0, |byte| byte - b'0');
        ns = ns * 10 + i64::from(digit);
    }
    ns
}

/// Seconds east of UTC of `+02:00` or `-0530`; 0 for `Z` and none.
fn offset_s(text: Option<&[u8]>) -> i64 {
    let digits: Vec<i64> = text
        .unwrap_or_default()
        .iter()
        .filter(|byte| byte.is_ascii_digit())
        .map(|byte| i64::from(byte - b'0'))
        .collect();
    let [h1, h2, m1, m2] = digits[..] else {
        return 0;
    };
    let seconds = (h1 * 10 + h2) * 3_600 + (m1 * 10 + m2) * 60;
    if text.is_some_and(|text| text.starts_with(b"-")) {
        -seconds
    } else {
        seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: &str) -> Option<(Clock, i64)> {
        find(line.as_bytes()).map(|moment| (moment.clock, moment.ns))
    }

    #[test]
    fn times_of_launchers_and_loggers() {
        let wall = |s: i64, ns: i64| Some((Clock::Wall, s * NS_PER_S + ns));
        assert_eq!(at("[1970-01-02 00:00:01] x"), wall(86_401, 0));
        assert_eq!(
            at("2019-06-02T16:13:44.884Z: y"),
            wall(1_559_492_024, 884_000_000)
        );
        assert_eq!(at("1970-01-01T02:00:00+02:00 z"), wall(0, 0));
        assert_eq!(
            at("[1592334393.744042] [H:1:0]"),
            wall(1_592_334_393, 744_042_000)
        );
        assert_eq!(
            at("[ 1632.420956] ib"),
            Some((Clock::Boot, 1_632_420_956_000))
        );
        let glog = at("E1030 07:53:11.382602  9073 x.cpp:1]").unwrap();
        let torch = at("[rank1]:[E1030 07:53:11.382602467 P.cpp:1]").unwrap();
        assert_eq!(glog.0, Clock::Yearless);
        assert!(torch.1 > glog.1 && torch.1 - glog.1 < 1_000);
        assert!(at("[E218 04:54:22.86 x").unwrap().1 < glog.1);
        assert!(at("Jun  2 16:13:44 host kernel: x").unwrap().1 < glog.1);
        assert_eq!(at("no time at all 12:13:14"), None);
    }

    #[test]
    fn impossible_times_are_none() {
        assert_eq!(at("2026-13-40T25:61:61 x"), None);
        assert_eq!(at("[E1340 04:54:22.86 x"), None);
        assert_eq!(at("9999-12-31T23:59:59Z"), None);
    }

    #[test]
    fn only_times_of_one_clock_are_compared() {
        let boot = find(b"[ 12.420956] x").unwrap();
        let later = find(b"[ 13.420956] x").unwrap();
        let wall = find(b"[1592334393.744042]").unwrap();
        assert_eq!(boot.is_before(later), Some(true));
        assert_eq!(later.is_before(boot), Some(false));
        assert_eq!(boot.is_before(boot), None);
        assert_eq!(boot.is_before(wall), None);
    }
}

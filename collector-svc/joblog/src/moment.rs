//! When a line says that it was written.

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

/// Bytes of `hh:mm:ss`.
const TIME_BYTES: usize = 8;

/// A count of seconds from here on is a Unix time and not an uptime: 1973, or a
/// host that has been up for three years.
const UNIX_FROM_S: i64 = 100_000_000;

/// The time in the line's prefix, if any. Read by hand: every line that a rule
/// answers to is looked at, and four patterns would cost more than the rule.
pub(crate) fn find(line: &[u8]) -> Option<LineMoment> {
    let prefix = &line[..line.len().min(PREFIX_BYTES)];
    let clocks: Vec<usize> = memchr::memchr_iter(b':', prefix)
        .filter_map(|colon| colon.checked_sub(2))
        .filter(|at| is_time_of_day(&prefix[*at..]))
        .collect();
    let by = |read: fn(&[u8], usize) -> Option<Option<LineMoment>>| {
        clocks.iter().find_map(|at| read(prefix, *at))
    };
    // What stands there and is no possible time is no other one either.
    by(wall)
        .or_else(|| by(glog))
        .or_else(|| by(syslog))
        .unwrap_or_else(|| seconds(prefix))
}

/// `hh:mm:ss`.
fn is_time_of_day(text: &[u8]) -> bool {
    const FORM: &[u8] = b"dd:dd:dd";
    has_form(text, FORM)
}

/// Whether the text begins with this form, in which `d` is a digit.
fn has_form(text: &[u8], form: &[u8]) -> bool {
    text.len() >= form.len()
        && text.iter().zip(form).all(|(byte, form)| match form {
            b'd' => byte.is_ascii_digit(),
            form => byte == form,
        })
}

/// `yyyy-mm-dd hh:mm:ss` with a fraction and an offset, or with slashes and a `T`.
/// The time of day stands at `at`.
fn wall(prefix: &[u8], at: usize) -> Option<Option<LineMoment>> {
    const DATE_BYTES: usize = 11;
    let from = at.checked_sub(DATE_BYTES)?;
    let date = &prefix[from..at];
    let has_date = date[..4].iter().all(u8::is_ascii_digit)
        && matches!(date[4], b'-' | b'/')
        && date[5..7].iter().all(u8::is_ascii_digit)
        && matches!(date[7], b'-' | b'/')
        && date[8..10].iter().all(u8::is_ascii_digit)
        && matches!(date[10], b'T' | b' ');
    let begins = from
        .checked_sub(1)
        .is_none_or(|before| !is_word(prefix[before]));
    (has_date && begins).then(|| {
        let (fraction_ns, rest) = fraction(&prefix[at + TIME_BYTES..], b".,");
        let days = days_of(
            number(&date[..4])?,
            number(&date[5..7])?,
            number(&date[8..10])?,
        )?;
        let seconds = days * 86_400 + of_day(&prefix[at..])? - offset_s(rest);
        let ns = seconds.checked_mul(NS_PER_S)?.checked_add(fraction_ns)?;
        Some(LineMoment {
            clock: Clock::Wall,
            ns,
        })
    })
}

/// Days since 1970.
fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    let year = i32::try_from(year).ok()?;
    let date = Date::from_calendar_date(year, month, u8::try_from(day).ok()?).ok()?;
    let epoch = Date::from_calendar_date(1970, Month::January, 1).ok()?;
    Some(i64::from(date.to_julian_day() - epoch.to_julian_day()))
}

/// glog's `E1030 07:53:11.382602`, and PyTorch's, whose month has no leading zero.
fn glog(prefix: &[u8], at: usize) -> Option<Option<LineMoment>> {
    let before = prefix[..at].strip_suffix(b" ")?;
    let digits = trailing_digits(before);
    let (lead, date) = before.split_at(before.len() - digits.min(4));
    let (severity, lead) = lead.split_last()?;
    let begins = lead
        .last()
        .is_none_or(|byte| matches!(byte, b'[' | b':') || byte.is_ascii_whitespace());
    let rest = &prefix[at + TIME_BYTES..];
    let is_one = matches!(digits, 3 | 4)
        && matches!(severity, b'E' | b'W' | b'I' | b'F' | b'C')
        && begins
        && has_form(rest, b".d");
    is_one.then(|| {
        let (month, day) = date.split_at(date.len() - 2);
        let (fraction_ns, _) = fraction(rest, b".");
        yearless(
            number(month)?,
            number(day)?,
            of_day(&prefix[at..])?,
            fraction_ns,
        )
    })
}

/// `Jun  2 16:13:44`.
fn syslog(prefix: &[u8], at: usize) -> Option<Option<LineMoment>> {
    let before = prefix[..at].strip_suffix(b" ")?;
    let digits = trailing_digits(before);
    let (lead, day) = before.split_at(before.len() - digits.min(2));
    let month = lead.trim_ascii_end();
    let spaces = lead.len() - month.len();
    let (lead, month) = month.split_at(month.len().checked_sub(3)?);
    let month = month_number(month)?;
    let begins = lead.last().is_none_or(|byte| !is_word(*byte));
    let is_one = matches!(digits, 1 | 2) && spaces > 0 && begins;
    is_one.then(|| {
        let (fraction_ns, _) = fraction(&prefix[at + TIME_BYTES..], b".");
        yearless(month, number(day)?, of_day(&prefix[at..])?, fraction_ns)
    })
}

/// `[1632.420956]` of the kernel, `[1592334393.744042]` of UCX.
fn seconds(prefix: &[u8]) -> Option<LineMoment> {
    const MAX_DIGITS: usize = 10;
    memchr::memchr_iter(b'[', prefix).find_map(|at| {
        let inside = prefix[at + 1..].trim_ascii_start();
        let digits = inside
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let (whole, rest) = inside.split_at(digits);
        let length = 1 + rest
            .get(1..)?
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let is_one = (1..=MAX_DIGITS).contains(&digits)
            && rest.starts_with(b".")
            && (4..=10).contains(&length)
            && rest.get(length) == Some(&b']');
        is_one.then_some(())?;
        let seconds = number(whole)?;
        let clock = if seconds >= UNIX_FROM_S {
            Clock::Wall
        } else {
            Clock::Boot
        };
        let (fraction_ns, _) = fraction(rest, b".");
        let ns = seconds.checked_mul(NS_PER_S)? + fraction_ns;
        Some(LineMoment { clock, ns })
    })
}

fn month_number(name: &[u8]) -> Option<i64> {
    const NAMES: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let at = NAMES.chunks(3).position(|month| month == name)?;
    i64::try_from(at + 1).ok()
}

/// Months count as 31 days: only the order matters.
fn yearless(month: i64, day: i64, of_day: i64, fraction_ns: i64) -> Option<LineMoment> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let seconds = (month * 31 + day) * 86_400 + of_day;
    Some(LineMoment {
        clock: Clock::Yearless,
        ns: seconds * NS_PER_S + fraction_ns,
    })
}

/// Seconds of the `hh:mm:ss` that the text begins with.
fn of_day(text: &[u8]) -> Option<i64> {
    let (hours, minutes, seconds) = (&text[..2], &text[3..5], &text[6..8]);
    Some(number(hours)? * 3_600 + number(minutes)? * 60 + number(seconds)?)
}

/// A number of digits alone.
fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn trailing_digits(text: &[u8]) -> usize {
    let digits = text.iter().rev();
    digits.take_while(|byte| byte.is_ascii_digit()).count()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Nanoseconds of the digits behind one of these points, and what follows them; 0
/// without any.
fn fraction<'a>(text: &'a [u8], points: &[u8]) -> (i64, &'a [u8]) {
    let Some((point, digits)) = text.split_first() else {
        return (0, text);
    };
    let count = digits
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    if !points.contains(point) || count == 0 {
        return (0, text);
    }
    let (digits, rest) = digits.split_at(count);
    let mut ns = 0;
    for place in 0..9 {
        let digit = digits.get(place).map_or(0, |byte| byte - b'0');
        ns = ns * 10 + i64::from(digit);
    }
    (ns, rest)
}

/// Seconds east of UTC of the `+02:00` or `-0530` that the text begins with; 0 for
/// `Z` and none.
fn offset_s(text: &[u8]) -> i64 {
    let digit = |at: usize| text.get(at).map_or(0, |byte| i64::from(byte - b'0'));
    let (hours, minutes) = match text.get(1..) {
        Some(rest) if has_form(rest, b"dd:dd") => {
            (digit(1) * 10 + digit(2), digit(4) * 10 + digit(5))
        }
        Some(rest) if has_form(rest, b"dddd") => {
            (digit(1) * 10 + digit(2), digit(3) * 10 + digit(4))
        }
        _ => return 0,
    };
    let seconds = hours * 3_600 + minutes * 60;
    match text.first() {
        Some(b'+') => seconds,
        Some(b'-') => -seconds,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        assert_eq!(
            at("12:13:14 [1970-01-01 00:00:01.5] x"),
            wall(1, 500_000_000)
        );
        assert_eq!(at("1970/01/01 00:00:01,250 x"), wall(1, 250_000_000));
        assert_eq!(at("x1970-01-01 00:00:01"), None);
        assert_eq!(at("1970-01-01 00:00:00-0130 z"), wall(5_400, 0));
        assert_eq!(at("[12345678901.123]"), None);
        assert_eq!(at("[1.12]"), None);
        assert_eq!(at("[x] [1.125]"), Some((Clock::Boot, 1_125_000_000)));
        assert_eq!(at("E12345 04:54:22.86 x"), None);
        assert_eq!(at("E130 04:54:22 x"), None);
    }

    proptest! {
        /// Whatever stands there, nothing is read beyond it.
        #[test]
        fn any_text_is_read_to_its_end(text in "[EJan 0-9:.,TZ/+\\[\\]-]{0,60}") {
            let moment = at(&text);
            prop_assert!(moment.is_none_or(|(_, ns)| ns != i64::MIN));
        }

        #[test]
        fn times_in_order_are_read_in_order(a in 0_i64..4_000_000_000, b in 0_i64..4_000_000_000) {
            let shown = |seconds: i64| {
                let time = time::OffsetDateTime::from_unix_timestamp(seconds).unwrap();
                let format = time::macros::format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z x");
                time.format(&format).unwrap()
            };
            let (first, second) = (at(&shown(a)).unwrap().1, at(&shown(b)).unwrap().1);
            prop_assert_eq!(first.cmp(&second), a.cmp(&b));
        }
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

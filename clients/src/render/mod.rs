//! Answers as text for people. Pure: an answer and a style in, text out.

pub(crate) mod advice;
pub(crate) mod asked;
pub(crate) mod baseline;
pub(crate) mod classify_log;
pub(crate) mod diagnose;
pub(crate) mod doctor;
pub(crate) mod error;
pub(crate) mod failures;
pub(crate) mod fleet;
pub(crate) mod incidents;
pub(crate) mod job;
pub(crate) mod job_log;
pub(crate) mod printable;
pub(crate) mod probes;
pub(crate) mod report;
pub(crate) mod statistics;
pub(crate) mod table;
pub(crate) mod wires;
pub(crate) mod wires_watch;
pub(crate) mod wrap;

#[cfg(test)]
pub(crate) mod samples;

use rdmesh_client::Moment;
use rdmesh_client::errno;

use printable::printable;

/// Columns of prose when the width is not known: what a mail or a ticket shows.
const PLAIN_PROSE_COLUMNS: usize = 80;

/// Widest prose; longer lines are hard to read, however wide the terminal.
const MAX_PROSE_COLUMNS: usize = 100;

/// Narrowest prose; on less, words are worth more than the margin.
const MIN_PROSE_COLUMNS: usize = 40;

/// How text looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    /// Whether to colour.
    pub(crate) color: bool,
    /// Columns of the terminal; absent: not a terminal.
    pub(crate) width: Option<usize>,
}

/// A role that a piece of text plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    Heading,
    Quiet,
    Bad,
    Warning,
    Good,
}

impl Style {
    /// No colour, no terminal.
    pub(crate) const PLAIN: Style = Style {
        color: false,
        width: None,
    };

    /// Columns that prose may fill.
    pub(crate) fn prose_columns(&self) -> usize {
        self.width
            .unwrap_or(PLAIN_PROSE_COLUMNS)
            .clamp(MIN_PROSE_COLUMNS, MAX_PROSE_COLUMNS)
    }

    /// Colours a text that holds no control characters.
    pub(crate) fn paint(&self, ink: Ink, text: &str) -> String {
        if !self.color || text.is_empty() {
            return text.to_owned();
        }
        let code = match ink {
            Ink::Heading => "1",
            Ink::Quiet => "2",
            Ink::Bad => "1;31",
            Ink::Warning => "33",
            Ink::Good => "32",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// `EFAULT (14)`.
pub(crate) fn errno_text(number: u32, name: Option<&str>) -> String {
    match name.or_else(|| errno::name_of(number)) {
        Some(name) => format!("{} ({number})", printable(name)),
        None => number.to_string(),
    }
}

/// `EFAULT`, or the number where it has no name.
pub(crate) fn errno_short(number: u32, name: Option<&str>) -> String {
    match name.or_else(|| errno::name_of(number)) {
        Some(name) => printable(name),
        None => number.to_string(),
    }
}

/// `4 min ago`; absent for what lies in the future by more than clocks differ.
pub(crate) fn ago(at: Moment, now: Moment) -> String {
    match at.seconds_until(now) {
        seconds if seconds < -5 => format!("in {}", span(-seconds)),
        seconds if seconds < 1 => "just now".to_owned(),
        seconds => format!("{} ago", span(seconds)),
    }
}

/// A length of time in its largest fitting unit.
pub(crate) fn span(seconds: i64) -> String {
    match seconds {
        s if s < 120 => format!("{s} s"),
        s if s < 7_200 => format!("{} min", s / 60),
        s if s < 172_800 => format!("{} h", s / 3_600),
        s => format!("{} d", s / 86_400),
    }
}

/// `a, b, c and 5 more`.
pub(crate) fn some_of(items: &[String], most: usize) -> String {
    some_of_total(items, items.len(), most)
}

/// The same, where `items` are the first of `total`.
pub(crate) fn some_of_total(items: &[String], total: usize, most: usize) -> String {
    let shown: Vec<String> = items
        .iter()
        .take(most)
        .map(|item| printable(item))
        .collect();
    match total.saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// A remark below an answer.
pub(crate) fn note(text: &str, style: &Style) -> String {
    let lines = wrap::wrap(text, "", style.prose_columns());
    let painted = lines
        .lines()
        .map(|line| style.paint(Ink::Quiet, line) + "\n");
    painted.collect()
}

/// Calls that the kernel hid; mostly none, and the column is then left out.
pub(crate) fn unseen(calls: u64) -> table::Cell {
    match calls {
        0 => table::Cell::default(),
        calls => table::Cell::inked(Ink::Warning, calls.to_string()),
    }
}

/// `1 agent`, `2 agents`.
pub(crate) fn count_of(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// `the newest is shown`, `the newest 100 are shown`.
pub(crate) fn newest_shown(count: usize) -> String {
    match count {
        1 => "the newest is shown".to_owned(),
        count => format!("the newest {count} are shown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_rounded_down() {
        let shown: Vec<String> = [0, 119, 120, 7_199, 7_200, 172_800]
            .into_iter()
            .map(span)
            .collect();
        assert_eq!(shown, ["0 s", "119 s", "2 min", "119 min", "2 h", "2 d"]);
    }

    #[test]
    fn long_lists_are_cut_and_counted() {
        let items = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        assert_eq!(some_of(&items, 3), "a, b, c");
        assert_eq!(some_of(&items, 1), "a and 2 more");
    }

    #[test]
    fn one_is_not_spoken_of_as_many() {
        assert_eq!(newest_shown(1), "the newest is shown");
        assert_eq!(newest_shown(2), "the newest 2 are shown");
    }

    /// Every table on a terminal of that width.
    fn tables(width: usize) -> String {
        use crate::command::{failures::FailureList, fleet::Fleet, job::JobList};
        let (style, now) = (
            Style {
                color: false,
                width: Some(width),
            },
            samples::now(),
        );
        let mut agents = samples::agents();
        agents[0].host = format!("gpu-09.{}.example", "x".repeat(200));
        let failures = FailureList {
            failures: samples::failures(),
            more: false,
        };
        let jobs = JobList {
            jobs: vec![samples::job(), samples::odd_job()],
            more: true,
        };
        let all = [
            fleet::text(&Fleet { agents }, &style, now),
            probes::text(&samples::probes(), &style, now),
            failures::text(&failures, &style, now),
            job::list(&jobs, &style, now),
            diagnose::text(&samples::diagnosis(), &style, now),
        ];
        all.join("---\n")
    }

    #[test]
    fn eighty_columns_are_enough() {
        use unicode_width::UnicodeWidthStr;
        let shown = tables(80);
        for line in shown.lines() {
            assert!(line.width() <= 80, "{line}\n{shown}");
        }
        insta::assert_snapshot!(shown);
    }

    #[test]
    fn forty_columns_are_still_readable() {
        insta::assert_snapshot!(tables(40));
    }

    #[test]
    fn colour_is_there_only_when_asked_for() {
        let style = Style {
            color: true,
            width: None,
        };
        assert_eq!(style.paint(Ink::Bad, "x"), "\u{1b}[1;31mx\u{1b}[0m");
        assert_eq!(Style::PLAIN.paint(Ink::Bad, "x"), "x");
    }
}

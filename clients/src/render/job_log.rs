//! `rdmesh job log`: what the collector kept of a log.

use rdmesh_client::Moment;
use rdmesh_client::model::log::{FlightDump, LogClass, LogLine, SubmittedLog};

use super::printable::printable;
use super::table::{Cell, Column, Table};
use super::wrap::wrap;
use super::{Ink, Style, note};

const COLUMNS: [Column; 6] = [
    Column::fixed("CLASS"),
    Column::name("VERB"),
    Column::name("ERROR"),
    Column::number("LINES"),
    Column::number("FIRST"),
    Column::prose("TEXT", 24).dear(0),
];

/// The line that decides first, then what else the log tells.
pub(crate) fn text(log: &SubmittedLog, style: &Style, _now: Moment) -> String {
    if let Some(dump) = &log.flight {
        return dumped(log, dump, style);
    }
    let (ink, headline) = match (&log.decision, &log.excluded, &log.consequence) {
        (Some(line), _, _) => (
            Ink::Bad,
            format!("{}: decided by line {}", log.class.name(), line.line),
        ),
        (None, Some(line), _) => (
            Ink::Warning,
            format!(
                "No line tells a cause; only calls failed that never decide (line {})",
                line.line
            ),
        ),
        (None, None, Some(line)) => (
            Ink::Warning,
            format!(
                "No line tells a cause; line {} tells what followed from one, which stands in the \
                 log of another rank",
                line.line
            ),
        ),
        (None, None, None) => (Ink::Warning, "No line tells a cause".to_owned()),
    };
    let columns = style.prose_columns();
    let attempt = printable(&log.attempt.to_string());
    let mut out = String::new();
    for line in wrap(&format!("{attempt}: {headline}"), "", columns).lines() {
        out.push_str(&style.paint(ink, line));
        out.push('\n');
    }
    let shown = log.decision.iter().chain(&log.causes);
    let shown: Vec<&LogLine> = match log.decision {
        Some(_) => shown.collect(),
        None => log.excluded.iter().chain(&log.consequence).collect(),
    };
    if !shown.is_empty() {
        out.push('\n');
        out.push_str(&table(&shown, style));
    }
    out.push('\n');
    out.push_str(&counted(log, columns));
    if log.causes_left_out > 0 {
        let more = format!(
            "{} more kinds of causes were not kept.",
            log.causes_left_out
        );
        out.push_str(&note(&more, style));
    }
    if log.repeated {
        out.push_str(&note(
            "The same log had come before; nothing changed.",
            style,
        ));
    }
    for mark in &log.marks {
        out.push_str(&note(&printable(mark), style));
    }
    out
}

/// A rank's dump: what it says is known with those of the others.
fn dumped(log: &SubmittedLog, dump: &FlightDump, style: &Style) -> String {
    let rank = match log.rank {
        Some(rank) => format!("rank {rank}"),
        None => "a rank that was not told (--rank)".to_owned(),
    };
    let said = format!(
        "{}: a dump of the Flight Recorder (version {}) of {rank}; {} operations are kept. \
         rdmesh diagnose says which ranks never entered which collective.",
        printable(&log.attempt.to_string()),
        printable(&dump.version),
        dump.entries
    );
    let mut out = wrap(&said, "", style.prose_columns());
    if !dump.version_known {
        out.push_str(&note(
            "Its version is newer than any that is known; it was read as the newest that is.",
            style,
        ));
    }
    if log.repeated {
        out.push_str(&note(
            "The same dump had come before; nothing changed.",
            style,
        ));
    }
    out
}

fn table(lines: &[&LogLine], style: &Style) -> String {
    let mut table = Table::new(&COLUMNS);
    let or_dash = |text: Option<&String>| text.map_or_else(|| "-".to_owned(), |t| printable(t));
    for line in lines {
        table.row([
            Cell::from(line.class.name()),
            or_dash(line.verb.as_ref()).into(),
            or_dash(line.errno_name.as_ref().or(line.status.as_ref())).into(),
            line.count.to_string().into(),
            line.line.to_string().into(),
            printable(&line.text).into(),
        ]);
    }
    table.to_text(style)
}

fn counted(log: &SubmittedLog, columns: usize) -> String {
    let counts: Vec<String> = log
        .counts
        .iter()
        .filter(|count| !matches!(count.class, LogClass::Unspecified))
        .map(|count| format!("{} {}", count.class.name(), count.lines))
        .collect();
    let counts = match counts.is_empty() {
        true => String::new(),
        false => format!(": {}", counts.join(", ")),
    };
    let said = format!(
        "{} of {} lines tell something{counts}. {} bytes were read; what they say is kept, the log \
         is not.",
        log.matched, log.lines, log.bytes
    );
    wrap(&said, "", columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn the_deciding_line_stands_first() {
        let shown = text(&samples::submitted_log(), &Style::PLAIN, samples::now());
        assert!(
            shown.starts_with("4711/1: syscall: decided by line 7\n"),
            "{shown}"
        );
        for part in [
            "ibv_reg_mr",
            "EFAULT",
            "IBV_EVENT_PORT_ERR",
            "2 more kinds of causes",
        ] {
            assert!(shown.contains(part), "{part} is missing in {shown}");
        }
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
    }

    #[test]
    fn a_log_without_a_cause_says_what_it_has() {
        let mut log = samples::submitted_log();
        log.excluded = log.decision.take();
        log.causes.clear();
        log.repeated = true;
        let shown = text(&log, &Style::PLAIN, samples::now());
        assert!(shown.contains("never decide (line 7)"), "{shown}");
        assert!(
            shown.contains("had come before; nothing changed"),
            "{shown}"
        );
    }

    #[test]
    fn json_names_are_stable() {
        let json = crate::output::json(&samples::submitted_log()).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["class"], "syscall");
        assert_eq!(json["decision"]["errno_name"], "EFAULT");
        assert_eq!(json["causes_left_out"], 2);
        assert_eq!(json["attempt"]["id"], "4711/1");
        assert_eq!(json["repeated"], false);
    }
}

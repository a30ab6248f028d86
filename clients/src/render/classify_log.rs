//! `rdmesh classify-log`: the deciding line first, then what else there is.

use rdmesh_joblog::flight::{GroupFinding, Verdict};
use rdmesh_joblog::summary::Group;
use rdmesh_joblog::{Class, Decision};

use super::printable::printable;
use super::table::{Cell, Column, Table};
use super::wrap::wrap;
use super::{Ink, Style, some_of};
use crate::command::classify_log::{FlightPart, LogAnswer};

/// Causes that are shown; JSON has them all.
const MAX_CAUSES: usize = 10;

/// Groups of the Flight Recorder that are shown; JSON has them all.
const MAX_GROUPS: usize = 8;

/// Ranks and hosts that one line names.
const MAX_NAMED: usize = 8;

const CAUSE_COLUMNS: [Column; 6] = [
    Column::fixed("CLASS"),
    Column::name("VERB"),
    Column::name("ERROR"),
    Column::number("LINES"),
    Column::number("FIRST"),
    Column::name("RANKS OR HOSTS").cheap(0),
];

/// The whole answer.
pub(crate) fn text(answer: &LogAnswer, style: &Style) -> String {
    let log = &answer.log;
    let mut out = String::new();
    let only_dumps = log.lines == 0 && answer.flight_recorder.is_some();
    if !only_dumps {
        out.push_str(&headline(answer, style));
    }
    if let Some(decision) = &log.decision {
        out.push_str(&facts(decision, style));
    } else if let Some(consequence) = &log.first_consequence {
        out.push_str("\nThe first line that tells a consequence:\n");
        out.push_str(&quoted(consequence, style));
    }
    if !log.counts.is_empty() {
        let counts: Vec<String> = Class::ALL
            .iter()
            .filter_map(|class| {
                Some(format!(
                    "{} {}",
                    class.name(),
                    log.counts.get(class.name())?
                ))
            })
            .collect();
        out.push('\n');
        let said = format!(
            "{} of {} lines: {}",
            log.matched,
            log.lines,
            counts.join(", ")
        );
        out.push_str(&wrap(&said, "", style.prose_columns()));
    }
    out.push_str(&causes(&log.causes, style));
    if let Some(most) = log.peers.first().filter(|most| most.count > 1) {
        let names: Vec<String> = log
            .peers
            .iter()
            .map(|peer| format!("{} ({})", peer.peer, peer.count))
            .collect();
        out.push('\n');
        let said = format!(
            "Peer named most: {}; all: {}",
            printable(&most.peer),
            some_of(&names, MAX_NAMED)
        );
        out.push_str(&wrap(&said, "", style.prose_columns()));
    }
    if let Some(flight) = &answer.flight_recorder {
        out.push_str(&dumps(flight, style));
    }
    out
}

fn headline(answer: &LogAnswer, style: &Style) -> String {
    let (ink, said) = match (&answer.log.decision, answer.log.first_consequence.is_some()) {
        (Some(decision), _) => {
            let place = match &decision.file {
                Some(file) => format!("{}, line {}", printable(file), decision.report.line),
                None => format!("line {}", decision.report.line),
            };
            (Ink::Bad, format!("{}: decided by {place}", meaning(answer.class)))
        }
        (None, true) => (
            Ink::Warning,
            "Cannot tell: the log only has consequences; the cause stands in the log of another rank".to_owned(),
        ),
        (None, false) => (
            Ink::Warning,
            "Cannot tell: no line tells a cause".to_owned(),
        ),
    };
    let lines = wrap(&said, "", style.prose_columns());
    lines
        .lines()
        .map(|line| style.paint(ink, line) + "\n")
        .collect()
}

const fn meaning(class: Class) -> &'static str {
    match class {
        Class::Syscall => "A call of the RDMA control path failed (syscall)",
        Class::Network => "The network (network)",
        Class::MemoryAccess => {
            "A memory access was refused, by a NIC and not by the network (memory_access)"
        }
        Class::Device => "A NIC reported a fatal event (device)",
        Class::Gpu => "A GPU or its driver (gpu)",
        Class::Oom => "Memory ran out (oom)",
        Class::Config => "The configuration (config)",
        Class::Hang => "Ranks waited until a limit ran out (hang)",
        Class::Cleanup | Class::FollowOn | Class::CannotTell => "Cannot tell (cannot_tell)",
    }
}

fn quoted(decision: &Decision, style: &Style) -> String {
    let line = printable(&decision.text);
    format!("  {}\n", style.paint(Ink::Quiet, &line))
}

fn facts(decision: &Decision, style: &Style) -> String {
    let report = &decision.report;
    let rank = report.rank.map(|rank| rank.to_string());
    let rule = report.rule.as_deref().map(str::to_owned);
    let status = report
        .status
        .as_ref()
        .map(|status| match &report.vendor_err {
            Some(vendor) => format!("{status}, vendor {vendor}"),
            None => status.clone(),
        });
    let facts = [
        ("verb", &report.verb),
        ("errno", &report.errno),
        ("status", &status),
        ("device", &report.device),
        ("peer", &report.peer),
        ("rank", &rank),
        ("host", &report.host),
        ("rule", &rule),
    ];
    let mut out = format!("\n{}\n", quoted(decision, style));
    for (name, value) in facts {
        if let Some(value) = value {
            out.push_str(&format!("  {name:<7} {}\n", printable(value)));
        }
    }
    out
}

fn causes(causes: &[Group], style: &Style) -> String {
    if causes.len() < 2 {
        return String::new();
    }
    let mut table = Table::new(&CAUSE_COLUMNS);
    for cause in causes.iter().take(MAX_CAUSES) {
        let error = cause.errno.as_ref().or(cause.status.as_ref());
        let who = if cause.ranks.is_empty() {
            some_of(&cause.hosts, MAX_NAMED)
        } else {
            let ranks: Vec<String> = cause.ranks.iter().map(u32::to_string).collect();
            some_of(&ranks, MAX_NAMED)
        };
        table.row([
            Cell::from(cause.class.name()),
            Cell::from(printable(cause.verb.as_deref().unwrap_or("-"))),
            Cell::from(printable(error.map_or("-", String::as_str))),
            Cell::from(cause.count.to_string()),
            Cell::from(cause.first_line.to_string()),
            Cell::from(who),
        ]);
    }
    let more = causes.len().saturating_sub(MAX_CAUSES);
    let mut out = format!(
        "\n{}\n{}",
        style.paint(Ink::Heading, "Lines that tell a cause"),
        table.to_text(style)
    );
    if more > 0 {
        out.push_str(&format!("and {more} more: -o json\n"));
    }
    out
}

fn dumps(flight: &FlightPart, style: &Style) -> String {
    let report = &flight.report;
    let versions: Vec<String> = report
        .versions
        .iter()
        .map(|(version, count)| format!("{count} of version {version}"))
        .collect();
    let mut out = format!(
        "\n{}\n",
        style.paint(
            Ink::Heading,
            &format!("Flight Recorder: {}", printable(&versions.join(", ")))
        )
    );
    let columns = style.prose_columns();
    if !report.missing_ranks.is_empty() {
        let said = format!("No dump of ranks {}.", ranks(&report.missing_ranks));
        out.push_str(&wrap(&said, "", columns));
    }
    for version in &report.unknown_versions {
        let said = format!(
            "Version {} is not known; it was read as the newest known.",
            printable(version)
        );
        out.push_str(&wrap(&said, "", columns));
    }
    for refused in &flight.refused {
        let said = format!(
            "{}: {}",
            printable(&refused.file),
            printable(&refused.reason)
        );
        out.push_str(&wrap(&said, "", columns));
    }
    let pending: Vec<&GroupFinding> = report
        .groups
        .iter()
        .filter(|group| group.verdict != Verdict::Completed)
        .collect();
    if pending.is_empty() && !report.groups.is_empty() {
        out.push_str("Every recorded collective completed.\n");
    }
    for group in pending.iter().take(MAX_GROUPS) {
        out.push_str(&wrap(&group_text(group), "  - ", columns));
    }
    if pending.len() > MAX_GROUPS {
        out.push_str(&format!(
            "and {} more groups: -o json\n",
            pending.len() - MAX_GROUPS
        ));
    }
    out
}

fn group_text(group: &GroupFinding) -> String {
    let name = if group.description.is_empty() {
        printable(&group.group)
    } else {
        format!(
            "{} ({})",
            printable(&group.group),
            printable(&group.description)
        )
    };
    let operation = if group.operation.is_empty() {
        "a collective".to_owned()
    } else {
        printable(&group.operation)
    };
    let what = format!("group {name}, {operation}, sequence {}", group.sequence);
    match group.verdict {
        Verdict::NotEntered => format!(
            "{what}: ranks {} never entered it; {} wait in it. Furthest behind: {}{}.",
            ranks(&group.never_entered),
            ranks(&group.entered),
            ranks(&group.behind),
            group.behind_at.map_or_else(
                || " (entered none)".to_owned(),
                |at| format!(" (last entered {at})")
            )
        ),
        Verdict::NotCompleted => format!(
            "{what}: every rank with a dump entered it; not completed on {}.{}",
            ranks(&group.not_completed),
            if group.no_dump.is_empty() {
                String::new()
            } else {
                format!(
                    " No dump of {}: they may never have entered.",
                    ranks(&group.no_dump)
                )
            }
        ),
        Verdict::Mismatch => {
            let others: Vec<String> = group
                .other_operations
                .iter()
                .map(|(operation, rank)| format!("{operation} on rank {rank}"))
                .collect();
            format!(
                "{what}: the ranks do different things under this number: {}.",
                some_of(&others, MAX_NAMED)
            )
        }
        Verdict::Completed => what,
    }
}

/// `0-7, 12`.
fn ranks(ranks: &[u32]) -> String {
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match spans.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*rank) => *last = *rank,
            _ => spans.push((*rank, *rank)),
        }
    }
    let texts: Vec<String> = spans
        .iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    if texts.is_empty() {
        return "none".to_owned();
    }
    some_of(&texts, 2 * MAX_NAMED)
}

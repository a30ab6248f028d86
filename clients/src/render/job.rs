//! `rdmesh job …`.

use rdmesh_client::Moment;
use rdmesh_client::model::job::{Job, JobState};

use super::printable::printable;
use super::table::{Cell, Column, Table};
use super::wrap::wrap;
use super::{Ink, Style, ago, newest_shown, note, some_of, some_of_total, span};
use crate::command::job::{JobChange, JobList, JobShown};

/// Hosts that one line of a list names.
const MAX_LISTED_HOSTS: usize = 3;

const COLUMNS: [Column; 9] = [
    Column::attempt("ATTEMPT"),
    Column::fixed("STATE"),
    Column::number("EXIT").dear(1),
    Column::name("NAME").dear(2),
    Column::name("USER").dear(0),
    Column::fixed("STARTED"),
    Column::fixed("RAN").cheap(0),
    Column::prose("HOSTS", 16).dear(3),
    Column::prose("NOTES", 24),
];

const LOG_COLUMNS: [Column; 4] = [
    Column::name("NAME"),
    Column::name("HOST").cheap(0),
    Column::number("RANK"),
    Column::prose("SAYS", 24),
];

/// One line, and what is odd about what was said.
pub(crate) fn change(change: &JobChange, style: &Style, _now: Moment) -> String {
    let job = &change.job;
    let mut parts = vec![
        printable(&job.attempt.to_string()),
        style.paint(ink(job.state), job.state.name()),
    ];
    if !job.placements.is_empty() {
        parts.push(format!("on {}", hosts(job)));
    }
    format!("{}\n{}", parts.join("  "), marks(job, style))
}

/// One line for each attempt.
pub(crate) fn list(list: &JobList, style: &Style, now: Moment) -> String {
    if list.jobs.is_empty() {
        return "No jobs match. rdmesh job start tells the collector of one.\n".to_owned();
    }
    let mut out = table(&list.jobs, style, now);
    if list.more {
        let hint = format!(
            "Only {}; --limit shows more.",
            newest_shown(list.jobs.len())
        );
        out.push_str(&note(&hint, style));
    }
    out
}

/// An attempt in full, then its siblings.
pub(crate) fn history(shown: &JobShown, style: &Style, now: Moment) -> String {
    let history = &shown.history;
    let job = &history.job;
    let mut out = heading(job, style);
    out.push('\n');
    let mut facts = Table::new(&["", ""]).indented("  ");
    for (key, value) in facts_of(job, now) {
        facts.row([Cell::inked(Ink::Quiet, key), value.into()]);
    }
    out.push_str(&facts.to_text(style));
    if !job.placements.is_empty() {
        out.push_str(&format!("\n{}\n", style.paint(Ink::Heading, "Placements")));
        for placement in &job.placements {
            out.push_str(&format!("  {}\n", printable(&placement.to_string())));
        }
    }
    if !job.marks.is_empty() {
        out.push('\n');
        out.push_str(&marks(job, style));
    }
    out.push_str(&logs(shown, style));
    if history.attempts.len() > 1 {
        out.push_str(&format!("\n{}\n", style.paint(Ink::Heading, "Attempts")));
        out.push_str(&table(&history.attempts, style, now));
    }
    out
}

/// Its logs and dumps, a line each.
fn logs(shown: &JobShown, style: &Style) -> String {
    if shown.logs.is_empty() {
        return String::new();
    }
    let mut out = format!("\n{}\n", style.paint(Ink::Heading, "Logs"));
    let mut table = Table::new(&LOG_COLUMNS).indented("  ");
    for log in &shown.logs {
        let says = match (&log.flight, &log.decision) {
            (Some(dump), _) => format!("Flight Recorder {}", printable(&dump.version)),
            (None, Some(line)) => format!("{}: {}", log.class.name(), printable(&line.text)),
            (None, None) => log.class.name().to_owned(),
        };
        table.row([
            log.name
                .as_deref()
                .map(printable)
                .unwrap_or_default()
                .into(),
            log.host
                .as_deref()
                .map(printable)
                .unwrap_or_default()
                .into(),
            log.rank
                .map(|rank| rank.to_string())
                .unwrap_or_default()
                .into(),
            says.into(),
        ]);
    }
    out.push_str(&table.to_text(style));
    let shown_logs = u64::try_from(shown.logs.len()).unwrap_or(u64::MAX);
    if shown.logs_total > shown_logs {
        let more = format!("  and {} more\n", shown.logs_total - shown_logs);
        out.push_str(&more);
    }
    out
}

/// `4711/0  failed  llama  ada`.
pub(crate) fn heading(job: &Job, style: &Style) -> String {
    let mut parts = vec![
        style.paint(Ink::Heading, &printable(&job.attempt.to_string())),
        style.paint(ink(job.state), job.state.name()),
    ];
    parts.extend(
        [&job.name, &job.user]
            .into_iter()
            .flatten()
            .map(|text| printable(text)),
    );
    parts.join("  ")
}

/// What is odd about what was said, a line each.
pub(crate) fn marks(job: &Job, style: &Style) -> String {
    let line = |mark: &String| {
        let text = wrap(&printable(mark), "note: ", style.prose_columns());
        format!("{}\n", style.paint(Ink::Warning, text.trim_end()))
    };
    job.marks.iter().map(line).collect()
}

fn facts_of(job: &Job, now: Moment) -> Vec<(&'static str, String)> {
    let when = |at: Moment| format!("{} ({})", at.to_seconds_text(), ago(at, now));
    let labels: Vec<String> = job
        .labels
        .iter()
        .map(|(k, v)| printable(&format!("{k}={v}")))
        .collect();
    [
        ("scheduler", job.scheduler.as_deref().map(printable)),
        ("cluster", job.cluster.as_deref().map(printable)),
        ("class", job.job_class.as_deref().map(printable)),
        ("started", job.started_at.map(when)),
        ("ended", job.ended_at.map(when)),
        ("ran", ran(job)),
        ("exit code", job.exit_code.map(|code| code.to_string())),
        ("reason", job.exit_reason.as_deref().map(printable)),
        ("labels", (!labels.is_empty()).then(|| labels.join(" "))),
    ]
    .into_iter()
    .filter_map(|(key, value)| value.map(|value| (key, value)))
    .collect()
}

fn ran(job: &Job) -> Option<String> {
    let seconds = job.started_at?.seconds_until(job.ended_at?);
    (seconds >= 0).then(|| span(seconds))
}

fn ink(state: JobState) -> Ink {
    match state {
        JobState::Failed | JobState::NodeFail | JobState::OutOfMemory => Ink::Bad,
        JobState::Completed => Ink::Good,
        JobState::Running => Ink::Heading,
        _ => Ink::Warning,
    }
}

fn hosts(job: &Job) -> String {
    // Lists have no placements; what was just told may have no figures yet.
    if job.placements.is_empty() {
        return some_of_total(&job.first_hosts, job.hosts_total as usize, MAX_LISTED_HOSTS);
    }
    let hosts: Vec<String> = job.placements.iter().map(|p| p.host.clone()).collect();
    some_of(&hosts, MAX_LISTED_HOSTS)
}

fn table(jobs: &[Job], style: &Style, now: Moment) -> String {
    let mut table = Table::new(&COLUMNS);
    let optional = |text: &Option<String>| text.as_deref().map(printable).unwrap_or_default();
    for job in jobs {
        let running = || match (job.state, job.started_at) {
            (JobState::Running, Some(at)) => Some(span(at.seconds_until(now).max(0))),
            _ => None,
        };
        let notes: Vec<String> = job.marks.iter().map(|mark| printable(mark)).collect();
        table.row([
            printable(&job.attempt.to_string()).into(),
            Cell::inked(ink(job.state), job.state.name()),
            job.exit_code
                .map(|code| code.to_string())
                .unwrap_or_default()
                .into(),
            optional(&job.name).into(),
            optional(&job.user).into(),
            job.started_at
                .map(Moment::to_seconds_text)
                .unwrap_or_default()
                .into(),
            ran(job).or_else(running).unwrap_or_default().into(),
            hosts(job).into(),
            Cell::inked(Ink::Warning, notes.join("; ")),
        ]);
    }
    table.to_text(style)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;
    use rdmesh_client::jobs::JobHistory;

    #[test]
    fn a_change_is_answered_in_one_line() {
        let change_of = |job| change(&JobChange { job }, &Style::PLAIN, samples::now());
        let all = [change_of(samples::job()), change_of(samples::odd_job())];
        insta::assert_snapshot!(all.join("---\n"));
    }

    #[test]
    fn a_line_for_each_attempt() {
        let jobs = JobList {
            jobs: vec![samples::job(), samples::odd_job()],
            more: true,
        };
        insta::assert_snapshot!(list(&jobs, &Style::PLAIN, samples::now()));
    }

    #[test]
    fn an_empty_list_says_so() {
        let jobs = JobList {
            jobs: Vec::new(),
            more: false,
        };
        insta::assert_snapshot!(list(&jobs, &Style::PLAIN, samples::now()));
    }

    #[test]
    fn an_attempt_in_full() {
        let of = |job, attempts, logs: Vec<_>| JobShown {
            history: JobHistory { job, attempts },
            logs_total: if logs.is_empty() { 0 } else { 131 },
            logs,
        };
        let attempts = vec![samples::job(), samples::odd_job()];
        let shown = of(samples::job(), attempts, vec![samples::submitted_log()]);
        let odd = of(samples::odd_job(), Vec::new(), Vec::new());
        let both = [
            history(&shown, &Style::PLAIN, samples::now()),
            history(&odd, &Style::PLAIN, samples::now()),
        ];
        insta::assert_snapshot!(both.join("---\n"));
    }

    #[test]
    fn json_names_are_stable() {
        let jobs = JobList {
            jobs: vec![samples::job(), samples::odd_job()],
            more: false,
        };
        insta::assert_snapshot!(crate::output::json(&jobs).unwrap());
    }
}

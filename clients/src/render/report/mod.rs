//! `rdmesh diagnose -o md|html`: what is pasted into a ticket, or kept with it. Pure: a
//! diagnosis and its timeline in, a document out.
//!
//! Texts of jobs, processes and logs are hostile until they are escaped: each form has
//! one function for it, and every text goes through it.

mod drawing;
pub(crate) mod html;
pub(crate) mod md;

use rdmesh_client::Moment;
use rdmesh_client::model::failure::Failure;
use rdmesh_client::model::timeline::{CoSignal, HostTimeline, TimedLine, Timeline, WireSpan};
use rdmesh_client::model::verdict::Diagnosis;
use rdmesh_proto::rate::LineRate;

use super::asked::asked;
use super::{baseline, diagnose, errno_short, errno_text, some_of};

/// Hosts, devices and ranks that a line names.
const MAX_NAMED: usize = 16;

/// Events that a host's list has; the drawing has them all.
const MAX_EVENTS: usize = 60;

/// Lines of totals.
const MAX_TOTALS: usize = 40;

/// All that a report is made of.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) diagnosis: Diagnosis,
    pub(crate) timeline: Timeline,
}

/// Something that happened, in words.
#[derive(Debug)]
struct Event {
    at: Option<Moment>,
    lane: &'static str,
    text: String,
    /// Whether it is what decided.
    decides: bool,
}

/// Facts of the verdict, by name.
fn facts(diagnosis: &Diagnosis) -> Vec<(&'static str, String)> {
    let verdict = &diagnosis.verdict;
    let ranks: Vec<String> = diagnosis.ranks.iter().map(ToString::to_string).collect();
    let named = |items: &[String]| (!items.is_empty()).then(|| some_of(items, MAX_NAMED));
    let function = verdict.function.as_ref().map(|function| {
        let module = verdict.module.as_ref();
        module.map_or_else(
            || function.clone(),
            |module| format!("{function} ({module})"),
        )
    });
    let rows = [
        ("cause", Some(verdict.class.name().to_owned())),
        ("who to call", verdict.route_to.clone()),
        ("confidence", Some(verdict.confidence.name().to_owned())),
        ("layer", verdict.layer.map(|layer| layer.name().to_owned())),
        ("function", function),
        (
            "errno",
            verdict
                .errno
                .map(|e| errno_text(e, verdict.errno_name.as_deref())),
        ),
        ("call", verdict.verb.map(|verb| verb.name().to_owned())),
        ("hosts", named(&verdict.hosts)),
        ("ranks", named(&ranks)),
        ("devices", named(&verdict.devices)),
        (
            "first failure",
            verdict.first_at.map(Moment::to_millis_text),
        ),
        (
            "good calls",
            diagnosis.captured.as_ref().map(baseline::left),
        ),
        (
            "log",
            diagnosis
                .log
                .as_ref()
                .map(|log| log.class.name().to_owned()),
        ),
        ("rule", verdict.rule.clone()),
        ("decided", diagnose::decided(verdict)),
    ];
    let told = rows
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    told.collect()
}

/// `Attempt 4711/0 (llama-70b, ada): failed`.
fn heading(diagnosis: &Diagnosis) -> String {
    let job = &diagnosis.job;
    let who: Vec<&str> = [&job.name, &job.user]
        .into_iter()
        .filter_map(|text| text.as_deref())
        .collect();
    let who = match who.is_empty() {
        true => String::new(),
        false => format!(" ({})", who.join(", ")),
    };
    format!("Attempt {}{who}: {}", job.attempt, job.state.name())
}

/// The verdict in a sentence.
fn sentence(diagnosis: &Diagnosis) -> String {
    let summary = diagnosis.verdict.summary.clone();
    summary.unwrap_or_else(|| format!("Cannot tell what broke {}.", diagnosis.job.attempt))
}

/// Whether the verdict's own failure is among the failure's steps.
fn decides(failure: &Failure, diagnosis: &Diagnosis) -> bool {
    let verdict = &diagnosis.verdict;
    !failure.expected
        && failure.steps.first().is_some_and(|s| {
            Some(&s.function) == verdict.function.as_ref() && Some(s.errno) == verdict.errno
        })
}

/// A failing call: `rank 3: ib_umem_get (memory) EFAULT → …, 34 times`.
fn failure_text(failure: &Failure) -> String {
    let who = match (failure.rank, &failure.comm) {
        (Some(rank), _) => format!("rank {rank}"),
        (None, Some(comm)) => format!("{comm}[{}]", failure.tgid),
        (None, None) => format!("pid {}", failure.tgid),
    };
    let steps: Vec<String> = failure
        .steps
        .iter()
        .map(|s| {
            let errno = errno_short(s.errno, s.errno_name.as_deref());
            format!("{} ({}) {errno}", s.function, s.layer.name())
        })
        .collect();
    let mut text = format!("{who}, {}: {}", failure.verb.name(), steps.join(" → "));
    if failure.count > 1 {
        text.push_str(&format!(", {} times", failure.count));
    }
    if let Some(arguments) = &failure.arguments {
        text.push_str(&format!("; asked for: {}", asked(arguments)));
    }
    for (set, word) in [
        (failure.expected, "part of normal work"),
        (failure.swallowed, "did not reach the application"),
        (failure.incomplete, "records were dropped meanwhile"),
    ] {
        if set {
            text.push_str(&format!("; {word}"));
        }
    }
    text
}

fn signal_text(signal: &CoSignal) -> String {
    let mut text = format!("{}: {}", signal.kind.name(), signal.name);
    for part in [&signal.device, &signal.detail].into_iter().flatten() {
        text.push_str(&format!(", {part}"));
    }
    if !signal.independent {
        text.push_str(" (an echo)");
    }
    text
}

fn line_text(line: &TimedLine) -> String {
    let place = match &line.log_name {
        Some(name) => format!("line {} of {name}", line.line.line),
        None => format!("line {}", line.line.line),
    };
    format!("{} ({place}): {}", line.line.class.name(), line.line.text)
}

fn wire_text(span: &WireSpan) -> String {
    let mut text = match (span.bypass, span.rate_bps) {
        (true, _) => format!("{}: bypassed", span.wire),
        (false, 0) => format!("{}: not shaped", span.wire),
        (false, rate) => match LineRate::new(rate) {
            Ok(rate) => format!("{}: shaped to {rate}", span.wire),
            Err(_) => format!("{}: shaped to {rate} bit/s", span.wire),
        },
    };
    for cause in &span.invalid {
        text.push_str(&format!(", {}", cause.name()));
    }
    text
}

/// Everything on a host in the order of time, at most [`MAX_EVENTS`].
fn events(host: &HostTimeline, diagnosis: &Diagnosis) -> Vec<Event> {
    let failures = host.failures.iter().map(|failure| Event {
        at: failure.first_at,
        lane: failure.steps.first().map_or("", |step| step.layer.name()),
        text: failure_text(failure),
        decides: decides(failure, diagnosis),
    });
    let signals = host.signals.iter().map(|signal| Event {
        at: signal.at,
        lane: "signal",
        text: signal_text(signal),
        decides: false,
    });
    let lines = host.log_lines.iter().map(|line| Event {
        at: line.at,
        lane: "log",
        text: line_text(line),
        decides: false,
    });
    let wires = host.wires.iter().map(|span| Event {
        at: span.from,
        lane: "wire",
        text: wire_text(span),
        decides: false,
    });
    let mut events: Vec<Event> = failures.chain(signals).chain(lines).chain(wires).collect();
    events.sort_by_key(|event| event.at);
    events.truncate(MAX_EVENTS);
    events
}

/// How many of a host's events the list leaves out.
fn left_out(host: &HostTimeline) -> usize {
    let all = host.failures.len()
        + host.signals.len()
        + host.log_lines.len()
        + host.wires.len()
        + usize::try_from(host.failures_left_out).unwrap_or(0);
    all.saturating_sub(MAX_EVENTS)
}

fn host_name(host: &HostTimeline) -> &str {
    host.host.as_deref().unwrap_or("host not known")
}

/// Hosts on which anything happened.
fn told(timeline: &Timeline) -> impl Iterator<Item = &HostTimeline> {
    timeline.hosts.iter().filter(|host| {
        !(host.failures.is_empty()
            && host.signals.is_empty()
            && host.log_lines.is_empty()
            && host.wires.is_empty())
    })
}

/// What the timeline does not have, in sentences.
fn missing(timeline: &Timeline) -> Vec<String> {
    let mut missing = Vec::new();
    let quiet = timeline.hosts.len() - told(timeline).count();
    if quiet > 0 {
        missing.push(match quiet {
            1 => "on 1 other host of the attempt nothing was seen".to_owned(),
            many => format!("on {many} other hosts of the attempt nothing was seen"),
        });
    }
    if timeline.hosts_left_out > 0 {
        missing.push(format!(
            "{} more hosts are not shown",
            timeline.hosts_left_out
        ));
    }
    if timeline.more_failures {
        missing.push("later failures are not shown; rdmesh failures --job lists all".to_owned());
    }
    missing
}

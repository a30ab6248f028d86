//! The report and the failures as text for people and as JSON for programs.

use std::fmt::Write;

use rdmesh_proto::common::v1 as common;
use rdmesh_proto::tracer::v1::{AttachKind, ObservedFailure, Probe, ProbeReport, ProbeState};
use serde_json::{Value, json};

use super::arguments::arguments_json;

/// A table, widest column first aligned, no colours.
#[must_use]
pub fn report_table(report: &ProbeReport) -> String {
    let header = [
        "HOOK", "STATE", "HOW", "FUNCTION", "FAILURES", "DROPS", "NOTE",
    ]
    .map(str::to_owned);
    let rows: Vec<[String; 7]> = std::iter::once(header)
        .chain(report.probes.iter().map(cells))
        .collect();
    let width = |column: usize| {
        rows.iter()
            .map(|r| r[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..7).map(width).collect();
    let mut text = format!(
        "kernel {}, drivers: {}\n",
        report.kernel_release,
        or_none(&report.drivers.join(", "))
    );
    for line in [&report.obstacle, &report.resolution] {
        if !line.is_empty() {
            let _ = writeln!(text, "{line}");
        }
    }
    text.push('\n');
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let _ = writeln!(
        text,
        "\n{} of {} logical hooks (*) are served",
        report.logical_attached, report.logical_total
    );
    text
}

fn cells(probe: &Probe) -> [String; 7] {
    let logical = if probe.logical { " *" } else { "" };
    let place = match (probe.module.as_str(), probe.function.as_str()) {
        ("", function) => function.to_owned(),
        (module, "") => module.to_owned(),
        (module, function) => format!("{module}:{function}"),
    };
    let note = if probe.reason.is_empty() && probe.found_by != "by name" {
        &probe.found_by
    } else {
        &probe.reason
    };
    [
        format!("{}{logical}", probe.hook),
        state(probe).to_owned(),
        attached_by(probe).to_owned(),
        place,
        probe.failures.to_string(),
        probe.drops.to_string(),
        note.clone(),
    ]
}

fn state(probe: &Probe) -> &'static str {
    match probe.state() {
        ProbeState::Unspecified => "unknown",
        ProbeState::Attached => "attached",
        ProbeState::Missing => "missing",
        ProbeState::Replaced => "replaced",
        ProbeState::Detached => "detached",
    }
}

fn attached_by(probe: &Probe) -> &'static str {
    match probe.attached_by() {
        AttachKind::Unspecified => "",
        AttachKind::Fexit => "fexit",
        AttachKind::Kretprobe => "kretprobe",
        AttachKind::KretprobeMulti => "kretprobe_multi",
    }
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

/// The report with the contract's field names.
#[must_use]
pub fn report_json(report: &ProbeReport) -> Value {
    let probe = |p: &Probe| {
        json!({
            "hook": p.hook,
            "function": p.function,
            "module": p.module,
            "layer": lower(p.layer().as_str_name(), "LAYER_"),
            "verb": lower(p.verb().as_str_name(), "VERB_"),
            "object": lower(p.object().as_str_name(), "OBJECT_TYPE_"),
            "logical": p.logical,
            "state": state(p),
            "attached_by": attached_by(p),
            "reason": p.reason,
            "failures": p.failures,
            "drops": p.drops,
            "found_by": p.found_by,
            "unseen": p.unseen,
            "arguments": p.arguments,
            "arguments_absent": p.arguments_absent,
            "runs_timed": p.runs_timed,
            "run_time_ns": p.run_time_ns,
        })
    };
    json!({
        "kernel_release": report.kernel_release,
        "drivers": report.drivers,
        "probes": report.probes.iter().map(probe).collect::<Vec<_>>(),
        "logical_attached": report.logical_attached,
        "logical_total": report.logical_total,
        "obstacle": report.obstacle,
        "resolution": report.resolution,
    })
}

/// One failure as one line: `errno verb chain who device`.
#[must_use]
pub fn failure_line(failure: &ObservedFailure) -> String {
    let steps: Vec<String> = failure
        .steps
        .iter()
        .map(|s| format!("{} {}", s.function, s.errno_name))
        .collect();
    let mut line = format!(
        "{} {}[{}/{}] {}",
        time_of_day(failure.at.as_ref()),
        printable(&failure.comm),
        failure.tgid,
        failure.tid,
        steps.join(" > ")
    );
    if !failure.device.is_empty() {
        let _ = write!(line, " on {}", printable(&failure.device));
    }
    if let Some(attempt) = &failure.attempt {
        let _ = write!(
            line,
            " job {}/{}",
            printable(&attempt.job_id),
            attempt.requeue
        );
        if attempt.restart > 0 {
            let _ = write!(line, ".{}", attempt.restart);
        }
    }
    for (set, mark) in [
        (failure.expected, "expected"),
        (failure.swallowed, "swallowed"),
        (failure.incomplete, "incomplete"),
    ] {
        if set {
            let _ = write!(line, " ({mark})");
        }
    }
    line
}

/// One failure with the contract's field names.
#[must_use]
pub fn failure_json(failure: &ObservedFailure) -> Value {
    let steps: Vec<Value> = failure
        .steps
        .iter()
        .map(|s| {
            json!({
                "function": s.function,
                "module": s.module,
                "layer": lower(s.layer().as_str_name(), "LAYER_"),
                "errno": s.errno,
                "errno_name": s.errno_name,
            })
        })
        .collect();
    let attempt = failure.attempt.as_ref().map(|a: &common::AttemptId| {
        json!({ "job_id": a.job_id, "requeue": a.requeue, "restart": a.restart })
    });
    json!({
        "at": failure.at.as_ref().map(ToString::to_string),
        "steps": steps,
        "step_arguments": failure.step_arguments.iter().map(arguments_json).collect::<Vec<_>>(),
        "tgid": failure.tgid,
        "tid": failure.tid,
        "comm": failure.comm,
        "cgroup_path": failure.cgroup_path,
        "device": failure.device,
        "attempt": attempt,
        "source": lower(failure.source().as_str_name(), "IDENTITY_SOURCE_"),
        "expected": failure.expected,
        "swallowed": failure.swallowed,
        "incomplete": failure.incomplete,
    })
}

fn lower(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_lowercase()
}

/// HH:MM:SS.mmm of UTC.
fn time_of_day(at: Option<&prost_types::Timestamp>) -> String {
    let at = at.copied().unwrap_or_default();
    let second = at.seconds.rem_euclid(86_400);
    let (hours, minutes, seconds) = (second / 3600, second / 60 % 60, second % 60);
    format!(
        "{hours:02}:{minutes:02}:{seconds:02}.{:03}",
        at.nanos / 1_000_000
    )
}

/// A name from a process must not write control sequences to a terminal.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

//! `rdmesh probes`.

use rdmesh_client::Moment;
use rdmesh_client::model::Layer;
use rdmesh_client::model::probe::{AttachKind, HostProbes, Probe, ProbeState, TracerCost};
use rdmesh_client::tracer::Done;

use unicode_width::UnicodeWidthStr;

use super::printable::printable;
use super::table::{Cell, Column, Table};
use super::wrap::wrap;
use super::{Ink, Style, ago, count_of, note, unseen};

const COLUMNS: [Column; 11] = [
    Column::fixed("STATE"),
    Column::fixed("LAYER").cheap(1),
    Column::name("HOOK").dear(2),
    Column::function("FUNCTION"),
    Column::name("MODULE").cheap(0),
    Column::fixed("HOW").cheap(2),
    Column::number("FAILING\nRETURNS").dear(0),
    Column::number("DROPPED\nRECORDS").dear(1),
    Column::number("UNSEEN\nCALLS").dear(3),
    Column::number("NS A\nRUN").cheap(3),
    Column::prose("WHY", 24),
];

const LOGICAL_NOTE: &str = "* one of the logical hooks that the count above speaks of";

const UNSEEN_NOTE: &str = "Unseen calls: the kernel ran the function without the probe; whether \
                           they failed is not known, so that counts are too low by as many at most.";

/// What keeps probes away, then a line for each hook, from the system call down.
pub(crate) fn text(host: &HostProbes, style: &Style, now: Moment) -> String {
    let mut out = heading(host, style, now);
    if let Some(obstacle) = &host.obstacle {
        let text = wrap(&printable(obstacle), "Obstacle: ", style.prose_columns());
        out.push_str(&style.paint(Ink::Bad, text.trim_end()));
        out.push('\n');
    }
    if let Some(resolution) = &host.resolution {
        let text = wrap(&printable(resolution), "Resolved: ", style.prose_columns());
        out.push_str(text.trim_end());
        out.push('\n');
    }
    if let Some(cost) = &host.cost {
        out.push_str(&wrap(&cost_text(cost), "Cost: ", style.prose_columns()));
    }
    for mark in &host.marks {
        let text = wrap(&printable(mark), "note: ", style.prose_columns());
        out.push_str(&style.paint(Ink::Warning, text.trim_end()));
        out.push('\n');
    }
    let mut probes: Vec<&Probe> = host.probes.iter().collect();
    probes.sort_by_key(|p| {
        (
            depth(p.layer),
            !p.logical,
            p.hook.clone(),
            p.function.clone(),
        )
    });
    let mut table = Table::new(&COLUMNS);
    for probe in &probes {
        table.row(row(probe));
    }
    let rows = table.to_text(style);
    if !rows.is_empty() {
        out.push('\n');
        out.push_str(&rows);
    }
    if probes.iter().any(|p| p.logical) {
        out.push_str(&note(LOGICAL_NOTE, style));
    }
    if probes.iter().any(|p| p.unseen > 0) {
        out.push_str(&note(UNSEEN_NOTE, style));
    }
    out
}

/// What a tracer did when it was told to let go or to come back.
pub(crate) fn done(done: &Done, style: &Style, _: Moment) -> String {
    let host = printable(&done.host);
    let module = done.module.as_deref().map(printable);
    let what = module.clone().unwrap_or_else(|| "all modules".to_owned());
    let again = module.unwrap_or_else(|| "all".to_owned());
    let (logical, total) = (done.logical_attached, done.logical_total);
    let watched = format!("{logical} of {total} logical hooks are watched");
    let text = match (done.detached, done.attached) {
        (Some(0), _) => format!("no probe was on {what}; {watched}"),
        (Some(off), _) => format!(
            "{} taken off {what}, which can be unloaded now; {watched}. They come back when it is \
             loaded again, or by: rdmesh probes {host} --attach {again}",
            count_of(usize::try_from(off).unwrap_or(usize::MAX), "probe")
        ),
        (None, on) => format!(
            "{} put on {what}; {watched}",
            count_of(
                usize::try_from(on.unwrap_or(0)).unwrap_or(usize::MAX),
                "probe"
            )
        ),
    };
    wrap(&text, &format!("{host}: "), style.prose_columns())
}

fn cost_text(cost: &TracerCost) -> String {
    let process = format!("{} of a CPU by tracer-svc", percent(cost.process_cpu_share));
    match cost.probes_cpu_share {
        Some(probes) => format!(
            "{process}, {} by its probes when the kernel last timed them",
            percent(probes)
        ),
        None => format!("{process}; its probes were not timed yet"),
    }
}

/// Two digits: the tracer at rest is below a hundredth of a percent.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        0.0 => "0 %".to_owned(),
        tiny if tiny < 0.01 => "less than 0.01 %".to_owned(),
        _ => format!("{percent:.2} %"),
    }
}

fn heading(host: &HostProbes, style: &Style, now: Moment) -> String {
    let mut facts = vec![printable(&host.host)];
    if let Some(release) = &host.kernel_release {
        facts.push(format!("kernel {}", printable(release)));
    }
    if !host.drivers.is_empty() {
        let drivers: Vec<String> = host.drivers.iter().map(|d| printable(d)).collect();
        facts.push(format!("drivers {}", drivers.join(", ")));
    }
    if let Some(at) = host.reported_at {
        facts.push(format!(
            "reported {} ({})",
            at.to_seconds_text(),
            ago(at, now)
        ));
    }
    let (attached, total) = (host.logical_attached, host.logical_total);
    let something_to_watch =
        |p: &Probe| p.logical && p.state == ProbeState::Missing && !is_absent(p);
    let missed = host.probes.iter().any(something_to_watch);
    let ink = match total > 0 && (attached == total || (attached > 0 && !missed)) {
        true => Ink::Good,
        false => Ink::Warning,
    };
    // A report that came names thirteen; nothing of none is no count.
    let count = match total {
        0 => "no probe report came: what is watched there is not known".to_owned(),
        total => format!("{attached} of {total} logical hooks are watched"),
    };
    let states = ProbeState::ALL.iter().filter_map(|state| {
        let count = host.probes.iter().filter(|p| p.state == *state).count();
        (count > 0).then(|| format!("{count} {}", state.name()))
    });
    let states: Vec<String> = states.collect();
    let functions = match states.is_empty() {
        true => String::new(),
        false => format!("; functions: {}", states.join(", ")),
    };
    // Painted after it is broken: escape sequences have no width.
    let counts = wrap(&format!("{count}{functions}"), "", style.prose_columns());
    let counts = match counts.strip_prefix(&count) {
        Some(rest) => style.paint(ink, &count) + rest,
        None => counts,
    };
    format!("{}\n{counts}", packed(&facts, style))
}

/// The host and its facts, side by side as far as the terminal goes.
fn packed(facts: &[String], style: &Style) -> String {
    let mut out = String::new();
    let mut used = 0;
    for (index, fact) in facts.iter().enumerate() {
        let width = fact.width();
        match index {
            0 => out.push_str(&style.paint(Ink::Heading, fact)),
            _ if style
                .width
                .is_some_and(|columns| used + 2 + width > columns) =>
            {
                out.push_str(&format!("\n  {fact}"));
                used = 0;
            }
            _ => out.push_str(&format!("  {fact}")),
        }
        used += width + 2;
    }
    out
}

/// From the system call inward.
fn depth(layer: Layer) -> u8 {
    match layer {
        Layer::Uverbs => 0,
        Layer::Core => 1,
        Layer::Driver => 2,
        Layer::Firmware => 3,
        Layer::Memory => 4,
        Layer::Unspecified | Layer::Newer(_) => 5,
    }
}

fn row(probe: &Probe) -> [Cell; 11] {
    let optional = |text: &Option<String>| text.as_deref().map(printable).unwrap_or_default();
    let ink = match probe.state {
        ProbeState::Attached => Ink::Good,
        // Nobody has to do anything where nothing is there to be watched.
        ProbeState::Missing if is_absent(probe) => Ink::Quiet,
        ProbeState::Missing if probe.logical => Ink::Bad,
        _ => Ink::Warning,
    };
    let drops = match probe.drops {
        0 => Cell::from("0"),
        drops => Cell::inked(Ink::Warning, drops.to_string()),
    };
    [
        Cell::inked(ink, probe.state.name()),
        probe.layer.name().into(),
        format!(
            "{}{}",
            printable(&probe.hook),
            if probe.logical { " *" } else { "" }
        )
        .into(),
        optional(&probe.function).into(),
        optional(&probe.module).into(),
        probe
            .attached_by
            .map(AttachKind::name)
            .unwrap_or_default()
            .into(),
        probe.failures.to_string().into(),
        drops,
        unseen(probe.unseen),
        probe
            .mean_run_ns()
            .map(|ns| ns.to_string())
            .unwrap_or_default()
            .into(),
        why(probe).into(),
    ]
}

/// Whether there is nothing that a probe could watch.
fn is_absent(probe: &Probe) -> bool {
    let because = &probe.missing_because;
    !because.is_empty() && because.iter().all(|reason| reason.is_absence())
}

/// Why it stands as it does; else how its place was found, where that is less
/// than sure. A driver's table and a name are.
fn why(probe: &Probe) -> String {
    let found = probe
        .found_by
        .as_deref()
        .filter(|found| *found != "by name" && !found.starts_with("ib_device_ops"));
    let found = found.map(|found| format!("found {}", printable(found)));
    let absent = (!probe.arguments_absent.is_empty()).then(|| {
        let absent: Vec<String> = probe
            .arguments_absent
            .iter()
            .map(|a| printable(a))
            .collect();
        format!("cannot read {}", absent.join(", "))
    });
    let parts: Vec<String> = probe
        .reason
        .as_deref()
        .map(printable)
        .into_iter()
        .chain(found)
        .chain(absent)
        .collect();
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;
    use rdmesh_client::model::probe::MissingReason;

    #[test]
    fn a_line_for_each_hook() {
        insta::assert_snapshot!(text(&samples::probes(), &Style::PLAIN, samples::now()));
    }

    #[test]
    fn unseen_calls_have_a_column_only_where_there_are_some() {
        let mut host = samples::probes();
        assert!(!text(&host, &Style::PLAIN, samples::now()).contains("UNSEEN"));
        host.probes[2].unseen = 31;
        insta::assert_snapshot!(text(&host, &Style::PLAIN, samples::now()));
    }

    #[test]
    fn what_is_not_there_is_no_alarm() {
        let mut host = samples::probes();
        let style = Style {
            color: true,
            width: None,
        };
        let missing = |host: &HostProbes| text(host, &style, samples::now());
        assert!(missing(&host).contains("\u{1b}[1;31mmissing"));
        host.probes[1].missing_because = vec![MissingReason::DriverHasNoOperation];
        assert!(missing(&host).contains("\u{1b}[2mmissing"));
        assert!(
            missing(&host).contains("\u{1b}[32m12 of 13 logical"),
            "{}",
            missing(&host)
        );
        host.probes[1]
            .missing_because
            .push(MissingReason::RefusedByKernel);
        assert!(missing(&host).contains("\u{1b}[1;31mmissing"));
    }

    #[test]
    fn arguments_that_cannot_be_read_are_told_with_the_reason() {
        let mut host = samples::probes();
        host.probes[0].arguments_absent =
            vec!["gid_type: struct ib_gid_attr has no member gid_type".to_owned()];
        let shown = text(&host, &Style::PLAIN, samples::now());
        assert!(shown.contains("cannot read gid_type: struct"), "{shown}");
    }

    #[test]
    fn shares_are_told_as_percent() {
        let shown: Vec<String> = [0.0, 0.000_01, 0.0304, 1.5].map(percent).into();
        assert_eq!(shown, ["0 %", "less than 0.01 %", "3.04 %", "150.00 %"]);
        let untimed = TracerCost {
            process_cpu_share: 0.01,
            probes_cpu_share: None,
        };
        assert_eq!(
            cost_text(&untimed),
            "1.00 % of a CPU by tracer-svc; its probes were not timed yet"
        );
    }

    #[test]
    fn a_kernel_outside_the_matrix_is_told() {
        let host = HostProbes {
            resolution: Some("kernel 5.14.0 is of no series \u{1b}".to_owned()),
            ..samples::probes()
        };
        let shown = text(&host, &Style::PLAIN, samples::now());
        assert!(
            shown.contains("\nResolved: kernel 5.14.0 is of no series \\x1b\n"),
            "{shown}"
        );
    }

    #[test]
    fn marks_of_a_report_are_shown_and_not_obeyed() {
        let mut host = samples::probes();
        host.marks = vec!["the report holds \u{1b}[2J".to_owned()];
        let shown = text(&host, &Style::PLAIN, samples::now());
        assert!(
            shown.contains("\nnote: the report holds \\x1b[2J\n"),
            "{shown}"
        );
    }

    #[test]
    fn an_obstacle_stands_first() {
        let host = HostProbes {
            obstacle: Some("no RDMA module is loaded; waiting for ib_uverbs".to_owned()),
            logical_attached: 0,
            probes: Vec::new(),
            drivers: Vec::new(),
            ..samples::probes()
        };
        insta::assert_snapshot!(text(&host, &Style::PLAIN, samples::now()));
    }

    #[test]
    fn no_report_is_not_told_as_none_of_none() {
        let host = HostProbes {
            logical_attached: 0,
            logical_total: 0,
            probes: Vec::new(),
            ..samples::probes()
        };
        let shown = text(&host, &Style::PLAIN, samples::now());
        assert!(shown.contains("no probe report came"), "{shown}");
        assert!(!shown.contains("0 of 0"), "{shown}");
    }

    #[test]
    fn json_names_are_stable() {
        insta::assert_snapshot!(crate::output::json(&samples::probes()).unwrap());
    }
}

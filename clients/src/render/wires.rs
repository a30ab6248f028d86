//! `rdmesh wire list|set|reset|bypass|compare`.

use rdmesh_client::Moment;
use rdmesh_client::model::wire::{
    FleetWire, ShapedWire, Wire, WireComparison, WireSummary, WireWindow,
};
use rdmesh_proto::rate::LineRate;

use super::printable::printable;
use super::table::{Cell, Column, Table};
use super::{Ink, Style, count_of, some_of, span};
use crate::command::wire::{WireChange, WireList, WireReset};

/// Jobs that a line names.
const JOBS_NAMED: usize = 2;

const COLUMNS: [Column; 12] = [
    Column::name("SHAPER"),
    Column::name("WIRE"),
    Column::name("HOST").cheap(1),
    Column::name("FUNCTION").cheap(2),
    Column::number("RATE"),
    Column::number("CONFIGURED").dear(1),
    Column::fixed("REVERTS").dear(3),
    Column::number("SENT").dear(4),
    Column::number("QUEUE\nP99").cheap(3),
    Column::fixed("WINDOW").dear(2),
    Column::name("JOBS").dear(0),
    Column::prose("REMARKS", 24),
];

/// A line for each wire.
pub(crate) fn list(list: &WireList, style: &Style, now: Moment) -> String {
    if list.wires.is_empty() {
        return if list.asked_for_some {
            "No wire has that name: rdmesh wire list shows all there are.\n".to_owned()
        } else if list.of_one_shaper {
            "This shaper has no wires.\n".to_owned()
        } else {
            "There are no wires. Wires show up with their first window: start shaper-svc on a DPU and \
             give it this collector's address.\n"
                .to_owned()
        };
    }
    let mut table = Table::new(&COLUMNS);
    for wire in &list.wires {
        table.row(row(wire, now));
    }
    let shaped = list
        .wires
        .iter()
        .filter(|w| changed(w.wire.as_ref()))
        .count();
    let all = count_of(list.wires.len(), "wire");
    let heading = match shaped {
        0 => all,
        some => format!("{all}, {some} not as configured"),
    };
    format!("{heading}\n\n{}", table.to_text(style))
}

fn changed(wire: Option<&Wire>) -> bool {
    wire.is_some_and(|w| w.bypass || w.rate_bps != w.configured_rate_bps)
}

fn row(fleet: &FleetWire, now: Moment) -> [Cell; 12] {
    let optional = |text: &Option<String>| text.as_deref().map(printable).unwrap_or_default();
    let wire = fleet.wire.as_ref();
    let name = |of: fn(&Wire) -> &String| wire.map(|w| printable(of(w))).unwrap_or_default();
    let window = fleet.last_window.as_ref();
    let jobs: Vec<String> = fleet.attempts.iter().map(ToString::to_string).collect();
    let remarks: Vec<String> = fleet.marks.iter().map(|mark| printable(mark)).collect();
    [
        optional(&fleet.shaper_host).into(),
        name(|w| &w.name).into(),
        name(|w| &w.host).into(),
        name(|w| &w.virtual_function).into(),
        wire.map_or_else(Cell::default, rate_cell),
        wire.map(|w| rate_text(w.configured_rate_bps))
            .unwrap_or_default()
            .into(),
        wire.and_then(|w| w.expires_at)
            .map(|at| format!("in {}", span(now.seconds_until(at).max(0))))
            .unwrap_or_default()
            .into(),
        window
            .and_then(|w| w.sent_bps)
            .map(bits_per_second)
            .unwrap_or_default()
            .into(),
        window
            .map(|w| w.queue_frames_p99.to_string())
            .unwrap_or_default()
            .into(),
        window.map_or_else(Cell::default, validity),
        some_of(&jobs, JOBS_NAMED).into(),
        Cell::inked(Ink::Warning, remarks.join("; ")),
    ]
}

/// The rate in force: what differs from the configured one stands out.
fn rate_cell(wire: &Wire) -> Cell {
    if wire.bypass {
        return Cell::inked(Ink::Warning, "bypass");
    }
    let text = rate_text(wire.rate_bps);
    if changed(Some(wire)) {
        Cell::inked(Ink::Heading, text)
    } else {
        text.into()
    }
}

/// `valid`, or the causes why not.
pub(super) fn validity(window: &WireWindow) -> Cell {
    if window.invalid.is_empty() {
        return Cell::inked(Ink::Good, "valid");
    }
    let causes: Vec<&str> = window.invalid.iter().map(|cause| cause.name()).collect();
    Cell::inked(Ink::Bad, causes.join(","))
}

/// As `wire set` takes it: `10gbit`, or `unshaped`.
pub(super) fn rate_text(bps: u64) -> String {
    match LineRate::new(bps) {
        Ok(rate) => rate.to_string(),
        Err(_) if bps == 0 => "unshaped".to_owned(),
        Err(_) => format!("{bps}bit"),
    }
}

/// A rate that was measured, in the largest unit that leaves a whole part.
pub(super) fn bits_per_second(bps: u64) -> String {
    let (unit, name) = match bps {
        0..=999 => return format!("{bps} bit/s"),
        1_000..=999_999 => (1_000, "kbit/s"),
        1_000_000..=999_999_999 => (1_000_000, "Mbit/s"),
        _ => (1_000_000_000, "Gbit/s"),
    };
    format!("{}.{:02} {name}", bps / unit, bps % unit / (unit / 100))
}

/// A short time in the largest unit that leaves a whole part.
pub(super) fn short_time(ns: u64) -> String {
    let (unit, name) = match ns {
        0..=999 => return format!("{ns} ns"),
        1_000..=999_999 => (1_000, "µs"),
        1_000_000..=999_999_999 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    format!("{}.{} {name}", ns / unit, ns % unit / (unit / 10))
}

/// What a change came to.
pub(crate) fn change(change: &WireChange, _style: &Style, now: Moment) -> String {
    let Some(wire) = &change.wire else {
        return "The shaper did it and did not say how the wire is now.\n".to_owned();
    };
    let mut out = state(change.shaper_host.as_deref(), wire, now);
    if let Some(ns) = change.in_force_after_ns {
        out.push_str(&format!(
            "in force {} after the shaper had it\n",
            short_time(ns)
        ));
    }
    out
}

/// A wire as it is now, in one line.
fn state(shaper_host: Option<&str>, wire: &Wire, now: Moment) -> String {
    let name = match shaper_host {
        Some(host) => format!("{}/{}", printable(host), printable(&wire.name)),
        None => printable(&wire.name),
    };
    let of = format!(
        "{} of {}",
        printable(&wire.virtual_function),
        printable(&wire.host)
    );
    let configured = rate_text(wire.configured_rate_bps);
    let how = if wire.bypass {
        let place = if wire.bypass_in_hardware {
            "in hardware"
        } else {
            "in software"
        };
        format!(
            "bypassed {place}: not shaped (asked for {})",
            rate_text(wire.rate_bps)
        )
    } else if wire.rate_bps == wire.configured_rate_bps {
        format!("{configured}, as configured")
    } else if let Some(at) = wire.expires_at {
        format!(
            "{} until {} (for {}), then {configured}",
            rate_text(wire.rate_bps),
            at.to_seconds_text(),
            span(now.seconds_until(at).max(0))
        )
    } else {
        format!(
            "{} until it is reset to {configured}",
            rate_text(wire.rate_bps)
        )
    };
    format!("{name} ({of}): {how}\n")
}

/// Wires after a reset, then the shapers that did not do it.
pub(crate) fn reset(reset: &WireReset, style: &Style, now: Moment) -> String {
    let mut out = String::new();
    for ShapedWire { shaper_host, wire } in &reset.wires {
        if let Some(wire) = wire {
            out.push_str(&state(shaper_host.as_deref(), wire, now));
        }
    }
    for failure in &reset.failures {
        let text = format!(
            "{}: not reset: {}",
            printable(&failure.shaper_host),
            printable(&failure.message)
        );
        out.push_str(&style.paint(Ink::Bad, &text));
        out.push('\n');
    }
    out
}

/// Two stretches of time side by side.
pub(crate) fn comparison(both: &WireComparison, style: &Style, _now: Moment) -> String {
    let mut table = Table::new(&["FIGURE", ">A", ">B"]);
    let mut line = |name: &'static str, of: &dyn Fn(&WireSummary) -> String| {
        table.row([name.into(), of(&both.a).into(), of(&both.b).into()]);
    };
    let time = |at: Option<Moment>| at.map(Moment::to_seconds_text).unwrap_or_default();
    line("from", &|s| time(s.from));
    line("to", &|s| time(s.to));
    line("windows", &|s| s.windows.to_string());
    line("valid", &|s| s.valid_windows.to_string());
    line("without a window", &|s| format!("{:.1} s", s.gaps_seconds));
    // Without a valid window there are no figures.
    let mut figure = |name: &'static str, of: &dyn Fn(&WireSummary) -> String| {
        line(name, &|s| match s.valid_windows {
            0 => "-".to_owned(),
            _ => of(s),
        });
    };
    figure("rate", &|s| {
        if s.lowest_rate_bps == s.highest_rate_bps {
            rate_text(s.lowest_rate_bps)
        } else {
            format!(
                "{}..{}",
                rate_text(s.lowest_rate_bps),
                rate_text(s.highest_rate_bps)
            )
        }
    });
    figure("sent, mean", &|s| bits_per_second(s.mean_sent_bps));
    figure("frames", &|s| s.sent_frames.to_string());
    figure("queue p99, highest", &|s| s.queue_frames_p99.to_string());
    figure("queue, highest", &|s| s.queue_frames_max.to_string());
    figure("wait p99, highest", &|s| short_time(s.waited_ns_p99));
    figure("wait, highest", &|s| short_time(s.waited_ns_max));
    figure("CE marks", &|s| s.ce_marks.to_string());
    figure("wire time lost", &|s| short_time(s.lost_ps / 1_000));
    figure("frames sent again", &|s| s.repeated_frames.to_string());
    format!(
        "{}/{}, engine {}, configuration {}\n\n{}",
        printable(&both.shaper_host),
        printable(&both.wire),
        printable(&both.engine_version),
        printable(&both.configuration_hash),
        table.to_text(style)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;
    use crate::render::samples::wires as sample;

    #[test]
    fn a_line_for_each_wire() {
        let list_of = |wires| WireList {
            wires,
            of_one_shaper: false,
            asked_for_some: false,
        };
        let all = list_of(sample::fleet());
        insta::assert_snapshot!(list(&all, &Style::PLAIN, samples::now()));
        let narrow = Style {
            color: false,
            width: Some(80),
        };
        let shown = list(&all, &narrow, samples::now());
        assert!(
            shown.lines().all(|line| line.chars().count() <= 80),
            "{shown}"
        );
        let none = list(&list_of(vec![]), &Style::PLAIN, samples::now());
        assert!(none.contains("start shaper-svc"), "{none}");
    }

    #[test]
    fn changes_say_how_the_wire_is_now() {
        let change_of = |wire| WireChange {
            shaper_host: Some("gpu-01".into()),
            wire: Some(wire),
            in_force_after_ns: Some(412_345),
            request_id: "id".into(),
        };
        let all = sample::states()
            .into_iter()
            .map(|wire| change(&change_of(wire), &Style::PLAIN, samples::now()));
        insta::assert_snapshot!(all.collect::<String>());
    }

    #[test]
    fn a_reset_that_failed_in_part_says_where() {
        insta::assert_snapshot!(reset(&sample::reset(), &Style::PLAIN, samples::now()));
    }

    #[test]
    fn stretches_stand_side_by_side() {
        insta::assert_snapshot!(comparison(
            &sample::comparison(),
            &Style::PLAIN,
            samples::now()
        ));
    }

    #[test]
    fn json_names_are_those_of_the_contract() {
        let list = WireList {
            wires: sample::fleet(),
            of_one_shaper: false,
            asked_for_some: false,
        };
        insta::assert_snapshot!(crate::output::json(&list).unwrap());
    }
}

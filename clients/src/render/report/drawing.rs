//! The timeline of one host, drawn: layers from the system call inward, co-signals, log
//! lines and wires above one another, time from left to right.

use rdmesh_client::Moment;
use rdmesh_client::model::Layer;
use rdmesh_client::model::failure::Failure;
use rdmesh_client::model::timeline::{HostTimeline, WireSpan};

use super::html::escaped;
use super::{Report, decides, failure_text, line_text, signal_text, wire_text};

/// Units of the drawing; the page scales it.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 12.0;
const LANE: f64 = 24.0;
const TOP: f64 = 10.0;
/// Space below the lanes, for the times.
const BOTTOM: f64 = 22.0;
/// Marks on the axis.
const TICKS: u32 = 5;

/// Rows from top to bottom.
const LANES: [&str; 8] = [
    "log", "uverbs", "core", "driver", "firmware", "memory", "signal", "wire",
];

fn lane_of(layer: Layer) -> &'static str {
    match layer {
        Layer::Uverbs => "uverbs",
        Layer::Core => "core",
        Layer::Driver => "driver",
        Layer::Firmware => "firmware",
        Layer::Memory | Layer::Unspecified | Layer::Newer(_) => "memory",
    }
}

/// A clock for the drawing: from the first to the last moment that is shown.
struct Scale {
    from: Moment,
    span_ns: i128,
}

impl Scale {
    fn of(host: &HostTimeline, report: &Report) -> Option<Scale> {
        let failures = host.failures.iter().flat_map(|f| [f.first_at, f.last_at]);
        let signals = host.signals.iter().map(|signal| signal.at);
        let lines = host.log_lines.iter().map(|line| line.at);
        let bounds = [report.timeline.from, report.timeline.to];
        let all: Vec<Moment> = failures
            .chain(signals)
            .chain(lines)
            .chain(bounds)
            .flatten()
            .collect();
        let (from, to) = (*all.iter().min()?, *all.iter().max()?);
        // A drawing of a single moment is a second wide.
        let span_ns = from.nanoseconds_until(to).max(1_000_000_000);
        Some(Scale { from, span_ns })
    }

    fn x(&self, at: Moment) -> f64 {
        let share = self.from.nanoseconds_until(at) as f64 / self.span_ns as f64;
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }
}

/// Rows that the host needs: layers always, the others where there is something.
fn lanes(host: &HostTimeline) -> Vec<&'static str> {
    let needed = |lane: &&&str| match **lane {
        "log" => !host.log_lines.is_empty(),
        "signal" => !host.signals.is_empty(),
        "wire" => !host.wires.is_empty(),
        _ => !host.failures.is_empty(),
    };
    LANES.iter().filter(needed).copied().collect()
}

fn y(lanes: &[&str], lane: &str) -> f64 {
    let place = lanes.iter().position(|name| *name == lane).unwrap_or(0);
    TOP + LANE * (place as f64 + 0.5)
}

/// The drawing as SVG; empty where nothing has a time.
pub(super) fn of(host: &HostTimeline, report: &Report) -> String {
    let Some(scale) = Scale::of(host, report) else {
        return String::new();
    };
    let lanes = lanes(host);
    let height = TOP + LANE * lanes.len() as f64 + BOTTOM;
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"timeline of {}\">\n",
        escaped(super::host_name(host))
    );
    out.push_str(&background(&lanes, &scale, report));
    for failure in &host.failures {
        out.push_str(&chain(failure, &lanes, &scale, report));
    }
    for signal in &host.signals {
        let Some(at) = signal.at else { continue };
        let (x, y) = (scale.x(at), y(&lanes, "signal"));
        let class = if signal.independent {
            "signal"
        } else {
            "signal echo"
        };
        out.push_str(&format!(
            "<path class=\"{class}\" d=\"M{:.1} {:.1}l6 11h-12z\"><title>{}</title></path>\n",
            x,
            y - 6.0,
            escaped(&signal_text(signal))
        ));
    }
    for line in &host.log_lines {
        let Some(at) = line.at else { continue };
        out.push_str(&format!(
            "<rect class=\"log\" x=\"{:.1}\" y=\"{:.1}\" width=\"9\" height=\"9\">\
             <title>{}</title></rect>\n",
            scale.x(at) - 4.5,
            y(&lanes, "log") - 4.5,
            escaped(&line_text(line))
        ));
    }
    for span in &host.wires {
        out.push_str(&wire(span, &lanes, &scale));
    }
    out.push_str("</svg>\n");
    out
}

/// Lanes with their names, the attempt's own time, and the axis.
fn background(lanes: &[&str], scale: &Scale, report: &Report) -> String {
    let bottom = TOP + LANE * lanes.len() as f64;
    let mut out = String::new();
    if let (Some(from), Some(to)) = (report.timeline.from, report.timeline.to) {
        let (left, right) = (scale.x(from), scale.x(to));
        out.push_str(&format!(
            "<rect class=\"span\" x=\"{left:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\">\
             <title>the attempt</title></rect>\n",
            (right - left).max(1.0),
            bottom - TOP
        ));
    }
    for lane in lanes {
        let y = y(lanes, lane);
        out.push_str(&format!(
            "<text x=\"0\" y=\"{:.1}\">{lane}</text><line class=\"lane\" x1=\"{LEFT}\" y1=\"{y:.1}\" \
             x2=\"{:.1}\" y2=\"{y:.1}\"/>\n",
            y + 4.0,
            WIDTH - RIGHT
        ));
    }
    for tick in 0..TICKS {
        let share = f64::from(tick) / f64::from(TICKS - 1);
        let x = LEFT + share * (WIDTH - LEFT - RIGHT);
        let anchor = match tick {
            0 => "start",
            last if last == TICKS - 1 => "end",
            _ => "middle",
        };
        let into = scale.span_ns * i128::from(tick) / i128::from(TICKS - 1);
        let into = i64::try_from(into).unwrap_or(i64::MAX);
        let at = scale.from.later_by_nanoseconds(into);
        out.push_str(&format!(
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>\n",
            bottom + 15.0,
            at.map(clock).unwrap_or_default()
        ));
    }
    out
}

/// `14:05:00.123`: the date stands in the list.
fn clock(at: Moment) -> String {
    let text = at.to_millis_text();
    text.split_once(' ').map_or_else(String::new, |(_, time)| {
        time.trim_end_matches('Z').to_owned()
    })
}

/// One failing call: from the outermost layer that it reached to the innermost.
fn chain(failure: &Failure, lanes: &[&str], scale: &Scale, report: &Report) -> String {
    let (Some(first), Some(innermost)) = (failure.first_at, failure.steps.first()) else {
        return String::new();
    };
    let outermost = failure.steps.last().unwrap_or(innermost);
    let (x, end) = (scale.x(first), scale.x(failure.last_at.unwrap_or(first)));
    let (top, bottom) = (
        y(lanes, lane_of(outermost.layer)),
        y(lanes, lane_of(innermost.layer)),
    );
    let mut class = "chain".to_owned();
    if decides(failure, &report.diagnosis) {
        class.push_str(" decides");
    }
    if failure.expected {
        class.push_str(" expected");
    }
    let mut out = format!(
        "<g class=\"{class}\"><title>{}</title>\
         <line x1=\"{x:.1}\" y1=\"{top:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke-width=\"2\"/>",
        escaped(&failure_text(failure))
    );
    for step in &failure.steps {
        let radius = if std::ptr::eq(step, innermost) { 5 } else { 3 };
        out.push_str(&format!(
            "<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"{radius}\"/>",
            y(lanes, lane_of(step.layer))
        ));
    }
    if end - x > 1.0 {
        out.push_str(&format!(
            "<line x1=\"{x:.1}\" y1=\"{bottom:.1}\" x2=\"{end:.1}\" y2=\"{bottom:.1}\" \
             stroke-width=\"4\" opacity=\".45\"/>"
        ));
    }
    out.push_str("</g>\n");
    out
}

fn wire(span: &WireSpan, lanes: &[&str], scale: &Scale) -> String {
    let (Some(from), Some(to)) = (span.from, span.to) else {
        return String::new();
    };
    let class = match (span.invalid.is_empty(), span.rate_bps, span.bypass) {
        (false, ..) => "odd",
        (true, 1.., false) => "wire",
        _ => "plain",
    };
    let (left, right) = (scale.x(from), scale.x(to));
    format!(
        "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"8\">\
         <title>{}</title></rect>\n",
        y(lanes, "wire") - 4.0,
        (right - left).max(1.0),
        escaped(&wire_text(span))
    )
}

//! `rdmesh classes|incidents|precursors`.

use std::time::Duration;

use rdmesh_client::Moment;
use rdmesh_client::model::incidents::{Classes, Incident, Incidents, Precursors, Trend};

use super::printable::printable;
use super::statistics::{hours, percent};
use super::table::{Cell, Column, Table};
use super::wrap::wrap;
use super::{Ink, Style, count_of, errno_short, note, some_of_total, span};

pub(crate) fn classes(answer: &Classes, style: &Style, _now: Moment) -> String {
    if answer.rows.is_empty() {
        let none = "No attempt ended badly in that time.";
        return wrap(none, "", style.prose_columns());
    }
    let rising: Vec<String> = answer
        .trends
        .iter()
        .filter(|trend| trend.trend == Trend::Rises)
        .map(|trend| printable(&trend.class))
        .collect();
    let headline = match rising.is_empty() {
        true => "No class rises.".to_owned(),
        false => format!(
            "Rising: {}. Its share in the later half of the steps is above that in the earlier \
             half by more than chance.",
            rising.join(", ")
        ),
    };
    let mut out = wrap(&headline, "", style.prose_columns());
    let mut trends = Table::new(&[
        Column::fixed("CLASS"),
        Column::number("ATTEMPTS"),
        Column::number("OF ALL"),
        Column::number("EARLIER"),
        Column::number("LATER"),
        Column::fixed("TREND"),
    ]);
    for trend in &answer.trends {
        let word = trend.trend.name();
        trends.row([
            printable(&trend.class).into(),
            trend.attempts.to_string().into(),
            percent(trend.of_attempts).into(),
            percent(trend.earlier).into(),
            percent(trend.later).into(),
            match trend.trend {
                Trend::Rises => Cell::inked(Ink::Bad, word),
                Trend::Falls => Cell::inked(Ink::Good, word),
                _ => word.into(),
            },
        ]);
    }
    out.push('\n');
    out.push_str(&trends.to_text(style));
    let mut steps = Table::new(&[
        Column::fixed("FROM"),
        Column::fixed("CLASS"),
        Column::number("ATTEMPTS"),
        Column::number("OF THEM"),
        Column::number("GPU HOURS"),
        Column::number("OF THEM"),
    ]);
    for row in &answer.rows {
        steps.row([
            row.step_at
                .map(Moment::to_seconds_text)
                .unwrap_or_default()
                .into(),
            printable(&row.class).into(),
            row.share.attempts.to_string().into(),
            percent(row.share.of_attempts).into(),
            hours(row.share.gpu_hours).into(),
            percent(row.share.of_gpu_hours).into(),
        ]);
    }
    out.push('\n');
    out.push_str(&steps.to_text(style));
    if answer.undiagnosed > 0 {
        let missing = format!(
            "Not in it: {} attempts without a verdict; rdmesh diagnose gives them one.",
            answer.undiagnosed
        );
        out.push_str(&note(&missing, style));
    }
    out
}

pub(crate) fn incidents(answer: &Incidents, style: &Style, _now: Moment) -> String {
    if answer.incidents.is_empty() {
        let none = "No failure was on eight hosts or more in that time.";
        return wrap(none, "", style.prose_columns());
    }
    let mut out = String::new();
    for incident in &answer.incidents {
        if !out.is_empty() {
            out.push('\n');
        }
        let columns = style.prose_columns();
        for line in wrap(&headline(incident), "", columns).lines() {
            out.push_str(&style.paint(Ink::Bad, line));
            out.push('\n');
        }
        let total = usize::try_from(incident.hosts).unwrap_or(usize::MAX);
        let hosts = some_of_total(&incident.first_hosts, total, incident.first_hosts.len());
        let functions: Vec<String> = incident.functions.iter().map(|f| printable(f)).collect();
        let mut lines = vec![
            format!(
                "from {} to {}",
                moment(incident.first_at),
                moment(incident.last_at)
            ),
            format!("hosts {hosts}"),
            format!("chain {}", functions.join(" > ")),
        ];
        lines.extend(incident.shared.iter().map(|fact| printable(fact)));
        for line in lines {
            out.push_str(&wrap(&line, "  ", columns));
        }
    }
    out
}

fn headline(incident: &Incident) -> String {
    let errno = errno_short(incident.errno, incident.errno_name.as_deref());
    let verb = incident.verb.as_deref().map(printable).unwrap_or_default();
    let attempts = usize::try_from(incident.attempts).unwrap_or(usize::MAX);
    format!(
        "{verb}: {} ({} layer) {errno} on {} hosts and {}, {} calls",
        printable(&incident.function),
        printable(&incident.layer),
        incident.hosts,
        count_of(attempts, "attempt"),
        incident.calls
    )
}

fn moment(at: Option<Moment>) -> String {
    at.map(Moment::to_seconds_text).unwrap_or_default()
}

pub(crate) fn precursors(answer: &Precursors, style: &Style, _now: Moment) -> String {
    if answer.precursors.is_empty() {
        let none = "No failure was foretold in that time: none of the signatures that decided had \
                    risen on its host before.";
        return wrap(none, "", style.prose_columns());
    }
    let mut table = Table::new(&[
        Column::fixed("FAILED"),
        Column::attempt("ATTEMPT"),
        Column::name("HOST"),
        Column::function("FUNCTION"),
        Column::fixed("ERRNO"),
        Column::number("LEAD"),
        Column::number("CALLS A DAY BEFORE"),
        Column::number("AND BEFORE THAT").cheap(0),
    ]);
    for row in &answer.precursors {
        let lead = Duration::try_from_secs_f64(row.lead_seconds).unwrap_or_default();
        let lead = i64::try_from(lead.as_secs()).unwrap_or(i64::MAX);
        table.row([
            moment(row.failed_at).into(),
            printable(&row.attempt.to_string()).into(),
            printable(&row.host).into(),
            printable(&row.function).into(),
            errno_short(row.errno, row.errno_name.as_deref()).into(),
            span(lead).into(),
            row.calls_day_before.to_string().into(),
            row.calls_day_earlier.to_string().into(),
        ]);
    }
    table.to_text(style)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples::incidents as samples;

    fn shown<T>(answer: &T, of: fn(&T, &Style, Moment) -> String) -> String {
        of(answer, &Style::PLAIN, crate::render::samples::now())
    }

    #[test]
    fn classes_over_time_name_those_that_rise() {
        insta::assert_snapshot!(shown(&samples::classes(), classes));
    }

    #[test]
    fn an_incident_says_what_its_hosts_share() {
        insta::assert_snapshot!(shown(&samples::incidents(), incidents));
    }

    #[test]
    fn precursors_say_how_long_before() {
        insta::assert_snapshot!(shown(&samples::precursors(), precursors));
    }

    #[test]
    fn nothing_is_said_to_be_nothing() {
        use rdmesh_proto::collector::v1 as wire;
        let all = [
            shown(&wire::GetClassesResponse::default().into(), classes),
            shown(&wire::GetIncidentsResponse::default().into(), incidents),
            shown(&wire::GetPrecursorsResponse::default().into(), precursors),
        ];
        assert!(all.iter().all(|text| text.starts_with("No ")), "{all:?}");
    }
}

//! `rdmesh fleet`.

use rdmesh_client::Moment;
use rdmesh_client::model::agent::{Agent, AgentHealth};

use super::printable::printable;
use super::table::{Cell, Column, Table};
use super::{Ink, Style, ago, count_of, note, span, unseen};
use crate::command::fleet::Fleet;

const COLUMNS: [Column; 15] = [
    Column::fixed("HEALTH"),
    Column::name("HOST"),
    Column::fixed("AGENT").dear(3),
    Column::name("VERSION").cheap(0),
    Column::name("KERNEL").cheap(1),
    Column::number("PROBES").dear(2),
    Column::fixed("LAST SEEN").dear(4),
    Column::number("LAG").cheap(2),
    Column::number("CLOCK").cheap(2),
    Column::number("FAILING\nRETURNS").dear(0),
    Column::number("DROPPED\nRECORDS").dear(1),
    Column::number("UNSEEN\nCALLS").dear(5),
    Column::number("MISSING\nSNAPSHOTS").cheap(3),
    Column::number("CERTIFICATE\nENDS IN").cheap(2),
    Column::prose("WHY", 24),
];

/// Counts by health, then a line for each agent, the unhealthy first.
pub(crate) fn text(fleet: &Fleet, style: &Style, now: Moment) -> String {
    if fleet.agents.is_empty() {
        return "No agent has reported yet. Start tracer-svc on a host and give it this \
                collector's address.\n"
            .to_owned();
    }
    let mut table = Table::new(&COLUMNS);
    for agent in &fleet.agents {
        table.row(row(agent, now));
    }
    let mut out = format!("{}\n\n{}", heading(fleet, style), table.to_text(style));
    out.push_str(&note(
        "Counts are since each agent last started; rdmesh failures has those before.",
        style,
    ));
    out
}

fn heading(fleet: &Fleet, style: &Style) -> String {
    let count = |health: AgentHealth| fleet.agents.iter().filter(|a| a.health == health).count();
    let parts: Vec<String> = [
        AgentHealth::Silent,
        AgentHealth::Degraded,
        AgentHealth::Healthy,
    ]
    .into_iter()
    .map(|health| (health, count(health)))
    .filter(|(_, count)| *count > 0)
    .map(|(health, count)| style.paint(ink(health), &format!("{count} {}", health.name())))
    .collect();
    let all = count_of(fleet.agents.len(), "agent");
    if parts.is_empty() {
        all
    } else {
        format!("{all}: {}", parts.join(", "))
    }
}

fn ink(health: AgentHealth) -> Ink {
    match health {
        AgentHealth::Silent => Ink::Bad,
        AgentHealth::Healthy => Ink::Good,
        AgentHealth::Degraded | AgentHealth::Unspecified | AgentHealth::Newer(_) => Ink::Warning,
    }
}

fn row(agent: &Agent, now: Moment) -> [Cell; 15] {
    let optional = |text: &Option<String>| text.as_deref().map(printable).unwrap_or_default();
    let probes = match agent.logical_total {
        0 => String::new(),
        total => format!("{}/{total}", agent.logical_attached),
    };
    let counter = |value: u64, ink: Ink| match value {
        0 => Cell::from("0"),
        value => Cell::inked(ink, value.to_string()),
    };
    let reasons: Vec<String> = agent
        .reasons
        .iter()
        .map(|reason| printable(reason))
        .collect();
    [
        Cell::inked(ink(agent.health), agent.health.name()),
        printable(&agent.host).into(),
        agent.kind.name().into(),
        optional(&agent.version).into(),
        optional(&agent.kernel_release).into(),
        probes.into(),
        agent
            .last_seen_at
            .map(|at| ago(at, now))
            .unwrap_or_default()
            .into(),
        agent.lag_seconds.map(lag_text).unwrap_or_default().into(),
        agent
            .clock_offset_ns
            .map(offset_text)
            .unwrap_or_default()
            .into(),
        agent.failures.to_string().into(),
        counter(agent.drops, Ink::Warning),
        unseen(agent.unseen),
        counter(agent.snapshots_missing, Ink::Warning),
        agent
            .certificate_ends_at
            .map(|at| ends_text(at, now))
            .unwrap_or_default(),
        reasons.join("; ").into(),
    ]
}

/// `0.4 s`, `75 s`.
fn lag_text(seconds: f64) -> String {
    match seconds {
        10.0.. => format!("{seconds:.0} s"),
        _ => format!("{seconds:.1} s"),
    }
}

/// `41 d`; in colour where a month is left, as the agent itself warns of it.
fn ends_text(at: Moment, now: Moment) -> Cell {
    const DAY: i64 = 86_400;
    let left = now.seconds_until(at);
    let ink = match left {
        ..=0 => return Cell::inked(Ink::Bad, "expired"),
        _ if left < 7 * DAY => Ink::Bad,
        _ if left < 30 * DAY => Ink::Warning,
        _ => return span(left).into(),
    };
    Cell::inked(ink, span(left))
}

/// `+1.2 ms`; microseconds are lost in the transit time that is included.
fn offset_text(nanoseconds: i64) -> String {
    let tenths_of_ms = nanoseconds / 100_000;
    let sign = if tenths_of_ms < 0 { '-' } else { '+' };
    let tenths = tenths_of_ms.unsigned_abs();
    match tenths {
        0..100_000 => format!("{sign}{}.{} ms", tenths / 10, tenths % 10),
        _ => format!("{sign}{} s", tenths / 10_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn a_line_for_each_agent() {
        let fleet = Fleet {
            agents: samples::agents(),
        };
        insta::assert_snapshot!(text(&fleet, &Style::PLAIN, samples::now()));
    }

    #[test]
    fn reasons_wrap_on_a_terminal_and_health_is_coloured() {
        let fleet = Fleet {
            agents: samples::agents(),
        };
        let style = Style {
            color: true,
            width: Some(140),
        };
        insta::assert_snapshot!(text(&fleet, &style, samples::now()).replace('\u{1b}', "ESC"));
    }

    #[test]
    fn unseen_calls_have_a_column_only_where_there_are_some() {
        let mut fleet = Fleet {
            agents: samples::agents(),
        };
        let shown = |fleet: &Fleet| text(fleet, &Style::PLAIN, samples::now());
        assert!(!shown(&fleet).contains("UNSEEN"));
        fleet.agents[1].unseen = 31;
        insta::assert_snapshot!(shown(&fleet));
    }

    #[test]
    fn an_empty_fleet_says_how_to_begin() {
        let fleet = Fleet { agents: Vec::new() };
        insta::assert_snapshot!(text(&fleet, &Style::PLAIN, samples::now()));
    }

    #[test]
    fn json_names_are_stable() {
        insta::assert_snapshot!(
            crate::output::json(&Fleet {
                agents: samples::agents()
            })
            .unwrap()
        );
    }

    #[test]
    fn offsets_have_a_sign_and_a_unit() {
        let shown = [0, 1_240_000, -1_240_000, -61_000_000_000, i64::MAX].map(offset_text);
        assert_eq!(
            shown,
            ["+0.0 ms", "+1.2 ms", "-1.2 ms", "-61 s", "+9223372036 s"]
        );
    }
}

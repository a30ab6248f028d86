//! How agents fare.

use std::time::Duration;

use rdmesh_proto::collector::v1::{Agent, AgentHealth};
use rdmesh_proto::common::v1::AgentKind;
use rdmesh_proto::tracer::v1::{ProbeReport, ProbeState};
use rdmesh_store::query::{AgentStatus, ProbeCount};
use time::OffsetDateTime;

use crate::times;

/// An agent speaks every five seconds; three intervals without a word are silence.
const SILENT_AFTER: Duration = Duration::from_secs(15);

/// Hooks that a reason names; `rdmesh probes HOST` has all.
const HOOKS_NAMED: usize = 3;

/// From when on a certificate's end is a reason why an agent is not healthy. Its log and its
/// metric warn a month before; one that a program renews each week is not near its end.
const CERTIFICATE_ENDS_WITHIN: Duration = Duration::from_secs(3 * 24 * 3600);

/// Older than this when it comes is what waited on its host: some intervals, and not one that
/// came late.
const LAG_MAX_SECONDS: f64 = 30.0;

/// A host whose clock is off by more than this confuses people who read its logs.
const OFFSET_MAX_NS: i64 = 1_000_000_000;

/// An agent with its health. `now` is the collector's clock.
pub(crate) fn to_proto(status: AgentStatus, now: OffsetDateTime) -> Agent {
    let (health, reasons) = health(&status, now);
    let count = |value: i64| u64::try_from(value).unwrap_or(0);
    Agent {
        host: status.host,
        kind: i32::from(status.agent),
        health: health.into(),
        reasons,
        version: status.version,
        kernel_release: status.kernel_release,
        address: status.address,
        last_seen_at: Some(times::to_proto(status.last_seen_at)),
        clock_offset_ns: status.clock_offset_ns,
        logical_attached: u32::try_from(status.logical_attached).unwrap_or(0),
        logical_total: u32::try_from(status.logical_total).unwrap_or(0),
        failures: count(status.failures),
        drops: count(status.drops),
        snapshots: count(status.snapshots),
        snapshots_missing: count(status.missing),
        run_id: status.run_id.to_string(),
        boot_id: status.boot_id,
        unseen: count(status.unseen),
        certificate_ends_at: status.certificate_ends_at.map(times::to_proto),
        lag_seconds: status.lag_seconds,
    }
}

/// Puts what was counted since into a report, which tells what was counted when it was
/// sent: mostly nothing, because a tracer sends it when it starts.
pub(crate) fn count(report: &mut ProbeReport, counts: &[ProbeCount]) {
    for probe in &mut report.probes {
        if !matches!(probe.state(), ProbeState::Attached | ProbeState::Detached) {
            continue;
        }
        let same = |c: &&ProbeCount| c.function == probe.function && c.module == probe.module;
        if let Some(count) = counts.iter().find(same) {
            let unsigned = |value: i64| u64::try_from(value).unwrap_or(0);
            probe.failures = probe.failures.max(unsigned(count.failures));
            probe.drops = probe.drops.max(unsigned(count.drops));
            probe.unseen = probe.unseen.max(unsigned(count.unseen));
        }
    }
}

/// Unhealthy first, then by host.
pub(crate) fn order(agents: &mut [Agent]) {
    agents.sort_by(|a, b| (a.health, &a.host, a.kind).cmp(&(b.health, &b.host, b.kind)));
}

fn health(status: &AgentStatus, now: OffsetDateTime) -> (AgentHealth, Vec<String>) {
    let mut reasons = Vec::new();
    if status.agent == tracer() {
        if !status.probe_report_came {
            reasons.push("no probe report came; what is watched there is not known".to_owned());
        } else if !status.obstacle.is_empty() {
            reasons.push(status.obstacle.clone());
        } else if status.logical_total == 0 {
            reasons.push("its probe report names no hook; nothing is watched there".to_owned());
        } else {
            reasons.extend(missing(status));
        }
    }
    if status.drops > 0 {
        reasons.push(format!(
            "the details of {} were dropped",
            counted(status.drops, "record")
        ));
    }
    if status.beside > 0 {
        reasons.push(format!(
            "{} at the same time under this host's name: a second tracer, or a cloned machine; \
             what both saw is mixed",
            match status.beside {
                1 => "another run reports".to_owned(),
                many => format!("{many} other runs report"),
            }
        ));
    }
    if status.unseen > 0 {
        let calls = match status.unseen {
            1 => "1 call was".to_owned(),
            many => format!("{many} calls were"),
        };
        reasons.push(format!(
            "{calls} not shown to the probes by the kernel; counts are lower bounds"
        ));
    }
    if status.missing > 0 {
        reasons.push(format!("{} never came", counted(status.missing, "item")));
    }
    if status.rejected > 0 {
        let last = status.last_rejection.as_deref().unwrap_or("");
        reasons.push(format!(
            "{} refused; the last: {last}",
            counted(status.rejected, "item")
        ));
    }
    match status.clock_offset_ns {
        Some(offset) if offset.saturating_abs() > OFFSET_MAX_NS => {
            reasons.push(format!(
                "its clock is off by {}",
                times::signed_seconds(offset)
            ));
        }
        _ => {}
    }
    reasons.extend(certificate(status, now));
    if let Some(lag) = status.lag_seconds.filter(|lag| *lag > LAG_MAX_SECONDS) {
        reasons.push(format!(
            "what it told last was {lag:.0} s old: it sends what waited in its spool"
        ));
    }
    if status.clock_jumps > 0 {
        let times = counted(i64::from(status.clock_jumps), "time");
        reasons.push(format!("its clock jumped {times}"));
    }
    let silent = now - status.last_seen_at;
    if silent > SILENT_AFTER {
        reasons.insert(0, format!("silent for {} s", silent.whole_seconds()));
        return (AgentHealth::Silent, reasons);
    }
    if reasons.is_empty() {
        (AgentHealth::Healthy, reasons)
    } else {
        (AgentHealth::Degraded, reasons)
    }
}

/// That its certificate ends, or has ended.
fn certificate(status: &AgentStatus, now: OffsetDateTime) -> Option<String> {
    let left = status.certificate_ends_at? - now;
    if left <= time::Duration::ZERO {
        return Some(
            "its certificate has expired: its next connection is refused; issue a new one, `rdmesh \
             certs issue --renew`"
                .to_owned(),
        );
    }
    (left < CERTIFICATE_ENDS_WITHIN).then(|| {
        let left = match left.whole_days() {
            0 => counted(left.whole_hours(), "hour"),
            days => counted(days, "day"),
        };
        format!("its certificate ends in {left}; `rdmesh certs issue --renew` makes a new one")
    })
}

/// Hooks that could be attached and are not, with why.
fn missing(status: &AgentStatus) -> Option<String> {
    let gaps: Vec<String> = status
        .missing_hooks
        .iter()
        .zip(&status.missing_reasons)
        .map(|(hook, reason)| match reason.as_str() {
            "" => hook.clone(),
            reason => format!("{hook} ({reason})"),
        })
        .collect();
    let named = gaps.iter().take(HOOKS_NAMED).cloned().collect::<Vec<_>>();
    let more = match gaps.len().saturating_sub(HOOKS_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!gaps.is_empty()).then(|| format!("no probe for {}{more}", named.join(", ")))
}

/// A number with its noun.
fn counted(number: i64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        many => format!("{many} {noun}s"),
    }
}

fn tracer() -> i16 {
    i16::try_from(i32::from(AgentKind::Tracer)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;
    use uuid::Uuid;

    const NOW: OffsetDateTime = datetime!(2026-11-25 12:00 UTC);

    fn healthy() -> AgentStatus {
        AgentStatus {
            host: "gpu-01".into(),
            agent: 1,
            run_id: Uuid::nil(),
            boot_id: String::new(),
            beside: 0,
            version: "0.1.0".into(),
            address: String::new(),
            last_seen_at: NOW,
            clock_offset_ns: Some(2_000_000),
            clock_jumps: 0,
            snapshots: 1,
            missing: 0,
            rejected: 0,
            last_rejection: None,
            failures: 0,
            drops: 0,
            unseen: 0,
            certificate_ends_at: None,
            lag_seconds: Some(0.2),
            kernel_release: "6.1.0".into(),
            probe_report_came: true,
            logical_attached: 13,
            logical_total: 13,
            obstacle: String::new(),
            missing_hooks: vec![],
            missing_reasons: vec![],
        }
    }

    #[test]
    fn health_has_reasons_in_words() {
        let of = |status: AgentStatus| {
            let agent = to_proto(status, NOW);
            (agent.health(), agent.reasons)
        };
        assert_eq!(of(healthy()), (AgentHealth::Healthy, vec![]));
        let degraded = AgentStatus {
            logical_attached: 11,
            missing_hooks: vec!["memory.umem".into()],
            missing_reasons: vec![
                "ib_umem_get is not traceable (not in available_filter_functions)".into(),
            ],
            drops: 7,
            unseen: 2,
            ..healthy()
        };
        let (health, reasons) = of(degraded);
        assert_eq!(health, AgentHealth::Degraded);
        assert_eq!(
            reasons,
            [
                "no probe for memory.umem (ib_umem_get is not traceable (not in \
                 available_filter_functions))",
                "the details of 7 records were dropped",
                "2 calls were not shown to the probes by the kernel; counts are lower bounds"
            ]
        );
        let cloned = AgentStatus {
            beside: 1,
            ..healthy()
        };
        assert!(of(cloned).1[0].starts_with("another run reports at the same time"));
        let silent = AgentStatus {
            last_seen_at: NOW - Duration::from_secs(90),
            ..healthy()
        };
        assert_eq!(
            of(silent),
            (AgentHealth::Silent, vec!["silent for 90 s".to_owned()])
        );
        let off = AgentStatus {
            clock_offset_ns: Some(-3_600_000_000_000),
            ..healthy()
        };
        assert_eq!(of(off).1, ["its clock is off by -3600.000 s"]);
        let days = |days: i64| AgentStatus {
            certificate_ends_at: Some(NOW + time::Duration::days(days)),
            ..healthy()
        };
        assert_eq!(of(days(4)), (AgentHealth::Healthy, vec![]));
        assert!(of(days(2)).1[0].starts_with("its certificate ends in 2 days; "));
        assert!(of(days(0)).1[0].starts_with("its certificate has expired: "));
        let behind = AgentStatus {
            lag_seconds: Some(3_600.4),
            ..healthy()
        };
        assert_eq!(
            of(behind),
            (
                AgentHealth::Degraded,
                vec!["what it told last was 3600 s old: it sends what waited in its spool".into()]
            )
        );
        let silent_probes = AgentStatus {
            probe_report_came: false,
            logical_total: 0,
            ..healthy()
        };
        assert_eq!(
            of(silent_probes).1,
            ["no probe report came; what is watched there is not known"]
        );
        let empty = AgentStatus {
            logical_total: 0,
            ..healthy()
        };
        assert_eq!(
            of(empty).1,
            ["its probe report names no hook; nothing is watched there"]
        );
        let shaper = AgentStatus {
            agent: 2,
            logical_total: 0,
            ..healthy()
        };
        assert_eq!(of(shaper).0, AgentHealth::Healthy);
    }

    #[test]
    fn the_unhealthy_come_first() {
        let agent = |host: &str, health: AgentHealth| Agent {
            host: host.into(),
            health: health.into(),
            ..Agent::default()
        };
        let mut agents = vec![
            agent("a", AgentHealth::Healthy),
            agent("c", AgentHealth::Silent),
            agent("b", AgentHealth::Degraded),
        ];
        order(&mut agents);
        let hosts: Vec<&str> = agents.iter().map(|a| a.host.as_str()).collect();
        assert_eq!(hosts, ["c", "b", "a"]);
    }
}

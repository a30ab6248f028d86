//! What could have been seen and was not watched.

use std::collections::BTreeMap;

use rdmesh_proto::common::v1::{Layer, Verb};

use crate::diagnosis::{Case, HostWatch, ProbeState};

/// Hosts named in one line; beyond, their number.
const HOSTS_NAMED: usize = 5;
/// Hooks named in one line.
const HOOKS_NAMED: usize = 8;
/// A tracer reports in whole intervals of five seconds; what its last one and its first
/// one miss is no silence.
const SILENCE_SECONDS: f64 = 12.0;

fn probes_of<'a>(
    case: &'a Case,
    host: &str,
) -> impl Iterator<Item = &'a crate::diagnosis::WatchedProbe> {
    let watch = case.hosts.iter().find(|watch| watch.host == host);
    watch
        .and_then(|watch| watch.probes.as_ref())
        .filter(|probes| probes.obstacle.is_empty())
        .into_iter()
        .flat_map(|probes| &probes.probes)
}

/// Whether any hook of `layer` is attached on `host`.
pub(crate) fn watches_layer(case: &Case, host: &str, layer: Layer) -> bool {
    probes_of(case, host).any(|p| p.layer == layer && p.state == ProbeState::Attached)
}

/// Whether a hook of `layer` for `verb` is attached on `host`.
pub(crate) fn watches_verb(case: &Case, host: &str, layer: Layer, verb: Verb) -> bool {
    probes_of(case, host)
        .any(|p| p.layer == layer && p.verb == verb && p.state == ProbeState::Attached)
}

/// One line for each gap, hosts with the same gap together.
pub(crate) fn unwatched(case: &Case) -> Vec<String> {
    let mut gaps: BTreeMap<(u8, String), Vec<&str>> = BTreeMap::new();
    for watch in &case.hosts {
        for (order, gap) in gaps_of(watch) {
            gaps.entry((order, gap)).or_default().push(&watch.host);
        }
    }
    let mut lines: Vec<String> = gaps
        .into_iter()
        .map(|((_, gap), hosts)| format!("{}: {gap}", listed(&hosts)))
        .collect();
    if case.hosts.is_empty() {
        lines.push(
            "the attempt was placed on no host, and no failing task named it: nothing was \
             looked at"
                .to_owned(),
        );
    }
    if case.chains_cut {
        lines.push("the attempt has more failures than were looked at; the first were".to_owned());
    }
    if case.told && case.started_at.is_none() {
        lines.push(
            "when the attempt started is not known; earlier failures are not joined".to_owned(),
        );
    }
    lines
}

/// Names of hosts, shortened.
pub(crate) fn listed(hosts: &[&str]) -> String {
    let named = hosts
        .iter()
        .take(HOSTS_NAMED)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    match hosts.len() {
        many if many > HOSTS_NAMED => format!("{named} and {} more hosts", many - HOSTS_NAMED),
        _ => named,
    }
}

fn gaps_of(watch: &HostWatch) -> Vec<(u8, String)> {
    if !watch.known {
        return vec![(0, "never reported; nothing of it was watched".to_owned())];
    }
    let mut gaps = Vec::new();
    let silent = watch.attempt_seconds - watch.watched_seconds;
    if watch.watched_seconds <= 0.0 && watch.attempt_seconds > 0.0 {
        gaps.push((
            1,
            "its tracer reported nothing while the attempt ran".to_owned(),
        ));
    } else if silent > SILENCE_SECONDS {
        gaps.push((
            1,
            format!(
                "its tracer was silent for {silent:.0} of the attempt's {:.0} seconds",
                watch.attempt_seconds
            ),
        ));
    }
    match &watch.probes {
        None => gaps.push((
            2,
            "it sent no probe report; which hooks watch is not known".to_owned(),
        )),
        Some(probes) if !probes.obstacle.is_empty() => {
            gaps.push((2, format!("no hook watches: {}", probes.obstacle)));
        }
        Some(probes) => {
            let missing: Vec<&str> = probes
                .probes
                .iter()
                .filter(|p| p.logical)
                .filter(|p| matches!(p.state, ProbeState::Missing | ProbeState::Detached))
                .map(|p| p.hook.as_str())
                .collect();
            if !missing.is_empty() {
                gaps.push((3, format!("hooks without a probe: {}", hooks(&missing))));
            }
        }
    }
    if watch.drops > 0 {
        gaps.push((
            4,
            format!(
                "details of {} failing calls were dropped (the ring was full)",
                watch.drops
            ),
        ));
    }
    if watch.counter_overflow > 0 {
        gaps.push((
            5,
            format!(
                "{} failing calls are missing from the counts by job",
                watch.counter_overflow
            ),
        ));
    }
    gaps
}

fn hooks(missing: &[&str]) -> String {
    let named = missing
        .iter()
        .take(HOOKS_NAMED)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    match missing.len() {
        many if many > HOOKS_NAMED => format!("{named} and {} more", many - HOOKS_NAMED),
        _ => named,
    }
}

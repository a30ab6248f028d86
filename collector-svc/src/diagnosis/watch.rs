//! What could have been seen and was not watched.

use std::collections::BTreeMap;

use rdmesh_proto::common::v1::{Layer, Verb};
use time::OffsetDateTime;

use crate::diagnosis::words::moment;
use crate::diagnosis::{Case, HostWatch, ProbeState, WatchedProbe};

/// Hosts named in one line; beyond, their number.
const HOSTS_NAMED: usize = 5;
/// Hooks named in one line.
const HOOKS_NAMED: usize = 8;
/// A tracer reports in whole intervals of five seconds; while more may come, what its last
/// one and its first one miss is no silence.
const SILENCE_SECONDS: f64 = 12.0;
/// Afterwards intervals join, and what is left is as uncertain as clocks are told apart.
/// An interval that never came is the one in which a host or its tracer died.
const SETTLED_SILENCE_SECONDS: f64 = 2.0;

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
///
/// A hook without a probe matters where it bears on `verb`, the call that decided; none:
/// nothing decided, and any of them may be why.
pub(crate) fn unwatched(case: &Case, verb: Option<Verb>) -> Vec<String> {
    let mut gaps: BTreeMap<(u8, String), Vec<&str>> = BTreeMap::new();
    for watch in &case.hosts {
        for (order, gap) in gaps_of(watch, verb) {
            gaps.entry((order, gap)).or_default().push(&watch.host);
        }
    }
    let mut lines: Vec<String> = gaps
        .into_iter()
        .map(|((_, gap), hosts)| format!("{}: {gap}", listed(&hosts)))
        .collect();
    lines.extend(ambiguous(case));
    if case.hosts.is_empty() {
        lines.push(
            "the attempt was placed on no host, and no failing task named it: nothing was \
             looked at"
                .to_owned(),
        );
    }
    if let Some(kept_from) = case.kept_from {
        lines.push(aged_out(kept_from));
    }
    if case.chains_left_out > 0 {
        lines.push(format!(
            "{} later failures of the attempt{} were not looked at",
            case.chains_left_out,
            if case.more_left_out { ", or more," } else { "" }
        ));
    }
    if let Some((start, end)) = case.contradicting_times()
        && !case.placed_on.is_empty()
    {
        lines.push(format!(
            "when the attempt ran is not known: failures on its hosts whose tasks named no job \
             were looked at only between {} and {}",
            moment(end),
            moment(start)
        ));
    }
    if case.told && case.started_at.is_none() {
        lines.push(
            "when the attempt started is not known; earlier failures are not joined".to_owned(),
        );
    }
    lines
}

/// That failures of the attempt are no longer there.
pub(crate) fn aged_out(kept_from: OffsetDateTime) -> String {
    format!(
        "failures before {} have aged out of the store: what is older is kept in sums by hour \
         alone",
        moment(kept_from)
    )
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

fn gaps_of(watch: &HostWatch, verb: Option<Verb>) -> Vec<(u8, String)> {
    if !watch.known {
        return vec![(0, "never reported; nothing of it was watched".to_owned())];
    }
    let mut gaps = Vec::new();
    let silent = watch.attempt_seconds - watch.watched_seconds;
    let bearable = match watch.settled {
        true => SETTLED_SILENCE_SECONDS,
        false => SILENCE_SECONDS,
    };
    if watch.watched_seconds <= 0.0 && watch.attempt_seconds > 0.0 {
        gaps.push((
            1,
            "its tracer reported nothing while the attempt ran".to_owned(),
        ));
    } else if silent > bearable {
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
            "no probe report came; which hooks watch is not known".to_owned(),
        )),
        Some(probes) if !probes.obstacle.is_empty() => {
            gaps.push((2, format!("no hook watches: {}", probes.obstacle)));
        }
        Some(probes) if probes.probes.is_empty() => {
            gaps.push((2, "its probe report names no hook".to_owned()));
        }
        Some(probes) => {
            let missing: Vec<&str> = probes
                .probes
                .iter()
                .filter(|p| p.logical && bears_on(p, verb))
                .filter(|p| matches!(p.state, ProbeState::Missing | ProbeState::Detached))
                .filter(|p| !p.is_void())
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
                "the details of {} were dropped (the ring was full)",
                records(watch.drops)
            ),
        ));
    }
    if watch.counter_overflow > 0 {
        gaps.push((
            5,
            format!(
                "{} counted without errno or cgroup (the counter map was full); the counts by job \
                 miss them",
                were(watch.counter_overflow, "failing return")
            ),
        ));
    }
    if watch.unseen > 0 {
        gaps.push((
            6,
            format!(
                "{} not shown to the probes (the kernel had preempted another task inside them); \
                 no count has those that failed, so that totals are lower bounds",
                were(watch.unseen, "call")
            ),
        ));
    }
    gaps
}

fn were(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun} was"),
        many => format!("{many} {noun}s were"),
    }
}

fn records(number: u64) -> String {
    match number {
        1 => "1 record".to_owned(),
        many => format!("{many} records"),
    }
}

/// Whether what the hook does not see could have mattered for `verb`. Helpers serve any
/// verb, except those for memory of other devices.
fn bears_on(probe: &WatchedProbe, verb: Option<Verb>) -> bool {
    let Some(verb) = verb else {
        return true;
    };
    match probe.hook.as_str() {
        "memory.dmabuf" => verb == Verb::RegDmabufMr,
        _ => probe.verb == verb || probe.verb == Verb::Unspecified,
    }
}

/// Failures that were not looked at, because they may be another attempt's.
fn ambiguous(case: &Case) -> Vec<String> {
    let mut lines: Vec<String> = case
        .ambiguous
        .iter()
        .take(HOSTS_NAMED)
        .map(|shared| {
            let calls = match shared.calls {
                1 => "1 failing call".to_owned(),
                many => format!("{many} failing calls"),
            };
            let named: Vec<&str> = shared
                .others
                .iter()
                .take(HOSTS_NAMED)
                .map(String::as_str)
                .collect();
            let more = match shared.others.len().saturating_sub(HOSTS_NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!(
                "{calls} on {} may belong to this attempt or to {}{more}; no task named its job",
                shared.host,
                named.join(", ")
            )
        })
        .collect();
    if case.ambiguous.len() > HOSTS_NAMED {
        let more = case.ambiguous.len() - HOSTS_NAMED;
        lines.push(format!("the same on {more} more hosts"));
    }
    lines
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

//! From the dumps of all ranks to who never entered what.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::dump::{Dump, State};

/// What a group's dumps say together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Ranks entered different collectives under one number: a fault of the program.
    Mismatch,
    /// Some ranks never entered the collective in which the others wait.
    NotEntered,
    /// Every rank with a dump entered it; it did not complete on all: the
    /// network, a GPU, or a rank without a dump.
    NotCompleted,
    /// Nothing is pending.
    Completed,
}

/// One process group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupFinding {
    /// Name of the group.
    pub group: String,
    /// What people call it.
    pub description: String,
    /// What is wrong.
    pub verdict: Verdict,
    /// Number of the collective in its group.
    pub sequence: u64,
    /// What it is, such as `nccl:all_reduce`; empty when no dump has it any more.
    pub operation: String,
    /// Other operations under the same number, with one rank each.
    pub other_operations: BTreeMap<String, u32>,
    /// Ranks that entered it.
    pub entered: Vec<u32>,
    /// Ranks with a dump that never entered it.
    pub never_entered: Vec<u32>,
    /// Ranks that entered it and on which it did not complete.
    pub not_completed: Vec<u32>,
    /// Members without a dump: they may have died, or never have been asked.
    pub no_dump: Vec<u32>,
    /// Of those that never entered it, the ranks that are furthest behind.
    pub behind: Vec<u32>,
    /// Last collective that those had entered; none when they entered none.
    pub behind_at: Option<u64>,
    /// When the first rank enqueued it, nanoseconds since 1970; 0 when not known.
    pub since_ns: i64,
}

/// What all dumps say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlightReport {
    /// Dumps by version.
    pub versions: BTreeMap<String, u32>,
    /// Versions whose meaning is not known; they were read as the newest known.
    pub unknown_versions: Vec<String>,
    /// Ranks with a dump.
    pub ranks: Vec<u32>,
    /// Members of any group without a dump.
    pub missing_ranks: Vec<u32>,
    /// Groups, the one in which the wait began first at the top.
    pub groups: Vec<GroupFinding>,
}

/// What one rank did in one group.
#[derive(Default)]
struct Track<'a> {
    last: Option<u64>,
    calls: BTreeMap<u64, (&'a str, State, i64)>,
}

/// Joins the dumps. Those without a rank are numbered by their place.
pub fn analyse(dumps: &[Dump]) -> FlightReport {
    let mut report = FlightReport::default();
    let mut unknown = BTreeSet::new();
    let mut members: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    let mut descriptions: BTreeMap<&str, &str> = BTreeMap::new();
    let mut tracks: BTreeMap<&str, BTreeMap<u32, Track<'_>>> = BTreeMap::new();
    let mut ranks = BTreeSet::new();
    for (place, dump) in dumps.iter().enumerate() {
        let rank = dump
            .rank
            .unwrap_or_else(|| u32::try_from(place).unwrap_or(u32::MAX));
        ranks.insert(rank);
        *report.versions.entry(dump.version.clone()).or_default() += 1;
        if !dump.version_known {
            unknown.insert(dump.version.clone());
        }
        for (name, config) in &dump.groups {
            members.entry(name).or_default().extend(&config.ranks);
            descriptions.entry(name).or_insert(&config.description);
        }
        follow(dump, rank, &mut tracks);
    }
    for (name, by_rank) in &tracks {
        // A group that no configuration names has the members that used it.
        let group = members.entry(name).or_default();
        group.extend(by_rank.keys());
    }
    let everyone: BTreeSet<u32> = members.values().flatten().copied().collect();
    report.missing_ranks = everyone.difference(&ranks).copied().collect();
    report.groups = members
        .iter()
        .filter_map(|(name, group)| {
            let mut finding = finding(group, &ranks, tracks.get(name)?)?;
            (*name).clone_into(&mut finding.group);
            finding.description = descriptions
                .get(name)
                .copied()
                .unwrap_or_default()
                .to_owned();
            Some(finding)
        })
        .collect();
    report.groups.sort_by_key(|group| {
        let done = group.verdict == Verdict::Completed;
        let since = if group.since_ns == 0 {
            i64::MAX
        } else {
            group.since_ns
        };
        (done, since, group.verdict)
    });
    report.ranks = ranks.into_iter().collect();
    report.unknown_versions = unknown.into_iter().collect();
    report
}

fn follow<'a>(dump: &'a Dump, rank: u32, tracks: &mut BTreeMap<&'a str, BTreeMap<u32, Track<'a>>>) {
    for entry in dump.entries.iter().filter(|entry| !entry.p2p) {
        let track = tracks
            .entry(&entry.group)
            .or_default()
            .entry(rank)
            .or_default();
        track.last = track.last.max(Some(entry.sequence));
        // Of a coalesced group every part has the number: the least far one counts.
        let call = track.calls.entry(entry.sequence).or_insert((
            &entry.operation,
            entry.state,
            entry.created_ns,
        ));
        call.1 = call.1.min(entry.state);
    }
    for (group, last) in &dump.last_enqueued {
        let track = tracks.entry(group).or_default().entry(rank).or_default();
        track.last = track.last.max(Some(*last));
    }
}

/// The first collective of the group that not all have entered, or not completed.
fn finding(
    group: &BTreeSet<u32>,
    dumped: &BTreeSet<u32>,
    tracks: &BTreeMap<u32, Track<'_>>,
) -> Option<GroupFinding> {
    let present: Vec<u32> = group.intersection(dumped).copied().collect();
    let last_of = |rank: &u32| tracks.get(rank).and_then(|track| track.last);
    let furthest = present.iter().filter_map(last_of).max()?;
    let slowest = present.iter().map(last_of).min().flatten();
    let behind = slowest != Some(furthest);
    let mismatch = first_mismatch(tracks);
    let pending = first_pending(tracks);
    // A rank that is a collective behind explains what waits from there on.
    let next = if behind {
        slowest.map_or_else(|| first_seen(tracks).unwrap_or(furthest), |last| last + 1)
    } else {
        pending.unwrap_or(furthest)
    };
    let (verdict, sequence) = match mismatch {
        Some(at) if at <= next => (Verdict::Mismatch, at),
        _ if behind => (Verdict::NotEntered, next),
        _ if pending.is_some() => (Verdict::NotCompleted, next),
        _ => (Verdict::Completed, furthest),
    };
    let (entered, never_entered): (Vec<u32>, Vec<u32>) = present
        .iter()
        .partition(|rank| last_of(rank).is_some_and(|last| last >= sequence));
    let call = |rank: &u32| tracks.get(rank)?.calls.get(&sequence);
    let mut operations: BTreeMap<String, u32> = BTreeMap::new();
    for rank in &entered {
        if let Some((operation, ..)) = call(rank) {
            operations.entry((*operation).to_owned()).or_insert(*rank);
        }
    }
    let operation = entered
        .iter()
        .find_map(call)
        .map(|(operation, ..)| (*operation).to_owned())
        .unwrap_or_default();
    operations.remove(&operation);
    Some(GroupFinding {
        group: String::new(),
        description: String::new(),
        verdict,
        sequence,
        operation,
        other_operations: operations,
        not_completed: entered
            .iter()
            .filter(|rank| call(rank).is_some_and(|(_, state, _)| *state != State::Completed))
            .copied()
            .collect(),
        since_ns: entered
            .iter()
            .filter_map(call)
            .map(|call| call.2)
            .filter(|at| *at > 0)
            .min()
            .unwrap_or(0),
        behind: never_entered
            .iter()
            .filter(|rank| last_of(rank) == slowest)
            .copied()
            .collect(),
        behind_at: slowest.filter(|_| behind),
        entered,
        never_entered,
        no_dump: group.difference(dumped).copied().collect(),
    })
}

/// First number under which ranks recorded different operations.
fn first_mismatch(tracks: &BTreeMap<u32, Track<'_>>) -> Option<u64> {
    let mut seen: BTreeMap<u64, &str> = BTreeMap::new();
    let mut first = None;
    for track in tracks.values() {
        for (sequence, (operation, ..)) in &track.calls {
            let other = seen.entry(*sequence).or_insert(operation);
            if other != operation && first.is_none_or(|at| *sequence < at) {
                first = Some(*sequence);
            }
        }
    }
    first
}

/// First number that is not completed on some rank.
fn first_pending(tracks: &BTreeMap<u32, Track<'_>>) -> Option<u64> {
    tracks
        .values()
        .flat_map(|track| &track.calls)
        .filter(|(_, (_, state, _))| matches!(state, State::Scheduled | State::Started))
        .map(|(sequence, _)| *sequence)
        .min()
}

fn first_seen(tracks: &BTreeMap<u32, Track<'_>>) -> Option<u64> {
    tracks
        .values()
        .filter_map(|track| track.calls.keys().next())
        .copied()
        .min()
}

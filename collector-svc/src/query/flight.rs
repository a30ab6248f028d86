//! The Flight Recorder's dumps of an attempt, joined.

use std::collections::BTreeMap;

use rdmesh_joblog::flight::{Dump, GroupConfig, GroupFinding, Verdict, analyse};
use rdmesh_proto::collector::v1::FlightFinding;
use rdmesh_store::jobs::{AttemptKey, Placement};
use rdmesh_store::{Store, StoreError};

use crate::diagnosis::FlightEvidence;

/// Dumps that are joined: one for each rank of a job twice the size of most. Of a larger
/// one the ranks beyond count as those without a dump.
const DUMPS_MAX: u32 = 16_384;
/// Groups of an answer.
const GROUPS_MAX: usize = 16;
/// Ranks and hosts of an answer, of each kind.
const RANKS_MAX: usize = 64;

/// What the dumps of an attempt say, the group in which the wait began first.
pub(super) async fn evidence(
    store: &Store,
    key: &AttemptKey,
    placements: &[Placement],
) -> Result<Vec<FlightEvidence>, StoreError> {
    let mut dumps: Vec<Dump> = Vec::new();
    // Every rank's dump tells of the same groups: once is enough, and small.
    let mut known: BTreeMap<String, GroupConfig> = BTreeMap::new();
    for stored in store.flights_of(key, DUMPS_MAX).await? {
        // One that a later version wrote and this one cannot read counts as not sent.
        let Ok(mut dump) = serde_json::from_str::<Dump>(&stored.dump) else {
            continue;
        };
        dump.rank = stored.rank.or(dump.rank);
        dump.groups.retain(|name, config| match known.get(name) {
            Some(same) if same == config => false,
            _ => {
                known.insert(name.clone(), config.clone());
                true
            }
        });
        dumps.push(dump);
    }
    if dumps.is_empty() {
        return Ok(Vec::new());
    }
    let pending = |finding: &GroupFinding| finding.verdict != Verdict::Completed;
    let findings = analyse(&dumps).groups.into_iter().filter(pending);
    Ok(findings
        .take(GROUPS_MAX)
        .map(|finding| FlightEvidence {
            hosts: hosts_of(&finding.never_entered, placements),
            finding,
        })
        .collect())
}

/// Where the ranks were placed.
fn hosts_of(ranks: &[u32], placements: &[Placement]) -> Vec<String> {
    let has = |placement: &&Placement| ranks.iter().any(|rank| placement.ranks.contains(rank));
    let hosts = placements.iter().filter(has).map(|p| p.host.clone());
    hosts.collect()
}

/// As the contract holds it.
pub(super) fn to_proto(evidence: &FlightEvidence) -> FlightFinding {
    let finding = &evidence.finding;
    let some = |ranks: &[u32]| ranks.iter().take(RANKS_MAX).copied().collect();
    let total = |ranks: &[u32]| u32::try_from(ranks.len()).unwrap_or(u32::MAX);
    FlightFinding {
        group: finding.group.clone(),
        description: finding.description.clone(),
        verdict: verdict_name(finding.verdict).to_owned(),
        sequence: finding.sequence,
        operation: finding.operation.clone(),
        never_entered: some(&finding.never_entered),
        not_completed: some(&finding.not_completed),
        no_dump: some(&finding.no_dump),
        never_entered_total: total(&finding.never_entered),
        not_completed_total: total(&finding.not_completed),
        no_dump_total: total(&finding.no_dump),
        hosts: evidence.hosts.iter().take(RANKS_MAX).cloned().collect(),
        statement: evidence.statement(),
    }
}

fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Mismatch => "mismatch",
        Verdict::NotEntered => "not_entered",
        Verdict::NotCompleted => "not_completed",
        Verdict::Completed => "completed",
    }
}

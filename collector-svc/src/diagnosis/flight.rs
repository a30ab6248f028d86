//! What the Flight Recorder's dumps say beside the verdict: which ranks never entered
//! which collective, and whether a call failed on their hosts.
//!
//! They never decide: a rank that is behind is where to look, not why.

use rdmesh_joblog::flight::{GroupFinding, Verdict as Pending};

use crate::diagnosis::watch::listed;
use crate::diagnosis::{Case, Verdict};

/// Ranks that a sentence names.
const RANKS_NAMED: usize = 8;
/// Groups that the evidence speaks of, the one in which the wait began first.
const GROUPS_SPOKEN_OF: usize = 2;

/// One process group in which something is pending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlightEvidence {
    /// What the dumps say.
    pub finding: GroupFinding,
    /// Hosts of the ranks that never entered it, as they were placed.
    pub hosts: Vec<String>,
}

impl FlightEvidence {
    /// The same for a person.
    pub fn statement(&self) -> String {
        let finding = &self.finding;
        let group = match finding.description.as_str() {
            "" => finding.group.clone(),
            description => description.to_owned(),
        };
        let what = match finding.operation.as_str() {
            "" => format!("collective {} of {group}", finding.sequence),
            operation => format!("{operation} {} of {group}", finding.sequence),
        };
        let no_dump = match finding.no_dump.as_slice() {
            [] => String::new(),
            ranks => format!("; {} left no dump", ranks_named(ranks)),
        };
        match finding.verdict {
            Pending::NotEntered => format!(
                "{}{} never entered {what}, in which {} waited{no_dump}",
                ranks_named(&finding.never_entered),
                on(&self.hosts),
                count(finding.entered.len())
            ),
            Pending::NotCompleted => format!(
                "every rank with a dump entered {what}, and it did not complete on {}{no_dump}",
                ranks_named(&finding.not_completed)
            ),
            Pending::Mismatch => format!(
                "ranks entered different collectives under one number: {what}, and {}: a fault of \
                 the program",
                finding
                    .other_operations
                    .iter()
                    .map(|(operation, rank)| format!("{operation} on rank {rank}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
            Pending::Completed => format!("nothing is pending in {group}"),
        }
    }
}

fn on(hosts: &[String]) -> String {
    match hosts {
        [] => String::new(),
        hosts => {
            let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
            format!(" (on {})", listed(&hosts))
        }
    }
}

fn count(ranks: usize) -> String {
    match ranks {
        1 => "1 rank".to_owned(),
        many => format!("{many} ranks"),
    }
}

fn ranks_named(ranks: &[u32]) -> String {
    let named = ranks.iter().take(RANKS_NAMED).map(u32::to_string);
    let named = named.collect::<Vec<_>>().join(", ");
    match (ranks.len(), ranks.len().saturating_sub(RANKS_NAMED)) {
        (1, _) => format!("rank {named}"),
        (_, 0) => format!("ranks {named}"),
        (_, more) => format!("ranks {named} and {more} more"),
    }
}

/// Puts the dumps beside the verdict.
pub(super) fn weigh_flight(verdict: &mut Verdict, case: &Case) {
    for evidence in case.flight.iter().take(GROUPS_SPOKEN_OF) {
        let statement = format!("the Flight Recorder: {}", evidence.statement());
        let behind = &evidence.hosts;
        let found = !verdict.hosts.is_empty();
        let same: Vec<&str> = behind
            .iter()
            .filter(|host| verdict.hosts.contains(host))
            .map(String::as_str)
            .collect();
        if found && !same.is_empty() {
            let hosts = listed(&same);
            verdict.evidence.push(format!(
                "{statement}; the failure is on the host of ranks that are behind, {hosts}"
            ));
        } else if found && !behind.is_empty() {
            verdict.against.push(format!(
                "{statement}; no failure that decides is on a host of those ranks"
            ));
        } else {
            verdict.evidence.push(statement);
        }
    }
}

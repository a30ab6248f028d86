//! The same failure elsewhere: in the job's earlier attempts, and on other hosts.

use rdmesh_proto::collector::v1::VerdictClass;
use time::OffsetDateTime;
use time::macros::format_description;

use crate::diagnosis::meanings::class_name;
use crate::diagnosis::watch::listed;
use crate::diagnosis::{Case, Past, Verdict};

/// Attempts named one by one; of a row of them only the ends are.
const ATTEMPTS_NAMED: usize = 5;

/// The same failure on many hosts within a day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// Hosts.
    pub hosts: u64,
    /// Attempts on them.
    pub attempts: u64,
    /// First such call.
    pub first_at: OffsetDateTime,
    /// Last such call.
    pub last_at: OffsetDateTime,
    /// What those hosts share and others lack.
    pub shared: Vec<SharedFact>,
}

/// What failing hosts share and others lack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedFact {
    /// `driver of mlx5_ib`.
    pub fact: String,
    /// `24.10`.
    pub value: String,
    /// When the first of the failing hosts got it; none: they had it all along.
    pub since: Option<OffsetDateTime>,
    /// Failing hosts that have it.
    pub failing: u64,
    /// Failing hosts that told what they are.
    pub failing_of: u64,
    /// Other hosts that have it.
    pub healthy: u64,
    /// Other hosts that told what they are.
    pub healthy_of: u64,
}

/// The same function with the same errno; where no function decided, the same class.
pub(super) fn is_same(past: &Past, verdict: &Verdict) -> bool {
    past.class == class_name(verdict.class)
        && past.function == verdict.function
        && past.errno == verdict.errno
        && verdict.class != VerdictClass::CannotTell
}

/// Says where else the verdict's failure was seen.
pub(super) fn state_history(verdict: &mut Verdict, case: &Case) {
    let same: Vec<&Past> = case
        .past
        .iter()
        .filter(|past| is_same(past, verdict))
        .collect();
    if !same.is_empty() {
        let statement = repeated(&same, verdict);
        verdict.summary.push_str(&format!(" It is {statement}."));
        verdict.evidence.push(statement);
        verdict.same_failure = same.iter().map(|past| past.attempt.clone()).collect();
    }
    if let Some(incident) = case
        .incident
        .as_ref()
        .filter(|_| !verdict.function.is_empty())
    {
        verdict.evidence.push(spread(incident));
        verdict.evidence.extend(incident.shared.iter().map(shared));
    }
}

fn repeated(same: &[&Past], verdict: &Verdict) -> String {
    let names: Vec<&str> = same.iter().map(|past| past.attempt.as_str()).collect();
    let attempts = attempts(&names);
    let always: Vec<&str> = verdict
        .hosts
        .iter()
        .filter(|host| same.iter().all(|past| past.hosts.contains(host)))
        .map(String::as_str)
        .collect();
    match always.len() {
        0 => format!("the same failure as {attempts} on other hosts"),
        1 => format!(
            "the same failure as {attempts} on the same host, {}",
            always[0]
        ),
        _ => format!(
            "the same failure as {attempts} on the same hosts, {}",
            listed(&always)
        ),
    }
}

/// `attempts 3 to 7` where they follow one another, else by their names.
fn attempts(names: &[&str]) -> String {
    let requeue = |name: &&str| name.rsplit_once('/')?.1.parse::<u32>().ok();
    let numbers: Option<Vec<u32>> = names.iter().map(requeue).collect();
    if let Some([first, .., last]) = numbers.as_deref()
        && last
            .checked_sub(*first)
            .and_then(|span| usize::try_from(span).ok())
            .is_some_and(|span| span + 1 == names.len())
    {
        return format!("attempts {first} to {last}");
    }
    let named = names.iter().rev().take(ATTEMPTS_NAMED).rev();
    let named = named.copied().collect::<Vec<_>>().join(", ");
    match (names.len(), names.len().saturating_sub(ATTEMPTS_NAMED)) {
        (1, _) => format!("attempt {named}"),
        (_, 0) => format!("attempts {named}"),
        (_, more) => format!("attempts {named} and {more} before them"),
    }
}

fn spread(incident: &Incident) -> String {
    let attempts = match incident.attempts {
        1 => "1 attempt".to_owned(),
        many => format!("{many} attempts"),
    };
    format!(
        "an incident of the fleet: the same failure on {} hosts and {attempts} since {}",
        incident.hosts,
        minute(incident.first_at)
    )
}

fn shared(fact: &SharedFact) -> String {
    let since = match fact.since {
        Some(since) => format!(" since {}", minute(since)),
        None => String::new(),
    };
    format!(
        "what those hosts share: {} {}{since} ({} of {} failing hosts, {} of {} others)",
        fact.fact, fact.value, fact.failing, fact.failing_of, fact.healthy, fact.healthy_of
    )
}

fn minute(at: OffsetDateTime) -> String {
    let form = format_description!("[year]-[month]-[day] [hour]:[minute]Z");
    at.format(&form).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_in_a_row_are_named_by_their_ends() {
        assert_eq!(attempts(&["7/3", "7/4", "7/5"]), "attempts 3 to 5");
        assert_eq!(attempts(&["7/3"]), "attempt 7/3");
        assert_eq!(attempts(&["7/3", "7/5"]), "attempts 7/3, 7/5");
        assert_eq!(attempts(&["7/3", "7/3.1"]), "attempts 7/3, 7/3.1");
        let many = ["7/1", "7/3", "7/5", "7/7", "7/9", "7/11", "7/13"];
        assert_eq!(
            attempts(&many),
            "attempts 7/5, 7/7, 7/9, 7/11, 7/13 and 2 before them"
        );
    }
}

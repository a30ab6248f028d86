//! Which failure decides, and what its repeats and its followers are.

use std::collections::{BTreeSet, HashSet};

use rdmesh_proto::common::v1::Layer;

use crate::diagnosis::{Case, Chain, Step};

/// The failure that decides, with everything that is the same failure.
#[derive(Debug)]
pub(crate) struct Deciding<'a> {
    /// The first of it without doubts, else the first of it.
    pub(crate) chain: &'a Chain,
    /// Every chain with its signature, also on other hosts and by other ranks; those
    /// with doubts last, and the first is `chain`.
    pub(crate) same: Vec<&'a Chain>,
    /// Deciding failures of other signatures, which came later; those with doubts last.
    pub(crate) later: Vec<&'a Chain>,
    /// Swallowed failures of the same process before it.
    pub(crate) swallowed_before: Vec<&'a Chain>,
}

impl Deciding<'_> {
    /// Hosts of it, the first to fail first, those that are doubtful last.
    pub(crate) fn hosts(&self) -> Vec<String> {
        distinct(self.same.iter().map(|chain| chain.host.as_str()))
    }

    /// Devices of it.
    pub(crate) fn devices(&self) -> Vec<String> {
        distinct(
            self.same
                .iter()
                .map(|chain| chain.device.as_str())
                .filter(|d| !d.is_empty()),
        )
    }

    /// Calls in all: repeats by retries.
    pub(crate) fn calls(&self) -> u64 {
        self.same
            .iter()
            .fold(0, |sum, chain| sum.saturating_add(chain.count))
    }

    /// Whether more than one process failed so.
    pub(crate) fn has_many_tasks(&self) -> bool {
        self.same
            .iter()
            .any(|c| c.tgid != self.chain.tgid || c.host != self.chain.host)
    }

    /// Ranks of it that are known.
    pub(crate) fn ranks(&self) -> BTreeSet<i32> {
        self.same.iter().filter_map(|chain| chain.rank).collect()
    }
}

/// In the order in which they come, each once.
pub(crate) fn distinct<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    texts
        .filter(|text| seen.insert(*text))
        .map(str::to_owned)
        .collect()
}

/// Whether a chain may decide: expected failures never do, incomplete ones not by
/// themselves, swallowed ones only by their own rule.
fn decides(chain: &Chain) -> bool {
    let flags = chain.flags;
    !chain.is_expected() && !flags.incomplete && !flags.swallowed && chain.deepest().errno != 0
}

/// The first of `candidates` by time.
///
/// The time of a failure is that of its first row without doubts: a row whose times or
/// whose attempt may be wrong tells when, and where, only where no other row of the same
/// signature does.
fn first<'a>(candidates: &[&'a Chain]) -> Option<&'a Chain> {
    let sure: HashSet<(&str, &[Step])> = candidates
        .iter()
        .filter(|chain| !chain.is_doubted())
        .map(|chain| signature(chain))
        .collect();
    candidates
        .iter()
        .filter(|chain| !chain.is_doubted() || !sure.contains(&signature(chain)))
        .min_by_key(|chain| chain.first_at)
        .copied()
}

fn signature(chain: &Chain) -> (&str, &[Step]) {
    (&chain.driver, &chain.steps)
}

/// The first failure by time that may decide. Repeats of a failure by retries are one
/// failure, whose time is that of the first without doubts.
pub(crate) fn deciding(case: &Case) -> Option<Deciding<'_>> {
    let candidates: Vec<&Chain> = case.chains.iter().filter(|chain| decides(chain)).collect();
    let first = first(&candidates)?;
    let (mut same, mut later): (Vec<&Chain>, Vec<&Chain>) = candidates
        .into_iter()
        .partition(|chain| chain.same_signature(first));
    same.sort_by_key(|chain| (chain.is_doubted(), chain.first_at));
    later.sort_by_key(|chain| (chain.is_doubted(), chain.first_at));
    let swallowed_before = case
        .chains
        .iter()
        .filter(|c| {
            c.flags.swallowed
                && !c.is_expected()
                && !c.flags.incomplete
                && c.host == first.host
                && c.tgid == first.tgid
                && c.first_at <= first.first_at
                && c.deepest().layer != Layer::Unspecified
        })
        .collect();
    Some(Deciding {
        chain: first,
        same,
        later,
        swallowed_before,
    })
}

/// The first swallowed failure, where nothing else decides.
pub(crate) fn swallowed(case: &Case) -> Option<&Chain> {
    let candidates: Vec<&Chain> = case
        .chains
        .iter()
        .filter(|c| c.flags.swallowed && !c.is_expected() && !c.flags.incomplete)
        .collect();
    first(&candidates)
}

//! What of the exact counters was reported already.

use std::collections::HashMap;

use crate::counters::{CgroupCount, Counters, ErrorCount};
use crate::record::ProbeId;

/// Totals as they stood in the snapshots made so far. A row that found no room in
/// a message is not reported, and its delta grows until it finds room.
#[derive(Debug, Default)]
pub struct Reported {
    by_errno: HashMap<(ProbeId, u16), u64>,
    by_cgroup: HashMap<(ProbeId, u16, u64), u64>,
    overflow: HashMap<ProbeId, u64>,
    drops: HashMap<ProbeId, u64>,
    unseen: HashMap<ProbeId, u64>,
}

/// A count that has grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grown<K> {
    pub(super) key: K,
    pub(super) delta: u64,
    pub(super) total: u64,
}

impl Reported {
    /// Rows of (probe, errno) that grew.
    pub(super) fn errno(&self, counters: &Counters) -> Vec<Grown<(ProbeId, u16)>> {
        let rows = counters.by_errno.iter();
        grown(
            &self.by_errno,
            rows.map(|c: &ErrorCount| ((c.probe, c.errno), c.count)),
        )
    }

    /// Rows of (probe, errno, cgroup) that grew.
    pub(super) fn cgroup(&self, counters: &Counters) -> Vec<Grown<(ProbeId, u16, u64)>> {
        let rows = counters.by_cgroup.iter();
        grown(
            &self.by_cgroup,
            rows.map(|c: &CgroupCount| ((c.probe, c.errno, c.cgroup_id), c.count)),
        )
    }

    /// Probes with more failures that found no room in a map. A failure may have
    /// found none in either, so that the larger of the two counts is told.
    pub(super) fn overflow(&self, counters: &Counters) -> Vec<Grown<ProbeId>> {
        grown(
            &self.overflow,
            by_probe(counters, |l| l.overflow.max(l.cgroup_overflow)),
        )
    }

    /// Probes with more lost records.
    pub(super) fn drops(&self, counters: &Counters) -> Vec<Grown<ProbeId>> {
        grown(&self.drops, by_probe(counters, |l| l.records_dropped))
    }

    /// Probes with more calls that the kernel hid from them.
    pub(super) fn unseen(&self, counters: &Counters) -> Vec<Grown<ProbeId>> {
        grown(&self.unseen, by_probe(counters, |l| l.unseen))
    }

    pub(super) fn note_errno(&mut self, row: &Grown<(ProbeId, u16)>) {
        self.by_errno.insert(row.key, row.total);
    }

    pub(super) fn note_cgroup(&mut self, row: &Grown<(ProbeId, u16, u64)>) {
        self.by_cgroup.insert(row.key, row.total);
    }

    pub(super) fn note_overflow(&mut self, row: &Grown<ProbeId>) {
        self.overflow.insert(row.key, row.total);
    }

    pub(super) fn note_unseen(&mut self, row: &Grown<ProbeId>) {
        self.unseen.insert(row.key, row.total);
    }

    pub(super) fn note_drops(&mut self, row: &Grown<ProbeId>) {
        self.drops.insert(row.key, row.total);
    }
}

fn by_probe<'a>(
    counters: &'a Counters,
    count: impl Fn(&crate::counters::ProbeLosses) -> u64 + 'a,
) -> impl Iterator<Item = (ProbeId, u64)> + 'a {
    counters
        .losses
        .iter()
        .enumerate()
        .filter_map(move |(place, losses)| {
            Some((ProbeId(u16::try_from(place).ok()?), count(losses)))
        })
}

fn grown<K: Copy + Eq + std::hash::Hash>(
    reported: &HashMap<K, u64>,
    rows: impl Iterator<Item = (K, u64)>,
) -> Vec<Grown<K>> {
    rows.filter_map(|(key, total)| {
        let before = reported.get(&key).copied().unwrap_or(0);
        (total > before).then(|| Grown {
            key,
            delta: total - before,
            total,
        })
    })
    .collect()
}

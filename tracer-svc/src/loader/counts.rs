//! Reading the counter maps.

use aya::maps::{Array, HashMap, Map, MapData, MapError};

use crate::counters::{CgroupCount, Counters, ErrorCount, ProbeLosses};
use crate::record::ProbeId;

use super::object::Maps;
use super::{LoadError, MAX_PROBES};

/// Bytes of `struct losses`.
const LOSSES_BYTES: usize = 32;

/// The counter maps.
pub(super) struct CounterMaps {
    counts: HashMap<MapData, [u8; 8], u64>,
    cgroup_counts: HashMap<MapData, [u8; 16], u64>,
    losses: Array<MapData, [u8; LOSSES_BYTES]>,
}

fn read_error(map: &str, error: &MapError) -> LoadError {
    LoadError::Map {
        map: map.to_owned(),
        error: error.to_string(),
    }
}

/// Takes one map out of the set.
pub(super) fn take(maps: &mut Maps, name: &str) -> Result<MapData, LoadError> {
    maps.remove(name)
        .ok_or_else(|| LoadError::Program(format!("no map {name} in the object")))
}

impl CounterMaps {
    pub(super) fn new(maps: &mut Maps) -> Result<Self, LoadError> {
        let hash = |maps: &mut Maps, name| Ok::<_, LoadError>(Map::HashMap(take(maps, name)?));
        let counts = hash(maps, "counts")?;
        let cgroup_counts = hash(maps, "cgroup_counts")?;
        let losses = Map::Array(take(maps, "losses")?);
        Ok(Self {
            counts: counts.try_into().map_err(|e| read_error("counts", &e))?,
            cgroup_counts: cgroup_counts
                .try_into()
                .map_err(|e| read_error("cgroup_counts", &e))?,
            losses: losses.try_into().map_err(|e| read_error("losses", &e))?,
        })
    }

    /// Everything, for the probes below `probes`.
    pub(super) fn read(&self, probes: usize) -> Result<Counters, LoadError> {
        let mut counters = Counters::default();
        for entry in self.counts.iter() {
            let (key, count) = entry.map_err(|e| read_error("counts", &e))?;
            let (probe, errno) = probe_and_errno(&key);
            counters.by_errno.push(ErrorCount {
                probe,
                errno,
                count,
            });
        }
        for entry in self.cgroup_counts.iter() {
            let (key, count) = entry.map_err(|e| read_error("cgroup_counts", &e))?;
            let (probe, errno) = probe_and_errno(&key);
            counters.by_cgroup.push(CgroupCount {
                probe,
                errno,
                cgroup_id: word(&key, 8),
                count,
            });
        }
        for index in (0..MAX_PROBES).take(probes) {
            let bytes = self
                .losses
                .get(&index, 0)
                .map_err(|e| read_error("losses", &e))?;
            counters.losses.push(ProbeLosses {
                records_dropped: word(&bytes, 0),
                identities_dropped: word(&bytes, 8),
                overflow: word(&bytes, 16),
                cgroup_overflow: word(&bytes, 24),
                unseen: 0,
            });
        }
        counters.by_errno.sort_unstable();
        counters.by_cgroup.sort_unstable();
        Ok(counters)
    }
}

/// The first four bytes of both key structs.
fn probe_and_errno(key: &[u8]) -> (ProbeId, u16) {
    let half = |at: usize| match key.get(at..at + 2) {
        Some(&[a, b]) => u16::from_ne_bytes([a, b]),
        _ => 0,
    };
    (ProbeId(half(0)), half(2))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(part) = bytes.get(at..at + 8) {
        word.copy_from_slice(part);
    }
    u64::from_ne_bytes(word)
}

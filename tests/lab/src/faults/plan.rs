//! Which faults come when: decided by a seed alone.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt as _, SeedableRng as _};

/// Shortest and longest time that a fault lasts, milliseconds.
const HOLD_MS: std::ops::RangeInclusive<u64> = 150..=1_500;

/// Of a hundred rounds, so many have a second fault at the same time.
const SECOND_FAULT_PERCENT: u32 = 35;

/// What is done to the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// kill -9 of two processes with ten agents each.
    KillAgents,
    /// kill -9 of one of the two collectors.
    KillCollector,
    /// kill -9 of both.
    KillCollectors,
    /// One collector ends in order and comes back.
    RestartCollector,
    /// Postgres ends at once, as in a crash, and recovers.
    CrashPostgres,
    /// No process of Postgres runs.
    FreezePostgres,
    /// A lock keeps every write waiting.
    LockTables,
    /// The link between some agents and the collectors is down.
    CutNetwork,
    /// The disk of some agents' spools is full, and no collector is there.
    FillDisk,
    /// kill -9 of the shaper.
    KillShaper,
}

/// All of them.
pub const FAULTS: [Fault; 10] = [
    Fault::KillAgents,
    Fault::KillCollector,
    Fault::KillCollectors,
    Fault::RestartCollector,
    Fault::CrashPostgres,
    Fault::FreezePostgres,
    Fault::LockTables,
    Fault::CutNetwork,
    Fault::FillDisk,
    Fault::KillShaper,
];

impl Fault {
    /// Whether two faults would undo one another or need the same thing.
    fn is_with(self, other: Self) -> bool {
        use Fault::*;
        let collectors = |f| {
            matches!(
                f,
                KillCollector | KillCollectors | RestartCollector | FillDisk
            )
        };
        let postgres = |f| matches!(f, CrashPostgres | FreezePostgres | LockTables);
        let clash = self == other
            || collectors(self) && collectors(other)
            || postgres(self) && postgres(other)
            // Agents that are killed while their disk is full lose what is in memory alone.
            || matches!((self, other), (KillAgents, FillDisk) | (FillDisk, KillAgents));
        !clash
    }
}

/// One round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// What is done, all at the same time.
    pub faults: Vec<Fault>,
    /// How long.
    pub hold: Duration,
    /// Which process, where there are several.
    pub which: usize,
}

/// The rounds of a seed.
#[must_use]
pub fn rounds(seed: u64, count: usize) -> Vec<Round> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut bag: Vec<Fault> = Vec::new();
    let mut rounds = Vec::with_capacity(count);
    for _ in 0..count {
        if bag.is_empty() {
            bag = FAULTS.to_vec();
            bag.shuffle(&mut random);
        }
        let Some(first) = bag.pop() else {
            break;
        };
        let mut faults = vec![first];
        if random.random_range(0..100) < SECOND_FAULT_PERCENT {
            let others: Vec<Fault> = FAULTS.into_iter().filter(|f| first.is_with(*f)).collect();
            if !others.is_empty() {
                faults.push(others[random.random_range(0..others.len())]);
            }
        }
        rounds.push(Round {
            faults,
            hold: Duration::from_millis(random.random_range(HOLD_MS)),
            which: random.random_range(0..1_000),
        });
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_makes_the_same_rounds_and_each_ten_have_every_fault() {
        assert_eq!(rounds(7, 40), rounds(7, 40));
        assert_ne!(rounds(7, 40), rounds(8, 40));
        assert_eq!(rounds(7, 40), rounds(7, 200)[..40]);
        let all = rounds(9, 200);
        for ten in all.chunks(FAULTS.len()) {
            let firsts: BTreeSet<Fault> = ten.iter().map(|round| round.faults[0]).collect();
            assert_eq!(firsts.len(), FAULTS.len());
        }
        assert!(all.iter().any(|round| round.faults.len() == 2));
        for round in all {
            if let [one, other] = round.faults[..] {
                assert!(one.is_with(other), "{round:?}");
            }
        }
    }
}

//! Faults under load: a hundred simulated agents, two collectors on one Postgres, a
//! shaper; rounds in which parts are killed, frozen, cut off; and after each round the
//! question whether every snapshot that an agent made is in the store exactly once.
//!
//! Needs root: a network namespace, a link that is cut, small disks that are filled.

mod audit;
mod disk;
mod network;
mod parts;
pub mod plan;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::time::sleep;

use audit::Audit;
pub use audit::Found;
use parts::Parts;
use plan::Round;

use crate::{children, until};

/// How long after a fault's end everything made until then may take to be stored.
pub const RECOVERED_WITHIN: Duration = Duration::from_secs(10);

/// A first start with migrations, on a loaded machine.
const START_LIMIT: Duration = Duration::from_secs(90);

/// How long the end of all agents may take: what waits is handed over.
const END_LIMIT: Duration = Duration::from_secs(30);

/// Time between two looks at the store.
const LOOK_EVERY: Duration = Duration::from_millis(150);

/// What all rounds came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Rounds that passed.
    pub rounds: usize,
    /// The longest time from the end of a fault until everything was stored.
    pub slowest_recovery: Duration,
    /// What is in the store at the end.
    pub found: Found,
}

/// Runs so many rounds of a seed; `say` hears a line for each.
///
/// # Errors
/// The first thing that is not as it must be, with its round.
pub async fn run(seed: u64, count: usize, mut say: impl FnMut(String)) -> Result<Outcome> {
    children::clean_up_on_interrupt()?;
    ensure!(
        rustix::process::geteuid().is_root(),
        "faults need root: a network namespace, a link that is cut, disks that are filled"
    );
    say(format!(
        "{count} rounds of seed {seed}; again by: SEED={seed} ROUNDS={count} make faults"
    ));
    let mut parts = Parts::start(seed)?;
    let mut audit = Audit::new(parts.journals());
    let outcome = all(&mut parts, &mut audit, seed, count, &mut say).await;
    outcome.with_context(|| format!("seed {seed}\n{}", parts.log_tails()))
}

async fn all(
    parts: &mut Parts,
    audit: &mut Audit,
    seed: u64,
    count: usize,
    say: &mut impl FnMut(String),
) -> Result<Outcome> {
    let deadline = Instant::now() + START_LIMIT;
    loop {
        audit.refresh()?;
        if audit.all_report() && stored(audit, parts, &audit.owed()).unwrap_or(false) {
            break;
        }
        ensure!(
            Instant::now() < deadline,
            "not all agents report within {START_LIMIT:?}"
        );
        sleep(LOOK_EVERY).await;
    }
    let mut outcome = Outcome::default();
    for (number, round) in (1..).zip(plan::rounds(seed, count)) {
        let recovery = one(parts, audit, &round)
            .await
            .with_context(|| format!("round {number} of {count}: {round:?}"))?;
        outcome.rounds = number;
        outcome.slowest_recovery = outcome.slowest_recovery.max(recovery);
        say(format!(
            "round {number:>3}: {:?} for {:.1} s, all stored {:.1} s later",
            round.faults,
            round.hold.as_secs_f64(),
            recovery.as_secs_f64()
        ));
    }
    parts.stop_agents();
    let audit = std::cell::RefCell::new(audit);
    let shared: &Parts = parts;
    until::holds("everything is handed over", END_LIMIT, || async {
        let mut audit = audit.borrow_mut();
        audit.refresh()?;
        stored(&audit, shared, &audit.owed())
    })
    .await?;
    outcome.found = audit.borrow_mut().check_end(shared)?;
    Ok(outcome)
}

/// One round; returns how long it took until everything was stored.
async fn one(parts: &mut Parts, audit: &mut Audit, round: &Round) -> Result<Duration> {
    for fault in &round.faults {
        let killed = parts.begin(*fault, round.which, round.hold)?;
        audit.killed(&killed)?;
    }
    // The fault lasts.
    sleep(round.hold).await;
    for fault in &round.faults {
        parts.end(*fault, round.which)?;
    }
    audit.refresh()?;
    let owed = audit.owed();
    let ended = Instant::now();
    while !stored(audit, parts, &owed)? {
        ensure!(
            ended.elapsed() < RECOVERED_WITHIN,
            "after {RECOVERED_WITHIN:?} {} runs still have snapshots that are not stored",
            audit.still_owed(parts, &owed)?
        );
        sleep(LOOK_EVERY).await;
    }
    let recovery = ended.elapsed();
    audit.check(parts)?;
    Ok(recovery)
}

fn stored(audit: &Audit, parts: &Parts, owed: &BTreeMap<(String, String), u64>) -> Result<bool> {
    Ok(audit.still_owed(parts, owed)? == 0)
}

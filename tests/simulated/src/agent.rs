//! One simulated agent.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use rdmesh_proto::common::v1::AgentKind;
use rdmesh_services::host;
use rdmesh_services::shutdown::Closing;
use rdmesh_services::uplink::{Identity, Spool, SpoolConfig, Surroundings, Uplink, UplinkConfig};
use tokio::time::{MissedTickBehavior, interval};

use crate::journal::{Journal, Made};
use crate::snapshot;

/// Failing calls of one snapshot at most.
const FAILURES_MAX: u64 = 40;

/// How long an agent that is asked to end tries to hand over what waits.
const DRAIN_WITHIN: Duration = Duration::from_secs(3);

/// What an agent is to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its host.
    pub host: String,
    /// Where the collectors are, with commas between them.
    pub collectors: String,
    /// Directory of its spool.
    pub spool: PathBuf,
    /// File of its journal.
    pub journal: PathBuf,
    /// Time between two snapshots.
    pub interval: Duration,
    /// Decides how many calls fail.
    pub seed: u64,
}

/// Runs until the end is asked for, and hands over what waits.
///
/// # Errors
/// When the spool or the journal cannot be used.
pub async fn run(plan: Plan, closing: Closing) -> Result<()> {
    let identity = Identity::new(AgentKind::Tracer, plan.host.clone(), host::boot_id()?);
    let config = UplinkConfig {
        collector: plan.collectors.parse().map_err(anyhow::Error::msg)?,
        spool: SpoolConfig {
            directory: plan.spool.clone(),
            ..SpoolConfig::default()
        },
        ..UplinkConfig::default()
    };
    let spool = Spool::open(&config.spool, Path::new("/nonexistent"))?;
    let mut journal = Journal::begin(&plan.journal, &identity.run_id)
        .with_context(|| format!("the journal {}", plan.journal.display()))?;
    let around = Surroundings {
        spool,
        ..Surroundings::real(&config)
    };
    let uplink = Uplink::start_in(around, &config, move || identity.hello());
    let handle = uplink.handle();
    let mut random = SmallRng::seed_from_u64(plan.seed);
    let mut ticks = interval(plan.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut from_boot_ns, mut sequence, mut total, mut kept) =
        (host::clock_pair().boottime_ns, 0, 0, 0);
    loop {
        tokio::select! {
            biased;
            () = closing.requested() => break,
            _ = ticks.tick() => {}
        }
        let written = handle.spool_status().map_or(0, |s| s.written_through);
        if written > kept {
            kept = written;
            journal.kept(kept)?;
        }
        let clock = host::clock_pair();
        let made = Made {
            failures: random.random_range(1..=FAILURES_MAX),
            from_boot_ns,
            to_boot_ns: clock.boottime_ns,
        };
        from_boot_ns = made.to_boot_ns;
        sequence += 1;
        total += made.failures;
        journal.made(sequence, &made)?;
        let item = snapshot::of(&made, total, handle.given_up(), clock);
        let given = handle.push(item)?;
        ensure!(given == sequence, "item {sequence} was numbered {given}");
    }
    let left = uplink.drain(DRAIN_WITHIN).await;
    ensure!(
        left.is_complete() || left.kept_on_disk,
        "{} items are neither handed over nor on disk",
        left.items_left
    );
    journal.kept(sequence)?;
    Ok(())
}

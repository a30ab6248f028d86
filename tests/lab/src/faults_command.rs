//! `rdmesh-lab faults`: rounds of faults under load.

use anyhow::Result;
use rdmesh_lab::faults;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Decides which faults come when; any unless given
    #[arg(long)]
    seed: Option<u64>,
    /// How many rounds
    #[arg(long, default_value_t = 200)]
    rounds: usize,
}

pub(crate) async fn run(args: &Args) -> Result<ExitCode> {
    let seed = args.seed.unwrap_or_else(|| u64::from(std::process::id()));
    let outcome = faults::run(seed, args.rounds, |line| println!("{line}")).await?;
    println!(
        "{} rounds passed; {} snapshots of {} runs stored once each, {} lost by kills; the slowest \
         recovery took {:.1} s",
        outcome.rounds,
        outcome.found.stored,
        outcome.found.runs,
        outcome.found.lost,
        outcome.slowest_recovery.as_secs_f64()
    );
    Ok(ExitCode::SUCCESS)
}

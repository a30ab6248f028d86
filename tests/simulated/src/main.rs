//! `rdmesh-simulated-agents`: many agents in one process, until a signal.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Parser;
use rdmesh_services::shutdown::{Signals, channel};
use rdmesh_simulated::agent::{self, Plan};
use tokio::task::JoinSet;

/// Simulated host agents with the real uplink and its spool.
#[derive(Debug, Parser)]
#[command(name = "rdmesh-simulated-agents", version)]
struct Args {
    /// Hosts are named so, with a number after it
    #[arg(long)]
    host: String,
    /// How many agents
    #[arg(long, default_value_t = 1)]
    agents: u32,
    /// HOST:PORT of the collectors, with commas between them
    #[arg(long)]
    collectors: String,
    /// A spool for each agent is made here
    #[arg(long)]
    spools: PathBuf,
    /// A journal for each agent is kept here
    #[arg(long)]
    journals: PathBuf,
    /// Milliseconds between two snapshots of an agent
    #[arg(long, default_value_t = 500)]
    interval_ms: u64,
    /// Decides how many calls fail
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from);
    match runtime.and_then(|runtime| runtime.block_on(run(&args))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rdmesh-simulated-agents: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<()> {
    let mut signals = Signals::install()?;
    let (stop, closing) = channel();
    let mut agents = JoinSet::new();
    for number in 0..args.agents {
        let host = format!("{}-{number}", args.host);
        let plan = Plan {
            spool: args.spools.join(&host),
            journal: args.journals.join(&host),
            collectors: args.collectors.clone(),
            interval: Duration::from_millis(args.interval_ms),
            seed: args.seed.wrapping_add(u64::from(number)),
            host,
        };
        agents.spawn(agent::run(plan, closing.clone()));
    }
    let ended = tokio::select! {
        _ = signals.received() => None,
        ended = agents.join_next() => ended,
    };
    if let Some(ended) = ended {
        ended??;
        return Err(anyhow!("an agent ended by itself"));
    }
    stop.fire();
    while let Some(ended) = agents.join_next().await {
        ended??;
    }
    Ok(())
}

//! `shaper-svc`: the shaper and its tools.

use clap::{Parser, Subcommand};
use rdmesh_shaper::{bench, tools};
use std::io;

/// Moves every transmitted frame through a virtual wire of a given rate.
#[derive(Debug, Parser)]
#[command(name = "shaper-svc", version, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Move a captured stream through a wire, in virtual time.
    Replay(tools::ReplayArgs),
    /// Tell how far a captured stream runs ahead of an ideal wire.
    Inspect(tools::InspectArgs),
    /// Measure what the engine costs on this machine; one line of JSON per figure.
    Bench {
        /// Only figures whose name contains this.
        #[arg(long, default_value = "")]
        only: String,
    },
}

fn main() -> anyhow::Result<()> {
    let out = &mut io::stdout().lock();
    match Args::parse().command {
        Command::Replay(args) => tools::run_replay(&args, out)?,
        Command::Inspect(args) => tools::run_inspect(&args, out)?,
        Command::Bench { only } => bench::run(&only, out)?,
    }
    Ok(())
}

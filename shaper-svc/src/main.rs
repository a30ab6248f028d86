//! `shaper-svc`: the shaper and its tools.

use clap::{Parser, Subcommand};
use rdmesh_shaper::bench;
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
    /// Measure what the engine costs on this machine; one line of JSON per figure.
    Bench {
        /// Only figures whose name contains this.
        #[arg(long, default_value = "")]
        only: String,
    },
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Bench { only } => bench::run(&only, &mut io::stdout().lock())?,
    }
    Ok(())
}

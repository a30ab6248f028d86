//! `rdmesh-lab`: the demo, the bench, and a shell into a lab host.

mod bench;
mod demo;
mod fail;
mod faults_command;
mod shell_run;

use anyhow::Result;
use clap::{Parser, Subcommand};
use rdmesh_lab::children;
use rdmesh_lab::kernels;
use rdmesh_lab::progress::Progress;
use std::process::ExitCode;

/// The rdmesh lab: real kernels with soft-RoCE, a private database and a collector.
#[derive(Debug, Parser)]
#[command(name = "rdmesh-lab", version, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Show a real kernel failure, traced, joined with its job and explained.
    Demo(demo::Args),
    /// Make another failure in a demo that was left running.
    Fail(fail::Args),
    /// Measure, and write target/bench/report.json.
    Bench(bench::Args),
    /// Kill, freeze and cut off parts of a mesh under load, and check that nothing is lost.
    Faults(faults_command::Args),
    /// Fetch the newest kernels of the tested series and print their versions.
    Kernels,
    /// Boot a host, run one command in it as root, show its output, power off.
    ShellRun(shell_run::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse().command).await {
        Ok(code) => code,
        Err(error) => {
            // Without the backtrace: a person reads this.
            eprintln!("rdmesh-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Subcommands) -> Result<ExitCode> {
    children::clean_up_on_interrupt()?;
    match command {
        Subcommands::Kernels => tokio::task::spawn_blocking(print_kernels).await?,
        Subcommands::Demo(args) => demo::run(&args).await,
        Subcommands::Fail(args) => fail::run(&args).await,
        Subcommands::Faults(args) => faults_command::run(&args).await,
        Subcommands::Bench(args) => bench::run(&args).await,
        Subcommands::ShellRun(args) => shell_run::run(&args).await,
    }
}

fn print_kernels() -> Result<ExitCode> {
    for (kernel, image) in kernels::refresh(Progress::Lines)? {
        println!(
            "{:<6}{:<20}{}",
            kernel.series(),
            image.version,
            image.release
        );
    }
    Ok(ExitCode::SUCCESS)
}

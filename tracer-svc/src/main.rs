//! `tracer-svc`: configuration, telemetry, attach, serve, drain.

use std::process::ExitCode;

use clap::Parser;
use rdmesh_services::config::{self, Loaded};
use rdmesh_services::telemetry;
use rdmesh_tracer::cli::{Cli, Command};
use rdmesh_tracer::config::TracerConfig;
use rdmesh_tracer::launch::{self, LaunchError};

fn main() -> ExitCode {
    match execute(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tracer-svc: {error:#}");
            let code = error
                .downcast_ref::<LaunchError>()
                .map_or(1, LaunchError::exit_code);
            ExitCode::from(code)
        }
    }
}

fn execute(cli: &Cli) -> anyhow::Result<()> {
    let loaded = config::load(&cli.config, &cli.flags()).map_err(LaunchError::from)?;
    let Loaded::Run(config) = loaded else {
        return Ok(());
    };
    match cli.command.unwrap_or(Command::Run) {
        Command::Run => run(config),
        Command::Probes { output } => {
            let kernel = launch::attach(&config.ring.options())?;
            Ok(launch::print_probes(kernel, output)?)
        }
        Command::Watch { records: true, .. } => {
            let options = config.ring.options();
            Ok(launch::runtime()?.block_on(launch::watch_records(&options))?)
        }
        Command::Watch {
            output, expected, ..
        } => {
            let kernel = launch::attach(&config.ring.options())?;
            Ok(launch::runtime()?.block_on(launch::watch(kernel, output, expected))?)
        }
    }
}

fn run(config: TracerConfig) -> anyhow::Result<()> {
    let identity = launch::identity(&config)?;
    let telemetry = telemetry::start(&config.telemetry, &launch::resource(&identity))
        .map_err(LaunchError::from)?;
    let runtime = launch::runtime()?;
    let listener = runtime.block_on(launch::bind(&config))?;
    // Attaching blocks for up to seconds: before anything is served, and outside
    // of the event loop.
    let kernel = launch::attach(&config.ring.options())?;
    runtime.block_on(launch::serve(config, identity, listener, kernel))?;
    drop(telemetry);
    Ok(())
}

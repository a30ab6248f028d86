//! `tracer-svc`: configuration, telemetry, attach, serve, drain.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser;
use rdmesh_services::causes::with_causes;
use rdmesh_services::config::{self, Loaded};
use rdmesh_services::telemetry;
use rdmesh_tracer::cli::{Cli, Command, Output};
use rdmesh_tracer::config::TracerConfig;
use rdmesh_tracer::launch::{self, LaunchError};
use rdmesh_tracer::select::SelectArgs;
use rdmesh_tracer::service::Wish;

fn main() -> ExitCode {
    match execute(&Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            // Nobody may read it any more: the exit code tells.
            let _ = writeln!(io::stderr(), "tracer-svc: {}", with_causes(error.as_ref()));
            let code = error
                .downcast_ref::<LaunchError>()
                .map_or(1, LaunchError::exit_code);
            ExitCode::from(code)
        }
    }
}

fn execute(cli: &Cli) -> anyhow::Result<ExitCode> {
    if let Some(Command::Select { from, output }) = &cli.command {
        return select(from, *output);
    }
    if let Some(Command::Price { function, peer }) = &cli.command {
        match launch::hold_priced(function, *peer)? {}
    }
    with_configuration(cli).map(|()| ExitCode::SUCCESS)
}

fn select(from: &SelectArgs, output: Output) -> anyhow::Result<ExitCode> {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let outcome = rdmesh_tracer::select::run(from, &release, output == Output::Json)?;
    std::io::stdout().write_all(outcome.text.as_bytes())?;
    Ok(outcome.exit_code())
}

fn with_configuration(cli: &Cli) -> anyhow::Result<()> {
    let loaded = config::load(&cli.config, &cli.flags()).map_err(LaunchError::from)?;
    let Loaded::Run(config) = loaded else {
        return Ok(());
    };
    match cli.command.clone().unwrap_or(Command::Run) {
        // Done before: they read no configuration.
        Command::Select { .. } | Command::Price { .. } => Ok(()),
        Command::Run => run(config),
        Command::Detach { module } => order(&config, Wish::Detach(module)),
        Command::Attach { module } => order(&config, Wish::Attach(module)),
        Command::Probes { output } => {
            let kernel = launch::attach(&config.options())?;
            Ok(launch::print_probes(kernel, output)?)
        }
        Command::Watch { records: true, .. } => {
            let options = config.options();
            Ok(launch::runtime()?.block_on(launch::watch_records(&options))?)
        }
        Command::Watch {
            output, expected, ..
        } => {
            let kernel = launch::attach(&config.options())?;
            Ok(launch::runtime()?.block_on(launch::watch(kernel, output, expected))?)
        }
    }
}

fn order(config: &TracerConfig, wish: Wish) -> anyhow::Result<()> {
    Ok(launch::runtime()?.block_on(launch::order(config, wish))?)
}

fn run(config: TracerConfig) -> anyhow::Result<()> {
    let identity = launch::identity(&config)?;
    let telemetry = telemetry::start(&config.telemetry, &launch::resource(&identity))
        .map_err(LaunchError::from)?;
    let runtime = launch::runtime()?;
    let listener = runtime.block_on(launch::bind(&config))?;
    // Attaching blocks for up to seconds: before anything is served, and outside
    // of the event loop.
    let kernel = launch::attach(&config.options())?;
    runtime.block_on(launch::serve(config, identity, listener, kernel))?;
    drop(telemetry);
    Ok(())
}

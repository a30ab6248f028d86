//! `tracer-svc`: configuration, telemetry, attach, serve, drain.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser;
use rdmesh_services::causes::with_causes;
use rdmesh_services::config::{self, ConfigArgs, Loaded};
use rdmesh_services::telemetry;
use rdmesh_services::tls::Tls;
use rdmesh_tracer::cli::{Cli, Command, Output};
use rdmesh_tracer::config::TracerConfig;
use rdmesh_tracer::launch::{self, LaunchError};
use rdmesh_tracer::select::SelectArgs;
use rdmesh_tracer::service::Wish;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(mistake) = cli.check() {
        mistake.exit();
    }
    match execute(&cli) {
        Ok(code) => code,
        Err(error) => {
            let why = error.downcast_ref::<LaunchError>();
            if !matches!(why, Some(LaunchError::Unread)) {
                // Nobody may read it any more: the exit code tells.
                let _ = writeln!(io::stderr(), "tracer-svc: {}", with_causes(error.as_ref()));
            }
            let code = why.map_or(1, LaunchError::exit_code);
            ExitCode::from(code)
        }
    }
}

/// Each probe and map is a descriptor, some two hundred in all: what the system allows is
/// used, whatever the shell is content with.
fn allow_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if limit.current != limit.maximum && setrlimit(Resource::Nofile, all).is_err() {
        // Then the limit stays, and what does not fit in it says so.
        tracing::debug!("the limit of open files could not be raised");
    }
}

fn execute(cli: &Cli) -> anyhow::Result<ExitCode> {
    allow_descriptors();
    if let Some(Command::Select { from, output }) = &cli.command {
        return select(from, *output);
    }
    if let Some(Command::Price { function, peer }) = &cli.command {
        match launch::hold_priced(function, *peer)? {}
    }
    with_configuration(cli).map(|()| ExitCode::SUCCESS)
}

/// `all` means every module here as in `rdmesh probes --detach all`; no module has that name.
fn not_all(module: &String) -> bool {
    module != "all"
}

fn select(from: &SelectArgs, output: Output) -> anyhow::Result<ExitCode> {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let outcome = rdmesh_tracer::select::run(from, &release, output == Output::Json)?;
    launch::print(&outcome.text)?;
    Ok(outcome.exit_code())
}

fn with_configuration(cli: &Cli) -> anyhow::Result<()> {
    let loaded = config::load(&cli.configuration(), &cli.flags()).map_err(LaunchError::from)?;
    let Loaded::Run(config) = loaded else {
        return Ok(());
    };
    match cli
        .command
        .clone()
        .unwrap_or(Command::Run(ConfigArgs::default()))
    {
        // Done before: they read no configuration.
        Command::Select { .. } | Command::Price { .. } => Ok(()),
        Command::Run(_) => run(config),
        Command::Detach { module, .. } => order(&config, Wish::Detach(module.filter(not_all))),
        Command::Attach { module, .. } => order(&config, Wish::Attach(module.filter(not_all))),
        Command::Probes { output, .. } => {
            let kernel = launch::attach(&config.options())?;
            Ok(launch::print_probes(kernel, output)?)
        }
        Command::Watch { records: true, .. } => {
            let options = config.options();
            let runtime = launch::runtime()?;
            let signals = launch::signals(&runtime)?;
            Ok(runtime.block_on(launch::watch_records(&options, signals))?)
        }
        Command::Watch {
            output, expected, ..
        } => {
            let runtime = launch::runtime()?;
            let signals = launch::signals(&runtime)?;
            let kernel = launch::attach(&config.options())?;
            Ok(runtime.block_on(launch::watch(kernel, output, expected, signals))?)
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
    let signals = launch::signals(&runtime)?;
    let tls = Tls::open(&config.tls).map_err(LaunchError::from)?;
    let listener = runtime.block_on(launch::bind(&config, &tls))?;
    // Attaching blocks for up to seconds: before anything is served, and outside
    // of the event loop.
    let kernel = launch::attach(&config.options())?;
    runtime.block_on(launch::serve(
        config, identity, tls, listener, kernel, signals,
    ))?;
    drop(telemetry);
    Ok(())
}

//! `shaper-svc`: configuration, telemetry, start, serve, drain; and its tools.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Parser;
use rdmesh_proto::common::v1::AgentKind;
use rdmesh_services::causes::with_causes;
use rdmesh_services::config::{ConfigArgs, ConfigError, Loaded, load};
use rdmesh_services::server::ServerError;
use rdmesh_services::shutdown::Signals;
use rdmesh_services::telemetry::{self, FLUSH_WITHIN, Resource, TelemetryError};
use rdmesh_services::tls::{Tls, TlsError};
use rdmesh_services::uplink::{Identity, Spool, Surroundings, Uplink};
use rdmesh_services::{host, server};
use rdmesh_shaper::cli::{Cli, Command};
use rdmesh_shaper::config::ShaperConfig;
use rdmesh_shaper::service::start::StartError;
use rdmesh_shaper::service::{advertise::Advertised, preflight, run, shared::Shared, start};
use rdmesh_shaper::{bench, tools};

fn main() -> ExitCode {
    let command = Cli::parse().command().unwrap_or_else(|usage| usage.exit());
    match execute(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody may read it any more: the exit code tells.
            let _ = writeln!(io::stderr(), "shaper-svc: {}", with_causes(error.as_ref()));
            ExitCode::from(exit_code(&error))
        }
    }
}

/// 2 for a configuration that cannot be used, as for wrong usage.
fn exit_code(error: &anyhow::Error) -> u8 {
    let start = matches!(
        error.downcast_ref(),
        Some(StartError::NoWires | StartError::NoName(_) | StartError::Config(_))
    );
    let server = matches!(error.downcast_ref(), Some(ServerError::Insecure { .. }));
    let read = error.is::<ConfigError>() || error.is::<TelemetryError>() || error.is::<TlsError>();
    if start || server || read { 2 } else { 1 }
}

fn execute(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Run(args) => return run_service(&args),
        Command::Check(args) => return check(&args),
        Command::Replay(args) => tools::run_replay(&args, &mut io::stdout().lock())?,
        Command::Inspect(args) => tools::run_inspect(&args, &mut io::stdout().lock())?,
        Command::Bench { only } => bench::run(&only, &mut io::stdout().lock())?,
    }
    Ok(())
}

fn check(args: &ConfigArgs) -> anyhow::Result<()> {
    let Loaded::Run(config) = load::<ShaperConfig>(args, &[])? else {
        return Ok(());
    };
    if preflight::run(&config, &mut io::stdout().lock())? {
        return Ok(());
    }
    anyhow::bail!("the service would not start; see the lines that begin with `fail`")
}

fn run_service(args: &ConfigArgs) -> anyhow::Result<()> {
    let Loaded::Run(config) = load::<ShaperConfig>(args, &[])? else {
        return Ok(());
    };
    let (name, host) = (start::agent_name(&config)?, host::host_name(&config.host)?);
    let identity = Identity::new(AgentKind::Shaper, name.clone(), host::boot_id()?);
    let telemetry = telemetry::start(
        &config.telemetry,
        &Resource {
            service: "rdmesh-shaper".to_owned(),
            instance: identity.run_id.clone(),
            host: name.clone(),
        },
    )?;

    let prepared = start::prepare(&config, SystemTime::now())?;
    let spool = Spool::open(&config.uplink.spool, &config.state_directory)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let tls = Tls::open(&config.tls)?;
    let listener = runtime.block_on(server::bind_with(&config.server, &tls))?;
    let advertised = Advertised::new(&config.advertise, listener.local_address()?, &name);
    let path = start::start_data_path(&config, &prepared.control)?;
    let (ledger, _locks) = start::begin(prepared, &path, SystemTime::now());
    let facts = start::report_facts(&config, &name, &host, path.memory_bytes);
    let shared = Shared::new(ledger, facts, &path);

    let served = runtime.block_on(async {
        let mut signals = Signals::install()?;
        tls.keep_fresh();
        let surroundings = Surroundings {
            spool,
            ..advertised.surroundings(&config.uplink, &tls)
        };
        let uplink = Uplink::start_in(surroundings, &config.uplink, move || {
            let mut hello = identity.hello();
            hello.address = advertised.address();
            hello
        });
        let labels = start::labels(&config, &host);
        let options = run::RunOptions::of(&config);
        let end = signals.received();
        anyhow::Ok(run::serve(shared, path, labels, uplink, listener, options, end).await?)
    });
    // A driver that hangs must not hold the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    telemetry.flush(FLUSH_WITHIN);
    served
}

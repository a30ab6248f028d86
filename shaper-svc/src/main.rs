//! `shaper-svc`: the shaper and its tools.

use std::io;
use std::time::{Duration, SystemTime};

use clap::{Parser, Subcommand};
use rdmesh_proto::common::v1::AgentKind;
use rdmesh_services::config::{ConfigArgs, Loaded, load};
use rdmesh_services::shutdown::Signals;
use rdmesh_services::telemetry::{self, FLUSH_WITHIN, Resource};
use rdmesh_services::uplink::{Identity, Uplink};
use rdmesh_services::{host, server};
use rdmesh_shaper::config::ShaperConfig;
use rdmesh_shaper::service::{advertised, preflight, run, shared::Shared, start};
use rdmesh_shaper::{bench, tools};

/// Moves every transmitted frame through a virtual wire of a given rate.
#[derive(Debug, Parser)]
#[command(name = "shaper-svc", version, args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: ConfigArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shape, and serve rdmesh.shaper.v1.ShaperService: what happens without a command.
    Run(ConfigArgs),
    /// Look at configuration and machine, and touch nothing: would the service start, and
    /// would its windows mean something?
    Check(ConfigArgs),
    /// Move a captured stream through a wire, in virtual time.
    Replay(tools::ReplayArgs),
    /// Tell how far a captured stream runs ahead of an ideal wire.
    Inspect(tools::InspectArgs),
    /// Measure what the shaper costs on this machine; one line of JSON per figure.
    Bench {
        /// Only figures whose name contains this.
        #[arg(long, default_value = "")]
        only: String,
    },
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    match args.command.unwrap_or(Command::Run(args.run)) {
        Command::Run(args) => run_service(&args)?,
        Command::Check(args) => check(&args)?,
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
    let host = host::host_name(&config.host)?;
    let mut identity = Identity::new(AgentKind::Shaper, host.clone(), host::boot_id()?);
    let telemetry = telemetry::start(
        &config.telemetry,
        &Resource {
            service: "rdmesh-shaper".to_owned(),
            instance: identity.run_id.clone(),
            host: host.clone(),
        },
    )?;

    let prepared = start::prepare(&config, SystemTime::now())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let listener = runtime.block_on(server::bind(&config.server))?;
    identity.address = advertised(&listener.local_address()?, &host);
    let path = start::start_data_path(&config, &prepared.control)?;
    let (ledger, _locks) = start::begin(prepared, &path, SystemTime::now())?;
    let facts = start::report_facts(&config, &host, path.memory_bytes);
    let shared = Shared::new(ledger, facts, &path);

    let served = runtime.block_on(async {
        let mut signals = Signals::install()?;
        let uplink = Uplink::start(&config.uplink, move || identity.hello());
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

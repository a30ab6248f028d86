//! collector-svc: configuration, telemetry, build, serve, drain.

#![forbid(unsafe_code)]

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use rdmesh_collector::config::CollectorConfig;
use rdmesh_collector::service::{self, Collector, CollectorError};
use rdmesh_services::causes::with_causes;
use rdmesh_services::config::{self, ConfigArgs, ConfigError, Flag, Loaded};
use rdmesh_services::server::ServerError;
use rdmesh_services::shutdown::Signals;
use rdmesh_services::telemetry::{self, Resource, TelemetryError};
use rdmesh_services::tls::{Tls, TlsError};
use rdmesh_services::{VERSION, host};
use rdmesh_store::StoreError;
use time::OffsetDateTime;

/// What `--help` says about exit codes.
const EXIT_CODES: &str = "\
Exit codes:
  0   ended as asked
  1   failed while running; the message says why
  2   wrong usage or configuration";

/// Exit code of a configuration that cannot be used; clap's for wrong usage is the same.
const EXIT_CONFIGURATION: u8 = 2;

/// The rdmesh collector: takes what agents report and schedulers tell, and says what
/// broke a job.
#[derive(Debug, Parser)]
#[command(
    name = "collector-svc",
    version = VERSION,
    after_help = config::help::<CollectorConfig>(EXIT_CODES)
)]
struct Arguments {
    /// Where to listen: IP:PORT, [IPv6]:PORT or unix:/path
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Where to store: postgres://USER:PASSWORD@HOST:PORT/DATABASE
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
    #[command(flatten)]
    config: ConfigArgs,
}

fn main() -> ExitCode {
    match execute(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody may read it any more: the exit code tells.
            let _ = writeln!(
                io::stderr(),
                "collector-svc: {}",
                with_causes(error.as_ref())
            );
            ExitCode::from(exit_code(&error))
        }
    }
}

fn exit_code(error: &anyhow::Error) -> u8 {
    let configuration = error.is::<ConfigError>()
        || error.is::<TelemetryError>()
        || error.is::<TlsError>()
        || matches!(
            error.downcast_ref(),
            Some(CollectorError::Store(StoreError::Url(_)))
                | Some(CollectorError::Site(_))
                | Some(CollectorError::Server(ServerError::Insecure { .. }))
        );
    if configuration { EXIT_CONFIGURATION } else { 1 }
}

fn execute(arguments: &Arguments) -> anyhow::Result<()> {
    let flags: Vec<Flag> = [
        Flag::optional("--listen", "server.listen", arguments.listen.as_ref()),
        Flag::optional(
            "--database-url",
            "database.url",
            arguments.database_url.as_ref(),
        ),
    ]
    .into_iter()
    .flatten()
    .collect();
    let config: CollectorConfig = match config::load(&arguments.config, &flags)? {
        Loaded::Run(config) => config,
        Loaded::Answered => return Ok(()),
    };
    let resource = Resource {
        service: "rdmesh-collector".to_owned(),
        instance: uuid::Uuid::new_v4().to_string(),
        host: host::host_name("").unwrap_or_default(),
    };
    let telemetry = telemetry::start(&config.telemetry, &resource)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(&config))?;
    // The last metrics leave after everything else has ended.
    drop(telemetry);
    Ok(())
}

async fn run(config: &CollectorConfig) -> anyhow::Result<()> {
    let mut signals = Signals::install().context("cannot listen for signals")?;
    let tls = Tls::open(&config.tls)?;
    tls.keep_fresh();
    let listener = service::bind(config, &tls).await?;
    let collector = Collector::with(config, &tls, OffsetDateTime::now_utc)?;
    collector.serve(listener, signals.received()).await?;
    tracing::info!("ended");
    Ok(())
}

//! collector-svc: configuration, telemetry, build, serve, drain.

#![forbid(unsafe_code)]

use anyhow::Context;
use clap::Parser;
use rdmesh_collector::config::CollectorConfig;
use rdmesh_collector::service::{self, Collector};
use rdmesh_services::config::{self, ConfigArgs, Flag, Loaded};
use rdmesh_services::shutdown::Signals;
use rdmesh_services::telemetry::{self, Resource};
use rdmesh_services::{VERSION, host};
use time::OffsetDateTime;

/// The rdmesh collector: takes what agents report and schedulers tell, and says what
/// broke a job.
#[derive(Debug, Parser)]
#[command(name = "collector-svc", version = VERSION)]
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

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
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
    let listener = service::bind(config).await?;
    let collector = Collector::new(config, OffsetDateTime::now_utc)?;
    collector.serve(listener, signals.received()).await?;
    tracing::info!("ended");
    Ok(())
}

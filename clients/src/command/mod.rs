//! What each command asks and answers.

pub(crate) mod advise_retry;
pub(crate) mod baseline;
pub(crate) mod certs;
pub(crate) mod classify_log;
pub(crate) mod completions;
pub(crate) mod diagnose;
pub(crate) mod doctor;
pub(crate) mod failures;
pub(crate) mod fleet;
mod follow;
pub(crate) mod incidents;
pub(crate) mod job;
pub(crate) mod job_log;
mod outage;
pub(crate) mod probes;
pub(crate) mod statistics;
pub(crate) mod wire;
mod wire_compare;
mod wire_watch;

use std::path::PathBuf;

use rdmesh_client::endpoint::{AddressSources, VARIABLE, default_files};
use rdmesh_client::{Client, ClientError, Links};

use crate::args::{Cli, Command, Global};
use crate::exit::{Code, CommandError};
use crate::output::Output;

/// Rows that a list shows unless told otherwise: two screens.
pub(crate) const DEFAULT_LIMIT: u32 = 100;

/// Most rows that a list can show. A hundred pages of the wire's thousand keep
/// the answer below some hundred megabytes of memory.
pub(crate) const MAX_LIMIT: i64 = 100_000;

/// Runs the command that was asked for.
pub(crate) fn run(cli: &Cli, output: &mut Output) -> Result<Code, CommandError> {
    if output.report.is_some() && !matches!(cli.command, Command::Diagnose(_)) {
        return Err(CommandError::Usage(
            "-o md and -o html are reports, which diagnose writes; others take -o text or -o json"
                .to_owned(),
        ));
    }
    // What needs no collector.
    match &cli.command {
        Command::Completions(args) => return completions::run(args, output),
        Command::ClassifyLog(args) => return classify_log::run(args, output),
        Command::Certs(command) => return certs::run(command, output),
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CommandError::Runtime)?;
    runtime.block_on(async {
        // Agents may be asked without any collector.
        match &cli.command {
            Command::Baseline(command) => return baseline::run(command, &cli.global, output).await,
            Command::Wire(command) => return wire::run(command, &cli.global, output).await,
            Command::Probes(args) => return probes::run(args, &cli.global, output).await,
            Command::Doctor(args) => return doctor::run(args, &cli.global, output).await,
            _ => {}
        }
        let client = connect(&cli.global).await?;
        match &cli.command {
            Command::Job(command) => job::run(command, &client, output).await,
            Command::Failures(args) => failures::run(args, (&client, &cli.global), output).await,
            Command::Diagnose(args) => diagnose::run(args, &client, output).await,
            Command::AdviseRetry(args) => advise_retry::run(args, &client, output).await,
            Command::Misattribution(args) => {
                statistics::misattribution(args, &client, output).await
            }
            Command::Coverage(args) => statistics::coverage(args, &client, output).await,
            Command::Silent(args) => statistics::silent(args, &client, output).await,
            Command::LostHours(args) => statistics::lost_hours(args, &client, output).await,
            Command::Classes(args) => incidents::classes(args, &client, output).await,
            Command::Incidents(args) => incidents::list(args, &client, output).await,
            Command::Precursors(args) => incidents::precursors(args, &client, output).await,
            Command::Probes(args) => probes::run(args, &cli.global, output).await,
            Command::Fleet(args) => fleet::run(args, &client, output).await,
            Command::Doctor(args) => doctor::run(args, &cli.global, output).await,
            Command::Wire(command) => wire::run(command, &cli.global, output).await,
            Command::Baseline(command) => baseline::run(command, &cli.global, output).await,
            Command::ClassifyLog(args) => classify_log::run(args, output),
            Command::Certs(command) => certs::run(command, output),
            Command::Completions(args) => completions::run(args, output),
        }
    })
}

async fn connect(global: &Global) -> Result<Client, CommandError> {
    let links = links(global)?;
    let address = sources(global).resolve().map_err(ClientError::from)?;
    let client = Client::connect_over(&links, address).await?;
    Ok(client.with_call_timeout(global.timeout()))
}

/// The caller's certificate: flags, environment, file.
fn links(global: &Global) -> Result<Links, CommandError> {
    let of_file = sources(global).tls().map_err(ClientError::from)?;
    Ok(Links::open(global.tls().over(of_file))?)
}

fn sources(global: &Global) -> AddressSources {
    let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
    AddressSources {
        flag: global.collector.clone(),
        variable: std::env::var_os(VARIABLE).map(|value| value.to_string_lossy().into_owned()),
        files: default_files(path("XDG_CONFIG_HOME"), path("HOME")),
    }
}

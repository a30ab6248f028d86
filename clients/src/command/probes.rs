//! `rdmesh probes HOST`.

use clap::{Args, ValueHint};
use rdmesh_client::Client;

use crate::args;
use crate::exit::{Code, CommandError};
use crate::output::Output;
use crate::render;

const EXAMPLE: &str = "\
Examples:
  rdmesh probes gpu-01
  rdmesh probes gpu-01 -o json | jq -r '.probes[] | select(.state == \"missing\") | .reason'";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct ProbesArgs {
    /// The host, as rdmesh fleet shows it
    #[arg(value_parser = args::filter(), value_hint = ValueHint::Hostname)]
    host: String,
}

pub(crate) async fn run(
    args: &ProbesArgs,
    client: &Client,
    output: &mut Output,
) -> Result<Code, CommandError> {
    let probes = client.host_probes(&args.host).await?;
    output.answer(&probes, render::probes::text)?;
    Ok(Code::Answered)
}

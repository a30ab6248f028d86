//! `rdmesh fleet`.

use clap::Args;
use rdmesh_client::Client;
use rdmesh_client::model::agent::{Agent, AgentHealth};
use serde::Serialize;

use crate::exit::{Code, CommandError};
use crate::output::Output;
use crate::render;

const EXAMPLE: &str = "\
Examples:
  rdmesh fleet
  rdmesh fleet -o json | jq -r '.agents[] | select(.health != \"healthy\") | .host'";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct FleetArgs {}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct Fleet {
    pub(crate) agents: Vec<Agent>,
}

pub(crate) async fn run(
    _args: &FleetArgs,
    client: &Client,
    output: &mut Output,
) -> Result<Code, CommandError> {
    let mut agents = client.list_agents().await?;
    // The collector sorts within a page; over several pages this does.
    agents.sort_by_key(|agent| match agent.health {
        AgentHealth::Silent => 0,
        AgentHealth::Degraded => 1,
        AgentHealth::Unspecified | AgentHealth::Newer(_) => 2,
        AgentHealth::Healthy => 3,
    });
    output.answer(&Fleet { agents }, render::fleet::text)?;
    Ok(Code::Answered)
}

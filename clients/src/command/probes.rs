//! `rdmesh probes HOST`.

use clap::{Args, ValueHint};
use rdmesh_client::Client;
use rdmesh_client::tracer::{Order, TracerClient, TracerError};

use crate::args::{self, Global};
use crate::exit::{Code, CommandError};
use crate::output::Output;
use crate::render;

const EXAMPLE: &str = "\
The tracer of the host carries an order out itself; the collector only tells where it can
be dialled (`advertise` in its tracer.toml).

Examples:
  rdmesh probes gpu-01
  rdmesh probes gpu-01 --detach mlx5_ib     # then reload the driver
  rdmesh probes gpu-01 --attach all --tracer gpu-01.mgmt:7401
  rdmesh probes gpu-01 -o json | jq -r '.probes[] | select(.state == \"missing\") | .reason'";

/// In the place of a module: all of them.
const ALL: &str = "all";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct ProbesArgs {
    /// The host, as rdmesh fleet shows it
    #[arg(value_parser = args::filter(), value_hint = ValueHint::Hostname)]
    host: String,
    /// Take the probes off a driver's kernel module, so that it can be unloaded; they come
    /// back when it is loaded again. "all": off every module
    #[arg(long, value_name = "DRIVER", value_parser = args::filter(), conflicts_with = "attach")]
    detach: Option<String>,
    /// Put the probes on again; "all": also those that the tracer's budget took off
    #[arg(long, value_name = "DRIVER", value_parser = args::filter())]
    attach: Option<String>,
    /// Give the order to the tracer at HOST[:PORT] or unix:/PATH, without a collector
    #[arg(long, value_name = "ADDRESS", value_parser = args::filter(),
          value_hint = ValueHint::Hostname)]
    tracer: Option<String>,
}

impl ProbesArgs {
    fn order(&self) -> Option<Order> {
        let module = |name: &String| (name != ALL).then(|| name.clone());
        match (&self.detach, &self.attach) {
            (Some(name), _) => Some(Order::Detach(module(name))),
            (None, Some(name)) => Some(Order::Attach(module(name))),
            (None, None) => None,
        }
    }
}

pub(crate) async fn run(
    args: &ProbesArgs,
    global: &Global,
    output: &mut Output,
) -> Result<Code, CommandError> {
    let Some(order) = args.order() else {
        if args.tracer.is_some() {
            return Err(CommandError::Usage(
                "--tracer says who carries out --detach or --attach; give one of them".to_owned(),
            ));
        }
        let client = super::connect(global).await?;
        let probes = client.host_probes(&args.host).await?;
        output.answer(&probes, render::probes::text)?;
        return Ok(Code::Answered);
    };
    let address = match (&args.tracer, &global.collector) {
        (Some(_), Some(_)) => {
            return Err(CommandError::Usage(
                "--collector and --tracer both say whom to ask; give one".to_owned(),
            ));
        }
        (Some(address), None) => address.clone(),
        (None, _) => address_of(&super::connect(global).await?, &args.host).await?,
    };
    let tracer =
        TracerClient::connect_over(&super::links(global)?, &address, global.timeout()).await?;
    let done = tracer.order(&args.host, &order).await?;
    output.answer(&done, render::probes::done)?;
    Ok(Code::Answered)
}

async fn address_of(client: &Client, host: &str) -> Result<String, CommandError> {
    let address = client.tracer_address(host).await?;
    let host = host.to_owned();
    Ok(address.ok_or(TracerError::NoAddress { host })?)
}

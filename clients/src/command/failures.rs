//! `rdmesh failures`.

use clap::{Args, ValueHint};
use rdmesh_client::errno::Errno;
use rdmesh_client::model::failure::Failure;
use rdmesh_client::queries::FailureFilter;
use rdmesh_client::{AttemptSelector, Client, Moment};
use serde::Serialize;

use super::{DEFAULT_LIMIT, MAX_LIMIT, follow};
use crate::args::{self, Global};
use crate::exit::{Code, CommandError};
use crate::output::Output;
use crate::render;

const EXAMPLE: &str = "\
Examples:
  rdmesh failures --host gpu-01 --since 1h
  rdmesh failures --errno EFAULT --function ib_umem_get -o json
  rdmesh failures --follow --host gpu-01";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct FailuresArgs {
    /// Of this job, or of one of its attempts
    #[arg(long, value_name = "JOB[/ATTEMPT]")]
    job: Option<AttemptSelector>,
    /// On this host
    #[arg(long, value_parser = args::filter(), value_hint = ValueHint::Hostname)]
    host: Option<String>,
    /// On this RDMA device, such as mlx5_0
    #[arg(long, value_parser = args::filter())]
    device: Option<String>,
    /// With this kernel function in the chain
    #[arg(long, value_parser = args::filter())]
    function: Option<String>,
    /// With this error number, such as EFAULT or 14
    #[arg(long, allow_hyphen_values = true)]
    errno: Option<Errno>,
    /// From then on: an age such as 1h, or a time such as 2026-01-31T14:05:00Z
    #[arg(long, value_name = "TIME", value_parser = args::moment)]
    since: Option<Moment>,
    /// Before then
    #[arg(long, value_name = "TIME", value_parser = args::moment)]
    until: Option<Moment>,
    /// Also expected failures, which are part of normal work
    #[arg(long)]
    all: bool,
    /// Go on with failures as they are stored, until Ctrl-C or --limit; with --since those
    /// since then come first, oldest first
    #[arg(long, conflicts_with = "until")]
    follow: bool,
    /// How many at most [default: 100; with --follow: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_LIMIT))]
    limit: Option<u32>,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct FailureList {
    pub(crate) failures: Vec<Failure>,
    /// Whether there are more than were asked for.
    pub(crate) more: bool,
}

pub(crate) async fn run(
    args: &FailuresArgs,
    (client, global): (&Client, &Global),
    output: &mut Output,
) -> Result<Code, CommandError> {
    args::check_order(args.since, args.until)?;
    let filter = FailureFilter {
        attempt: args.job.clone(),
        host: args.host.clone().unwrap_or_default(),
        device: args.device.clone().unwrap_or_default(),
        function: args.function.clone().unwrap_or_default(),
        errno: args.errno,
        since: args.since,
        until: args.until,
        include_expected: args.all,
    };
    if args.follow {
        let back = args.since.is_some();
        return follow::run(&filter, back, args.limit, (client, global), output).await;
    }
    let limit = usize::try_from(args.limit.unwrap_or(DEFAULT_LIMIT)).unwrap_or(usize::MAX);
    let page = client.list_failures(&filter, limit).await?;
    let list = FailureList {
        failures: page.items,
        more: page.more,
    };
    output.answer(&list, render::failures::text)?;
    Ok(Code::Answered)
}

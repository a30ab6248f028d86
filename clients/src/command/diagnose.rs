//! `rdmesh diagnose JOB[/ATTEMPT]`.

use clap::Args;
use rdmesh_client::model::verdict::VerdictClass;
use rdmesh_client::{AttemptSelector, Client};

use crate::exit::{Code, CommandError};
use crate::output::Output;
use crate::render;

const EXAMPLE: &str = "\
Exit code 0: a verdict; 3: the collector cannot tell; 4: the job is not known.

Examples:
  rdmesh diagnose 4711
  rdmesh diagnose 4711/1.2 -o json | jq -r '.class, .route_to'";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct DiagnoseArgs {
    /// The job, or one of its attempts: JOB, JOB/REQUEUE or JOB/REQUEUE.RESTART; a job alone
    /// means its latest attempt
    #[arg(value_name = "JOB[/ATTEMPT]")]
    attempt: AttemptSelector,
}

pub(crate) async fn run(
    args: &DiagnoseArgs,
    client: &Client,
    output: &mut Output,
) -> Result<Code, CommandError> {
    let diagnosis = client.diagnose(&args.attempt).await?;
    output.answer(&diagnosis, render::diagnose::text)?;
    Ok(match diagnosis.verdict.class {
        VerdictClass::CannotTell | VerdictClass::Unspecified => Code::CannotTell,
        _ => Code::Answered,
    })
}

//! `rdmesh advise-retry JOB[/ATTEMPT]`.

use clap::Args;
use rdmesh_client::model::advice::RetryAdvice;
use rdmesh_client::{AttemptSelector, Client};

use crate::exit::{Code, CommandError};
use crate::output::Output;
use crate::render;

const EXAMPLE: &str = "\
Exit code 0: an advice; 3: none; 4: the job is not known.

Examples:
  rdmesh advise-retry 4711
  sbatch --exclude=$(rdmesh advise-retry 4711/1 -o json | jq -r '.hosts | join(\",\")') train.sh";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct AdviseRetryArgs {
    /// The job, or one of its attempts: JOB, JOB/REQUEUE or JOB/REQUEUE.RESTART; a job alone
    /// means its latest attempt
    #[arg(value_name = "JOB[/ATTEMPT]")]
    attempt: AttemptSelector,
}

pub(crate) async fn run(
    args: &AdviseRetryArgs,
    client: &Client,
    output: &mut Output,
) -> Result<Code, CommandError> {
    let advice = client.advise_retry(&args.attempt).await?;
    output.answer(&advice, render::advice::text)?;
    Ok(match advice.advice {
        RetryAdvice::Unspecified | RetryAdvice::Newer(_) => Code::CannotTell,
        _ => Code::Answered,
    })
}

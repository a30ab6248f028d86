//! `rdmesh classes|incidents|precursors`: the fleet's past.

use clap::{Args, ValueEnum};
use rdmesh_client::Client;
use rdmesh_client::model::incidents::TimeStep;

use super::statistics::TimeArgs;
use crate::exit::{Code, CommandError};
use crate::output::Output;
use crate::render::incidents;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Step {
    Hour,
    Day,
    Week,
    Month,
}

impl From<Step> for TimeStep {
    fn from(step: Step) -> TimeStep {
        match step {
            Step::Hour => TimeStep::Hour,
            Step::Day => TimeStep::Day,
            Step::Week => TimeStep::Week,
            Step::Month => TimeStep::Month,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
The same numbers in SQL: SELECT * FROM rdmesh.classes and rdmesh.class_trends (by week),
and for a time and a step rdmesh.classes_in(FROM, TO, 'day').

Example:
  rdmesh classes --since 90d --step week")]
pub(crate) struct ClassesArgs {
    #[command(flatten)]
    time: TimeArgs,
    /// How wide a step is; weeks begin on Monday, all of UTC
    #[arg(long, value_enum, default_value_t = Step::Week)]
    step: Step,
}

#[derive(Debug, Args)]
#[command(after_help = "\
--since and --until are about when calls failed. The same in SQL: SELECT * FROM
rdmesh.incidents, and for a time rdmesh.incidents_in(FROM, TO).

Example:
  rdmesh incidents --since 7d")]
pub(crate) struct IncidentsArgs {
    #[command(flatten)]
    time: TimeArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The same in SQL: SELECT * FROM rdmesh.precursors, and for a time
rdmesh.precursors_in(FROM, TO).

Example:
  rdmesh precursors --since 30d -o json | jq '.precursors[].lead_seconds'")]
pub(crate) struct PrecursorsArgs {
    #[command(flatten)]
    time: TimeArgs,
}

pub(crate) async fn classes(
    args: &ClassesArgs,
    client: &Client,
    output: &mut Output,
) -> Result<Code, CommandError> {
    let answer = client.classes(args.time.ended()?, args.step.into()).await?;
    output.answer(&answer, incidents::classes)?;
    Ok(Code::Answered)
}

pub(crate) async fn list(
    args: &IncidentsArgs,
    client: &Client,
    output: &mut Output,
) -> Result<Code, CommandError> {
    let answer = client.incidents(args.time.ended()?).await?;
    output.answer(&answer, incidents::incidents)?;
    Ok(Code::Answered)
}

pub(crate) async fn precursors(
    args: &PrecursorsArgs,
    client: &Client,
    output: &mut Output,
) -> Result<Code, CommandError> {
    let answer = client.precursors(args.time.ended()?).await?;
    output.answer(&answer, incidents::precursors)?;
    Ok(Code::Answered)
}

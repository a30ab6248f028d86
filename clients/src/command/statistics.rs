//! `rdmesh misattribution|coverage|silent|lost-hours`: shares over attempts.

use clap::Args;
use rdmesh_client::statistics::Ended;
use rdmesh_client::{Client, Moment};

use crate::args;
use crate::exit::{Code, CommandError};
use crate::output::Output;
use crate::render::statistics;

/// When attempts ended.
#[derive(Debug, Args)]
pub(super) struct TimeArgs {
    /// Attempts that ended from then on: an age such as 30d, or a time such as
    /// 2026-01-31T14:05:00Z
    #[arg(long, value_name = "TIME", value_parser = args::moment)]
    since: Option<Moment>,
    /// Attempts that ended before then
    #[arg(long, value_name = "TIME", value_parser = args::moment)]
    until: Option<Moment>,
}

impl TimeArgs {
    pub(super) fn ended(&self) -> Result<Ended, CommandError> {
        args::check_order(self.since, self.until)?;
        Ok(Ended {
            since: self.since,
            until: self.until,
        })
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
The same numbers in SQL: SELECT * FROM rdmesh.misattribution, and for a time
rdmesh.misattribution_in(FROM, TO).

Example:
  rdmesh misattribution --since 30d")]
pub(crate) struct MisattributionArgs {
    #[command(flatten)]
    time: TimeArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The same numbers in SQL: SELECT * FROM rdmesh.coverage, and for a time
rdmesh.coverage_in(FROM, TO).

Example:
  rdmesh coverage --since 30d -o json | jq .covered.of_attempts")]
pub(crate) struct CoverageArgs {
    #[command(flatten)]
    time: TimeArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The same numbers in SQL: SELECT * FROM rdmesh.silent, and for a time
rdmesh.silent_in(FROM, TO).

Example:
  rdmesh silent --since 30d")]
pub(crate) struct SilentArgs {
    #[command(flatten)]
    time: TimeArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The same numbers in SQL: SELECT * FROM rdmesh.lost_hours, and for a time
rdmesh.lost_hours_in(FROM, TO).

Example:
  rdmesh lost-hours --since 2026-01-01T00:00:00Z --until 2026-02-01T00:00:00Z")]
pub(crate) struct LostHoursArgs {
    #[command(flatten)]
    time: TimeArgs,
}

pub(crate) async fn misattribution(
    args: &MisattributionArgs,
    client: &Client,
    output: &mut Output,
) -> Result<Code, CommandError> {
    let answer = client.misattribution(args.time.ended()?).await?;
    output.answer(&answer, statistics::misattribution)?;
    Ok(Code::Answered)
}

pub(crate) async fn coverage(
    args: &CoverageArgs,
    client: &Client,
    output: &mut Output,
) -> Result<Code, CommandError> {
    let answer = client.coverage(args.time.ended()?).await?;
    output.answer(&answer, statistics::coverage)?;
    Ok(Code::Answered)
}

pub(crate) async fn silent(
    args: &SilentArgs,
    client: &Client,
    output: &mut Output,
) -> Result<Code, CommandError> {
    let answer = client.silent(args.time.ended()?).await?;
    output.answer(&answer, statistics::silent)?;
    Ok(Code::Answered)
}

pub(crate) async fn lost_hours(
    args: &LostHoursArgs,
    client: &Client,
    output: &mut Output,
) -> Result<Code, CommandError> {
    let answer = client.lost_hours(args.time.ended()?).await?;
    output.answer(&answer, statistics::lost_hours)?;
    Ok(Code::Answered)
}

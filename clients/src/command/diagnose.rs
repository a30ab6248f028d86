//! `rdmesh diagnose JOB[/ATTEMPT]`.

use clap::Args;
use rdmesh_client::model::verdict::VerdictClass;
use rdmesh_client::{AttemptSelector, Client};

use crate::args::ReportForm;
use crate::exit::{Code, CommandError};
use crate::output::Output;
use crate::render;

const EXAMPLE: &str = "\
Exit code 0: a verdict; 3: the collector cannot tell; 4: the job is not known.

Examples:
  rdmesh diagnose 4711
  rdmesh diagnose 4711/1.2 -o json | jq -r '.class, .route_to'
  rdmesh diagnose 4711 -o html >4711.html";

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
    let class = diagnosis.verdict.class;
    match output.report {
        None => output.answer(&diagnosis, render::diagnose::text)?,
        Some(form) => {
            // Of the attempt that was diagnosed: a job alone may have a newer one by now.
            let attempt = AttemptSelector::from(diagnosis.job.attempt.clone());
            let timeline = client.timeline(&attempt).await?;
            let report = render::report::Report {
                diagnosis,
                timeline,
            };
            let text = match form {
                ReportForm::Markdown => render::report::md::text(&report, output.now),
                ReportForm::Page => render::report::html::text(&report, output.now),
            };
            output.write(text.as_bytes())?;
        }
    }
    Ok(match class {
        VerdictClass::CannotTell | VerdictClass::Unspecified => Code::CannotTell,
        _ => Code::Answered,
    })
}

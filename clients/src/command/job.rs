//! `rdmesh job start|place|end|list|show`.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Args, Subcommand, ValueHint};
use rdmesh_client::jobs::{JobEnd, JobFilter, JobHistory, JobStart};
use rdmesh_client::model::job::{Job, JobState, JobStateError};
use rdmesh_client::model::log::SubmittedLog;
use rdmesh_client::{AttemptId, AttemptSelector, Client, ClientError, Moment, Placement};
use serde::Serialize;

use super::{DEFAULT_LIMIT, MAX_LIMIT};
use crate::args;
use crate::exit::{Code, CommandError};
use crate::output::Output;
use crate::render;

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Say that an attempt began; JOB alone means JOB/0
    Start(StartArgs),
    /// Say that an attempt runs on these hosts too; JOB alone means its latest attempt
    Place(PlaceArgs),
    /// Say that an attempt ended; JOB alone means its latest attempt
    End(EndArgs),
    /// Hand in a job's own log; JOB alone means its latest attempt
    Log(super::job_log::LogArgs),
    /// List attempts, newest first
    List(ListArgs),
    /// Show an attempt and its siblings; JOB alone means its latest attempt
    Show(ShowArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  rdmesh job start 4711 --name llama --user ada --host gpu-01:ranks=0-7 --host gpu-02:ranks=8-15")]
pub(crate) struct StartArgs {
    /// JOB, JOB/REQUEUE or JOB/REQUEUE.RESTART
    #[arg(value_name = "JOB[/ATTEMPT]")]
    attempt: AttemptId,
    /// Its name, for people
    #[arg(long)]
    name: Option<String>,
    /// Who owns it
    #[arg(long)]
    user: Option<String>,
    /// Which scheduler runs it, such as slurm
    #[arg(long)]
    scheduler: Option<String>,
    /// In which cluster it runs
    #[arg(long)]
    cluster: Option<String>,
    /// A class of your own, such as training
    #[arg(long)]
    class: Option<String>,
    /// Where it runs, HOST[:ranks=0-7][:devices=mlx5_0,…][:gpus=…][:vfs=…]; can be repeated
    #[arg(long = "host", value_name = "PLACEMENT", value_hint = ValueHint::Hostname)]
    hosts: Vec<Placement>,
    /// When it began; without: now
    #[arg(long, value_name = "TIME", value_parser = args::moment)]
    at: Option<Moment>,
    /// Anything else; can be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  rdmesh job place 4711 --host gpu-03:ranks=16-23:devices=mlx5_0"
)]
pub(crate) struct PlaceArgs {
    /// JOB, JOB/REQUEUE or JOB/REQUEUE.RESTART
    #[arg(value_name = "JOB[/ATTEMPT]")]
    attempt: AttemptSelector,
    /// Where it runs too, HOST[:ranks=0-7][:devices=mlx5_0,…][:gpus=…][:vfs=…]; can be repeated;
    /// a host that is named again is replaced
    #[arg(
        long = "host",
        required = true,
        value_name = "PLACEMENT",
        value_hint = ValueHint::Hostname
    )]
    hosts: Vec<Placement>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("how").required(true).multiple(true))]
#[command(after_help = "\
Examples:
  rdmesh job end 4711 --exit-code 1 --reason 'NonZeroExitCode'
  rdmesh job end 4711/1 --state cancelled")]
pub(crate) struct EndArgs {
    /// JOB, JOB/REQUEUE or JOB/REQUEUE.RESTART
    #[arg(value_name = "JOB[/ATTEMPT]")]
    attempt: AttemptSelector,
    /// How it ended; without: completed for exit code 0, failed for any other
    #[arg(long, group = "how", value_parser = States::END)]
    state: Option<JobState>,
    /// Its exit code
    #[arg(long, group = "how", value_name = "N", allow_hyphen_values = true)]
    exit_code: Option<i32>,
    /// The scheduler's words
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// When it ended; without: now
    #[arg(long, value_name = "TIME", value_parser = args::moment)]
    at: Option<Moment>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rdmesh job list --state failed --since 1d")]
pub(crate) struct ListArgs {
    /// Of this user
    #[arg(long, value_parser = args::filter())]
    user: Option<String>,
    /// That ran on this host
    #[arg(long, value_parser = args::filter(), value_hint = ValueHint::Hostname)]
    host: Option<String>,
    /// In this state, such as failed
    #[arg(long, value_parser = States::ANY)]
    state: Option<JobState>,
    /// From then on: an age such as 1h, or a time such as 2026-01-31T14:05:00Z
    #[arg(long, value_name = "TIME", value_parser = args::moment)]
    since: Option<Moment>,
    /// Before then
    #[arg(long, value_name = "TIME", value_parser = args::moment)]
    until: Option<Moment>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LIMIT,
          value_parser = clap::value_parser!(u32).range(1..=MAX_LIMIT))]
    limit: u32,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rdmesh job show 4711/0")]
pub(crate) struct ShowArgs {
    /// JOB, JOB/REQUEUE or JOB/REQUEUE.RESTART
    #[arg(value_name = "JOB[/ATTEMPT]")]
    attempt: AttemptSelector,
}

/// The answer to `job list`.
#[derive(Debug, Serialize)]
pub(crate) struct JobList {
    pub(crate) jobs: Vec<Job>,
    /// Whether there are more than were asked for.
    pub(crate) more: bool,
}

/// The answer to what changes a job.
#[derive(Debug, Serialize)]
pub(crate) struct JobChange {
    pub(crate) job: Job,
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE, for example model=llama".to_owned()),
    }
}

fn end_state(text: &str) -> Result<JobState, String> {
    let ended = "write completed, failed, cancelled, timeout, out_of_memory or node_fail";
    match text.parse() {
        Ok(JobState::Running) => {
            Err("a job that runs has not ended; use rdmesh job start".to_owned())
        }
        Ok(JobState::Unknown) => Err(format!(
            "it does not say how the job ended; {ended}, or --exit-code"
        )),
        Ok(state) => Ok(state),
        Err(_) => Err(format!("it is no state in which a job ends; {ended}")),
    }
}

/// Reads a state, and tells help and completions which ones there are.
#[derive(Clone, Copy)]
struct States {
    read: fn(&str) -> Result<JobState, String>,
    all: &'static [JobState],
}

impl States {
    const ANY: States = States {
        read: |text| {
            text.parse()
                .map_err(|error: JobStateError| error.to_string())
        },
        all: JobState::ALL,
    };

    /// Those in which a job ends.
    const END: States = States {
        read: end_state,
        all: &[
            JobState::Completed,
            JobState::Failed,
            JobState::Cancelled,
            JobState::Timeout,
            JobState::OutOfMemory,
            JobState::NodeFail,
        ],
    };
}

impl TypedValueParser for States {
    type Value = JobState;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<JobState, clap::Error> {
        TypedValueParser::parse_ref(&self.read, command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = self.all.iter().map(|state| state.name());
        Some(Box::new(names.map(PossibleValue::new)))
    }
}

/// An attempt in full.
#[derive(Debug, Serialize)]
pub(crate) struct JobShown {
    #[serde(flatten)]
    pub(crate) history: JobHistory,
    /// Its logs and dumps, by host, rank and name, bounded.
    pub(crate) logs: Vec<SubmittedLog>,
    /// How many it has.
    pub(crate) logs_total: u64,
}

pub(crate) async fn run(
    command: &JobCommand,
    client: &Client,
    output: &mut Output,
) -> Result<Code, CommandError> {
    match command {
        JobCommand::Start(args) => start(args, client, output).await?,
        JobCommand::Place(args) => {
            let attempt = settle(&args.attempt, client).await?;
            let job = client.place_job(attempt, args.hosts.clone()).await?;
            output.answer(&JobChange { job }, render::job::change)?;
        }
        JobCommand::End(args) => end(args, client, output).await?,
        JobCommand::Log(args) => super::job_log::run(args, client, output).await?,
        JobCommand::List(args) => list(args, client, output).await?,
        JobCommand::Show(args) => {
            let history = client.get_job(&args.attempt).await?;
            // Of the attempt that is shown: a job alone may have a newer one by now.
            let attempt = AttemptSelector::from(history.job.attempt.clone());
            let logs = client.job_logs(&attempt, DEFAULT_LIMIT).await?;
            let shown = JobShown {
                history,
                logs: logs.logs,
                logs_total: logs.total,
            };
            output.answer(&shown, render::job::history)?;
        }
    }
    Ok(Code::Answered)
}

async fn start(args: &StartArgs, client: &Client, output: &mut Output) -> Result<(), CommandError> {
    let told = |text: &Option<String>| text.clone().unwrap_or_default();
    let start = JobStart {
        attempt: args.attempt.clone(),
        name: told(&args.name),
        user: told(&args.user),
        scheduler: told(&args.scheduler),
        cluster: told(&args.cluster),
        job_class: told(&args.class),
        started_at: args.at,
        placements: args.hosts.clone(),
        labels: labels(&args.labels)?,
    };
    let job = client.start_job(start).await?;
    output.answer(&JobChange { job }, render::job::change)?;
    Ok(())
}

/// Each key once: of two values one would be lost.
fn labels(told: &[(String, String)]) -> Result<BTreeMap<String, String>, CommandError> {
    let mut labels = BTreeMap::new();
    for (key, value) in told {
        if labels.insert(key.clone(), value.clone()).is_some() {
            let text = format!("--label {key}=… is given twice; give each key once");
            return Err(CommandError::Usage(text));
        }
    }
    Ok(labels)
}

async fn end(args: &EndArgs, client: &Client, output: &mut Output) -> Result<(), CommandError> {
    let by_code = if args.exit_code == Some(0) {
        JobState::Completed
    } else {
        JobState::Failed
    };
    let end = JobEnd {
        attempt: settle(&args.attempt, client).await?,
        state: args.state.unwrap_or(by_code),
        ended_at: args.at,
        exit_code: args.exit_code,
        exit_reason: args.reason.clone().unwrap_or_default(),
    };
    let job = client.end_job(end).await?;
    output.answer(&JobChange { job }, render::job::change)?;
    Ok(())
}

async fn list(args: &ListArgs, client: &Client, output: &mut Output) -> Result<(), CommandError> {
    args::check_order(args.since, args.until)?;
    let filter = JobFilter {
        user: args.user.clone().unwrap_or_default(),
        host: args.host.clone().unwrap_or_default(),
        state: args.state,
        since: args.since,
        until: args.until,
    };
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let page = client.list_jobs(&filter, limit).await?;
    output.answer(
        &JobList {
            jobs: page.items,
            more: page.more,
        },
        render::job::list,
    )?;
    Ok(())
}

/// The attempt that is meant: a job alone means its latest, or the first when
/// the collector has not heard of it yet.
pub(crate) async fn settle(
    selector: &AttemptSelector,
    client: &Client,
) -> Result<AttemptId, ClientError> {
    if !selector.is_latest() {
        return Ok(selector.or_first());
    }
    match client.get_job(selector).await {
        Ok(history) => Ok(history.job.attempt),
        Err(ClientError::NotFound { .. }) => Ok(selector.or_first()),
        Err(error) => Err(error),
    }
}

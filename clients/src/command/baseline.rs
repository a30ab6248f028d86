//! `rdmesh baseline record|show|diff`.

use clap::{Args, Subcommand, ValueHint};
use rdmesh_client::baselines::{Compared, Recorded, WindowAsked};
use rdmesh_client::model::baseline::{Baseline, WindowPhase, WindowProgress};
use rdmesh_client::tracer::TracerClient;
use serde::Serialize;

use crate::args::{self, Format, Global};
use crate::exit::{Code, CommandError};
use crate::output::{self, Output};
use crate::render::baseline;

#[derive(Debug, Subcommand)]
pub(crate) enum BaselineCommand {
    /// Watch for a while what good calls do in the kernel, and keep it
    Record(RecordArgs),
    /// Show what is kept: the list, or the calls of one verb and the errors that are normal
    Show(ShowArgs),
    /// Watch for failing calls, and say where each kind of them leaves the good ones
    Diff(DiffArgs),
}

/// Where the tracer is.
#[derive(Debug, Args)]
struct Host {
    /// The host whose tracer is asked: HOST, HOST:PORT or unix:/PATH
    #[arg(value_parser = args::filter(), value_hint = ValueHint::Hostname)]
    host: String,
}

/// Which window.
#[derive(Debug, Args)]
struct Window {
    /// How long; it costs each call some microseconds for each function
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=300))]
    seconds: u32,
    /// The NIC's driver, where several are loaded
    #[arg(long, value_name = "MODULE", value_parser = args::filter())]
    driver: Option<String>,
}

impl Window {
    fn asked(&self, verbs: &[String]) -> WindowAsked {
        WindowAsked {
            verbs: verbs.to_vec(),
            seconds: self.seconds,
            driver: self.driver.clone().unwrap_or_default(),
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Let good jobs run meanwhile. What earlier windows of the same kernel and driver kept is added to.
A host has one window at a time; Ctrl-C ends it, and nothing is kept then.

Examples:
  rdmesh baseline record gpu-01 reg_mr create_qp modify_qp
  rdmesh baseline record gpu-01 modify_qp --seconds 60 -o json")]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    host: Host,
    /// reg_mr, create_cq, create_qp, modify_qp, …
    #[arg(required = true, value_name = "VERB", value_parser = args::filter())]
    verbs: Vec<String>,
    #[command(flatten)]
    window: Window,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rdmesh baseline show gpu-01
  rdmesh baseline show gpu-01 reg_mr
  rdmesh baseline show gpu-01 reg_mr -o json | jq -r '.baselines[].nodes[].function'")]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    host: Host,
    /// With its tree
    #[arg(value_name = "VERB", value_parser = args::filter())]
    verb: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Each kind of failing call is told once, when it is first seen; with -o json as an object on a
line of its own, the whole call in it, and at the end one with the sums.

Examples:
  rdmesh baseline diff gpu-01
  rdmesh baseline diff gpu-01 reg_mr --seconds 60
  rdmesh baseline diff gpu-01 -o json | jq -r 'select(.fork) | .fork.function'")]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    host: Host,
    /// Which verbs; without: all that have a baseline there
    #[arg(value_name = "VERB", value_parser = args::filter())]
    verbs: Vec<String>,
    #[command(flatten)]
    window: Window,
}

/// What a recording answers.
#[derive(Serialize)]
struct Answer {
    baselines: Vec<Baseline>,
    window: WindowProgress,
}

/// A line of a comparison.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    Fork(&'a rdmesh_client::model::baseline::Fork),
    Window(&'a WindowProgress),
}

pub(crate) async fn run(
    command: &BaselineCommand,
    global: &Global,
    output: &mut Output,
) -> Result<Code, CommandError> {
    let host = match command {
        BaselineCommand::Record(args) => &args.host,
        BaselineCommand::Show(args) => &args.host,
        BaselineCommand::Diff(args) => &args.host,
    };
    let client =
        TracerClient::connect_over(&super::links(global)?, &host.host, global.timeout()).await?;
    match command {
        BaselineCommand::Record(args) => record(args, &client, output).await,
        BaselineCommand::Show(args) => show(args, &client, output).await,
        BaselineCommand::Diff(args) => diff(args, &client, output).await,
    }
}

async fn record(
    args: &RecordArgs,
    client: &TracerClient,
    output: &mut Output,
) -> Result<Code, CommandError> {
    let asked = args.window.asked(&args.verbs);
    let mut recording = client.record_baseline(asked).await?;
    let (mut baselines, mut last, mut said) = (Vec::new(), None, Said::default());
    while let Some(word) = recording.next().await? {
        match word {
            Recorded::Progress(progress) => {
                said.say(&progress, output);
                last = Some(progress);
            }
            Recorded::Baseline(baseline) => baselines.push(*baseline),
        }
    }
    let window = ended(last)?;
    let answer = Answer { baselines, window };
    let host = &args.host.host;
    output.answer(&answer, |answer, style, _| {
        baseline::recorded(&answer.baselines, &answer.window, host, style)
    })?;
    Ok(Code::Answered)
}

async fn show(
    args: &ShowArgs,
    client: &TracerClient,
    output: &mut Output,
) -> Result<Code, CommandError> {
    let kept = client.list_baselines(args.verb.as_deref()).await?;
    match args.verb {
        Some(_) => output.answer(&kept, baseline::trees)?,
        None => output.answer(&kept, baseline::list)?,
    }
    Ok(Code::Answered)
}

async fn diff(
    args: &DiffArgs,
    client: &TracerClient,
    output: &mut Output,
) -> Result<Code, CommandError> {
    let asked = args.window.asked(&args.verbs);
    let mut comparison = client.diff_baseline(asked).await?;
    let (mut last, mut said) = (None, Said::default());
    while let Some(word) = comparison.next().await? {
        match word {
            Compared::Progress(progress) => {
                said.say(&progress, output);
                last = Some(progress);
            }
            Compared::Fork(fork) => {
                let text = match output.format {
                    Format::Json => output::json_line(&Line::Fork(&fork))?,
                    Format::Text => baseline::fork(&fork, &output.style),
                };
                if !output.go_on(text.as_bytes())? {
                    return Ok(Code::Answered);
                }
            }
        }
    }
    let window = ended(last)?;
    let text = match output.format {
        Format::Json => output::json_line(&Line::Window(&window))?,
        Format::Text => baseline::compared(&window, &output.style),
    };
    output.write(text.as_bytes())?;
    Ok(Code::Answered)
}

/// A window that is over says so.
fn ended(last: Option<WindowProgress>) -> Result<WindowProgress, CommandError> {
    match last {
        Some(progress) if progress.phase == WindowPhase::Ended => Ok(progress),
        _ => Err(rdmesh_client::tracer::TracerError::BadAnswer {
            field: "progress",
            reason: "the window ended without its sums".to_owned(),
        }
        .into()),
    }
}

/// Says beside the answer what the window does, once for each phase.
#[derive(Default)]
struct Said(Option<WindowPhase>);

impl Said {
    fn say(&mut self, progress: &WindowProgress, output: &Output) {
        if self.0 == Some(progress.phase) || output.format == Format::Json {
            return;
        }
        self.0 = Some(progress.phase);
        if let Some(text) = baseline::phase(progress) {
            output.remark(&text);
        }
    }
}

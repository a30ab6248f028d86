//! `rdmesh doctor`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use rdmesh_client::doctor::gather::{Question, gather};
use rdmesh_client::doctor::{Check, Status, examine};
use rdmesh_client::{ClientError, Moment};
use serde::Serialize;

use crate::args::Global;
use crate::exit::{Code, CommandError};
use crate::output::Output;
use crate::render;

const EXAMPLE: &str = "\
Looks at this machine, a GPU host, a DPU or a collector's, and says what to do: kernel,
capabilities, RDMA devices, limits, NCCL settings, services, ports, certificates, clock, spool.
Changes nothing. Root sees everything; others are told what they could not look at.
Exit code 6: there is a problem. Warnings, and what could not be looked at, leave it 0.

Examples:
  sudo rdmesh doctor
  rdmesh doctor --shaped
  rdmesh doctor -o json | jq -r '.checks[] | select(.status == \"problem\") | .next'";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct DoctorArgs {
    /// A shaper stands before this host: NCCL's settings must fit it. Without this the
    /// collector is asked, where you may ask it for wires
    #[arg(long)]
    shaped: bool,
    /// Look at the machine whose /proc, /sys and /etc are below this directory; for tests
    #[arg(long, hide = true, value_name = "PATH", default_value = "/",
          value_hint = ValueHint::DirPath)]
    root: PathBuf,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct Examination {
    /// The machine's name.
    pub(crate) host: String,
    pub(crate) examined_at: Moment,
    pub(crate) problems: usize,
    pub(crate) warnings: usize,
    pub(crate) could_not_look: usize,
    pub(crate) ok: usize,
    /// The worst first.
    pub(crate) checks: Vec<Check>,
}

impl Examination {
    pub(crate) fn of(host: String, examined_at: Moment, checks: Vec<Check>) -> Examination {
        let count = |status| checks.iter().filter(|check| check.status == status).count();
        Examination {
            host,
            examined_at,
            problems: count(Status::Problem),
            warnings: count(Status::Warning),
            could_not_look: count(Status::CouldNotLook),
            ok: count(Status::Ok),
            checks,
        }
    }
}

pub(crate) async fn run(
    args: &DoctorArgs,
    global: &Global,
    output: &mut Output,
) -> Result<Code, CommandError> {
    let sources = super::sources(global);
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let is_nccl = name.starts_with("NCCL_");
        is_nccl.then(|| (name, value.to_string_lossy().into_owned()))
    });
    let question = Question {
        root: args.root.clone(),
        environment: variables.collect(),
        home: std::env::var_os("HOME").map(PathBuf::from),
        is_shaped: args.shaped,
        collector: sources.resolve(),
        tls: sources.tls().map(|of_file| global.tls().over(of_file)),
    };
    // What was written on the command line is wrong usage, as everywhere.
    if let (Some(_), Err(_)) = (&global.collector, &question.collector) {
        let refused = question.collector.map(drop);
        refused.map_err(ClientError::from)?;
        return Ok(Code::Usage);
    }
    let facts = gather(&question).await;
    let examination = Examination::of(facts.host.clone(), output.now, examine(&facts));
    output.answer(&examination, render::doctor::text)?;
    Ok(match examination.problems {
        0 => Code::Answered,
        _ => Code::Problem,
    })
}

//! `rdmesh job log JOB[/ATTEMPT] FILE|-`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use rdmesh_client::logs::{LogSource, SubmitError};
use rdmesh_client::{AttemptSelector, Client};
use rdmesh_joblog::flight;

use super::job::settle;
use crate::args;
use crate::exit::CommandError;
use crate::output::Output;
use crate::render;

#[derive(Debug, Args)]
#[command(after_help = "\
The collector reads the log once and keeps what it says, not the log. The same log
again changes nothing; one that has grown takes the place of the former.

Examples:
  rdmesh job log 4711 slurm-4711.out
  rdmesh job log 4711/1 --rank 7 --host gpu-02 logs/rank7.err
  for dump in nccl_trace_rank_*; do rdmesh job log 4711 $dump; done
  kubectl logs job/train --all-containers | rdmesh job log train -")]
pub(crate) struct LogArgs {
    /// JOB, JOB/REQUEUE or JOB/REQUEUE.RESTART
    #[arg(value_name = "JOB[/ATTEMPT]")]
    attempt: AttemptSelector,
    /// The log; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// The host that wrote it, where it is the log of one
    #[arg(long, value_parser = args::filter(), value_hint = ValueHint::Hostname)]
    host: Option<String>,
    /// The rank that wrote it, where it is the log of one
    #[arg(long, value_name = "N")]
    rank: Option<u32>,
    /// Tells it from other logs of the attempt; without: the name of the file
    #[arg(long, value_parser = args::filter())]
    name: Option<String>,
}

pub(crate) async fn run(
    args: &LogArgs,
    client: &Client,
    output: &mut Output,
) -> Result<(), CommandError> {
    let reader = open(&args.file)?;
    let source = LogSource {
        attempt: settle(&args.attempt, client).await?,
        host: args.host.clone().unwrap_or_default(),
        rank: args.rank.or_else(|| rank_of_dump(&args.file)),
        name: args.name.clone().unwrap_or_else(|| name_of(&args.file)),
    };
    let log = client.submit_log(source, reader).await;
    let log = log.map_err(|error| match error {
        SubmitError::Client(error) => CommandError::Client(error),
        error @ SubmitError::Read { .. } => CommandError::Input(format!(
            "{}: {error}; nothing of it was kept",
            args.file.display()
        )),
    })?;
    output.answer(&log, render::job_log::text)?;
    Ok(())
}

/// The last part of its path; nothing for standard input.
fn name_of(path: &Path) -> String {
    match path.file_name() {
        Some(name) if path.as_os_str() != "-" => name.to_string_lossy().into_owned(),
        _ => String::new(),
    }
}

/// The rank that the name of a dump tells, as PyTorch names them; of a log's name the digits
/// may be anything's.
fn rank_of_dump(path: &Path) -> Option<u32> {
    let mut start = Vec::new();
    let window = u64::try_from(flight::SNIFF_BYTES).unwrap_or(u64::MAX);
    let file = File::open(path).ok()?;
    file.take(window).read_to_end(&mut start).ok()?;
    flight::sniff(&start)?;
    flight::rank_of_name(&path.file_name()?.to_string_lossy())
}

/// Opens the log, and refuses what is none.
fn open(path: &Path) -> Result<Box<dyn Read + Send>, CommandError> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stdin()));
    }
    let name = path.display();
    let unreadable =
        |error: io::Error| CommandError::Input(format!("{name} could not be read: {error}"));
    let mut file = File::open(path).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.is_dir() {
        return Err(CommandError::Input(format!(
            "{name} is a directory: submit each log in it, with its --rank or --host"
        )));
    }
    let mut start = Vec::new();
    let window = u64::try_from(flight::SNIFF_BYTES).unwrap_or(u64::MAX);
    Read::by_ref(&mut file)
        .take(window)
        .read_to_end(&mut start)
        .map_err(unreadable)?;
    if start.starts_with(&[0x1f, 0x8b]) || start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Err(CommandError::Input(format!(
            "{name} is compressed; write zcat {name} | rdmesh job log JOB - (or zstdcat)"
        )));
    }
    Ok(Box::new(io::Cursor::new(start).chain(file)))
}

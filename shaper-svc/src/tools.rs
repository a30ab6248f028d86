//! The tools of `shaper-svc` that need no service: files in, files and text out.

use crate::engine::{DEFAULT_QUEUE_FRAMES, DEFAULT_SUB_QUEUES};
use crate::inspect::{self, inspect};
use crate::rate::LineRate;
use crate::replay::{self, ReplayError, replay};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Bytes that are read or written at a time: large enough that system calls do not
/// count.
const BUFFER_BYTES: usize = 1 << 18;

/// How a result is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

/// `shaper-svc replay`.
#[derive(Clone, Debug, Args)]
pub struct ReplayArgs {
    /// Capture to read: pcap or pcapng, of Ethernet frames.
    input: PathBuf,
    /// Line rate of the wire, overhead included, as tc writes it: 10gbit.
    #[arg(long)]
    rate: LineRate,
    /// Capture to write: pcap with nanoseconds, each frame at its departure.
    #[arg(long, value_name = "OUT.pcap")]
    out: PathBuf,
    /// Frames that may wait at the wire.
    #[arg(long, default_value_t = DEFAULT_QUEUE_FRAMES)]
    queue_frames: u32,
    /// Keys (destination address and QP, or flow) that get a turn of their own.
    #[arg(long, default_value_t = DEFAULT_SUB_QUEUES)]
    sub_queues: u32,
    /// Use the whole frames of a capture that was cut.
    #[arg(long)]
    accept_cut: bool,
    /// How the summary is written.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// `shaper-svc inspect`.
#[derive(Clone, Debug, Args)]
pub struct InspectArgs {
    /// Capture to read: pcap or pcapng, of Ethernet frames.
    input: PathBuf,
    /// Line rate of the ideal wire, overhead included, as tc writes it: 25gbit.
    #[arg(long)]
    rate: LineRate,
    /// A burst begins after the ideal wire has been idle for so many microseconds;
    /// without it after the wire time of 64 full frames.
    #[arg(long)]
    idle_us: Option<u32>,
    /// Use the whole frames of a capture that was cut.
    #[arg(long)]
    accept_cut: bool,
    /// How the report is written.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Why a tool failed.
#[derive(Debug, Error)]
pub enum ToolError {
    /// A file cannot be opened or written.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// What happened.
        error: io::Error,
    },
    /// The capture cannot be used.
    #[error("{path}: {error}")]
    Capture {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: ReplayError,
    },
    /// Input and output are one file.
    #[error("{0} is both input and output: give --out another name")]
    SameFile(PathBuf),
    /// The result cannot be written.
    #[error("cannot write the result: {0}")]
    Result(#[from] io::Error),
}

/// Runs `shaper-svc replay`, with the summary to `result`. The output appears under
/// its name only when it is whole.
///
/// # Errors
/// [`ToolError`], with the name of the file.
pub fn run_replay(args: &ReplayArgs, result: &mut impl Write) -> Result<(), ToolError> {
    let input = open(&args.input)?;
    if let (Ok(from), Ok(to)) = (args.input.canonicalize(), args.out.canonicalize())
        && from == to
    {
        return Err(ToolError::SameFile(to));
    }
    let options = replay::Options {
        rate: args.rate,
        queue_frames: args.queue_frames,
        sub_queues: args.sub_queues,
        accept_cut: args.accept_cut,
    };
    let partial = Partial::create(&args.out)?;
    let file = BufWriter::with_capacity(BUFFER_BYTES, &partial.file);
    let (summary, _) = replay(input, file, &options).map_err(|error| match error {
        ReplayError::Write(error) => file_error(&args.out)(error),
        error => capture_error(&args.input)(error),
    })?;
    partial.rename()?;
    write_result(&summary, args.output, result)
}

/// Runs `shaper-svc inspect`, with the report to `result`.
///
/// # Errors
/// [`ToolError`], with the name of the file.
pub fn run_inspect(args: &InspectArgs, result: &mut impl Write) -> Result<(), ToolError> {
    let options = inspect::Options {
        rate: args.rate,
        idle_ns: args.idle_us.map(|us| u64::from(us) * 1000),
        accept_cut: args.accept_cut,
    };
    let report = inspect(open(&args.input)?, &options).map_err(capture_error(&args.input))?;
    write_result(&report, args.output, result)
}

fn write_result<T: Serialize + Display>(
    value: &T,
    output: Output,
    result: &mut impl Write,
) -> Result<(), ToolError> {
    match output {
        Output::Text => write!(result, "{value}")?,
        Output::Json => {
            serde_json::to_writer_pretty(&mut *result, value).map_err(io::Error::from)?;
            writeln!(result)?;
        }
    }
    Ok(())
}

fn open(path: &Path) -> Result<BufReader<File>, ToolError> {
    let file = File::open(path).map_err(file_error(path))?;
    Ok(BufReader::with_capacity(BUFFER_BYTES, file))
}

fn file_error(path: &Path) -> impl FnOnce(io::Error) -> ToolError {
    move |error| ToolError::File {
        path: path.to_owned(),
        error,
    }
}

fn capture_error(path: &Path) -> impl FnOnce(ReplayError) -> ToolError {
    move |error| ToolError::Capture {
        path: path.to_owned(),
        error,
    }
}

/// A file that is being written under another name, and removed unless it is renamed.
#[derive(Debug)]
struct Partial {
    file: File,
    path: PathBuf,
    target: PathBuf,
    is_renamed: bool,
}

impl Partial {
    fn create(target: &Path) -> Result<Self, ToolError> {
        // A pipe or a device is written itself; nothing must take its place.
        let is_special = fs::metadata(target).is_ok_and(|target| !target.is_file());
        let mut name = target.as_os_str().to_owned();
        if !is_special {
            name.push(".partial");
        }
        let path = PathBuf::from(name);
        let file = File::create(&path).map_err(file_error(&path))?;
        Ok(Self {
            file,
            path,
            target: target.to_owned(),
            is_renamed: is_special,
        })
    }

    fn rename(mut self) -> Result<(), ToolError> {
        if self.is_renamed {
            return Ok(());
        }
        fs::rename(&self.path, &self.target).map_err(file_error(&self.target))?;
        self.is_renamed = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.is_renamed {
            // Nothing more can be done about it here, and the error that led here is
            // the one to tell.
            let _ = fs::remove_file(&self.path);
        }
    }
}

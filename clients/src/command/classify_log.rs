//! `rdmesh classify-log FILE...|-`: what a job's own log says. Needs no collector.

use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::Args;
use rdmesh_joblog::flight::{self, Dump, FlightReport, Verdict};
use rdmesh_joblog::parallel::classify_parallel;
use rdmesh_joblog::stream::StreamError;
use rdmesh_joblog::summary::Summarizer;
use rdmesh_joblog::{Class, Classifier, LineReport, RuleSet, Summary};
use serde::Serialize;

use crate::args::Format;
use crate::exit::{Code, CommandError};
use crate::output::Output;
use crate::render::{self, printable};

const EXAMPLE: &str = "\
With -o json: one object per input line, in order (line, class, verb, errno,
status, device, rule; peer, rank and host when known), then one with summary: true.
Flight Recorder dumps among the files (pickle or JSON, one per rank) are told from
logs by what they hold; a directory stands for the files in it.

Examples:
  rdmesh classify-log slurm-4711.out
  kubectl logs job/train --all-containers | rdmesh classify-log -
  rdmesh classify-log logs/ /tmp/nccl_trace_rank_*
  zcat rank7.log.gz | rdmesh classify-log - -o json | tail -n 1";

/// Output is handed on in pieces of this size: a write for every line of a log of
/// 2 GB would take longer than reading it.
const WRITE_BYTES: usize = 64 << 10;

/// Files that one call reads; a job has one for each rank.
const MAX_FILES: usize = 100_000;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct ClassifyLogArgs {
    /// Logs, Flight Recorder dumps, or directories of them; - for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Rules of this site, tried before the built-in ones (or instead of them)
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
}

/// The last object of the JSON output.
#[derive(Debug, Serialize)]
pub(crate) struct LogAnswer {
    summary: bool,
    /// Number of the deciding line.
    line: Option<u64>,
    pub(crate) class: Class,
    /// Files in the order in which they were read; one for standard input.
    pub(crate) files: usize,
    #[serde(flatten)]
    pub(crate) log: LogPart,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) flight_recorder: Option<FlightPart>,
    /// What was left out, and why; the exit code tells it too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<LeftOut>,
}

/// A file that could not be read to its end, or a directory in a directory.
#[derive(Debug, Serialize)]
struct LeftOut {
    file: String,
    reason: String,
}

/// What the lines say; its class stands above, where dumps count too.
#[derive(Debug, Serialize)]
pub(crate) struct LogPart {
    pub(crate) decision: Option<rdmesh_joblog::Decision>,
    pub(crate) lines: u64,
    pub(crate) matched: u64,
    pub(crate) counts: std::collections::BTreeMap<&'static str, u64>,
    pub(crate) causes: Vec<rdmesh_joblog::summary::Group>,
    groups_left_out: u64,
    pub(crate) peers: Vec<rdmesh_joblog::summary::PeerCount>,
    pub(crate) first_consequence: Option<rdmesh_joblog::Decision>,
    pub(crate) first_excluded: Option<rdmesh_joblog::Decision>,
    rules: String,
}

/// What the dumps say.
#[derive(Debug, Serialize)]
pub(crate) struct FlightPart {
    #[serde(flatten)]
    pub(crate) report: FlightReport,
    /// Dumps that could not be read.
    pub(crate) refused: Vec<RefusedDump>,
}

/// A dump that could not be read, and why.
#[derive(Debug, Serialize)]
pub(crate) struct RefusedDump {
    pub(crate) file: String,
    pub(crate) reason: String,
}

pub(crate) fn run(args: &ClassifyLogArgs, output: &mut Output) -> Result<Code, CommandError> {
    let classifier = Classifier::new(rules(args.rules.as_deref())?);
    let (files, mut left_out) = expand(&args.files)?;
    let mut reading = Reading {
        classifier: &classifier,
        workers: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        several: files.len() > 1,
        summarizer: Summarizer::new(),
        dumps: Vec::new(),
        refused: Vec::new(),
        lines: Lines {
            json: output.format == Format::Json,
            buffer: Vec::with_capacity(2 * WRITE_BYTES),
            gone: false,
        },
    };
    for file in &files {
        match reading.file(file, output) {
            // The rest is worth an answer all the same.
            Err(CommandError::Input(reason)) if files.len() > 1 => left_out.push(LeftOut {
                file: file.display().to_string(),
                reason,
            }),
            other => other?,
        }
        if reading.lines.gone {
            return Ok(Code::Answered);
        }
    }
    let refused = reading.refused.iter();
    let mut reasons: Vec<String> = refused
        .map(|dump| format!("{} is a dump that is refused: {}", dump.file, dump.reason))
        .collect();
    reasons.extend(left_out.iter().map(|left| left.reason.clone()));
    let answer = reading.answer(output, files.len(), left_out)?;
    match output.format {
        Format::Text => {
            let text = render::classify_log::text(&answer, &output.style);
            output.write(text.as_bytes())?;
        }
        Format::Json => {
            let mut line =
                printable::json_escaped(&serde_json::to_string(&answer).map_err(io::Error::from)?);
            line.push('\n');
            output.write(line.as_bytes())?;
        }
    }
    match reasons.is_empty() {
        true => Ok(Code::Answered),
        false => Err(CommandError::Input(format!(
            "not all of it was read: {}",
            reasons.join("; ")
        ))),
    }
}

fn rules(path: Option<&Path>) -> Result<RuleSet, CommandError> {
    let Some(path) = path else {
        return RuleSet::builtin().map_err(|error| CommandError::Usage(error.to_string()));
    };
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    RuleSet::with_site(&path.display().to_string(), &text)
        .map_err(|error| CommandError::Usage(format!("the rules are refused: {error}")))
}

/// Directories become the files in them, by name; the rest stays as it stands.
fn expand(paths: &[PathBuf]) -> Result<(Vec<PathBuf>, Vec<LeftOut>), CommandError> {
    let mut files = Vec::new();
    let mut left_out = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" || !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(path).map_err(|error| unreadable(path, &error))? {
            let entry = entry.map_err(|error| unreadable(path, &error))?.path();
            if entry.is_file() {
                inside.push(entry);
            } else if entry.is_dir() {
                let file = entry.display().to_string();
                left_out.push(LeftOut {
                    reason: format!("{file} is a directory: name it too"),
                    file,
                });
            }
        }
        inside.sort();
        files.append(&mut inside);
    }
    match files.len() {
        0 => Err(CommandError::Usage(
            "there is no file in the given directories".to_owned(),
        )),
        count if count > MAX_FILES => Err(CommandError::Usage(format!(
            "{count} files; at most {MAX_FILES} are read: name those of one job"
        ))),
        _ => Ok((files, left_out)),
    }
}

fn unreadable(path: &Path, error: &io::Error) -> CommandError {
    CommandError::Input(format!("{} could not be read: {error}", path.display()))
}

/// Lines on their way out.
struct Lines {
    json: bool,
    buffer: Vec<u8>,
    /// Whether the reader of the output went away.
    gone: bool,
}

impl Lines {
    fn put(
        &mut self,
        file: Option<&str>,
        report: &LineReport,
        output: &mut Output,
    ) -> Result<(), io::Error> {
        if !self.json {
            return Ok(());
        }
        if report.rule.is_none() && file.is_none() {
            // Most lines of a log: written without a serialiser.
            self.buffer.extend_from_slice(b"{\"line\":");
            self.buffer
                .extend_from_slice(report.line.to_string().as_bytes());
            self.buffer.extend_from_slice(
                b",\"class\":\"cannot_tell\",\"verb\":null,\"errno\":null,\"status\":null,\"device\":null,\"rule\":null}\n",
            );
        } else {
            let text = serde_json::to_string(&InFile { file, report })?;
            self.buffer
                .extend_from_slice(printable::json_escaped(&text).as_bytes());
            self.buffer.push(b'\n');
        }
        if self.buffer.len() >= WRITE_BYTES {
            self.flush(output)?;
        }
        Ok(())
    }

    fn flush(&mut self, output: &mut Output) -> io::Result<()> {
        self.gone = !output.write_on(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

#[derive(Serialize)]
struct InFile<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(flatten)]
    report: &'a LineReport,
}

/// Why the reading of a log ends early.
enum Stop {
    Gone,
    Failed(io::Error),
}

struct Reading<'a> {
    classifier: &'a Classifier,
    workers: NonZeroUsize,
    several: bool,
    summarizer: Summarizer,
    dumps: Vec<Dump>,
    refused: Vec<RefusedDump>,
    lines: Lines,
}

impl Reading<'_> {
    fn file(&mut self, path: &Path, output: &mut Output) -> Result<(), CommandError> {
        let name = path.display().to_string();
        if path.as_os_str() == "-" {
            return self.log(path, &name, io::stdin().lock(), output);
        }
        let mut file = File::open(path).map_err(|error| unreadable(path, &error))?;
        let mut start = Vec::new();
        let window = u64::try_from(flight::SNIFF_BYTES).unwrap_or(u64::MAX);
        Read::by_ref(&mut file)
            .take(window)
            .read_to_end(&mut start)
            .map_err(|error| unreadable(path, &error))?;
        if start.starts_with(&[0x1f, 0x8b]) || start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            return Err(CommandError::Input(format!(
                "{name} is compressed; write zcat {name} | rdmesh classify-log - (or zstdcat)"
            )));
        }
        if flight::sniff(&start).is_some() {
            return self.dump(path, name, start, file);
        }
        self.log(path, &name, io::Cursor::new(start).chain(file), output)
    }

    fn log(
        &mut self,
        path: &Path,
        name: &str,
        reader: impl Read,
        output: &mut Output,
    ) -> Result<(), CommandError> {
        let file = self.several.then_some(name);
        let (lines, summarizer) = (&mut self.lines, &mut self.summarizer);
        let result = classify_parallel(reader, self.classifier, self.workers, |report| {
            summarizer.observe(file, report);
            lines.put(file, report, output).map_err(Stop::Failed)?;
            if lines.gone { Err(Stop::Gone) } else { Ok(()) }
        });
        match result {
            Ok(_) | Err(StreamError::Sink(Stop::Gone)) => Ok(()),
            Err(StreamError::Sink(Stop::Failed(error))) => Err(CommandError::Output(error)),
            Err(StreamError::Read { line, error }) => Err(CommandError::Input(format!(
                "{} could not be read at line {line}: {error}",
                path.display()
            ))),
        }
    }

    fn dump(
        &mut self,
        path: &Path,
        name: String,
        start: Vec<u8>,
        file: File,
    ) -> Result<(), CommandError> {
        let mut bytes = start;
        let most = u64::try_from(flight::MAX_DUMP_BYTES).unwrap_or(u64::MAX);
        file.take(most)
            .read_to_end(&mut bytes)
            .map_err(|error| unreadable(path, &error))?;
        match flight::read(&bytes, flight::rank_of_name(&name)) {
            Ok(dump) => self.dumps.push(dump),
            Err(error) => self.refused.push(RefusedDump {
                file: name,
                reason: error.to_string(),
            }),
        }
        Ok(())
    }

    fn answer(
        mut self,
        output: &mut Output,
        files: usize,
        left_out: Vec<LeftOut>,
    ) -> Result<LogAnswer, CommandError> {
        self.lines.flush(output)?;
        let Summary {
            class,
            decision,
            lines,
            matched,
            counts,
            causes,
            groups_left_out,
            peers,
            first_consequence,
            first_excluded,
            rules,
        } = self.summarizer.finish(self.classifier.rules().revision());
        let flight_recorder =
            (!self.dumps.is_empty() || !self.refused.is_empty()).then(|| FlightPart {
                report: flight::analyse(&self.dumps),
                refused: self.refused,
            });
        let waits = flight_recorder
            .iter()
            .flat_map(|part| &part.report.groups)
            .any(|group| group.verdict != Verdict::Completed);
        Ok(LogAnswer {
            summary: true,
            line: decision.as_ref().map(|decision| decision.report.line),
            class: if decision.is_none() && waits {
                Class::Hang
            } else {
                class
            },
            files,
            log: LogPart {
                decision,
                lines,
                matched,
                counts,
                causes,
                groups_left_out,
                peers,
                first_consequence,
                first_excluded,
                rules,
            },
            flight_recorder,
            left_out,
        })
    }
}

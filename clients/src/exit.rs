//! How the process ends: its exit code, and the error on stderr.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use rdmesh_client::ClientError;
use rdmesh_client::links::LinkError;
use rdmesh_client::shaper::ShaperError;
use rdmesh_client::tracer::TracerError;
use rdmesh_client::wires::WireError;
use serde::Serialize;

use crate::args::Format;
use crate::output::{self, Output};
use crate::render::printable::printable;
use crate::render::{self, Style};

/// The codes that `rdmesh --help` documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    Answered = 0,
    Failed = 1,
    Usage = 2,
    CannotTell = 3,
    NotFound = 4,
    Unreachable = 5,
    Problem = 6,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> ExitCode {
        ExitCode::from(code as u8)
    }
}

/// Why a command did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Shaper(#[from] ShaperError),
    #[error(transparent)]
    Tracer(#[from] TracerError),
    /// The caller's certificate cannot be used.
    #[error("your certificate: {0}")]
    Links(#[from] LinkError),
    /// Arguments that do not go together.
    #[error("{0}")]
    Usage(String),
    /// A file that was named and cannot be read.
    #[error("{0}")]
    Input(String),
    #[error("the answer could not be written: {0}")]
    Output(#[from] io::Error),
    #[error("the runtime could not be started: {0}")]
    Runtime(io::Error),
}

impl From<WireError> for CommandError {
    fn from(error: WireError) -> CommandError {
        match error {
            WireError::Client(error) => error.into(),
            WireError::Shaper(error) => error.into(),
        }
    }
}

/// An error as programs read it.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorReport {
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    /// What to do next; absent when the message says it.
    pub(crate) next: Option<String>,
    pub(crate) exit_code: u8,
}

#[derive(Serialize)]
struct ErrorDocument<'a> {
    error: &'a ErrorReport,
}

impl CommandError {
    /// Whether the same question may have an answer a moment later.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            CommandError::Client(error) => error.is_outage(),
            CommandError::Shaper(error) => error.is_outage(),
            _ => false,
        }
    }

    fn code(&self) -> Code {
        match self {
            CommandError::Client(error) => match error {
                ClientError::Address(_) | ClientError::Invalid(_) => Code::Usage,
                ClientError::NotFound { .. } => Code::NotFound,
                ClientError::Unreachable { .. } | ClientError::Timeout { .. } => Code::Unreachable,
                _ => Code::Failed,
            },
            CommandError::Shaper(error) => by_kind(error.kind()),
            CommandError::Tracer(error) => by_kind(error.kind()),
            CommandError::Links(_) | CommandError::Usage(_) => Code::Usage,
            CommandError::Input(_) | CommandError::Output(_) | CommandError::Runtime(_) => {
                Code::Failed
            }
        }
    }

    pub(crate) fn report(&self) -> ErrorReport {
        let (kind, next) = match self {
            CommandError::Client(error) => (error.kind(), error.next()),
            CommandError::Shaper(error) => (error.kind(), error.next()),
            CommandError::Tracer(error) => (error.kind(), error.next()),
            CommandError::Links(_) => ("certificate", String::new()),
            CommandError::Usage(_) => ("usage", String::new()),
            CommandError::Input(_) => ("input", String::new()),
            CommandError::Output(_) => ("output", String::new()),
            CommandError::Runtime(_) => ("runtime", String::new()),
        };
        ErrorReport {
            kind,
            message: self.to_string(),
            next: (!next.is_empty()).then_some(next),
            exit_code: self.code() as u8,
        }
    }
}

/// Of an agent that was asked itself.
fn by_kind(kind: &str) -> Code {
    match kind {
        "address" | "invalid_argument" => Code::Usage,
        "not_found" => Code::NotFound,
        "unreachable" | "timeout" => Code::Unreachable,
        _ => Code::Failed,
    }
}

/// Says what went wrong, if anything, and gives the exit code.
pub(crate) fn finish(result: Result<Code, CommandError>, output: &mut Output) -> ExitCode {
    match result {
        Ok(code) => code.into(),
        Err(error) => {
            say(&error.report(), output.format, &output.error_style);
            error.code().into()
        }
    }
}

/// Ends after clap: help and version are answers, the rest is wrong usage.
pub(crate) fn usage(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    // Printing fails when the reader went away: it has all that it wanted.
    if !error.use_stderr() {
        let _ = error.print();
        return Code::Answered.into();
    }
    let message = error.to_string();
    if asks_for_json(arguments) {
        let report = ErrorReport {
            kind: "usage",
            message: message.trim_start_matches("error: ").trim_end().to_owned(),
            next: None,
            exit_code: Code::Usage as u8,
        };
        say(&report, Format::Json, &Style::PLAIN);
    } else {
        // It quotes the arguments, which may hold anything.
        let lines = message.lines().map(|line| format!("{}\n", printable(line)));
        let _ = io::stderr().write_all(lines.collect::<String>().as_bytes());
    }
    Code::Usage.into()
}

/// Whether the arguments, which could not be parsed, ask for JSON.
fn asks_for_json(arguments: &[OsString]) -> bool {
    let text: Vec<&str> = arguments.iter().filter_map(|a| a.to_str()).collect();
    text.iter()
        .any(|a| matches!(*a, "-ojson" | "-o=json" | "--output=json"))
        || text
            .windows(2)
            .any(|pair| matches!(pair, ["-o" | "--output", "json"]))
}

fn say(report: &ErrorReport, format: Format, style: &Style) {
    let text = match format {
        Format::Text => render::error::text(report, style),
        Format::Json => output::json(&ErrorDocument { error: report })
            .unwrap_or_else(|_| render::error::text(report, style)),
    };
    // With stderr gone there is nobody left to tell; the exit code remains.
    let _ = io::stderr().write_all(text.as_bytes());
}

//! Where answers go: stdout, as text or JSON, also into a pipe that closes.

use std::io::{self, IsTerminal, Write};

use rdmesh_client::Moment;
use serde::Serialize;

use crate::args::{Color, Format, Global, ReportForm};
use crate::render::{Style, printable};

/// How and where the answer is written.
pub(crate) struct Output {
    pub(crate) format: Format,
    pub(crate) report: Option<ReportForm>,
    pub(crate) style: Style,
    /// Style of stderr, which may be another terminal than stdout.
    pub(crate) error_style: Style,
    pub(crate) now: Moment,
    stdout: Box<dyn Write>,
}

impl Output {
    /// Output of this process, as its arguments, environment and terminal have it.
    pub(crate) fn of_process(global: &Global) -> Output {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let width = if stdout.is_terminal() {
            terminal_width(&stdout)
        } else {
            None
        };
        let error_width = if stderr.is_terminal() {
            terminal_width(&stderr)
        } else {
            None
        };
        Output {
            format: global.format(),
            report: global.report(),
            style: Style {
                color: wants_color(global.color, stdout.is_terminal()),
                width,
            },
            error_style: Style {
                color: wants_color(global.color, stderr.is_terminal()),
                width: error_width,
            },
            now: Moment::now(),
            stdout: Box::new(stdout),
        }
    }

    /// Writes one answer in the form that was asked for.
    pub(crate) fn answer<T: Serialize>(
        &mut self,
        value: &T,
        text: impl FnOnce(&T, &Style, Moment) -> String,
    ) -> io::Result<()> {
        let out = match self.format {
            Format::Text => text(value, &self.style, self.now),
            Format::Json => json(value)?,
        };
        self.write(out.as_bytes())
    }

    /// Writes a part of an answer that goes on; whether somebody still reads.
    pub(crate) fn go_on(&mut self, bytes: &[u8]) -> io::Result<bool> {
        match self
            .stdout
            .write_all(bytes)
            .and_then(|()| self.stdout.flush())
        {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A word for whoever waits, beside the answer.
    pub(crate) fn remark(&self, text: &str) {
        // With stderr gone there is nobody left to tell.
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// Writes bytes as they are. A reader that went away (`| head`) has all that
    /// it wanted: that is no error.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_on(bytes).map(|_| ())
    }

    /// The same; whether the reader is still there to read on.
    pub(crate) fn write_on(&mut self, bytes: &[u8]) -> io::Result<bool> {
        match self
            .stdout
            .write_all(bytes)
            .and_then(|()| self.stdout.flush())
        {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            other => other.map(|()| true),
        }
    }
}

/// One document, indented, in which no character can command a terminal.
pub(crate) fn json<T: Serialize>(value: &T) -> io::Result<String> {
    let mut text = printable::json_escaped(&serde_json::to_string_pretty(value)?);
    text.push('\n');
    Ok(text)
}

/// One document on a line of its own, for a stream of them.
pub(crate) fn json_line<T: Serialize>(value: &T) -> io::Result<String> {
    let mut text = printable::json_escaped(&serde_json::to_string(value)?);
    text.push('\n');
    Ok(text)
}

fn wants_color(color: Color, is_terminal: bool) -> bool {
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
            is_terminal && set("NO_COLOR").is_none() && set("TERM").is_none_or(|t| t != "dumb")
        }
    }
}

/// Columns of the terminal; `COLUMNS` wins, as in other programs.
fn terminal_width(stream: &impl std::os::fd::AsFd) -> Option<usize> {
    let told = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok());
    let asked = || {
        rustix::termios::tcgetwinsize(stream)
            .ok()
            .map(|size| usize::from(size.ws_col))
    };
    told.or_else(asked).filter(|columns| *columns > 0)
}

//! A log of any length, line by line, in constant memory.

use std::cmp::Reverse;
use std::io::{self, Read};

use crate::class::Turn;
use crate::classify::{Classifier, LineReport};

/// Longest piece of a line that is held at once. A longer line is read in pieces
/// and answered once: progress bars write hours of work on one line.
pub const PIECE_BYTES: usize = 1 << 20;

/// How far the pieces of a long line overlap, so that a message at the border
/// stands whole in one of them.
const OVERLAP_BYTES: usize = 8 << 10;

/// Bytes asked of the reader at once.
const READ_BYTES: usize = 256 << 10;

/// Why a stream ended early.
#[derive(Debug, thiserror::Error)]
pub enum StreamError<E> {
    /// The log could not be read further.
    #[error("line {line} could not be read: {error}")]
    Read {
        /// Number of the line that was being read.
        line: u64,
        /// What the reader said.
        error: io::Error,
    },
    /// The receiver of the reports wants no more.
    #[error("{0}")]
    Sink(E),
}

/// What a stream held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamEnd {
    /// Lines, the last one also without a newline.
    pub lines: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Reads the log to its end and hands the report of every line, in order, to `sink`.
///
/// # Errors
///
/// The reader's error with the line at which it came, or what `sink` answered.
pub fn classify_stream<R: Read, E>(
    reader: R,
    classifier: &Classifier,
    sink: impl FnMut(&LineReport) -> Result<(), E>,
) -> Result<StreamEnd, StreamError<E>> {
    let mut pieces = Pieces::new(reader);
    let mut delivery = Delivery::new(sink);
    classifier.with_scratch(|scratch| {
        loop {
            match pieces.next() {
                Ok(Some(piece)) => {
                    let mut report = classifier.classify_with(scratch, 0, piece.bytes);
                    delivery.take(&mut report, piece.ends_line)?;
                }
                Ok(None) => return Ok(delivery.end(pieces.read_bytes)),
                Err(error) => return Err(delivery.broken(error)),
            }
        }
    })
}

/// Numbers lines, joins what the pieces of a long one say, and hands reports on.
pub(crate) struct Delivery<S> {
    sink: S,
    lines: u64,
    /// Of a line whose end was not read yet.
    open: Option<LineReport>,
}

impl<S> Delivery<S> {
    pub(crate) fn new(sink: S) -> Delivery<S> {
        Delivery {
            sink,
            lines: 0,
            open: None,
        }
    }

    /// Takes what the next piece says; the report is of no further use.
    pub(crate) fn take<E>(
        &mut self,
        report: &mut LineReport,
        ends_line: bool,
    ) -> Result<(), StreamError<E>>
    where
        S: FnMut(&LineReport) -> Result<(), E>,
    {
        let taken = |report: &mut LineReport| std::mem::replace(report, LineReport::nothing(0));
        if let Some(earlier) = self.open.take() {
            *report = merge(earlier, taken(report));
        }
        if ends_line {
            report.line = self.lines + 1;
            (self.sink)(report).map_err(StreamError::Sink)?;
            self.lines += 1;
        } else {
            self.open = Some(taken(report));
        }
        Ok(())
    }

    /// The error of a log that could not be read further.
    pub(crate) fn broken<E>(&self, error: io::Error) -> StreamError<E> {
        StreamError::Read {
            line: self.lines + 1,
            error,
        }
    }

    pub(crate) fn end(&self, bytes: u64) -> StreamEnd {
        StreamEnd {
            lines: self.lines,
            bytes,
        }
    }
}

/// Of two pieces of a line the one that says more; the earlier when they are even.
fn merge(earlier: LineReport, later: LineReport) -> LineReport {
    let key = |report: &LineReport| {
        let turn = Turn::of(report.class, report.verb.as_deref());
        (report.weight, report.rule.is_some(), Reverse(turn))
    };
    let further = earlier.further_messages + later.further_messages;
    let both = earlier.rule.is_some() && later.rule.is_some();
    let mut best = if key(&later) > key(&earlier) {
        later
    } else {
        earlier
    };
    best.further_messages = further + usize::from(both);
    best
}

/// A line, or a piece of a long one.
pub(crate) struct Piece<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) ends_line: bool,
}

/// Reads a log piece by piece.
pub(crate) struct Pieces<R> {
    reader: R,
    buffer: Vec<u8>,
    /// First byte that was not handed out, or is handed out again.
    start: usize,
    /// Bytes from `start` on that hold no newline.
    scanned: usize,
    /// End of what was read.
    end: usize,
    ended: bool,
    /// Whether bytes of the current line were handed out already.
    in_line: bool,
    read_bytes: u64,
}

impl<R: Read> Pieces<R> {
    pub(crate) fn new(reader: R) -> Pieces<R> {
        Pieces {
            reader,
            buffer: vec![0; PIECE_BYTES + READ_BYTES],
            start: 0,
            scanned: 0,
            end: 0,
            ended: false,
            in_line: false,
            read_bytes: 0,
        }
    }

    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    pub(crate) fn next(&mut self) -> io::Result<Option<Piece<'_>>> {
        loop {
            let unseen = &self.buffer[self.start + self.scanned..self.end];
            if let Some(at) = memchr::memchr(b'\n', unseen) {
                let from = self.start;
                let to = self.start + self.scanned + at;
                self.start = to + 1;
                self.scanned = 0;
                self.in_line = false;
                return Ok(Some(Piece {
                    bytes: without_return(&self.buffer[from..to]),
                    ends_line: true,
                }));
            }
            self.scanned = self.end - self.start;
            if self.scanned >= PIECE_BYTES {
                let (from, to) = (self.start, self.end);
                self.start = to - OVERLAP_BYTES;
                self.scanned = OVERLAP_BYTES;
                self.in_line = true;
                return Ok(Some(Piece {
                    bytes: &self.buffer[from..to],
                    ends_line: false,
                }));
            }
            if self.ended {
                return Ok(self.rest());
            }
            self.fill()?;
        }
    }

    /// The last line, which has no newline.
    fn rest(&mut self) -> Option<Piece<'_>> {
        let (from, to) = (self.start, self.end);
        self.start = self.end;
        self.scanned = 0;
        if from == to && !self.in_line {
            return None;
        }
        self.in_line = false;
        Some(Piece {
            bytes: without_return(&self.buffer[from..to]),
            ends_line: true,
        })
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.buffer.len() - self.end < READ_BYTES {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let to = self.buffer.len().min(self.end + READ_BYTES);
        match self.reader.read(&mut self.buffer[self.end..to]) {
            Ok(0) => self.ended = true,
            Ok(count) => {
                self.end += count;
                self.read_bytes += u64::try_from(count).unwrap_or(u64::MAX);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

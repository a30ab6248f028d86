//! The same as [`crate::stream`] with several threads: one reads and hands on, the
//! others classify blocks of lines. Reports come in the order of the lines all the
//! same, and memory is bounded whatever the log holds.

use std::io::Read;
use std::num::NonZeroUsize;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Scope};

use crate::classify::{Classifier, LineReport};
use crate::search::Scratch;
use crate::stream::{Delivery, Pieces, StreamEnd, StreamError, classify_stream};

/// Bytes of lines that are handed to a thread at once: some milliseconds of work, so
/// that handing them over costs little, and some megabytes of reports where every line
/// has one.
const BLOCK_BYTES: usize = 128 << 10;

/// More threads than that wait for the one that reads and hands on.
pub const MAX_WORKERS: usize = 16;

/// Blocks of one worker that are under way: one in work, and one that waits for it.
const BLOCKS_PER_WORKER: usize = 2;

/// Lines, or pieces of a long one, as they were read, and what they say.
#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
    answers: Vec<Answer>,
}

/// Where a piece ends in its block.
#[derive(Clone, Copy, Debug)]
struct Piece {
    end: usize,
    ends_line: bool,
}

/// The number of a piece, and what it says; most say nothing.
type Answer = (usize, LineReport);

impl Block {
    fn push(&mut self, bytes: &[u8], ends_line: bool) {
        self.bytes.extend_from_slice(bytes);
        self.pieces.push(Piece {
            end: self.bytes.len(),
            ends_line,
        });
    }

    fn is_full(&self) -> bool {
        self.bytes.len() + self.pieces.len() >= BLOCK_BYTES
    }

    /// Empties it but for its answers.
    fn clear(&mut self) {
        self.bytes.clear();
        self.pieces.clear();
    }

    fn answer(&mut self, classifier: &Classifier, scratch: &mut Scratch) {
        let mut from = 0;
        // Those of an earlier block: the thread that took the memory gives it back fastest.
        self.answers.clear();
        for (number, piece) in self.pieces.iter().enumerate() {
            let report = classifier.classify_with(scratch, 0, &self.bytes[from..piece.end]);
            from = piece.end;
            if report.rule.is_some() {
                self.answers.push((number, report));
            }
        }
    }
}

/// A thread that classifies, and the block that comes back with its answers.
struct Worker {
    to: SyncSender<Block>,
    from: Receiver<Block>,
}

impl Worker {
    fn start<'scope>(scope: &'scope Scope<'scope, '_>, classifier: &'scope Classifier) -> Worker {
        let (to, blocks) = sync_channel::<Block>(BLOCKS_PER_WORKER);
        let (answered, from) = sync_channel(BLOCKS_PER_WORKER);
        scope.spawn(move || {
            classifier.with_scratch(|scratch| {
                for mut block in blocks {
                    block.answer(classifier, scratch);
                    // Nobody takes them any more: the receiver of the reports wants no
                    // more.
                    if answered.send(block).is_err() {
                        return;
                    }
                }
            });
        });
        Worker { to, from }
    }
}

/// Reads the log to its end and hands the report of every line, in order, to `sink`;
/// `workers` threads classify, at most [`MAX_WORKERS`]. With one worker there is no
/// other thread.
///
/// # Errors
///
/// The reader's error with the line at which it came, or what `sink` answered.
///
/// # Panics
///
/// When a thread panicked; see [`Classifier::classify`], which does not.
pub fn classify_parallel<R: Read, E>(
    reader: R,
    classifier: &Classifier,
    workers: NonZeroUsize,
    sink: impl FnMut(&LineReport) -> Result<(), E>,
) -> Result<StreamEnd, StreamError<E>> {
    let workers = workers.get().min(MAX_WORKERS);
    if workers == 1 {
        return classify_stream(reader, classifier, sink);
    }
    thread::scope(|scope| {
        let workers = (0..workers).map(|_| Worker::start(scope, classifier));
        let workers: Vec<Worker> = workers.collect();
        let mut line = Line {
            spare: workers.iter().map(|_| None).collect(),
            workers,
            sent: 0,
            taken: 0,
            delivery: Delivery::new(sink),
        };
        let mut pieces = Pieces::new(reader);
        let mut block = Block::default();
        loop {
            match pieces.next() {
                Ok(Some(piece)) => block.push(piece.bytes, piece.ends_line),
                Ok(None) => break,
                // What was read before is worth its reports.
                Err(error) => {
                    line.hand_on(block)?;
                    line.drain()?;
                    return Err(line.delivery.broken(error));
                }
            }
            if block.is_full() {
                block = line.hand_on(block)?;
            }
        }
        line.hand_on(block)?;
        line.drain()?;
        Ok(line.delivery.end(pieces.read_bytes()))
    })
}

/// Blocks go to the workers in turn, and their answers are taken in the same turn.
struct Line<S> {
    workers: Vec<Worker>,
    /// Of each worker: a block that was its own and is delivered.
    spare: Vec<Option<Block>>,
    sent: usize,
    taken: usize,
    delivery: Delivery<S>,
}

impl<S> Line<S> {
    /// Sends a block, and gives an empty one for the next worker.
    fn hand_on<E>(&mut self, block: Block) -> Result<Block, StreamError<E>>
    where
        S: FnMut(&LineReport) -> Result<(), E>,
    {
        if self.sent - self.taken >= self.workers.len() * BLOCKS_PER_WORKER {
            self.take()?;
        }
        let worker = &self.workers[self.sent % self.workers.len()];
        // A worker ends with its sender, or by a panic that the scope hands on.
        if worker.to.send(block).is_ok() {
            self.sent += 1;
        }
        let next = self.sent % self.workers.len();
        Ok(self.spare[next].take().unwrap_or_default())
    }

    /// Delivers the answers of the oldest block under way.
    fn take<E>(&mut self) -> Result<(), StreamError<E>>
    where
        S: FnMut(&LineReport) -> Result<(), E>,
    {
        let number = self.taken % self.workers.len();
        let Ok(mut block) = self.workers[number].from.recv() else {
            return Ok(());
        };
        self.taken += 1;
        let mut answers = block.answers.iter_mut().peekable();
        for (number, piece) in block.pieces.iter().enumerate() {
            let answer = answers.next_if(|(of, _)| *of == number);
            let mut nothing = LineReport::nothing(0);
            let report = answer.map_or(&mut nothing, |(_, report)| report);
            self.delivery.take(report, piece.ends_line)?;
        }
        block.clear();
        self.spare[number] = Some(block);
        Ok(())
    }

    fn drain<E>(&mut self) -> Result<(), StreamError<E>>
    where
        S: FnMut(&LineReport) -> Result<(), E>,
    {
        while self.taken < self.sent {
            let before = self.taken;
            self.take()?;
            if self.taken == before {
                break;
            }
        }
        Ok(())
    }
}

//! `shaper-svc replay`: what a captured stream would look like on a wire.
//!
//! Virtual time: a frame arrives at its capture time stamp, and every event is taken
//! at its very instant, so the same capture always gives the same bytes.

mod error;
mod held;
mod summary;

pub use error::ReplayError;
pub use summary::Summary;

use crate::capture::{CaptureError, Reader, Record, Writer};
use crate::classify::{Classifier, Kind};
use crate::engine::{
    DEFAULT_QUEUE_FRAMES, DEFAULT_SUB_QUEUES, Frame, MAX_FRAME_BYTES, MAX_MTU_BYTES, Speed, Wire,
    WireConfig,
};
use crate::rate::LineRate;
use held::Held;
use std::io::{Read, Write};
use summary::Tally;

/// Longest time between two frames, ps: 30 days, well within what the engine's clock
/// can compare.
const MAX_GAP_PS: u128 = 30 * 24 * 3600 * 1_000_000_000_000;

/// Keys of a replay are the same in every run.
const SEED: u64 = 0;

/// How to replay.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Rate of the wire.
    pub rate: LineRate,
    /// Frames that may wait at the wire; more wait at their sender, in one line.
    pub queue_frames: u32,
    /// Keys that get a turn of their own.
    pub sub_queues: u32,
    /// Use the whole frames of a capture that was cut.
    pub accept_cut: bool,
}

impl Options {
    /// The size of a wire as the service has it.
    #[must_use]
    pub const fn new(rate: LineRate) -> Self {
        Self {
            rate,
            queue_frames: DEFAULT_QUEUE_FRAMES,
            sub_queues: DEFAULT_SUB_QUEUES,
            accept_cut: false,
        }
    }
}

/// A capture whose frames are checked as a wire needs them.
#[derive(Debug)]
pub(crate) struct Frames<R> {
    reader: Reader<R>,
    accept_cut: bool,
    is_cut: bool,
    last_ps: Option<u128>,
}

/// A frame that a wire can carry.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) record: Record,
    pub(crate) len: u16,
}

impl<R: Read> Frames<R> {
    pub(crate) fn new(input: R, accept_cut: bool) -> Result<Self, ReplayError> {
        Ok(Self {
            reader: Reader::new(input)?,
            accept_cut,
            is_cut: false,
            last_ps: None,
        })
    }

    pub(crate) fn next_frame(&mut self) -> Result<Option<Captured>, ReplayError> {
        let record = match self.reader.next_record() {
            Err(CaptureError::Cut { .. }) if self.accept_cut => {
                self.is_cut = true;
                return Ok(None);
            }
            record => record?,
        };
        let Some(record) = record else {
            return Ok(None);
        };
        let number = self.reader.records();
        let len = u16::try_from(record.wire_len).ok();
        let Some(len) = len.filter(|len| *len <= MAX_FRAME_BYTES) else {
            return Err(ReplayError::TooLong {
                number,
                bytes: record.wire_len,
            });
        };
        let last_ps = self.last_ps.replace(record.at_ps).unwrap_or(record.at_ps);
        if record.at_ps < last_ps {
            return Err(ReplayError::Unordered {
                number,
                back_ns: (last_ps - record.at_ps).div_ceil(1000),
            });
        }
        if record.at_ps - last_ps > MAX_GAP_PS {
            return Err(ReplayError::Gap { number });
        }
        Ok(Some(Captured { record, len }))
    }

    pub(crate) const fn is_cut(&self) -> bool {
        self.is_cut
    }

    pub(crate) fn resolution_ps(&self) -> u64 {
        self.reader.resolution_ps()
    }
}

/// Moves the frames of `input` through a wire into `output`, a pcap file with
/// nanoseconds that holds each frame at the time of its departure.
///
/// # Errors
/// [`ReplayError`] when the capture cannot be read or used, or `output` not written.
pub fn replay<W: Write>(
    input: impl Read,
    output: W,
    options: &Options,
) -> Result<(Summary, W), ReplayError> {
    let config = WireConfig {
        queue_frames: options.queue_frames,
        sub_queues: options.sub_queues,
        ..WireConfig::new(Speed::Rate(options.rate), MAX_MTU_BYTES)
    };
    let wire = Wire::new(&config, 0)?;
    let mut frames = Frames::new(input, options.accept_cut)?;
    let first = frames.next_frame()?;
    let mut run = Run {
        origin_ps: first.as_ref().map_or(0, |first| first.record.at_ps),
        now_ps: 0,
        classifier: Classifier::new(SEED),
        wire,
        held: Held::default(),
        output: Writer::new(output).map_err(ReplayError::Write)?,
        tally: Tally::new(options.rate),
    };
    run.all(first, &mut frames)?;
    let summary = run.tally.summary(options.rate, frames.is_cut());
    Ok((summary, run.output.finish().map_err(ReplayError::Write)?))
}

/// A replay at work. Times are relative to the first frame; the engine gets their
/// lower 64 bits.
struct Run<W> {
    origin_ps: u128,
    now_ps: u128,
    classifier: Classifier,
    wire: Wire,
    held: Held,
    output: Writer<W>,
    tally: Tally,
}

impl<W: Write> Run<W> {
    fn all(
        &mut self,
        first: Option<Captured>,
        frames: &mut Frames<impl Read>,
    ) -> Result<(), ReplayError> {
        let mut next = first;
        loop {
            let due_ps = self.due_ps();
            let has_room = self.wire.room_frames() > 0;
            match next.take_if(|frame| {
                has_room
                    && due_ps.is_none_or(|due_ps| frame.record.at_ps - self.origin_ps <= due_ps)
            }) {
                Some(frame) => {
                    self.push(frame);
                    next = frames.next_frame()?;
                }
                None => match due_ps {
                    Some(due_ps) => self.poll(due_ps)?,
                    None => return Ok(()),
                },
            }
        }
    }

    /// When the wire has something to send next.
    fn due_ps(&self) -> Option<u128> {
        Some(self.unwrapped(self.wire.due_at_ps()?))
    }

    /// A time of the engine, which is near the present.
    fn unwrapped(&self, engine_ps: u64) -> u128 {
        let since_now = engine_ps.wrapping_sub(wrapped(self.now_ps)).cast_signed();
        self.now_ps.saturating_add_signed(since_now.into())
    }

    fn push(&mut self, captured: Captured) {
        let Captured { record, len } = captured;
        let verdict = self.classifier.classify(&record.bytes);
        let arrived_ps = record.at_ps - self.origin_ps;
        self.tally
            .arrived(arrived_ps, len, matches!(verdict.kind, Kind::Malformed));
        self.now_ps = self.now_ps.max(arrived_ps);
        let frame = Frame {
            handle: self.held.put(record),
            key: verdict.key,
            arrived_ps: wrapped(arrived_ps),
            len,
            is_cnp: verdict.is_cnp(),
        };
        // There is room: that was asked before.
        self.wire.push(&[frame]);
        self.tally.queued(self.wire.queued_frames());
    }

    fn poll(&mut self, due_ps: u128) -> Result<(), ReplayError> {
        self.now_ps = self.now_ps.max(due_ps);
        let burst = self.wire.peek(wrapped(self.now_ps));
        let sent = burst.departures().to_vec();
        let handles = burst.handles().to_vec();
        burst.commit(sent.len());
        for (departure, handle) in sent.into_iter().zip(handles) {
            let depart_ps = self.unwrapped(departure.depart_at_ps);
            let Some(mut record) = self.held.take(handle) else {
                continue;
            };
            let waited_ps = depart_ps.saturating_sub(record.at_ps - self.origin_ps);
            self.tally
                .departed(depart_ps, waited_ps, departure.len, departure.is_cnp);
            record.at_ps = self.origin_ps + depart_ps;
            self.output.write(&record).map_err(ReplayError::Write)?;
        }
        Ok(())
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the engine's clock wraps")]
const fn wrapped(ps: u128) -> u64 {
    ps as u64
}

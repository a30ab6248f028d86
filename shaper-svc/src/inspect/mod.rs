//! `shaper-svc inspect`: how far a captured stream runs ahead of an ideal wire.
//!
//! Whoever claims to limit a rate can be put to this test. A token bucket shows what
//! it saved up while idle as a burst ahead of the wire; a wire shows none.

mod report;

pub use report::{Burst, Report};

use crate::engine::CATCH_UP_FRAMES;
use crate::meter::Meter;
use crate::rate::LineRate;
use crate::replay::{Captured, Frames, ReplayError};
use report::nanoseconds;
use std::io::Read;

/// Bursts that a report shows: the worst ones.
const WORST_BURSTS: usize = 5;

/// Length of the frame whose wire time, 64 times, makes the idle time after which a
/// burst begins unless it is given: a full Ethernet frame without FCS, bytes.
const USUAL_FRAME_BYTES: u16 = 1_514;

/// How to inspect.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Rate of the ideal wire.
    pub rate: LineRate,
    /// A burst begins after the ideal wire has been idle for so long, ns; without it
    /// the wire time of 64 frames of 1,514 bytes.
    pub idle_ns: Option<u64>,
    /// Use the whole frames of a capture that was cut.
    pub accept_cut: bool,
}

/// Compares the frames of `input` with an ideal wire.
///
/// # Errors
/// [`ReplayError`] when the capture cannot be read or used.
pub fn inspect(input: impl Read, options: &Options) -> Result<Report, ReplayError> {
    let mut frames = Frames::new(input, options.accept_cut)?;
    let meter = Meter::new(options.rate);
    let usual_ps = meter.time_of(USUAL_FRAME_BYTES) * u128::from(CATCH_UP_FRAMES);
    let mut run = Run {
        idle_ps: options.idle_ns.map_or(usual_ps, |ns| u128::from(ns) * 1000),
        meter,
        report: Report::of(options.rate),
        origin_ps: 0,
        last_ps: 0,
        line_bytes: 0,
        burst: None,
        peaks: Vec::new(),
    };
    while let Some(captured) = frames.next_frame()? {
        run.see(&captured, frames.resolution_ps().into());
    }
    let resolution_ps = frames.resolution_ps();
    let is_cut = frames.is_cut();
    Ok(run.finish(resolution_ps, is_cut))
}

struct Run {
    idle_ps: u128,
    meter: Meter,
    report: Report,
    origin_ps: u128,
    last_ps: u128,
    line_bytes: u128,
    burst: Option<Burst>,
    /// How far each burst came ahead, frames.
    peaks: Vec<f64>,
}

impl Run {
    fn see(&mut self, captured: &Captured, resolution_ps: u128) {
        let at_ps = captured.record.at_ps;
        let number = self.report.frames + 1;
        if number == 1 {
            self.origin_ps = at_ps;
        }
        let since_first_ps = at_ps - self.origin_ps;
        let standing = self.meter.see(since_first_ps, captured.len);
        self.last_ps = since_first_ps;
        self.line_bytes += u128::from(crate::engine::line_bytes(captured.len));
        self.report.frames = number;
        self.report.bytes += u64::from(captured.len);
        self.report.frames_early += u64::from(standing.ahead_ps >= resolution_ps.max(1));
        let begins = number == 1 || standing.idle_ps >= self.idle_ps;
        if begins {
            self.end_burst();
        }
        let idle_ns = nanoseconds(standing.idle_ps);
        let burst = self.burst.get_or_insert_with(|| Burst {
            first_frame: number,
            at_ns: nanoseconds(since_first_ps),
            idle_before_ns: idle_ns,
            ..Burst::default()
        });
        burst.frames += 1;
        if standing.ahead_ps > 0 && nanoseconds(standing.ahead_ps) >= burst.ahead_ns {
            burst.ahead_ns = nanoseconds(standing.ahead_ps);
            burst.ahead_bytes =
                u64::try_from(self.meter.bytes_in(standing.ahead_ps)).unwrap_or(u64::MAX);
            burst.ahead_frames = hundredths(standing.ahead_ps, self.meter.time_of(captured.len));
            burst.worst_frame = number;
        }
    }

    fn end_burst(&mut self) {
        let Some(burst) = self.burst.take() else {
            return;
        };
        self.peaks.push(burst.ahead_frames);
        self.report.bursts += 1;
        let worst = &mut self.report.worst;
        let place = worst.partition_point(|other| other.ahead_ns >= burst.ahead_ns);
        worst.insert(place, burst);
        worst.truncate(WORST_BURSTS);
    }

    fn finish(mut self, resolution_ps: u64, is_cut: bool) -> Report {
        self.end_burst();
        self.peaks.sort_by(f64::total_cmp);
        let mut report = self.report;
        report.span_ns = nanoseconds(self.last_ps);
        report.mean_line_bps = (self.line_bytes * 8 * 1_000_000_000_000)
            .checked_div(self.last_ps)
            .map_or(0, |bps| u64::try_from(bps).unwrap_or(u64::MAX));
        report.ahead_frames_median = self.peaks.get(self.peaks.len() / 2).copied().unwrap_or(0.0);
        report.ahead_frames_max = self.peaks.last().copied().unwrap_or(0.0);
        report.idle_ns = nanoseconds(self.idle_ps);
        report.resolution_ns = nanoseconds(resolution_ps.into());
        report.input_was_cut = is_cut;
        report
    }
}

/// A quotient in steps of a hundredth, so that its text is the same on every machine.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn hundredths(part: u128, whole: u128) -> f64 {
    let count = (part * 100 + whole / 2).checked_div(whole).unwrap_or(0);
    u64::try_from(count).unwrap_or(u64::MAX) as f64 / 100.0
}

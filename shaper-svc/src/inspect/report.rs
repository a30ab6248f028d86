//! What an inspection comes to.

use crate::rate::LineRate;
use crate::text::{bits_per_second, line_rate, span};
use serde::Serialize;
use std::fmt;

/// How a stream compares with an ideal wire. Times in nanoseconds are rounded up.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub struct Report {
    /// Rate of the ideal wire, bit/s.
    pub rate_bps: u64,
    /// Frames seen.
    pub frames: u64,
    /// Their bytes without overhead and FCS.
    pub bytes: u64,
    /// From the first frame to the last, ns.
    pub span_ns: u64,
    /// What the stream took on the wire, overhead included, over that span, bit/s.
    pub mean_line_bps: u64,
    /// Frames seen before the ideal wire could have started them, by at least the step
    /// of the time stamps: a stream without fault may seem early by less.
    pub frames_early: u64,
    /// How many frames ahead of the wire a burst came at its worst, the median of all
    /// bursts.
    pub ahead_frames_median: f64,
    /// The same, of the worst burst.
    pub ahead_frames_max: f64,
    /// Bursts: each begins after the ideal wire was idle for `idle_ns`.
    pub bursts: u64,
    /// See [`Report::bursts`], ns.
    pub idle_ns: u64,
    /// The coarsest step of the time stamps, ns; what is below cannot be seen.
    pub resolution_ns: u64,
    /// The worst bursts, worst first.
    pub worst: Vec<Burst>,
    /// The capture was cut, and only its whole frames were used.
    pub input_was_cut: bool,
}

/// Frames that followed each other without a long idle time of the ideal wire.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub struct Burst {
    /// Its first frame, counted from 1.
    pub first_frame: u64,
    /// When that was seen, ns after the first of the capture.
    pub at_ns: u64,
    /// How long the ideal wire had been idle, ns.
    pub idle_before_ns: u64,
    /// Its frames.
    pub frames: u64,
    /// How far ahead it came at its worst, ns of wire time.
    pub ahead_ns: u64,
    /// The same in bytes of the wire, overhead included.
    pub ahead_bytes: u64,
    /// The same in frames of the length of the frame at which it was worst.
    pub ahead_frames: f64,
    /// That frame, counted from 1; zero when none was early.
    pub worst_frame: u64,
}

impl Report {
    pub(super) fn of(rate: LineRate) -> Self {
        Self {
            rate_bps: rate.bps(),
            ..Self::default()
        }
    }
}

pub(super) fn nanoseconds(ps: u128) -> u64 {
    u64::try_from(ps.div_ceil(1000)).unwrap_or(u64::MAX)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, name: &str, value: String| {
            writeln!(f, "{name:<26}{value}")
        };
        row(f, "ideal wire", line_rate(self.rate_bps))?;
        row(
            f,
            "frames",
            format!("{} ({} bytes)", self.frames, self.bytes),
        )?;
        row(f, "span", span(self.span_ns))?;
        row(f, "mean line rate", bits_per_second(self.mean_line_bps))?;
        row(
            f,
            "time stamps",
            format!("in steps of {}", span(self.resolution_ns)),
        )?;
        row(f, "frames seen early", self.frames_early.to_string())?;
        row(
            f,
            "bursts",
            format!("{} (after {} idle)", self.bursts, span(self.idle_ns)),
        )?;
        let (median, max) = (self.ahead_frames_median, self.ahead_frames_max);
        row(
            f,
            "ahead of the wire",
            format!("{median:.2} frames median, {max:.2} max"),
        )?;
        if self.worst.first().is_some_and(|burst| burst.ahead_ns > 0) {
            writeln!(
                f,
                "\nworst bursts\n{:>10} {:>14} {:>14} {:>8} {:>12} {:>10} {:>8}",
                "frame", "at", "idle before", "frames", "ahead", "bytes", "frames"
            )?;
        }
        for burst in self.worst.iter().filter(|burst| burst.ahead_ns > 0) {
            writeln!(
                f,
                "{:>10} {:>14} {:>14} {:>8} {:>12} {:>10} {:>8.2}",
                burst.first_frame,
                span(burst.at_ns),
                span(burst.idle_before_ns),
                burst.frames,
                span(burst.ahead_ns),
                burst.ahead_bytes,
                burst.ahead_frames,
            )?;
        }
        if self.input_was_cut {
            writeln!(f, "the capture was cut; its whole frames were used")?;
        }
        Ok(())
    }
}

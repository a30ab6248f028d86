//! What a replay comes to.

use crate::engine::{Histogram, line_bytes};
use crate::meter::Meter;
use crate::rate::LineRate;
use crate::text::{bits_per_second, line_rate, span};
use serde::Serialize;
use std::fmt;

/// The result of a replay. Times in nanoseconds are rounded up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Rate of the wire, bit/s.
    pub rate_bps: u64,
    /// Frames moved.
    pub frames: u64,
    /// Their bytes without overhead and FCS.
    pub bytes: u64,
    /// From the first frame to the last in the input, ns.
    pub input_span_ns: u64,
    /// From the first departure to the end of the last frame, ns.
    pub output_span_ns: u64,
    /// Bytes without overhead over the span of the output, bit/s.
    pub goodput_bps: u64,
    /// Share of the span of the output in which the wire was in use.
    pub wire_use: f64,
    /// The longest wait, ns, and the frame that waited, counted from 1 in the order
    /// of the output.
    pub longest_wait_ns: u64,
    /// See [`Summary::longest_wait_ns`]; zero without frames.
    pub longest_wait_frame: u64,
    /// Half of the frames waited no longer, ns, within an eighth.
    pub wait_p50_ns: u64,
    /// 99 of 100 frames waited no longer, ns, within an eighth.
    pub wait_p99_ns: u64,
    /// Most frames that waited at once.
    pub queue_frames_max: u64,
    /// Congestion notification packets, which went ahead of data.
    pub cnps: u64,
    /// Frames whose header contradicts itself or was not captured.
    pub malformed: u64,
    /// Frames that left before an ideal wire could have started them.
    pub frames_ahead_of_the_wire: u64,
    /// The capture was cut, and only its whole frames were used.
    pub input_was_cut: bool,
}

/// Counts while a replay runs.
#[derive(Debug)]
pub(super) struct Tally {
    meter: Meter,
    arrivals: u64,
    last_arrival_ps: u128,
    departures: u64,
    first_departure_ps: u128,
    end_ps: u128,
    bytes: u64,
    used_bytes: u128,
    waits_ps: Histogram,
    longest: (u128, u64),
    queue_frames_max: u64,
    cnps: u64,
    malformed: u64,
    ahead: u64,
}

impl Tally {
    pub(super) fn new(rate: LineRate) -> Self {
        Self {
            meter: Meter::new(rate),
            arrivals: 0,
            last_arrival_ps: 0,
            departures: 0,
            first_departure_ps: 0,
            end_ps: 0,
            bytes: 0,
            used_bytes: 0,
            waits_ps: Histogram::default(),
            longest: (0, 0),
            queue_frames_max: 0,
            cnps: 0,
            malformed: 0,
            ahead: 0,
        }
    }

    pub(super) fn arrived(&mut self, at_ps: u128, len: u16, is_malformed: bool) {
        self.arrivals += 1;
        self.last_arrival_ps = at_ps;
        self.bytes += u64::from(len);
        self.malformed += u64::from(is_malformed);
    }

    pub(super) fn queued(&mut self, frames: usize) {
        self.queue_frames_max = self.queue_frames_max.max(frames as u64);
    }

    pub(super) fn departed(&mut self, at_ps: u128, waited_ps: u128, len: u16, is_cnp: bool) {
        self.departures += 1;
        if self.departures == 1 {
            self.first_departure_ps = at_ps;
        }
        self.end_ps = at_ps + self.meter.time_of(len);
        self.used_bytes += u128::from(line_bytes(len));
        self.cnps += u64::from(is_cnp);
        self.ahead += u64::from(self.meter.see(at_ps, len).ahead_ps > 0);
        self.waits_ps.record(clamped(waited_ps));
        if waited_ps > self.longest.0 || self.departures == 1 {
            self.longest = (waited_ps, self.departures);
        }
    }

    pub(super) fn summary(&self, rate: LineRate, input_was_cut: bool) -> Summary {
        let span_ps = self.end_ps - self.first_departure_ps;
        let goodput = u128::from(self.bytes) * 8 * 1_000_000_000_000;
        let used_ps = self.used_bytes * 8_000_000_000_000 / u128::from(rate.bps());
        Summary {
            rate_bps: rate.bps(),
            frames: self.departures,
            bytes: self.bytes,
            input_span_ns: nanoseconds(self.last_arrival_ps),
            output_span_ns: nanoseconds(span_ps),
            goodput_bps: clamped(goodput.checked_div(span_ps).unwrap_or(0)),
            wire_use: share(used_ps, span_ps),
            longest_wait_ns: nanoseconds(self.longest.0),
            longest_wait_frame: self.longest.1,
            wait_p50_ns: nanoseconds(self.waits_ps.quantile(500).into()),
            wait_p99_ns: nanoseconds(self.waits_ps.quantile(990).into()),
            queue_frames_max: self.queue_frames_max,
            cnps: self.cnps,
            malformed: self.malformed,
            frames_ahead_of_the_wire: self.ahead,
            input_was_cut,
        }
    }
}

/// A share in steps of a millionth, so that its text is the same on every machine.
#[expect(clippy::cast_precision_loss, reason = "at most a million")]
fn share(part: u128, whole: u128) -> f64 {
    let millionths = (part * 1_000_000).checked_div(whole).unwrap_or(0);
    clamped(millionths.min(1_000_000)) as f64 / 1_000_000.0
}

fn nanoseconds(ps: u128) -> u64 {
    clamped(ps.div_ceil(1000))
}

fn clamped(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, name: &str, value: String| {
            writeln!(f, "{name:<26}{value}")
        };
        row(f, "wire", line_rate(self.rate_bps))?;
        row(
            f,
            "frames",
            format!("{} ({} bytes)", self.frames, self.bytes),
        )?;
        row(f, "span of the input", span(self.input_span_ns))?;
        row(f, "span of the output", span(self.output_span_ns))?;
        row(f, "goodput", bits_per_second(self.goodput_bps))?;
        row(f, "wire in use", format!("{:.2} %", self.wire_use * 100.0))?;
        let longest = span(self.longest_wait_ns);
        row(
            f,
            "longest wait",
            format!("{longest} (frame {})", self.longest_wait_frame),
        )?;
        let (p50, p99) = (span(self.wait_p50_ns), span(self.wait_p99_ns));
        row(f, "wait, half and 99 of 100", format!("{p50}, {p99}"))?;
        row(
            f,
            "longest queue",
            format!("{} frames", self.queue_frames_max),
        )?;
        row(f, "CNPs", self.cnps.to_string())?;
        row(f, "malformed headers", self.malformed.to_string())?;
        row(
            f,
            "frames ahead of the wire",
            self.frames_ahead_of_the_wire.to_string(),
        )?;
        if self.input_was_cut {
            writeln!(f, "the capture was cut; its whole frames were used")?;
        }
        Ok(())
    }
}

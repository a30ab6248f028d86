//! Shaped wires, their windows, and two stretches of time side by side.

use rdmesh_proto::collector::v1 as wire;
use rdmesh_proto::shaper::v1 as shaper;
use serde::Serialize;

use super::{moment_or_mark, text, wire_enum};
use crate::attempt::AttemptId;
use crate::moment::Moment;

wire_enum! {
    /// Why a window does not show the wire that was asked for.
    InvalidCause from rdmesh_proto::shaper::v1::InvalidCause {
        PortDropped => "port_dropped",
        PollGap => "poll_gap",
        Retransmits => "retransmits",
        BackPressureHelp => "back_pressure_help",
        DataPathDown => "data_path_down",
        NotShaped => "not_shaped",
    }
}

/// One shaped transmit direction of one virtual function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Wire {
    /// Its name.
    pub name: String,
    /// The shaped host.
    pub host: String,
    /// The virtual function.
    pub virtual_function: String,
    /// Line rate, overhead included, bit/s; 0: not shaped.
    pub rate_bps: u64,
    /// The rate that a reset goes back to; 0: not shaped.
    pub configured_rate_bps: u64,
    /// When the rate goes back by itself.
    pub expires_at: Option<Moment>,
    /// Traffic goes around the shaper.
    pub bypass: bool,
    /// Grows with each change.
    pub policy_generation: u64,
    /// The bypass is a rule in the card.
    pub bypass_in_hardware: bool,
}

impl Wire {
    /// What breaks the contract is told among the marks.
    pub(crate) fn told(w: shaper::Wire, marks: &mut Vec<String>) -> Wire {
        Wire {
            name: w.name,
            host: w.host,
            virtual_function: w.virtual_function,
            rate_bps: w.rate_bps,
            configured_rate_bps: w.configured_rate_bps,
            expires_at: moment_or_mark(marks, "expires_at", w.expires_at),
            bypass: w.bypass,
            policy_generation: w.policy_generation,
            bypass_in_hardware: w.bypass_in_hardware,
        }
    }
}

/// Frames that a sender sent again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RepeatedPsn {
    /// 0: the sum of QPs that have no line of their own.
    pub destination_qp: u32,
    /// How many.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One reporting interval of a wire.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "named and documented by the contract")]
pub struct WireWindow {
    pub wire: String,
    pub host: String,
    pub virtual_function: String,
    pub from: Option<Moment>,
    pub to: Option<Moment>,
    pub rate_bps: u64,
    pub configured_rate_bps: u64,
    pub expires_at: Option<Moment>,
    pub policy_generation: u64,
    pub bypass: bool,
    /// Mean rate sent, overhead included, bit/s; absent for a window without length.
    pub sent_bps: Option<u64>,
    pub sent_frames: u64,
    pub sent_bits: u64,
    pub queue_frames_now: u64,
    pub queue_frames_p50: u64,
    pub queue_frames_p99: u64,
    pub queue_frames_max: u64,
    pub waited_ns_p50: u64,
    pub waited_ns_p99: u64,
    pub waited_ns_max: u64,
    pub catch_up_used_ps: u64,
    pub lost_ps: u64,
    pub ce_marks: u64,
    pub imissed: u64,
    pub rx_nombuf: u64,
    pub tx_not_accepted: u64,
    pub full_polls: u64,
    pub longest_poll_gap_ns: u64,
    pub poll_gap_buckets: Vec<u64>,
    pub repeated_psns: Vec<RepeatedPsn>,
    pub invalid: Vec<InvalidCause>,
    pub windows_given_up: u64,
    pub engine_version: Option<String>,
    pub configuration_hash: Option<String>,
}

impl WireWindow {
    pub(crate) fn told(w: shaper::WireWindow, marks: &mut Vec<String>) -> WireWindow {
        let from = moment_or_mark(marks, "from", w.from);
        let to = moment_or_mark(marks, "to", w.to);
        let repeated = w.repeated_psns.iter().map(|line| RepeatedPsn {
            destination_qp: line.destination_qp,
            frames: line.frames,
            bytes: line.bytes,
        });
        WireWindow {
            repeated_psns: repeated.collect(),
            invalid: w.invalid.iter().copied().map(Into::into).collect(),
            expires_at: moment_or_mark(marks, "expires_at", w.expires_at),
            sent_bps: from
                .zip(to)
                .and_then(|(from, to)| per_second(w.sent_bits, from, to)),
            wire: w.wire,
            host: w.host,
            virtual_function: w.virtual_function,
            from,
            to,
            rate_bps: w.rate_bps,
            configured_rate_bps: w.configured_rate_bps,
            policy_generation: w.policy_generation,
            bypass: w.bypass,
            sent_frames: w.sent_frames,
            sent_bits: w.sent_bits,
            queue_frames_now: w.queue_frames_now,
            queue_frames_p50: w.queue_frames_p50,
            queue_frames_p99: w.queue_frames_p99,
            queue_frames_max: w.queue_frames_max,
            waited_ns_p50: w.waited_ns_p50,
            waited_ns_p99: w.waited_ns_p99,
            waited_ns_max: w.waited_ns_max,
            catch_up_used_ps: w.catch_up_used_ps,
            lost_ps: w.lost_ps,
            ce_marks: w.ce_marks,
            imissed: w.imissed,
            rx_nombuf: w.rx_nombuf,
            tx_not_accepted: w.tx_not_accepted,
            full_polls: w.full_polls,
            longest_poll_gap_ns: w.longest_poll_gap_ns,
            poll_gap_buckets: w.poll_gap_buckets,
            windows_given_up: w.windows_given_up,
            engine_version: text(w.engine_version),
            configuration_hash: text(w.configuration_hash),
        }
    }
}

/// Bits per second; absent where no time passed.
fn per_second(bits: u64, from: Moment, to: Moment) -> Option<u64> {
    let nanos = u128::try_from(from.nanoseconds_until(to)).ok()?;
    let scaled = u128::from(bits) * 1_000_000_000;
    u64::try_from(scaled.checked_div(nanos)?).ok()
}

/// A time without a window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gap {
    /// Begin.
    pub from: Option<Moment>,
    /// End.
    pub to: Option<Moment>,
}

/// One wire of the fleet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetWire {
    /// Host of the shaper; absent where the shaper itself was asked.
    pub shaper_host: Option<String>,
    /// Where it can be dialled.
    pub shaper_address: Option<String>,
    /// Its state.
    pub wire: Option<Wire>,
    /// Whether the shaper told it just now.
    pub live: bool,
    /// The last window; absent where the shaper itself was asked.
    pub last_window: Option<WireWindow>,
    /// How long ago that ended, seconds.
    pub last_window_age_seconds: Option<f64>,
    /// Attempts that use it now.
    pub attempts: Vec<AttemptId>,
    /// What is odd.
    pub marks: Vec<String>,
    /// The last time without a window.
    pub last_gap: Option<Gap>,
    /// Windows of its shaper, of all wires together, given up while no collector took them.
    pub windows_given_up: u64,
}

impl From<wire::FleetWire> for FleetWire {
    fn from(w: wire::FleetWire) -> FleetWire {
        let mut marks = w.marks;
        let attempts = w.attempts.into_iter();
        let gap = w.last_gap.map(|gap| Gap {
            from: moment_or_mark(&mut marks, "last_gap.from", gap.from),
            to: moment_or_mark(&mut marks, "last_gap.to", gap.to),
        });
        FleetWire {
            shaper_host: text(w.shaper_host),
            shaper_address: text(w.shaper_address),
            wire: w.wire.map(|wire| Wire::told(wire, &mut marks)),
            live: w.live,
            last_window: w
                .last_window
                .map(|window| WireWindow::told(window, &mut marks)),
            last_window_age_seconds: w
                .last_window_age
                .and_then(|age| std::time::Duration::try_from(age).ok())
                .map(|age| age.as_secs_f64()),
            attempts: attempts.map(|id| AttemptId::told(id, &mut marks)).collect(),
            last_gap: gap,
            windows_given_up: w.windows_given_up,
            marks,
        }
    }
}

impl From<shaper::Wire> for FleetWire {
    /// As its own shaper tells it.
    fn from(w: shaper::Wire) -> FleetWire {
        let mut marks = Vec::new();
        FleetWire {
            shaper_host: None,
            shaper_address: None,
            wire: Some(Wire::told(w, &mut marks)),
            live: true,
            last_window: None,
            last_window_age_seconds: None,
            attempts: Vec::new(),
            marks,
            last_gap: None,
            windows_given_up: 0,
        }
    }
}

/// A wire after it was changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShapedWire {
    /// Host of the shaper; absent where the shaper itself was asked.
    pub shaper_host: Option<String>,
    /// The wire as it is now.
    pub wire: Option<Wire>,
}

impl ShapedWire {
    pub(crate) fn told(shaper_host: String, wire: Option<shaper::Wire>) -> ShapedWire {
        ShapedWire {
            shaper_host: text(shaper_host),
            wire: wire.map(|wire| Wire::told(wire, &mut Vec::new())),
        }
    }
}

/// A shaper whose wires were not reset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShaperFailure {
    /// Its host.
    pub shaper_host: String,
    /// As gRPC numbers them.
    pub code: u32,
    /// Its words.
    pub message: String,
}

/// A window as a watcher gets it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SeenWindow {
    /// Host of the shaper; absent where the shaper itself was asked.
    pub shaper_host: Option<String>,
    /// The window.
    #[serde(flatten)]
    pub window: WireWindow,
    /// What is odd about it.
    pub marks: Vec<String>,
}

impl SeenWindow {
    pub(crate) fn told(
        shaper_host: String,
        window: shaper::WireWindow,
        mut marks: Vec<String>,
    ) -> SeenWindow {
        SeenWindow {
            shaper_host: text(shaper_host),
            window: WireWindow::told(window, &mut marks),
            marks,
        }
    }
}

/// Whole windows within a stretch of time; figures of valid ones alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "named and documented by the contract")]
pub struct WireSummary {
    pub from: Option<Moment>,
    pub to: Option<Moment>,
    pub windows: u64,
    pub valid_windows: u64,
    pub gaps_seconds: f64,
    pub lowest_rate_bps: u64,
    pub highest_rate_bps: u64,
    pub mean_sent_bps: u64,
    pub queue_frames_p99: u64,
    pub queue_frames_max: u64,
    pub waited_ns_p99: u64,
    pub waited_ns_max: u64,
    pub sent_frames: u64,
    pub ce_marks: u64,
    pub lost_ps: u64,
    pub repeated_frames: u64,
}

impl From<wire::WireSummary> for WireSummary {
    fn from(s: wire::WireSummary) -> WireSummary {
        let gaps = s
            .gaps
            .and_then(|gaps| std::time::Duration::try_from(gaps).ok());
        let mut marks = Vec::new();
        WireSummary {
            from: moment_or_mark(&mut marks, "from", s.from),
            to: moment_or_mark(&mut marks, "to", s.to),
            windows: s.windows,
            valid_windows: s.valid_windows,
            gaps_seconds: gaps.unwrap_or_default().as_secs_f64(),
            lowest_rate_bps: s.lowest_rate_bps,
            highest_rate_bps: s.highest_rate_bps,
            mean_sent_bps: s.mean_sent_bps,
            queue_frames_p99: s.queue_frames_p99,
            queue_frames_max: s.queue_frames_max,
            waited_ns_p99: s.waited_ns_p99,
            waited_ns_max: s.waited_ns_max,
            sent_frames: s.sent_frames,
            ce_marks: s.ce_marks,
            lost_ps: s.lost_ps,
            repeated_frames: s.repeated_frames,
        }
    }
}

/// Two stretches of time of one wire.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WireComparison {
    /// Host of the shaper.
    pub shaper_host: String,
    /// Name of the wire.
    pub wire: String,
    /// The engine of both.
    pub engine_version: String,
    /// The configuration of both.
    pub configuration_hash: String,
    /// The first.
    pub a: WireSummary,
    /// The second.
    pub b: WireSummary,
}

//! What happened on the hosts of an attempt.

use rdmesh_proto::collector::v1 as wire;
use serde::Serialize;

use super::failure::Failure;
use super::log::LogLine;
use super::wire::InvalidCause;
use super::{moment_or_mark, text, wire_enum};
use crate::moment::Moment;

wire_enum! {
    /// What else failed.
    SignalKind from rdmesh_proto::tracer::v1::CoSignalKind {
        Network => "network",
        Device => "device",
        Host => "host",
        Process => "process",
    }
}

/// Anything else that failed on a host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CoSignal {
    /// When.
    pub at: Option<Moment>,
    /// What kind.
    pub kind: SignalKind,
    /// Whether it can be a cause; else it echoes another.
    pub independent: bool,
    /// What it is.
    pub name: String,
    /// In words.
    pub detail: Option<String>,
    /// RDMA device.
    pub device: Option<String>,
}

/// A line of a log that tells when it was written.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimedLine {
    /// By the clock of whoever wrote it.
    pub at: Option<Moment>,
    /// The line.
    pub line: LogLine,
    /// The log in which it stands.
    pub log_name: Option<String>,
}

/// A stretch of time in which windows of a wire say the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WireSpan {
    /// Name of the wire.
    pub wire: String,
    /// Its virtual function.
    pub virtual_function: Option<String>,
    /// Begin.
    pub from: Option<Moment>,
    /// End.
    pub to: Option<Moment>,
    /// Rate in force, bit/s; 0: not shaped.
    pub rate_bps: u64,
    /// Around the shaper.
    pub bypass: bool,
    /// Why its windows do not show the wire that was asked for.
    pub invalid: Vec<InvalidCause>,
}

/// What happened on one host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostTimeline {
    /// The host; absent: lines whose host is not known.
    pub host: Option<String>,
    /// Failing calls, oldest first.
    pub failures: Vec<Failure>,
    /// Failing calls beyond these.
    pub failures_left_out: u32,
    /// What else failed, oldest first.
    pub signals: Vec<CoSignal>,
    /// What the job's own logs say.
    pub log_lines: Vec<TimedLine>,
    /// Its wires.
    pub wires: Vec<WireSpan>,
}

/// What happened on the hosts of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Timeline {
    /// Begin of the attempt, or its first failure.
    pub from: Option<Moment>,
    /// Its end, or its last failure.
    pub to: Option<Moment>,
    /// Hosts, those on which something happened first.
    pub hosts: Vec<HostTimeline>,
    /// Hosts beyond these.
    pub hosts_left_out: u32,
    /// Whether the attempt has more failures than were looked at.
    pub more_failures: bool,
}

/// A time that is none is left out: a drawing has no place for it.
fn moment(stamp: Option<prost_types::Timestamp>) -> Option<Moment> {
    moment_or_mark(&mut Vec::new(), "at", stamp)
}

impl From<wire::CoSignal> for CoSignal {
    fn from(signal: wire::CoSignal) -> CoSignal {
        CoSignal {
            at: moment(signal.at),
            kind: signal.kind.into(),
            independent: signal.independent,
            name: signal.name,
            detail: text(signal.detail),
            device: text(signal.device),
        }
    }
}

impl From<wire::WireSpan> for WireSpan {
    fn from(span: wire::WireSpan) -> WireSpan {
        WireSpan {
            wire: span.wire,
            virtual_function: text(span.virtual_function),
            from: moment(span.from),
            to: moment(span.to),
            rate_bps: span.rate_bps,
            bypass: span.bypass,
            invalid: span.invalid.into_iter().map(InvalidCause::from).collect(),
        }
    }
}

impl From<wire::HostTimeline> for HostTimeline {
    fn from(host: wire::HostTimeline) -> HostTimeline {
        let lines = host.log_lines.into_iter().filter_map(|line| {
            Some(TimedLine {
                at: moment(line.at),
                line: line.line?.into(),
                log_name: text(line.log_name),
            })
        });
        HostTimeline {
            log_lines: lines.collect(),
            host: text(host.host),
            failures: host.failures.into_iter().map(Failure::from).collect(),
            failures_left_out: host.failures_left_out,
            signals: host.signals.into_iter().map(CoSignal::from).collect(),
            wires: host.wires.into_iter().map(WireSpan::from).collect(),
        }
    }
}

impl From<wire::GetTimelineResponse> for Timeline {
    fn from(answer: wire::GetTimelineResponse) -> Timeline {
        Timeline {
            from: moment(answer.from),
            to: moment(answer.to),
            hosts: answer.hosts.into_iter().map(HostTimeline::from).collect(),
            hosts_left_out: answer.hosts_left_out,
            more_failures: answer.more_failures,
        }
    }
}

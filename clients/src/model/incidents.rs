//! What a fleet asks: classes over time, incidents, what foretold failures.

use rdmesh_proto::collector::v1 as wire;
use serde::Serialize;

use super::statistics::Share;
use super::{moment_or_mark, text, wire_enum};
use crate::attempt::AttemptId;
use crate::moment::Moment;

wire_enum! {
    /// The earlier half of the steps against the later half.
    Trend from rdmesh_proto::collector::v1::Trend {
        Steady => "steady",
        Rises => "rises",
        Falls => "falls",
    }
}

/// How wide a step is, of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeStep {
    /// An hour.
    Hour,
    /// A day.
    Day,
    /// From Monday on.
    Week,
    /// A month.
    Month,
}

impl From<TimeStep> for wire::TimeStep {
    fn from(step: TimeStep) -> wire::TimeStep {
        match step {
            TimeStep::Hour => wire::TimeStep::Hour,
            TimeStep::Day => wire::TimeStep::Day,
            TimeStep::Week => wire::TimeStep::Week,
            TimeStep::Month => wire::TimeStep::Month,
        }
    }
}

/// Attempts of a class that ended badly in a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassRow {
    /// Start of the step.
    pub step_at: Option<Moment>,
    /// Class of the verdict or of the log.
    pub class: String,
    /// Of the step.
    #[serde(flatten)]
    pub share: Share,
}

/// Whether the share of a class rises.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassTrend {
    /// Class.
    pub class: String,
    /// Attempts.
    pub attempts: u64,
    /// Share of all.
    pub of_attempts: Option<f64>,
    /// Share in the earlier half of the steps.
    pub earlier: Option<f64>,
    /// Share in the later half; absent: there is only one step.
    pub later: Option<f64>,
    /// Whether the two differ by more than chance does.
    pub trend: Trend,
}

/// Each class's share over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Classes {
    /// By step.
    pub rows: Vec<ClassRow>,
    /// By class.
    pub trends: Vec<ClassTrend>,
    /// Attempts that have no verdict.
    pub undiagnosed: u64,
}

/// A time that is none is shown as not known.
fn moment(stamp: Option<prost_types::Timestamp>) -> Option<Moment> {
    moment_or_mark(&mut Vec::new(), "at", stamp)
}

impl From<wire::GetClassesResponse> for Classes {
    fn from(answer: wire::GetClassesResponse) -> Classes {
        let row = |row: wire::ClassRow| ClassRow {
            step_at: moment(row.step_at),
            class: row.class,
            share: row.share.into(),
        };
        let trend = |trend: wire::ClassTrend| ClassTrend {
            class: trend.class,
            attempts: trend.attempts,
            of_attempts: trend.of_attempts,
            earlier: trend.earlier,
            later: trend.later,
            trend: trend.trend.into(),
        };
        Classes {
            rows: answer.rows.into_iter().map(row).collect(),
            trends: answer.trends.into_iter().map(trend).collect(),
            undiagnosed: answer.undiagnosed,
        }
    }
}

/// The same failure on many hosts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Incident {
    /// First such call.
    pub first_at: Option<Moment>,
    /// Last such call.
    pub last_at: Option<Moment>,
    /// What the application asked for.
    pub verb: Option<String>,
    /// Where the error came into being.
    pub function: String,
    /// Its module.
    pub module: Option<String>,
    /// Its layer.
    pub layer: String,
    /// Positive.
    pub errno: u32,
    /// `EFAULT`.
    pub errno_name: Option<String>,
    /// Module of the RDMA driver.
    pub driver: Option<String>,
    /// The whole chain, innermost first.
    pub functions: Vec<String>,
    /// Hosts.
    pub hosts: u64,
    /// Attempts on them.
    pub attempts: u64,
    /// Failing calls.
    pub calls: u64,
    /// The first four by name.
    pub first_hosts: Vec<String>,
    /// What they share and others lack.
    pub shared: Vec<String>,
}

/// The answer about incidents.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Incidents {
    /// Those on most hosts first.
    pub incidents: Vec<Incident>,
}

impl From<wire::GetIncidentsResponse> for Incidents {
    fn from(answer: wire::GetIncidentsResponse) -> Incidents {
        let incident = |incident: wire::Incident| Incident {
            first_at: moment(incident.first_at),
            last_at: moment(incident.last_at),
            verb: text(incident.verb),
            function: incident.function,
            module: text(incident.module),
            layer: incident.layer,
            errno: incident.errno,
            errno_name: text(incident.errno_name),
            driver: text(incident.driver),
            functions: incident.functions,
            hosts: incident.hosts,
            attempts: incident.attempts,
            calls: incident.calls,
            first_hosts: incident.first_hosts,
            shared: incident.shared,
        };
        Incidents {
            incidents: answer.incidents.into_iter().map(incident).collect(),
        }
    }
}

/// A signature that rose on a host before an attempt failed of it there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Precursor {
    /// The attempt.
    pub attempt: AttemptId,
    /// The host.
    pub host: String,
    /// The function that decided.
    pub function: String,
    /// Positive.
    pub errno: u32,
    /// `EFAULT`.
    pub errno_name: Option<String>,
    /// First such call within a day before the attempt began.
    pub rose_at: Option<Moment>,
    /// First failure of the attempt.
    pub failed_at: Option<Moment>,
    /// Seconds between the two.
    pub lead_seconds: f64,
    /// Such calls in the day before the attempt.
    pub calls_day_before: u64,
    /// Such calls in the day before that.
    pub calls_day_earlier: u64,
    /// What is odd about the row.
    pub marks: Vec<String>,
}

/// The answer about precursors.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Precursors {
    /// Newest first.
    pub precursors: Vec<Precursor>,
}

impl From<wire::GetPrecursorsResponse> for Precursors {
    fn from(answer: wire::GetPrecursorsResponse) -> Precursors {
        let precursor = |row: wire::Precursor| {
            let mut marks = Vec::new();
            Precursor {
                attempt: AttemptId::told(row.attempt.unwrap_or_default(), &mut marks),
                host: row.host,
                function: row.function,
                errno: row.errno,
                errno_name: text(row.errno_name),
                rose_at: moment_or_mark(&mut marks, "rose_at", row.rose_at),
                failed_at: moment_or_mark(&mut marks, "failed_at", row.failed_at),
                lead_seconds: row.lead_seconds,
                calls_day_before: row.calls_day_before,
                calls_day_earlier: row.calls_day_earlier,
                marks,
            }
        };
        Precursors {
            precursors: answer.precursors.into_iter().map(precursor).collect(),
        }
    }
}

//! Answers of the store about the fleet, as the contract holds them.

use rdmesh_proto::collector::v1::{
    ClassRow, ClassTrend, Incident, Precursor, TimeStep as Step, Trend,
};
use rdmesh_store::fleet::{
    ClassStep, ClassTrend as StoredTrend, Incident as StoredIncident, Precursor as StoredPrecursor,
    TimeStep,
};

use crate::query::statistics::{count, share};
use crate::{attempt, times};

/// The step that was asked for; a week where none was.
pub(super) fn step(step: Step) -> TimeStep {
    match step {
        Step::Hour => TimeStep::Hour,
        Step::Day => TimeStep::Day,
        Step::Week | Step::Unspecified => TimeStep::Week,
        Step::Month => TimeStep::Month,
    }
}

pub(super) fn class_row(row: ClassStep) -> ClassRow {
    ClassRow {
        step_at: Some(times::to_proto(row.step_at)),
        class: row.class,
        share: Some(share(row.share)),
    }
}

pub(super) fn class_trend(row: StoredTrend) -> ClassTrend {
    let trend = match row.trend.as_str() {
        "rises" => Trend::Rises,
        "falls" => Trend::Falls,
        "steady" => Trend::Steady,
        _ => Trend::Unspecified,
    };
    ClassTrend {
        class: row.class,
        attempts: count(row.attempts),
        of_attempts: row.of_attempts,
        earlier: row.earlier,
        later: row.later,
        trend: trend.into(),
    }
}

pub(super) fn incident(row: StoredIncident) -> Incident {
    Incident {
        first_at: Some(times::to_proto(row.first_at)),
        last_at: Some(times::to_proto(row.last_at)),
        verb: row.verb,
        function: row.function,
        module: row.module,
        layer: row.layer,
        errno: u32::try_from(row.errno).unwrap_or(0),
        errno_name: row.errno_name,
        driver: row.driver,
        functions: row.functions,
        hosts: count(row.hosts),
        attempts: count(row.attempts),
        calls: count(row.calls),
        first_hosts: row.first_hosts,
        shared: row.shared,
    }
}

pub(super) fn precursor(row: StoredPrecursor) -> Precursor {
    let key = row.key();
    Precursor {
        attempt: Some(attempt::to_proto(&key)),
        host: row.host,
        function: row.function,
        errno: u32::try_from(row.errno).unwrap_or(0),
        errno_name: row.errno_name,
        rose_at: Some(times::to_proto(row.rose_at)),
        failed_at: Some(times::to_proto(row.failed_at)),
        lead_seconds: row.lead_seconds,
        calls_day_before: count(row.calls_day_before),
        calls_day_earlier: count(row.calls_day_earlier),
    }
}

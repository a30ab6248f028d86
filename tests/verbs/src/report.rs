//! What a scenario reports: one JSON line.

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;

/// Calls made and failures seen.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    /// Scenario's name on the command line.
    pub(crate) scenario: String,
    /// Calls that count for this scenario, failed or not; set-up calls are left out.
    pub(crate) calls: u64,
    /// Failures by errno number.
    pub(crate) failures: BTreeMap<i32, u64>,
    /// CLOCK_REALTIME just after the first and the last failure, nanoseconds.
    pub(crate) first_failure_ns: Option<u64>,
    pub(crate) last_failure_ns: Option<u64>,
    /// What each of those calls asks for, by the names that the tracer uses; absent
    /// where the scenario does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) asked: Option<serde_json::Value>,
    /// Least ticks of the processor's counter that a call took; timed scenarios only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) least_ticks: Option<u64>,
    /// Process id, as the kernel names it outside containers.
    pub(crate) pid: u32,
}

impl Report {
    pub(crate) fn new(scenario: &str) -> Self {
        Self {
            scenario: scenario.to_owned(),
            pid: std::process::id(),
            ..Self::default()
        }
    }

    /// Counts one call, and passes its result on.
    pub(crate) fn count<T>(&mut self, result: io::Result<T>) -> Option<T> {
        self.calls += 1;
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                let now = now_ns();
                self.first_failure_ns.get_or_insert(now);
                self.last_failure_ns = Some(now);
                *self
                    .failures
                    .entry(error.raw_os_error().unwrap_or(0))
                    .or_insert(0) += 1;
                None
            }
        }
    }

    /// Adds what another thread counted.
    pub(crate) fn add(&mut self, other: &Report) {
        self.calls += other.calls;
        for (&errno, count) in &other.failures {
            *self.failures.entry(errno).or_insert(0) += count;
        }
        let times = [self.first_failure_ns, other.first_failure_ns];
        self.first_failure_ns = times.into_iter().flatten().min();
        self.last_failure_ns = self.last_failure_ns.max(other.last_failure_ns);
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    u64::try_from(i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)).unwrap_or(0)
}

//! Running the verbs program in a host, and reading what it reports.

use anyhow::{Context, Result, ensure};
use rdmesh_guest::{Exec, Exit};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A command line of `rdmesh-verbs`.
#[derive(Debug, Clone)]
pub struct Verbs {
    argv: Vec<String>,
}

/// What the program saw: the other side of the tracer's counts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// The scenario.
    pub scenario: String,
    /// Calls that count, failed or not.
    pub calls: u64,
    /// Failed calls by errno.
    pub failures: BTreeMap<i32, u64>,
    /// The guest's CLOCK_REALTIME just after the first failure, nanoseconds.
    pub first_failure_ns: Option<u64>,
    /// And after the last one.
    pub last_failure_ns: Option<u64>,
    /// What each of those calls asked for, by the tracer's names; none where the
    /// scenario does not say.
    #[serde(default)]
    pub asked: Option<serde_json::Value>,
    /// Least ticks of the processor's counter that a call took; timed scenarios only.
    #[serde(default)]
    pub least_ticks: Option<u64>,
    /// Process id in the guest.
    pub pid: u32,
}

impl Verbs {
    /// A scenario, once.
    pub fn new(scenario: &str) -> Self {
        Self {
            argv: vec!["/usr/bin/rdmesh-verbs".to_owned(), scenario.to_owned()],
        }
    }

    /// How many calls.
    pub fn count(self, calls: u64) -> Self {
        self.arg("--count").arg(&calls.to_string())
    }

    /// Over how many threads.
    pub fn threads(self, threads: u32) -> Self {
        self.arg("--threads").arg(&threads.to_string())
    }

    /// Any other argument.
    pub fn arg(mut self, arg: &str) -> Self {
        self.argv.push(arg.to_owned());
        self
    }

    /// As a process of a host.
    pub fn exec(self) -> Exec {
        Exec {
            argv: self.argv,
            ..Exec::default()
        }
    }
}

impl Report {
    /// Reads the report of a process that has ended.
    pub fn parse(exit: &Exit) -> Result<Self> {
        let (out, err) = (exit.stdout.to_lossy(), exit.stderr.to_lossy());
        ensure!(
            err.is_empty() && !exit.timed_out,
            "rdmesh-verbs: {err} (signal {:?})",
            exit.signal
        );
        serde_json::from_str(&out).with_context(|| format!("no report of rdmesh-verbs: {out}"))
    }

    /// Failed calls of any errno.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }
}

//! What the tracer says about itself: metrics, and the state that the gRPC
//! service answers from.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use rdmesh_proto::errno;
use rdmesh_proto::tracer::v1 as wire;

use super::probe_report::probe_report;
use crate::chain::Marks;
use crate::cost::Cost;
use crate::counters::Counters;
use crate::resolve::{ProbeState, Report};
use crate::snapshot::Made;

/// Series of failures by (function, errno): 70 probes with seven errnos each.
/// The rest is told in one series named "other".
const FAILURE_SERIES: usize = 512;

/// Shared between the pipeline, the gRPC service and the exporter's thread.
#[derive(Clone, Debug)]
pub struct Figures {
    kernel_release: String,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    report: Report,
    counters: Counters,
    drivers: Vec<String>,
    resolved_at: prost_types::Timestamp,
    snapshots: u64,
    heartbeats: u64,
    chains: u64,
    expected: u64,
    swallowed: u64,
    incomplete: u64,
    chains_left_out: u64,
    co_signals_left_out: u64,
    undecoded: u64,
    refused: u64,
    cost: Cost,
}

impl Figures {
    /// Nothing known yet. `kernel_release` as `uname -r` tells it.
    #[must_use]
    pub fn new(kernel_release: &str) -> Self {
        Self {
            kernel_release: kernel_release.to_owned(),
            state: Arc::default(),
        }
    }

    /// The probe report with the counts of the last snapshot.
    #[must_use]
    pub fn probe_report(&self) -> wire::ProbeReport {
        let state = self.lock();
        let report = probe_report(
            &state.report,
            &state.counters,
            &state.drivers,
            &self.kernel_release,
            state.resolved_at,
        );
        wire::ProbeReport {
            cost: Some(wire::TracerCost {
                process_cpu_share: state.cost.process,
                probes_cpu_share: state.cost.probes,
            }),
            ..report
        }
    }

    pub(super) fn publish(
        &self,
        report: &Report,
        counters: &Counters,
        drivers: Vec<String>,
        realtime_ns: u64,
    ) {
        let mut state = self.lock();
        if state.report != *report || state.resolved_at.seconds == 0 {
            state.report = report.clone();
            state.resolved_at = timestamp(realtime_ns);
        }
        if state.counters != *counters {
            state.counters = counters.clone();
        }
        state.drivers = drivers;
    }

    pub(super) fn count_chain(&self, marks: Marks) {
        let mut state = self.lock();
        state.chains += 1;
        state.expected += u64::from(marks.expected);
        state.swallowed += u64::from(marks.swallowed);
        state.incomplete += u64::from(marks.incomplete);
    }

    pub(super) fn count_message(&self, made: &Made) {
        let mut state = self.lock();
        match made {
            Made::Snapshot(snapshot) => {
                state.snapshots += 1;
                state.chains_left_out += snapshot.chains_left_out;
            }
            Made::Heartbeat(_) => state.heartbeats += 1,
        }
    }

    pub(super) fn count_co_signals_left_out(&self, number: u64) {
        self.lock().co_signals_left_out += number;
    }

    pub(super) fn count_refused(&self, processes: u64) {
        self.lock().refused += processes;
    }

    pub(super) fn count_cost(&self, cost: Cost) {
        self.lock().cost = cost;
    }

    pub(super) fn count_undecoded(&self) {
        self.lock().undecoded += 1;
    }

    /// A panic elsewhere leaves counts as they were: nothing here can be half done.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells all figures to an exporter; without one this costs nothing.
    pub fn register(&self, meter: &Meter) {
        self.register_probes(meter);
        self.register_losses(meter);
        self.register_cost(meter);
        let figures = self.clone();
        meter
            .u64_observable_counter("rdmesh.tracer.messages")
            .with_description("Messages made, by kind")
            .with_callback(move |observer| {
                let state = figures.lock();
                observer.observe(state.snapshots, &[KeyValue::new("kind", "snapshot")]);
                observer.observe(state.heartbeats, &[KeyValue::new("kind", "heartbeat")]);
            })
            .build();
        let figures = self.clone();
        meter
            .u64_observable_counter("rdmesh.tracer.chains")
            .with_description("Failing calls; a chain may have several marks")
            .with_callback(move |observer| {
                let state = figures.lock();
                let marks = [
                    ("any", state.chains),
                    ("expected", state.expected),
                    ("swallowed", state.swallowed),
                    ("incomplete", state.incomplete),
                ];
                for (mark, count) in marks {
                    observer.observe(count, &[KeyValue::new("mark", mark)]);
                }
            })
            .build();
    }

    fn register_probes(&self, meter: &Meter) {
        let figures = self.clone();
        meter
            .u64_observable_gauge("rdmesh.tracer.probes")
            .with_description("Probes by state")
            .with_callback(move |observer| {
                let state = figures.lock();
                let attached = state
                    .report
                    .probes
                    .iter()
                    .filter(|p| matches!(p.state, ProbeState::Attached(_)))
                    .count();
                let missing = state.report.probes.len() - attached;
                observer.observe(attached as u64, &[KeyValue::new("state", "attached")]);
                observer.observe(missing as u64, &[KeyValue::new("state", "missing")]);
            })
            .build();
        let figures = self.clone();
        meter
            .u64_observable_counter("rdmesh.tracer.failures")
            .with_description("Failing returns, exact, by function and errno")
            .with_callback(move |observer| {
                let state = figures.lock();
                let mut other = 0;
                for (place, count) in state.counters.by_errno.iter().enumerate() {
                    if place >= FAILURE_SERIES {
                        other += count.count;
                        continue;
                    }
                    let function = state
                        .report
                        .probe(count.probe)
                        .map_or_else(String::new, |p| p.function.clone());
                    let errno = errno::name(i32::from(count.errno));
                    observer.observe(
                        count.count,
                        &[
                            KeyValue::new("function", function),
                            KeyValue::new("errno", errno),
                        ],
                    );
                }
                if other > 0 {
                    observer.observe(other, &[KeyValue::new("function", "other")]);
                }
            })
            .build();
    }

    fn register_cost(&self, meter: &Meter) {
        let figures = self.clone();
        meter
            .f64_observable_gauge("rdmesh.tracer.cpu.share")
            .with_description(
                "What the tracer takes of one CPU: its process, and its probes where the kernel \
                 timed them",
            )
            .with_callback(move |observer| {
                let cost = figures.lock().cost;
                observer.observe(cost.process, &[KeyValue::new("part", "process")]);
                if let Some(probes) = cost.probes {
                    observer.observe(probes, &[KeyValue::new("part", "probes")]);
                }
            })
            .build();
        let figures = self.clone();
        meter
            .f64_observable_gauge("rdmesh.tracer.probe.run_time")
            .with_unit("ns")
            .with_description(
                "Mean time of one run of a probe, where the kernel timed it, by function",
            )
            .with_callback(move |observer| {
                let state = figures.lock();
                for (timed, probe) in state.counters.run_times.iter().zip(&state.report.probes) {
                    if let Some(mean) = timed.mean_ns() {
                        observer
                            .observe(mean, &[KeyValue::new("function", probe.function.clone())]);
                    }
                }
            })
            .build();
    }

    fn register_losses(&self, meter: &Meter) {
        let figures = self.clone();
        meter
            .u64_observable_counter("rdmesh.tracer.records.dropped")
            .with_description("Records that found no room in the ring, by function; they are counted all the same")
            .with_callback(move |observer| {
                let state = figures.lock();
                for (losses, probe) in state.counters.losses.iter().zip(&state.report.probes) {
                    if losses.records_dropped > 0 {
                        observer.observe(losses.records_dropped, &[KeyValue::new("function", probe.function.clone())]);
                    }
                }
            })
            .build();
        let figures = self.clone();
        meter
            .u64_observable_counter("rdmesh.tracer.calls.unseen")
            .with_description(
                "Calls that the kernel hid from a probe that was preempted, by function",
            )
            .with_callback(move |observer| {
                let state = figures.lock();
                for (losses, probe) in state.counters.losses.iter().zip(&state.report.probes) {
                    if losses.unseen > 0 {
                        let function = KeyValue::new("function", probe.function.clone());
                        observer.observe(losses.unseen, &[function]);
                    }
                }
            })
            .build();
        let figures = self.clone();
        meter
            .u64_observable_counter("rdmesh.tracer.left_out")
            .with_description("What was seen and did not find room in a message, by kind")
            .with_callback(move |observer| {
                let state = figures.lock();
                let kinds = [
                    ("chain", state.chains_left_out),
                    ("co_signal", state.co_signals_left_out),
                    ("undecoded", state.undecoded),
                    ("job_id", state.refused),
                ];
                for (kind, count) in kinds {
                    observer.observe(count, &[KeyValue::new("kind", kind)]);
                }
            })
            .build();
    }
}

fn timestamp(realtime_ns: u64) -> prost_types::Timestamp {
    let second = 1_000_000_000;
    prost_types::Timestamp {
        seconds: i64::try_from(realtime_ns / second).unwrap_or(i64::MAX),
        nanos: i32::try_from(realtime_ns % second).unwrap_or(0),
    }
}

//! What the tracer does about its own cost, and about orders.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rdmesh_proto::common::v1::ClockPair;
use rdmesh_proto::tracer::v1::{AttachKind, MissingReason, ProbeReport, ProbeState as State};
use rdmesh_services::uplink::Item;

use super::played::{Kept, Played, UVERBS, report, settings};
use crate::config::CostConfig;
use crate::counters::{Counters, RunTime};
use crate::resolve::{Mechanism, Missing, ProbeState};
use crate::service::pipeline::{Pipeline, Settings};
use crate::service::probe_report;

const SECOND: u64 = 1_000_000_000;

/// Settings with a boot clock and a CPU time that the test moves.
pub(super) fn moved(root: &std::path::Path) -> (Settings, Arc<AtomicU64>, Arc<AtomicU64>) {
    let (boot, cpu) = (Arc::new(AtomicU64::new(SECOND)), Arc::default());
    let (boot_in, cpu_in) = (Arc::clone(&boot), Arc::<AtomicU64>::clone(&cpu));
    let settings = Settings {
        clock: Box::new(move || ClockPair {
            boottime_ns: boot_in.load(Ordering::Relaxed),
            realtime_ns: 1_800_000_000_000_000_000,
        }),
        process_ns: Box::new(move || cpu_in.load(Ordering::Relaxed)),
        cost: CostConfig {
            budget_percent: 10,
            budget_seconds: 10,
            ..CostConfig::default()
        },
        ..settings(root)
    };
    (settings, boot, cpu)
}

fn reports(sent: &Kept) -> Vec<ProbeReport> {
    let items = sent.0.lock().unwrap();
    let reports = items.iter().filter_map(|item| match item {
        Item::ProbeReport(report) => Some(report.clone()),
        _ => None,
    });
    reports.collect()
}

#[test]
fn who_passes_the_budget_is_detached_and_says_so() {
    let root = tempfile::tempdir().unwrap();
    let (settings, boot, cpu) = moved(root.path());
    let (kernel, sent) = (Played::new(report()), Kept::default());
    let mut pipeline = Pipeline::start(kernel.clone(), sent.clone(), settings);
    let mut interval = |process_ns: u64, probes_ns: u64| {
        boot.fetch_add(5 * SECOND, Ordering::Relaxed);
        cpu.fetch_add(process_ns, Ordering::Relaxed);
        let mut state = kernel.state.lock().unwrap();
        let before = state.counters.run_times.first().copied();
        let before = before.unwrap_or_default();
        state.counters = Counters {
            run_times: vec![RunTime {
                runs: before.runs + 1,
                ns: before.ns + probes_ns,
            }],
            ..Counters::default()
        };
        drop(state);
        pipeline.snapshot();
    };
    interval(1_000, 0);
    assert!(kernel.state.lock().unwrap().timed, "the first one is timed");
    // Six percent of a CPU by both together: near enough to be looked at further.
    interval(SECOND * 3 / 20, SECOND * 3 / 20);
    assert!(kernel.state.lock().unwrap().done.is_empty());
    assert_eq!(reports(&sent).len(), 1);
    interval(SECOND / 2, SECOND / 2);
    assert_eq!(kernel.state.lock().unwrap().done, ["stop"]);
    let told = reports(&sent).pop().unwrap();
    let why = "detached: budget passed (1.30 s of CPU time in 10 s: 0.65 s of the probes, \
               0.65 s of tracer-svc; 1.00 s are allowed)";
    assert_eq!(told.obstacle, why);
    for probe in told.probes.iter().filter(|p| !p.function.starts_with('(')) {
        if probe.state() == State::Detached {
            assert_eq!(probe.reason, why);
            let because: Vec<_> = probe.missing_because().collect();
            assert_eq!(because, [MissingReason::BudgetPassed]);
        }
    }
    let detached = |p: &&rdmesh_proto::tracer::v1::Probe| p.state() == State::Detached;
    assert_eq!(told.probes.iter().filter(detached).count(), 3);
    let cost = told.cost.unwrap();
    assert_eq!(cost.probes_cpu_share, Some(0.1));
    // It goes on telling that it lives, and does not stop twice.
    interval(5 * SECOND, 0);
    assert_eq!(kernel.state.lock().unwrap().done, ["stop"]);
}

#[test]
fn the_report_is_sent_again_for_its_counts() {
    let root = tempfile::tempdir().unwrap();
    let (settings, boot, _cpu) = moved(root.path());
    let sent = Kept::default();
    let mut pipeline = Pipeline::start(Played::new(report()), sent.clone(), settings);
    boot.fetch_add(599 * SECOND, Ordering::Relaxed);
    pipeline.snapshot();
    assert_eq!(reports(&sent).len(), 1);
    boot.fetch_add(SECOND, Ordering::Relaxed);
    pipeline.snapshot();
    pipeline.snapshot();
    assert_eq!(reports(&sent).len(), 2);
}

#[test]
fn a_kretprobe_says_why_it_is_one() {
    let mut report = report();
    let probe = &mut report.probes[usize::from(UVERBS)];
    probe.state = ProbeState::Attached(Mechanism::Kretprobe);
    probe.not_by_fexit = Some(Missing::NoBtf("ib_uverbs".to_owned()));
    probe.address_hidden = true;
    let counters = Counters {
        run_times: vec![
            RunTime::default(),
            RunTime::default(),
            RunTime { runs: 4, ns: 100 },
        ],
        ..Counters::default()
    };
    let told = probe_report(&report, &counters, &[], "", Default::default());
    let row = told.probes.iter().find(|p| p.module == "ib_uverbs");
    let row = row.unwrap();
    assert_eq!(row.state(), State::Attached);
    assert_eq!(row.attached_by(), AttachKind::Kretprobe);
    assert_eq!(
        row.reason,
        "no fexit: module ib_uverbs has no BTF; no kretprobe.multi: the kernel hides addresses \
         (kernel.kptr_restrict)"
    );
    assert_eq!((row.runs_timed, row.run_time_ns), (4, 100));
}

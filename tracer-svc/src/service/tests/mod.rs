//! The pipeline with events that a test makes.

mod cost;
mod played;
mod sockets;

use std::sync::atomic::Ordering;

use rdmesh_services::uplink::Item;

use self::cost::moved;
use self::played::{Kept, Played, UMEM, UVERBS, failing_call, identity, record, report, settings};
use super::pipeline::{Pipeline, Settings};
use super::{probe_report, report_json, report_table};
use crate::counters::{Counters, ErrorCount};
use crate::record::{Event, ProbeId};
use crate::resolve::{HookState, Missing, ProbeState, Report};

#[test]
fn events_become_one_message_with_the_job_of_a_process_that_is_gone() {
    let root = tempfile::tempdir().unwrap();
    let (kernel, sent) = (Played::new(report()), Kept::default());
    let mut pipeline = Pipeline::start(kernel.clone(), sent.clone(), settings(root.path()));
    kernel.fail(vec![identity()]);
    kernel.fail(failing_call(10_100_000_000));
    kernel.fail(failing_call(10_200_000_000));
    kernel.count(2, 0);
    pipeline.snapshot();
    pipeline.snapshot();

    let items = sent.0.lock().unwrap();
    assert!(matches!(items[0], Item::Inventory(_)));
    assert!(matches!(items[1], Item::ProbeReport(_)));
    let Item::Snapshot(snapshot) = &items[2] else {
        panic!("{:?}", items[2])
    };
    let chains = snapshot.chains.as_ref().unwrap();
    assert_eq!((&chains.count, &chains.marks), (&vec![2], &vec![0]));
    let tasks = snapshot.tasks.as_ref().unwrap();
    let text = |place: u32| String::from_utf8_lossy(&snapshot.strings[place as usize]).into_owned();
    assert_eq!(
        (text(tasks.job_id[0]), tasks.requeue[0], tasks.rank[0]),
        ("demo".to_owned(), 1, 3)
    );
    let signatures = snapshot.signatures.as_ref().unwrap();
    assert_eq!(
        (text(signatures.driver[0]), &signatures.steps),
        ("rdma_rxe".to_owned(), &vec![3])
    );
    assert_eq!(snapshot.counters.as_ref().unwrap().delta, [2]);
    assert_eq!(snapshot.snapshots_given_up, 3);
    assert!(
        !snapshot
            .strings
            .iter()
            .any(|s| s.windows(6).any(|w| w == b"hidden"))
    );
    let Item::Heartbeat(beat) = &items[3] else {
        panic!("{:?}", items[3])
    };
    assert_eq!(beat.interval_start_boot_ns, snapshot.interval_end_boot_ns);
    assert!(!beat.inventory_id.is_empty());
}

#[test]
fn what_failed_while_the_hooks_were_put_on_is_incomplete() {
    let root = tempfile::tempdir().unwrap();
    let (kernel, sent) = (Played::new(report()), Kept::default());
    let mut pipeline = Pipeline::start(kernel.clone(), sent.clone(), settings(root.path()));
    // As the first hooks stand, and the others do not.
    kernel.fail(vec![Event::Record(record(UVERBS, 9_900_000_000))]);
    kernel.fail(failing_call(10_100_000_000));
    pipeline.snapshot();
    let items = sent.0.lock().unwrap();
    let Some(Item::Snapshot(snapshot)) = items.last() else {
        panic!("no snapshot")
    };
    let mut marks = snapshot.chains.as_ref().unwrap().marks.clone();
    marks.sort_unstable();
    assert_eq!(marks, [0, 4]);
}

#[test]
fn a_module_that_appears_changes_the_report_once() {
    let root = tempfile::tempdir().unwrap();
    let (kernel, sent) = (Played::new(Report::default()), Kept::default());
    let mut pipeline = Pipeline::start(kernel.clone(), sent.clone(), settings(root.path()));
    kernel.state.lock().unwrap().after_refresh = Some(report());
    pipeline.refresh();
    pipeline.refresh();
    // Records of the new probes find their places.
    kernel.fail(failing_call(10_100_000_000));
    pipeline.snapshot();
    let items = sent.0.lock().unwrap();
    let reports: Vec<_> = items
        .iter()
        .filter_map(|i| match i {
            Item::ProbeReport(r) => Some((r.probes.len(), r.obstacle.is_empty())),
            _ => None,
        })
        .collect();
    assert_eq!(reports, [(0, false), (5, true)]);
    let Some(Item::Snapshot(snapshot)) = items.last() else {
        panic!("no snapshot")
    };
    assert_eq!(snapshot.chains.as_ref().unwrap().marks, [0]);
}

#[test]
fn lost_records_are_told_and_mark_the_chain_that_waits() {
    let root = tempfile::tempdir().unwrap();
    let (kernel, sent) = (Played::new(report()), Kept::default());
    let (settings, boot_ns, _) = moved(root.path());
    let mut pipeline = Pipeline::start(kernel.clone(), sent.clone(), settings);
    kernel.fail(vec![Event::Record(record(UMEM, 2_000_000_000))]);
    boot_ns.store(10_000_000_000, Ordering::Relaxed);
    kernel.count(500, 499);
    pipeline.end();
    let items = sent.0.lock().unwrap();
    let Some(Item::Snapshot(snapshot)) = items.last() else {
        panic!("no snapshot")
    };
    assert_eq!(snapshot.chains.as_ref().unwrap().marks, [2 | 4]);
    assert_eq!(snapshot.drops.as_ref().unwrap().total, [499]);
    assert_eq!(snapshot.counters.as_ref().unwrap().total, [500]);
}

#[test]
fn the_report_as_a_table_and_as_json() {
    let counters = Counters {
        by_errno: vec![ErrorCount {
            probe: ProbeId(UVERBS),
            errno: 14,
            count: 12,
        }],
        ..Counters::default()
    };
    let told = probe_report(
        &report(),
        &counters,
        &["rdma_rxe".to_owned()],
        "6.1.0-test",
        Default::default(),
    );
    assert_eq!((told.logical_attached, told.logical_total), (3, 4));
    insta::assert_snapshot!("probe_table", report_table(&told));
    insta::assert_snapshot!("probe_json", format!("{:#}", report_json(&told)));
    let nothing = probe_report(
        &Report::default(),
        &Counters::default(),
        &[],
        "6.1.0-test",
        Default::default(),
    );
    assert!(
        nothing.obstacle.contains("no RDMA module is loaded"),
        "{}",
        nothing.obstacle
    );
}

/// The rows of one hook, as (state, function, reason).
fn rows_of(report: &Report, hook: &str) -> Vec<(String, String, String)> {
    let told = probe_report(report, &Counters::default(), &[], "", Default::default());
    let rows = told.probes.into_iter().filter(|p| p.hook == hook);
    rows.map(|p| (p.state().as_str_name().to_owned(), p.function, p.reason))
        .collect()
}

#[test]
fn a_function_that_another_one_replaces_has_one_row() {
    let row = |state: &str, function: &str, reason: &str| {
        (
            format!("PROBE_STATE_{state}"),
            function.to_owned(),
            reason.to_owned(),
        )
    };
    let suffixed = Missing::Suffixed {
        function: "ib_umem_get".to_owned(),
        symbol: "ib_umem_get.isra.0".to_owned(),
    };
    let expected = [
        row("ATTACHED", "ib_umem_get_desc", ""),
        row(
            "REPLACED",
            "ib_umem_get",
            "served by ib_core:ib_umem_get_desc; ib_umem_get was inlined or split by the compiler \
             (ib_umem_get.isra.0)",
        ),
    ];
    // The resolver did not find it.
    let mut report = report();
    report.hooks[3].gaps = vec![suffixed.clone()];
    assert_eq!(rows_of(&report, "memory.umem"), expected);

    // It was planned, and the kernel refused it.
    let mut refused = report.probes[usize::from(UMEM)].clone();
    refused.id = ProbeId(3);
    refused.module = "ib_uverbs".to_owned();
    refused.function = "ib_umem_get".to_owned();
    refused.state = ProbeState::Missing(suffixed);
    report.probes.push(refused);
    report.hooks[3].probes.push(ProbeId(3));
    assert_eq!(rows_of(&report, "memory.umem"), expected);

    // What else the hook lacks has its own row.
    let no_btf = Missing::NoBtf("mlx5_core".to_owned());
    report.hooks[3].gaps.push(no_btf.clone());
    let shown = rows_of(&report, "memory.umem");
    assert_eq!(shown[..2], expected);
    assert_eq!(shown[2], row("MISSING", "", &no_btf.to_string()));
    assert!(matches!(report.hooks[3].state, HookState::Replaced { .. }));
}

#[test]
fn programs_learn_why_a_hook_is_missing_without_reading_the_text() {
    let mut report = report();
    let no_operation = Missing::NoOperation {
        module: "rdma_rxe".to_owned(),
        operation: "reg_user_mr_dmabuf".to_owned(),
    };
    let not_loaded = |module: &str| Missing::ModuleNotLoaded(module.to_owned());
    report.hooks[0].probes.clear();
    report.hooks[0].state = HookState::Missing(vec![
        no_operation,
        not_loaded("mlx5_ib"),
        not_loaded("irdma"),
    ]);
    let name = report.hooks[0].hook.name.clone();
    let told = probe_report(&report, &Counters::default(), &[], "", Default::default());
    let rows: Vec<_> = told.probes.iter().filter(|p| p.hook == name).collect();
    assert_eq!(rows.len(), 1);
    let because: Vec<_> = rows[0].missing_because().map(|r| r.as_str_name()).collect();
    assert_eq!(
        because,
        [
            "MISSING_REASON_DRIVER_HAS_NO_OPERATION",
            "MISSING_REASON_MODULE_NOT_LOADED"
        ]
    );
}

#[test]
fn what_goes_wrong_beside_failing_calls_is_told_with_the_interval() {
    let root = tempfile::tempdir().unwrap();
    let port = root.path().join("sys/class/infiniband/rxe0/ports/1");
    std::fs::create_dir_all(&port).unwrap();
    std::fs::write(port.join("state"), "4: ACTIVE\n").unwrap();
    std::fs::write(root.path().join("kmsg"), "").unwrap();
    let (kernel, sent) = (Played::new(report()), Kept::default());
    let mut pipeline = Pipeline::start(kernel, sent.clone(), settings(root.path()));
    std::fs::write(port.join("state"), "1: DOWN\n").unwrap();
    std::fs::write(
        root.path().join("kmsg"),
        "4,1,5,-;oom-kill:constraint=CONSTRAINT_NONE,task=python,pid=311,uid=0\n",
    )
    .unwrap();
    pipeline.snapshot();
    let items = sent.0.lock().unwrap();
    let Some(Item::Snapshot(snapshot)) = items.last() else {
        panic!("{items:?}")
    };
    let signals = snapshot.co_signals.as_ref().unwrap();
    let text = |place: u32| String::from_utf8_lossy(&snapshot.strings[place as usize]).into_owned();
    let mut names: Vec<String> = signals.name.iter().map(|name| text(*name)).collect();
    names.sort();
    assert_eq!(names, ["oom_kill", "port_state"]);
    assert_eq!(signals.independent, [true, true]);
}

#[test]
fn each_kind_of_failing_call_is_offered_once_an_interval_and_nobody_is_waited_for() {
    let root = tempfile::tempdir().unwrap();
    let (offers, mut sightings) = crate::automatic::offers();
    let settings = Settings {
        offers,
        ..settings(root.path())
    };
    let kernel = Played::new(report());
    let mut pipeline = Pipeline::start(kernel.clone(), Kept::default(), settings);
    kernel.fail(failing_call(10_100_000_000));
    kernel.fail(failing_call(10_200_000_000));
    pipeline.snapshot();
    let seen = sightings.try_recv().unwrap();
    assert_eq!(
        (seen.driver.as_str(), seen.verb.as_str(), seen.number),
        ("rdma_rxe", "reg_mr", rdmesh_proto::common::v1::Verb::RegMr)
    );
    let steps: Vec<_> = seen
        .chain
        .iter()
        .map(|s| (s.function.as_str(), s.module.as_str(), s.errno))
        .collect();
    assert_eq!(
        steps,
        [
            ("ib_umem_get_desc", "ib_core", 14),
            ("rxe_reg_user_mr", "rdma_rxe", 14),
            ("ib_uverbs_reg_mr", "ib_uverbs", 14),
        ]
    );
    assert!(sightings.try_recv().is_err());
    // A chain that did not come to its application is none to wait for.
    kernel.fail(vec![Event::Record(record(UMEM, 9_500_000_000))]);
    pipeline.end();
    assert!(sightings.try_recv().is_err());
    // Whoever takes them is gone: tracing goes on.
    drop(sightings);
    kernel.fail(failing_call(9_600_000_000));
    pipeline.snapshot();
}

//! The pipeline with events that a test makes.

mod played;
mod sockets;

use rdmesh_services::uplink::Item;

use self::played::{Kept, Played, UMEM, UVERBS, failing_call, identity, record, report, settings};
use super::pipeline::Pipeline;
use super::{probe_report, report_json, report_table};
use crate::counters::{Counters, ErrorCount};
use crate::record::{Event, ProbeId};
use crate::resolve::Report;

#[test]
fn events_become_one_message_with_the_job_of_a_process_that_is_gone() {
    let root = tempfile::tempdir().unwrap();
    let (kernel, sent) = (Played::new(report()), Kept::default());
    let mut pipeline = Pipeline::start(kernel.clone(), sent.clone(), settings(root.path()));
    kernel.fail(vec![identity()]);
    kernel.fail(failing_call(9_000_000_000));
    kernel.fail(failing_call(9_100_000_000));
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
fn a_module_that_appears_changes_the_report_once() {
    let root = tempfile::tempdir().unwrap();
    let (kernel, sent) = (Played::new(Report::default()), Kept::default());
    let mut pipeline = Pipeline::start(kernel.clone(), sent.clone(), settings(root.path()));
    kernel.state.lock().unwrap().after_refresh = Some(report());
    pipeline.refresh();
    pipeline.refresh();
    // Records of the new probes find their places.
    kernel.fail(failing_call(9_000_000_000));
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
    let mut pipeline = Pipeline::start(kernel.clone(), sent.clone(), settings(root.path()));
    kernel.fail(vec![Event::Record(record(UMEM, 1_000))]);
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

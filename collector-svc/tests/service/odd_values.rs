//! Values that are none, or of a newer contract: kept and marked, alike everywhere.

use rdmesh_proto::collector::v1::report_request::Item;
use rdmesh_proto::collector::v1::{
    AgentHealth, GetHostProbesRequest, ListAgentsRequest, ListFailuresRequest,
};
use rdmesh_proto::common::v1::{AgentKind, IdentitySource, Layer};
use rdmesh_proto::shaper::v1::WireWindow;
use rdmesh_proto::tracer::v1::record_arguments::Verb as Read;
use rdmesh_proto::tracer::v1::{CoSignalColumns, Heartbeat, ProbeReport};

use crate::made::{Host, seconds_ago};
use crate::running::Running;

const SECOND: u64 = 1_000_000_000;

/// Marks of the only failure of a sequence, one a line.
fn marks(collector: &Running, sequence: u32) -> String {
    collector.read(&format!(
        "SELECT array_to_string(marks, E'\\n') FROM rdmesh.failures WHERE sequence = {sequence}"
    ))
}

#[tokio::test]
async fn what_is_no_rank_no_mapping_and_no_span_of_one_call_is_marked() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    let mut odd = host.snapshot("7");
    odd.tasks.as_mut().unwrap().rank[0] = -5;
    odd.tasks.as_mut().unwrap().local_rank[0] = i32::MIN;
    odd.chains.as_mut().unwrap().count[0] = 1;
    let arguments = &mut odd.samples.as_mut().unwrap().arguments[0];
    let Some(Read::RegMr(read)) = &mut arguments.verb else {
        unreachable!("the sample has one");
    };
    read.mapping = 99;
    agent.send(1, Item::Snapshot(odd)).await;
    agent.acknowledged(1).await;
    assert!(agent.rejected.is_empty(), "{:?}", agent.rejected);
    assert_eq!(
        marks(&collector, 1),
        "it counts one call, and its times lie further apart than those of one call\n\
         rank -5 is none; stored as not known\n\
         local rank -2147483648 is none; stored as not known\n\
         mapping 99 is not known to this collector (is the agent newer?); stored as unknown"
    );
    assert_eq!(
        collector.read(
            "SELECT rank IS NULL, local_rank IS NULL, arguments ? 'mapping' FROM rdmesh.failures"
        ),
        "t|t|f"
    );
}

#[tokio::test]
async fn an_interval_that_nobody_can_have_watched_is_marked_or_refused() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    let mut long = host.snapshot("7");
    long.interval_start_boot_ns = 0;
    agent.send(1, Item::Snapshot(long)).await;
    let mut ahead = host.snapshot("7");
    ahead.interval_end_boot_ns += 3_000 * SECOND;
    agent.send(2, Item::Snapshot(ahead)).await;
    let beat = |from, to| {
        Item::Heartbeat(Heartbeat {
            clock: Some(host.clock()),
            interval_start_boot_ns: from,
            interval_end_boot_ns: to,
            ..Heartbeat::default()
        })
    };
    let now = host.boot_ns();
    agent.send(3, beat(0, now)).await;
    agent.send(4, beat(now, now + 3_000 * SECOND)).await;
    agent.acknowledged(4).await;
    assert_eq!(
        marks(&collector, 1),
        "its snapshot's interval is longer than 10 minutes; only the last 10 count as watched"
    );
    assert!(marks(&collector, 2).starts_with("its snapshot's interval ends after its clock"));
    agent.rejected.sort();
    assert_eq!(
        agent.rejected[0].1,
        "interval_start_boot_ns is 0; allowed: at most 10 minutes before interval_end_boot_ns"
    );
    assert!(
        agent.rejected[1].1.starts_with("interval_end_boot_ns is "),
        "{:?}",
        agent.rejected
    );
    assert_eq!(
        collector.read("SELECT snapshots, heartbeats, rejected FROM rdmesh.agents"),
        "2|0|2"
    );
}

#[tokio::test]
async fn what_is_unknown_has_one_name_in_every_answer() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    let Item::ProbeReport(mut report) = Host::probe_report(&[]) else {
        unreachable!("it makes reports");
    };
    report.probes[0].layer = 99;
    report.probes[0].state = 99;
    agent.send(1, Item::ProbeReport(report)).await;
    let mut odd = host.snapshot("7");
    odd.probes.as_mut().unwrap().layer[0] = 99;
    odd.tasks.as_mut().unwrap().source[0] = 55;
    odd.strings.push(b"strange".to_vec());
    odd.co_signals = Some(CoSignalColumns {
        boot_ns: vec![odd.interval_end_boot_ns],
        kind: vec![88],
        independent: vec![true],
        name: vec![11],
        detail: vec![11],
        device_plus_one: vec![0],
        // As tracers send it that know of no task.
        task_plus_one: vec![],
    });
    agent.send(2, Item::Snapshot(odd)).await;
    agent.acknowledged(2).await;
    // SQL: unknown, with a mark on the row.
    assert_eq!(
        collector.read("SELECT layer, source FROM rdmesh.failures"),
        "unknown|unknown"
    );
    assert_eq!(
        collector.read("SELECT kind, marks FROM rdmesh.co_signals"),
        "unknown|{\"co-signal kind 88 is not known to this collector (is the agent newer?); \
         stored as unknown\"}"
    );
    assert_eq!(
        collector.read("SELECT DISTINCT layer FROM rdmesh.probes WHERE state = 'unknown'"),
        "unknown"
    );
    // gRPC: the zero of the contract, whatever number came.
    let mut queries = collector.queries();
    let failures = queries
        .list_failures(ListFailuresRequest::default())
        .await
        .unwrap()
        .into_inner()
        .failures;
    assert_eq!(
        (failures[0].steps[0].layer, failures[0].source),
        (
            Layer::Unspecified.into(),
            IdentitySource::Unspecified.into()
        )
    );
    let ask = GetHostProbesRequest {
        host: "gpu-01".into(),
    };
    let probes = queries.get_host_probes(ask).await.unwrap().into_inner();
    let first = &probes.report.unwrap().probes[0];
    assert_eq!((first.layer, first.state), (0, 0));
    assert_eq!(probes.marks.len(), 2, "{:?}", probes.marks);
}

#[tokio::test]
async fn a_report_without_hooks_and_none_at_all_are_told_apart() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    let reasons = async || {
        let ask = ListAgentsRequest::default();
        let all = collector.queries().list_agents(ask).await.unwrap();
        let first = all.into_inner().agents.remove(0);
        assert_eq!(first.health(), AgentHealth::Degraded);
        first.reasons.join("; ")
    };
    assert_eq!(
        reasons().await,
        "no probe report came; what is watched there is not known"
    );
    let empty = ProbeReport::default();
    agent.send(1, Item::ProbeReport(empty)).await;
    agent.acknowledged(1).await;
    assert_eq!(
        reasons().await,
        "its probe report names no hook; nothing is watched there"
    );
}

#[tokio::test]
async fn a_refused_window_names_its_field_once_and_an_unknown_cause_is_marked() {
    let collector = Running::start().await;
    let host = Host::new("dpu-01");
    let mut hello = host.hello();
    hello.agent = AgentKind::Shaper.into();
    let mut agent = collector.agent(hello).await;
    let window = WireWindow {
        host: "gpu-01".into(),
        wire: "w0".into(),
        virtual_function: "vf0".into(),
        from: Some(seconds_ago(10)),
        to: Some(seconds_ago(5)),
        ..WireWindow::default()
    };
    let nameless = WireWindow {
        host: "a b".into(),
        ..window.clone()
    };
    let long = WireWindow {
        virtual_function: "x".repeat(300),
        ..window.clone()
    };
    let mut timeless = window.clone();
    timeless.from.as_mut().unwrap().nanos = -1;
    let newer = WireWindow {
        invalid: vec![77],
        engine_version: "1\u{7}".into(),
        ..window
    };
    for (sequence, window) in (1..).zip([nameless, long, timeless, newer]) {
        agent.send(sequence, Item::WireWindow(window)).await;
    }
    agent.acknowledged(4).await;
    agent.rejected.sort();
    let fields = [
        "wire_window.host",
        "wire_window.virtual_function",
        "wire_window.from",
    ];
    assert_eq!(agent.rejected.len(), fields.len(), "{:?}", agent.rejected);
    for ((_, reason), field) in agent.rejected.iter().zip(fields) {
        assert!(reason.starts_with(field), "{reason}");
        assert_eq!(reason.matches(field).count(), 1, "{reason}");
    }
    assert_eq!(
        collector.read("SELECT invalid_causes, array_length(marks, 1) FROM rdmesh.wire_windows"),
        "{unknown}|2"
    );
}

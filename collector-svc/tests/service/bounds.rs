//! Numbers that are absurd are refused by themselves, and what was counted is seen alike
//! everywhere.

use rdmesh_proto::collector::v1::report_request::Item;
use rdmesh_proto::collector::v1::{
    AgentHealth, DiagnoseRequest, GetHostProbesRequest, ListAgentsRequest,
};
use rdmesh_proto::tracer::v1::{MissingReason, Probe, ProbeReport, ProbeState, Snapshot};

use crate::made::{Host, start};
use crate::running::Running;

#[tokio::test]
async fn absurd_counts_are_refused_with_the_limit() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    let absurd = i64::MAX.unsigned_abs();
    type Break = fn(&mut Snapshot, u64);
    let broken: [(Break, &str); 3] = [
        (
            |s, n| s.chains.as_mut().unwrap().count = vec![n],
            "chains.count[0]",
        ),
        (
            |s, n| s.counters.as_mut().unwrap().delta[0] = n,
            "counters.delta[0]",
        ),
        (
            |s, n| s.cgroup_counters.as_mut().unwrap().delta[0] = n,
            "cgroup_counters.delta[0]",
        ),
    ];
    for (sequence, (damage, _)) in (1..).zip(&broken) {
        let mut snapshot = host.snapshot("7");
        damage(&mut snapshot, absurd);
        agent.send(sequence, Item::Snapshot(snapshot)).await;
    }
    agent.send(4, host.failing("7")).await;
    agent.acknowledged(4).await;
    agent.rejected.sort();
    assert_eq!(agent.rejected.len(), broken.len());
    for ((_, reason), (_, field)) in agent.rejected.iter().zip(&broken) {
        assert!(reason.starts_with(field), "{reason}");
        assert!(reason.contains(" to 1000000000000"), "{reason}");
    }
    assert_eq!(
        collector.read("SELECT sum(count) FROM rdmesh.failure_totals"),
        "6"
    );
    let ask = DiagnoseRequest {
        job_id: "7".into(),
        ..DiagnoseRequest::default()
    };
    collector.queries().diagnose(ask).await.unwrap();
}

#[tokio::test]
async fn a_sequence_beyond_all_counting_is_rejected_and_the_stream_goes_on() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    for sequence in [
        i64::MAX.unsigned_abs(),
        i64::MAX.unsigned_abs() - 1,
        1_000_000_000_001,
    ] {
        agent.send(sequence, host.heartbeat()).await;
    }
    agent.send(1, host.heartbeat()).await;
    agent.refused(3).await;
    agent.acknowledged(1).await;
    for (_, reason) in &agent.rejected {
        assert!(
            reason.ends_with("counted from 1 to 1000000000000"),
            "{reason}"
        );
    }
    assert_eq!(
        collector.read("SELECT missing, rejected FROM rdmesh.agents"),
        "0|3"
    );
    let ask = ListAgentsRequest::default();
    let fleet = collector.queries().list_agents(ask).await.unwrap();
    let reasons = &fleet.get_ref().agents[0].reasons;
    assert!(
        reasons
            .iter()
            .any(|r| r.starts_with("3 items refused; the last: sequence is ")),
        "{reasons:?}"
    );
}

#[tokio::test]
async fn probes_tell_what_was_counted_since_their_report() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    let probe = |function: &str, state: ProbeState| Probe {
        hook: "memory.umem".into(),
        function: function.into(),
        module: "ib_uverbs".into(),
        logical: true,
        state: state.into(),
        ..Probe::default()
    };
    let report = ProbeReport {
        probes: vec![
            probe("ib_umem_get", ProbeState::Attached),
            probe("ib_umem_get", ProbeState::Replaced),
        ],
        logical_attached: 1,
        logical_total: 1,
        ..ProbeReport::default()
    };
    agent.send(1, Item::ProbeReport(report)).await;
    for sequence in 2..=3 {
        agent.send(sequence, host.failing("7")).await;
    }
    agent.acknowledged(3).await;
    assert_eq!(
        collector.read("SELECT failures, drops FROM rdmesh.probes ORDER BY state"),
        "4|0\n0|0"
    );
    let ask = GetHostProbesRequest {
        host: "gpu-01".into(),
    };
    let answer = collector.queries().get_host_probes(ask).await.unwrap();
    let counted: Vec<u64> = answer
        .into_inner()
        .report
        .unwrap()
        .probes
        .iter()
        .map(|probe| probe.failures)
        .collect();
    assert_eq!(counted, [4, 0]);
}

#[tokio::test]
async fn what_a_driver_lacks_degrades_no_host() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    let Item::ProbeReport(mut report) = Host::probe_report(&["driver.modify_qp"]) else {
        unreachable!("it makes reports");
    };
    report.probes[3].reason = "driver rdma_rxe has no operation modify_qp".into();
    report.probes[3].missing_because = vec![MissingReason::DriverHasNoOperation.into()];
    agent.send(1, Item::ProbeReport(report)).await;
    agent.acknowledged(1).await;
    let all = collector
        .queries()
        .list_agents(ListAgentsRequest::default())
        .await
        .unwrap()
        .into_inner()
        .agents;
    assert_eq!(
        all[0].health(),
        AgentHealth::Healthy,
        "{:?}",
        all[0].reasons
    );
    assert_eq!((all[0].logical_attached, all[0].logical_total), (3, 4));
}

#[tokio::test]
async fn a_failure_between_two_attempts_is_told_by_the_diagnosis() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    for job in ["a", "b"] {
        let placed = start(job, 60, &["gpu-01"]);
        collector.jobs().start_job(placed).await.unwrap();
    }
    agent.send(1, host.failing("")).await;
    agent.acknowledged(1).await;
    let ask = DiagnoseRequest {
        job_id: "a".into(),
        ..DiagnoseRequest::default()
    };
    let verdict = collector
        .queries()
        .diagnose(ask)
        .await
        .unwrap()
        .into_inner()
        .verdict
        .unwrap();
    let told = "2 failing calls on gpu-01 may belong to this attempt or to b/0";
    assert!(
        verdict.unwatched.iter().any(|line| line.starts_with(told)),
        "{:?}",
        verdict.unwatched
    );
}

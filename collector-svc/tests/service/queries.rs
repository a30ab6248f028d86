//! What people and programs ask.

use rdmesh_proto::collector::v1::report_request::Item;
use rdmesh_proto::collector::v1::{
    AgentHealth, DiagnoseRequest, GetHostProbesRequest, ListAgentsRequest, ListFailuresRequest,
};
use rdmesh_proto::common::v1::TimeRange;
use rdmesh_proto::tracer::v1::ProbeCountColumns;
use tonic::Code;

use crate::made::{Host, seconds_ago};
use crate::running::Running;

#[tokio::test]
async fn failures_are_listed_by_filter_and_page() {
    let collector = Running::start().await;
    for name in ["gpu-01", "gpu-02"] {
        let host = Host::new(name);
        let mut agent = collector.agent(host.hello()).await;
        for sequence in 1..=3 {
            agent.send(sequence, host.failing("7")).await;
        }
        agent.acknowledged(3).await;
    }
    let mut queries = collector.queries();
    let mut request = ListFailuresRequest {
        job_id: "7".into(),
        requeue: Some(0),
        function: "rxe_reg_user_mr".into(),
        errno: 14,
        device: "rxe0".into(),
        time: Some(TimeRange {
            from: Some(seconds_ago(600)),
            to: None,
        }),
        page_size: 4,
        ..ListFailuresRequest::default()
    };
    let first = queries
        .list_failures(request.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(first.failures.len(), 4);
    assert_eq!(first.failures[0].steps[0].errno_name, "EFAULT");
    assert_eq!(first.failures[0].rank, Some(3));
    request.page_token = first.next_page_token;
    let second = queries
        .list_failures(request.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (second.failures.len(), second.next_page_token.as_str()),
        (2, "")
    );
    request.page_token = String::new();
    request.host = "gpu-02".into();
    let of_host = queries.list_failures(request).await.unwrap().into_inner();
    assert_eq!(of_host.failures.len(), 3);

    let orphan = ListFailuresRequest {
        requeue: Some(1),
        ..Default::default()
    };
    let refused = queries.list_failures(orphan).await.unwrap_err();
    assert!(
        refused.message().starts_with("job_id is empty"),
        "{}",
        refused.message()
    );
    let errno = ListFailuresRequest {
        errno: 5_000,
        ..Default::default()
    };
    assert_eq!(
        queries.list_failures(errno).await.unwrap_err().code(),
        Code::InvalidArgument
    );
}

#[tokio::test]
async fn agents_are_listed_with_their_health() {
    let collector = Running::start().await;
    for (name, missing) in [("gpu-01", &[][..]), ("gpu-02", &["driver.modify_qp"][..])] {
        let host = Host::new(name);
        let mut agent = collector.agent(host.hello()).await;
        agent.send(1, Host::probe_report(missing)).await;
        agent.acknowledged(1).await;
    }
    let mut queries = collector.queries();
    let all = queries
        .list_agents(ListAgentsRequest::default())
        .await
        .unwrap()
        .into_inner()
        .agents;
    let seen: Vec<_> = all.iter().map(|a| (a.host.as_str(), a.health())).collect();
    assert_eq!(
        seen,
        [
            ("gpu-02", AgentHealth::Degraded),
            ("gpu-01", AgentHealth::Healthy)
        ]
    );
    assert_eq!(all[0].reasons, ["no probe for driver.modify_qp"]);
    assert_eq!(
        (all[0].logical_attached, all[0].kernel_release.as_str()),
        (3, "6.1.0")
    );
    assert!(all[0].clock_offset_ns.unwrap().abs() < 1_000_000_000);
    let page = ListAgentsRequest {
        page_size: 1,
        page_token: String::new(),
    };
    let page = queries.list_agents(page).await.unwrap().into_inner();
    let next = ListAgentsRequest {
        page_size: 1,
        page_token: page.next_page_token,
    };
    let next = queries.list_agents(next).await.unwrap().into_inner();
    assert_eq!(
        (next.agents[0].host.as_str(), next.next_page_token.as_str()),
        ("gpu-01", "")
    );
}

#[tokio::test]
async fn the_probes_of_a_host_are_those_it_sent_last() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    let mut queries = collector.queries();
    let ask = |host: &str| GetHostProbesRequest { host: host.into() };
    let none_yet = queries.get_host_probes(ask("gpu-01")).await.unwrap_err();
    assert!(none_yet.message().contains("has sent no probe report yet"));
    agent
        .send(1, Host::probe_report(&["driver.modify_qp"]))
        .await;
    agent.send(2, Host::probe_report(&[])).await;
    agent.acknowledged(2).await;
    let answer = queries
        .get_host_probes(ask("gpu-01"))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(answer.report.unwrap().logical_attached, 4);
    let unknown = queries.get_host_probes(ask("gpu-99")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    assert!(
        unknown.message().contains("has never reported"),
        "{}",
        unknown.message()
    );
}

#[tokio::test]
async fn calls_that_the_kernel_did_not_show_are_told_everywhere() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    let mut snapshot = host.snapshot("7");
    snapshot.unseen = Some(ProbeCountColumns {
        probe: vec![0, 2],
        delta: vec![3, 1],
        total: vec![3, 1],
    });
    agent.send(1, Item::Snapshot(snapshot)).await;
    agent.send(2, Host::probe_report(&[])).await;
    agent.acknowledged(2).await;
    let mut queries = collector.queries();
    let agents = queries
        .list_agents(ListAgentsRequest::default())
        .await
        .unwrap()
        .into_inner()
        .agents;
    assert_eq!(agents[0].unseen, 4);
    assert_eq!(
        agents[0].reasons,
        ["4 calls were not shown to the probes by the kernel; counts are lower bounds"]
    );
    let request = DiagnoseRequest {
        job_id: "7".into(),
        ..DiagnoseRequest::default()
    };
    let answer = queries.diagnose(request).await.unwrap().into_inner();
    assert_eq!(answer.unseen, 4);
    let verdict = answer.verdict.unwrap();
    assert!(
        verdict
            .unwatched
            .iter()
            .any(|line| line.starts_with("gpu-01: 4 calls were not shown to the probes")),
        "{:?}",
        verdict.unwatched
    );
    assert_eq!((verdict.failures_looked_at, verdict.failures_total), (1, 1));
}

#[tokio::test]
async fn failures_of_nobody_are_not_none() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    agent.send(1, Host::probe_report(&[])).await;
    agent.acknowledged(1).await;
    let mut queries = collector.queries();
    let ask = |host: &str, job: &str| ListFailuresRequest {
        host: host.into(),
        job_id: job.into(),
        ..ListFailuresRequest::default()
    };
    let none = queries.list_failures(ask("gpu-01", "")).await.unwrap();
    assert!(none.into_inner().failures.is_empty());
    for (host, job, says) in [
        ("gpu-99", "", "gpu-99 has never reported"),
        ("", "4712", "no job 4712"),
    ] {
        let refused = queries.list_failures(ask(host, job)).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound);
        assert!(refused.message().contains(says), "{}", refused.message());
    }
}

#[tokio::test]
async fn a_failure_tells_the_hosts_own_time_and_the_snapshot_that_brought_it() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    agent.send(3, Item::Snapshot(host.snapshot("7"))).await;
    agent.acknowledged(3).await;
    let request = ListFailuresRequest {
        host: "gpu-01".into(),
        ..ListFailuresRequest::default()
    };
    let found = collector.queries().list_failures(request).await.unwrap();
    let failure = found.into_inner().failures.remove(0);
    assert!(failure.host_first_at.is_some());
    assert_eq!((failure.sequence, failure.ordinal), (3, 0));
    assert_eq!(failure.run_id.len(), 36, "{}", failure.run_id);
}

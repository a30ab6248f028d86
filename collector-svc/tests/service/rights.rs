//! What is each one's own: an agent's hosts, a scheduler's jobs; and nobody starves the others.

use rdmesh_proto::collector::v1::job_service_client::JobServiceClient;
use rdmesh_proto::collector::v1::query_service_client::QueryServiceClient;
use rdmesh_proto::collector::v1::report_request::Item;
use rdmesh_proto::collector::v1::{
    EndJobRequest, GetJobRequest, JobState, ListAgentsRequest, PlaceJobRequest, Placement,
    ReportRequest, StartJobRequest,
};
use rdmesh_proto::common::v1::{AgentKind, AttemptId};
use rdmesh_proto::shaper::v1::WireWindow;
use rdmesh_tls::Role;
use tonic::Code;
use tonic::transport::Channel;

use crate::made::Host;
use crate::running::Agent;
use crate::secured::SecuredCollector;

pub(crate) fn attempt(job_id: &str) -> Option<AttemptId> {
    Some(AttemptId {
        job_id: job_id.to_owned(),
        ..AttemptId::default()
    })
}

pub(crate) fn placed(host: &str) -> Placement {
    Placement {
        host: host.to_owned(),
        ..Placement::default()
    }
}

pub(crate) fn start(job_id: &str, scheduler: &str) -> StartJobRequest {
    StartJobRequest {
        attempt: attempt(job_id),
        scheduler: scheduler.to_owned(),
        placements: vec![placed("gpu-01")],
        ..StartJobRequest::default()
    }
}

pub(crate) fn end(job_id: &str) -> EndJobRequest {
    EndJobRequest {
        attempt: attempt(job_id),
        state: JobState::Failed.into(),
        ..EndJobRequest::default()
    }
}

async fn report(channel: Channel, host: &Host, kind: AgentKind) -> Result<Agent, tonic::Status> {
    let mut hello = host.hello();
    hello.agent = kind.into();
    let first = ReportRequest {
        sequence: 0,
        item: Some(Item::Hello(hello)),
    };
    Agent::open(channel, first).await
}

#[tokio::test]
async fn an_agent_reports_for_the_hosts_in_its_certificate_alone() {
    let collector = SecuredCollector::start(|_| {}).await;
    let own = collector.caller(Role::Agent, "gpu-01").await;
    let mut agent = report(own.clone(), &Host::new("gpu-01"), AgentKind::Tracer)
        .await
        .unwrap();
    agent.send(1, Host::new("gpu-01").heartbeat()).await;
    agent.acknowledged(1).await;
    let refused = report(own, &Host::new("gpu-02"), AgentKind::Tracer).await;
    let refused = refused.map(drop).unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let words = refused.message();
    assert!(
        words.contains("rdmesh://s/agent/gpu-01") && words.contains("--for HOST"),
        "{words}"
    );

    // A DPU reports of itself, and its windows of the host that its certificate names beside.
    let dpu = collector
        .with_hosts(Role::Agent, "dpu-01", &["gpu-01"])
        .await;
    let host = Host::new("dpu-01");
    let mut shaper = report(dpu, &host, AgentKind::Shaper).await.unwrap();
    for (sequence, shaped) in [(1, "gpu-01"), (2, "gpu-02")] {
        let window = WireWindow {
            wire: "w0".into(),
            host: shaped.into(),
            ..WireWindow::default()
        };
        shaper.send(sequence, Item::WireWindow(window)).await;
    }
    shaper.refused(2).await;
    let reason = |sequence| {
        let found = shaper.rejected.iter().find(|(s, _)| *s == sequence);
        found.map_or("", |(_, reason)| reason)
    };
    // The first is refused for what it lacks, and not for its host.
    assert!(!reason(1).contains("reports for"), "{:?}", shaper.rejected);
    assert!(
        reason(2).contains("reports for dpu-01, gpu-01 alone"),
        "{:?}",
        shaper.rejected
    );
    assert_eq!(
        collector.read("SELECT string_agg(host, ',' ORDER BY host) FROM rdmesh.agents"),
        "dpu-01,gpu-01"
    );

    // How long each can still show who it is, the same in SQL and gRPC; seven days here.
    let reader = collector.caller(Role::Reader, "oncall").await;
    let agents = QueryServiceClient::new(reader)
        .list_agents(ListAgentsRequest::default())
        .await
        .unwrap()
        .into_inner()
        .agents;
    assert_eq!(agents.len(), 2);
    for agent in agents {
        let ends = agent.certificate_ends_at.unwrap().seconds;
        assert!(
            (ends - rdmesh_tls::now() - 7 * 86_400).abs() < 3_600,
            "{ends}"
        );
        let told = format!(
            "SELECT extract(epoch FROM certificate_ends_at)::bigint, lag_seconds IS NOT NULL
             FROM rdmesh.agents WHERE host = '{}'",
            agent.host
        );
        let lag = if agent.lag_seconds.is_some() {
            "t"
        } else {
            "f"
        };
        assert_eq!(collector.read(&told), format!("{ends}|{lag}"));
        // A shaper tells of wires and not of intervals that it watched.
        assert_eq!(agent.lag_seconds.is_some(), agent.host == "gpu-01");
    }
    collector.stop().await;
}

#[tokio::test]
async fn a_scheduler_changes_its_own_jobs_alone() {
    let collector = SecuredCollector::start(|_| {}).await;
    let jobs =
        async |name: &str| JobServiceClient::new(collector.caller(Role::Scheduler, name).await);
    let (mut a, mut b) = (jobs("a").await, jobs("b").await);
    // Its own name stands there, though it left it out.
    let started = a.start_job(start("7", "")).await.unwrap().into_inner();
    assert_eq!(started.job.unwrap().scheduler, "a");
    let place = PlaceJobRequest {
        attempt: attempt("7"),
        placements: vec![placed("gpu-02")],
    };
    for refused in [
        b.start_job(start("7", "")).await.map(drop),
        b.start_job(start("8", "a")).await.map(drop),
        b.end_job(end("7")).await.map(drop),
        b.place_job(place.clone()).await.map(drop),
    ] {
        assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    }
    a.place_job(place).await.unwrap();
    a.end_job(end("7")).await.unwrap();
    // An end that comes before its start is taken, and then it is the starter's.
    b.end_job(end("9")).await.unwrap();
    b.start_job(start("9", "b")).await.unwrap();
    let refused = a.end_job(end("9")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    // An operator changes any.
    let operator = collector.caller(Role::Operator, "ada").await;
    JobServiceClient::new(operator)
        .end_job(end("9"))
        .await
        .unwrap();
    collector.stop().await;
}

/// A noisy agent is made to wait, and refused beyond its places; a quiet one's reports are
/// taken meanwhile.
#[tokio::test]
async fn a_noisy_agent_starves_nobody() {
    let collector = SecuredCollector::start(|config| {
        config.server.streams_per_identity = 4;
        config.server.messages_per_second = 20;
    })
    .await;
    let noisy = collector.caller(Role::Agent, "noisy").await;
    // Runs of their own: none repeats what another one sent.
    let host = || Host::new("noisy");
    let mut streams = Vec::new();
    let refused = loop {
        match report(noisy.clone(), &host(), AgentKind::Tracer).await {
            Ok(agent) => streams.push(agent),
            Err(status) => break status,
        }
        assert!(streams.len() <= 4, "the fifth stream was taken");
    };
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(streams.len(), 4);
    assert!(refused.metadata().get("retry-after").is_some());
    // As much as fits on the way, at once.
    const SENT_ON_EACH: u64 = 3_000;
    let mut floods = Vec::new();
    for agent in streams {
        let heartbeat = host().heartbeat();
        floods.push(tokio::spawn(async move {
            for sequence in 1..=SENT_ON_EACH {
                agent.send(sequence, heartbeat.clone()).await;
            }
            agent
        }));
    }
    let quiet = collector.caller(Role::Agent, "quiet").await;
    let quiet_host = Host::new("quiet");
    let mut agent = report(quiet, &quiet_host, AgentKind::Tracer).await.unwrap();
    for sequence in 1..=20 {
        agent.send(sequence, quiet_host.heartbeat()).await;
    }
    agent.acknowledged(20).await;
    // A frame of each stream passes before its rate is known, with some hundred messages; then
    // each waits for its debt.
    let taken = "SELECT coalesce(sum(heartbeats), 0) FROM rdmesh.agents WHERE host = 'noisy'";
    let taken: u64 = collector.read(taken).parse().unwrap();
    assert!(
        taken < 4 * SENT_ON_EACH / 2,
        "{taken} of the noisy agent's messages were taken at once"
    );
    // Who ends its streams may open new ones.
    for flood in floods {
        flood.abort();
    }
    let mut again = report(noisy.clone(), &host(), AgentKind::Tracer).await;
    while again
        .as_ref()
        .is_err_and(|s| s.code() == Code::ResourceExhausted)
    {
        again = report(noisy.clone(), &host(), AgentKind::Tracer).await;
    }
    again.map(drop).unwrap();
    collector.stop().await;
}

/// A reader's view of a job that is there.
#[tokio::test]
async fn a_reader_reads() {
    let collector = SecuredCollector::start(|_| {}).await;
    let scheduler = collector.caller(Role::Scheduler, "a").await;
    JobServiceClient::new(scheduler)
        .start_job(start("7", "a"))
        .await
        .unwrap();
    let reader = collector.caller(Role::Reader, "grafana").await;
    let asked = GetJobRequest {
        job_id: "7".into(),
        ..GetJobRequest::default()
    };
    let job = JobServiceClient::new(reader).get_job(asked).await.unwrap();
    assert_eq!(job.into_inner().job.unwrap().scheduler, "a");
    collector.stop().await;
}

//! Automatic mode over a real socket: windows are leased, and where a failing call leaves
//! good ones stands beside the verdict.

use std::time::Duration;

use rdmesh_collector::config::{BaselineConfig, CollectorConfig};
use rdmesh_proto::collector::v1::baseline_service_client::BaselineServiceClient;
use rdmesh_proto::collector::v1::lease_window_response::Answer;
use rdmesh_proto::collector::v1::{
    AdviseRetryRequest, DiagnoseRequest, DiagnoseResponse, FinishWindowRequest, LeaseRefusalReason,
    LeaseWindowRequest, Verdict, WindowLease, WindowPurpose,
};
use rdmesh_proto::common::v1::{Layer, Verb};
use rdmesh_proto::tracer::v1::{Baseline, BaselineNode, ChainStep, Fork, ReturnCount};
use rdmesh_store::{Keep, Store, StoreOptions};
use time::OffsetDateTime;
use tonic::Code;
use tonic::transport::Channel;

use crate::made::{Host, start};
use crate::running::{Running, cluster, until};

fn on(config: &mut CollectorConfig) {
    config.baseline = BaselineConfig {
        hosts_at_once: 1,
        window_seconds: 30,
    };
}

async fn started() -> Running {
    Running::on(cluster().new_database().unwrap(), on).await
}

fn client(running: &Running) -> BaselineServiceClient<Channel> {
    BaselineServiceClient::new(running.channel.clone())
}

fn record(host: &Host) -> LeaseWindowRequest {
    LeaseWindowRequest {
        host: host.name.clone(),
        run_id: host.run_id.clone(),
        purpose: WindowPurpose::Record.into(),
        kernel_release: "6.12".into(),
        driver: "rdma_rxe".into(),
        verbs: vec!["reg_mr".into()],
        ..LeaseWindowRequest::default()
    }
}

/// The failing call of [`Host::snapshot`].
fn capture(host: &Host) -> LeaseWindowRequest {
    let step = |function: &str, module: &str, layer: Layer| ChainStep {
        function: function.into(),
        module: module.into(),
        layer: layer.into(),
        errno: 14,
        errno_name: "EFAULT".into(),
    };
    LeaseWindowRequest {
        purpose: WindowPurpose::Capture.into(),
        verb: Verb::RegMr.into(),
        chain: vec![
            step("ib_umem_get", "ib_uverbs", Layer::Memory),
            step("rxe_reg_user_mr", "rdma_rxe", Layer::Driver),
            step("ib_uverbs_reg_mr", "ib_uverbs", Layer::Uverbs),
        ],
        ..record(host)
    }
}

async fn granted(running: &Running, request: LeaseWindowRequest) -> WindowLease {
    let answer = client(running).lease_window(request).await.unwrap();
    match answer.into_inner().answer {
        Some(Answer::Lease(lease)) => lease,
        other => panic!("{other:?}"),
    }
}

async fn refused(running: &Running, request: LeaseWindowRequest) -> LeaseRefusalReason {
    let answer = client(running).lease_window(request).await.unwrap();
    match answer.into_inner().answer {
        Some(Answer::Refusal(refusal)) => {
            assert!(refusal.again_after_seconds > 0 && !refusal.message.is_empty());
            refusal.reason()
        }
        other => panic!("{other:?}"),
    }
}

fn good_calls() -> Baseline {
    let node = |depth, function: &str| BaselineNode {
        depth,
        function: function.into(),
        calls: 25,
        returns: vec![ReturnCount {
            outcome: "good".into(),
            count: 25,
        }],
    };
    Baseline {
        kernel_release: "6.12".into(),
        driver: "rdma_rxe".into(),
        verb: "reg_mr".into(),
        recorded_at: Some(prost_types::Timestamp {
            seconds: 1_764_000_000,
            nanos: 0,
        }),
        good_calls: 25,
        functions: 212,
        nodes: vec![
            node(0, "ib_uverbs_reg_mr"),
            node(1, "rxe_reg_user_mr"),
            node(2, "ib_umem_get"),
        ],
    }
}

fn left_at_umem() -> Fork {
    Fork {
        verb: "reg_mr".into(),
        call_errno: 14,
        call_errno_name: "EFAULT".into(),
        path: ["ib_uverbs_reg_mr", "rxe_reg_user_mr", "ib_umem_get"]
            .map(String::from)
            .to_vec(),
        errno: 14,
        errno_name: "EFAULT".into(),
        usual: vec![ReturnCount {
            outcome: "good".into(),
            count: 25,
        }],
        good_calls: 25,
        ..Fork::default()
    }
}

async fn diagnosed(running: &Running) -> DiagnoseResponse {
    let request = DiagnoseRequest {
        job_id: "7".into(),
        ..DiagnoseRequest::default()
    };
    running
        .queries()
        .diagnose(request)
        .await
        .unwrap()
        .into_inner()
}

/// A host that has good calls records them; one host at a time.
async fn recorded(running: &Running, healthy: &Host, failing: &Host) {
    let lease = granted(running, record(healthy)).await;
    assert_eq!(
        (lease.seconds, lease.verbs),
        (30, vec!["reg_mr".to_owned()])
    );
    let other = LeaseWindowRequest {
        verbs: vec!["create_qp".into()],
        ..record(failing)
    };
    assert_eq!(refused(running, other).await, LeaseRefusalReason::FleetBusy);
    let done = FinishWindowRequest {
        host: healthy.name.clone(),
        lease_id: lease.lease_id,
        baselines: vec![good_calls()],
        ..FinishWindowRequest::default()
    };
    client(running).finish_window(done.clone()).await.unwrap();
    let twice = client(running).finish_window(done).await.unwrap_err();
    assert_eq!(twice.code(), Code::NotFound);
}

#[tokio::test]
async fn where_a_failing_call_leaves_good_ones_stands_beside_the_verdict() {
    let running = started().await;
    let (failing, healthy) = (Host::new("gpu-01"), Host::new("gpu-07"));
    running
        .jobs()
        .start_job(start("7", 60, &["gpu-01"]))
        .await
        .unwrap();
    let mut agent = running.agent(failing.hello()).await;
    agent.send(1, failing.failing("7")).await;
    agent.acknowledged(1).await;
    assert_eq!(diagnosed(&running).await.captured, None);

    let none = refused(&running, capture(&failing)).await;
    assert_eq!(none, LeaseRefusalReason::NoBaseline);
    recorded(&running, &healthy, &failing).await;
    let lease = granted(&running, capture(&failing)).await;
    assert_eq!(lease.baseline, Some(good_calls()));
    assert_eq!(lease.baseline_host, "gpu-07");
    let done = FinishWindowRequest {
        host: "gpu-01".into(),
        lease_id: lease.lease_id,
        fork: Some(left_at_umem()),
        baseline_host: lease.baseline_host,
        baseline_recorded_at: good_calls().recorded_at,
        ..FinishWindowRequest::default()
    };
    client(&running).finish_window(done).await.unwrap();
    assert_eq!(
        refused(&running, capture(&failing)).await,
        LeaseRefusalReason::Captured
    );

    let captured = diagnosed(&running).await.captured.unwrap();
    assert_eq!(captured.fork, Some(left_at_umem()));
    assert_eq!(
        (captured.host.as_str(), captured.baseline_host.as_str()),
        ("gpu-01", "gpu-07")
    );
    assert_eq!(
        (captured.kernel_release.as_str(), captured.driver.as_str()),
        ("6.12", "rdma_rxe")
    );
    assert_eq!(captured.baseline_recorded_at, good_calls().recorded_at);
    assert_eq!(
        running.read("SELECT host, function, depth FROM rdmesh.forks"),
        "gpu-01|ib_umem_get|2"
    );
    agent.finish().await;
    running.stop().await;
}

#[tokio::test]
async fn it_is_off_unless_configured_and_odd_requests_are_named() {
    let running = Running::start().await;
    let host = Host::new("gpu-01");
    assert_eq!(
        refused(&running, record(&host)).await,
        LeaseRefusalReason::Off
    );
    let odd = LeaseWindowRequest {
        verbs: vec!["reg mr".into()],
        ..record(&host)
    };
    let status = client(&running).lease_window(odd).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(
        status.message().starts_with("verbs "),
        "{}",
        status.message()
    );
    let nothing = FinishWindowRequest {
        host: "gpu-01".into(),
        lease_id: host.run_id.clone(),
        ..FinishWindowRequest::default()
    };
    let status = client(&running).finish_window(nothing).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(
        status.message().starts_with("failure "),
        "{}",
        status.message()
    );
    running.stop().await;
}

/// Details go first; the verdict that was decided by them stands, with what was captured.
#[tokio::test]
async fn a_verdict_that_outlived_its_details_is_told_as_it_was_with_its_fork() {
    let running = started().await;
    let host = Host::new("gpu-01");
    running
        .jobs()
        .start_job(start("7", 60, &["gpu-01"]))
        .await
        .unwrap();
    let mut agent = running.agent(host.hello()).await;
    agent.send(1, host.failing("7")).await;
    agent.acknowledged(1).await;
    let mut request = capture(&host);
    request.has_baseline = true;
    let lease = granted(&running, request).await;
    let done = FinishWindowRequest {
        host: "gpu-01".into(),
        lease_id: lease.lease_id,
        fork: Some(left_at_umem()),
        baseline_host: "gpu-01".into(),
        ..FinishWindowRequest::default()
    };
    client(&running).finish_window(done).await.unwrap();
    until("it is there", || async {
        diagnosed(&running).await.captured.is_some()
    })
    .await;
    let before = diagnosed(&running).await;
    let decided = before.verdict.unwrap();
    assert_eq!(decided.decided_at, None);
    agent.finish().await;

    // Asked for again, weeks later; then its week is dropped.
    let store = Store::new(&StoreOptions {
        url: cluster().url(&running.database),
        connections: 1,
        acquire_timeout: Duration::from_secs(20),
    })
    .unwrap();
    for later in [
        "UPDATE rdmesh_store.verdicts SET diagnosed_at = diagnosed_at + interval '30 days'",
        "UPDATE rdmesh_store.forks SET captured_at = captured_at + interval '30 days'",
    ] {
        cluster().psql(&running.database, "rdmesh", later).unwrap();
    }
    let days = |days: u64| Duration::from_secs(days * 24 * 3600);
    let keep = Keep {
        exact: days(2),
        detail: days(14),
        hours: days(365),
    };
    let in_weeks = OffsetDateTime::now_utc() + days(30);
    let retained = store.retain(in_weeks, keep).await.unwrap();
    assert!(!retained.partitions.is_empty(), "{retained:?}");
    assert_eq!(running.read("SELECT count(*) FROM rdmesh.failures"), "0");

    let after = diagnosed(&running).await;
    assert_eq!(after.captured, before.captured);
    assert!(after.captured.is_some());
    let stands = after.verdict.unwrap();
    assert!(stands.decided_at.is_some());
    let aged = stands.unwatched.last().unwrap();
    assert!(aged.contains("have aged out of the store"), "{aged}");
    let told = Verdict {
        decided_at: None,
        unwatched: decided.unwatched.clone(),
        ..stands
    };
    assert_eq!(told, decided);
    assert_eq!(
        running.read("SELECT class, function FROM rdmesh.diagnoses"),
        "application_arguments|ib_umem_get"
    );
    let mut queries = running.queries();
    let advice = queries.advise_retry(AdviseRetryRequest {
        job_id: "7".into(),
        ..AdviseRetryRequest::default()
    });
    let advice = advice.await.unwrap().into_inner();
    assert_eq!(advice.class(), decided.class());

    // Kept by a collector that kept no more than the columns.
    let older = "UPDATE rdmesh_store.verdicts SET body = NULL, signature_id = NULL";
    cluster().psql(&running.database, "rdmesh", older).unwrap();
    let anew = diagnosed(&running).await.verdict.unwrap();
    assert_eq!(anew.decided_at, None);
    assert!(anew.unwatched.iter().any(|line| line.contains("aged out")));
    running.stop().await;
}

/// A fork that a later version wrote, or that was damaged, does not cost the verdict.
#[tokio::test]
async fn a_fork_that_cannot_be_read_is_left_out() {
    let running = started().await;
    let host = Host::new("gpu-01");
    running
        .jobs()
        .start_job(start("7", 60, &["gpu-01"]))
        .await
        .unwrap();
    let mut agent = running.agent(host.hello()).await;
    agent.send(1, host.failing("7")).await;
    agent.acknowledged(1).await;
    let mut request = capture(&host);
    request.has_baseline = true;
    let lease = granted(&running, request).await;
    let done = FinishWindowRequest {
        host: "gpu-01".into(),
        lease_id: lease.lease_id,
        fork: Some(left_at_umem()),
        baseline_host: "gpu-01".into(),
        ..FinishWindowRequest::default()
    };
    client(&running).finish_window(done).await.unwrap();
    until("it is there", || async {
        diagnosed(&running).await.captured.is_some()
    })
    .await;
    let damage = "UPDATE rdmesh_store.forks SET body = '\\xff'";
    cluster().psql(&running.database, "rdmesh", damage).unwrap();
    let answer = diagnosed(&running).await;
    assert_eq!(answer.captured, None);
    assert_eq!(answer.verdict.unwrap().function, "ib_umem_get");
    agent.finish().await;
    running.stop().await;
}

//! Failures as they are stored, told to whoever follows them.

use rdmesh_proto::collector::v1::report_request::Item;
use rdmesh_proto::collector::v1::{WatchFailuresRequest, WatchFailuresResponse};
use rdmesh_proto::tracer::v1::ChainColumns;
use tonic::{Code, Streaming};

use crate::made::{Host, start};
use crate::running::{Running, until};

type Answers = Streaming<WatchFailuresResponse>;

/// Snapshots, and failures in each: more than a follower's queue and gRPC's buffers hold.
const STORM: u64 = 2_500;
const ROWS: usize = 64;

/// A snapshot of many failures.
fn many(host: &Host) -> Item {
    let mut snapshot = host.snapshot("7");
    let one = snapshot.chains.take().unwrap();
    snapshot.samples = None;
    snapshot.chains = Some(ChainColumns {
        signature: vec![0; ROWS],
        task: vec![0; ROWS],
        device_plus_one: vec![1; ROWS],
        count: vec![1; ROWS],
        first_after_start_ns: vec![one.first_after_start_ns[0]; ROWS],
        span_ns: vec![0; ROWS],
        marks: vec![0; ROWS],
    });
    Item::Snapshot(snapshot)
}

async fn follow(collector: &Running, request: WatchFailuresRequest) -> Answers {
    let answer = collector.queries().watch_failures(request).await;
    let mut answers = answer.unwrap().into_inner();
    let first = answers.message().await.unwrap().unwrap();
    assert_eq!(first, WatchFailuresResponse::default());
    answers
}

#[tokio::test]
async fn a_failure_is_told_once_with_its_attempt_when_it_is_stored() {
    let collector = Running::start().await;
    let job = start("7", 60, &["gpu-01"]);
    collector.jobs().start_job(job).await.unwrap();
    let of_job = WatchFailuresRequest {
        job_id: "7".into(),
        ..WatchFailuresRequest::default()
    };
    let mut of_job = follow(&collector, of_job).await;
    let elsewhere = WatchFailuresRequest {
        host: "gpu-02".into(),
        ..WatchFailuresRequest::default()
    };
    let mut elsewhere = follow(&collector, elsewhere).await;
    let host = Host::new("gpu-01");
    // Twice the same: an agent whose acknowledgement was lost.
    for _ in 0..2 {
        let mut agent = collector.agent(host.hello()).await;
        agent.send(1, host.failing("")).await;
        agent.acknowledged(1).await;
    }
    let mut agent = collector.agent(host.hello()).await;
    agent.send(2, host.failing("")).await;
    agent.acknowledged(2).await;
    let mut told = Vec::new();
    while told.len() < 2 {
        let answer = of_job.message().await.unwrap().unwrap();
        assert_eq!(answer.missed, 0);
        told.extend(answer.failures);
    }
    let sequences: Vec<u64> = told.iter().map(|failure| failure.sequence).collect();
    assert_eq!(sequences, [1, 2]);
    assert_eq!(told[0].attempt.as_ref().unwrap().job_id, "7");
    assert_eq!(told[0].steps[0].errno_name, "EFAULT");

    let other = Host::new("gpu-02");
    let mut agent = collector.agent(other.hello()).await;
    agent.send(1, other.failing("")).await;
    agent.acknowledged(1).await;
    let answer = elsewhere.message().await.unwrap().unwrap();
    assert_eq!(answer.failures[0].host, "gpu-02");
}

#[tokio::test]
async fn a_follower_that_does_not_read_is_told_how_many_it_missed() {
    let collector = Running::start().await;
    let mut answers = follow(&collector, WatchFailuresRequest::default()).await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    for sequence in 1..=STORM {
        agent.send(sequence, many(&host)).await;
    }
    // Nobody waits for the follower: all of it is stored.
    agent.acknowledged(STORM).await;
    // One more, which finds the queue full as well, or not.
    agent.send(STORM + 1, host.failing("7")).await;
    agent.acknowledged(STORM + 1).await;
    let all = STORM * u64::try_from(ROWS).unwrap() + 1;
    let (mut told, mut missed) = (0, 0);
    while told + missed < all {
        let answer = answers.message().await.unwrap().unwrap();
        told += u64::try_from(answer.failures.len()).unwrap();
        missed += answer.missed;
    }
    assert!(missed > 0 && told > 0, "{told} and {missed}");
    assert_eq!(told + missed, all);
}

#[tokio::test]
async fn followers_are_bounded_and_leave_their_place() {
    let collector = Running::start().await;
    let mut all = Vec::new();
    for _ in 0..64 {
        all.push(follow(&collector, WatchFailuresRequest::default()).await);
    }
    let request = WatchFailuresRequest::default;
    let refused = collector.queries().watch_failures(request()).await;
    assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted);
    all.pop();
    until("a place is free", || async {
        collector.queries().watch_failures(request()).await.is_ok()
    })
    .await;
    let wrong = WatchFailuresRequest {
        errno: 70_000,
        ..request()
    };
    let refused = collector.queries().watch_failures(wrong).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

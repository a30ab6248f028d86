//! Jobs' own logs, over a real socket, with what they change in verdicts and shares.

use rdmesh_proto::collector::v1::job_service_client::JobServiceClient;
use rdmesh_proto::collector::v1::statistics_service_client::StatisticsServiceClient;
use rdmesh_proto::collector::v1::submit_job_log_request::Item;
use rdmesh_proto::collector::v1::{
    AdviseRetryRequest, DiagnoseRequest, DiagnoseResponse, EndJobRequest, GetCoverageRequest,
    GetLostHoursRequest, GetMisattributionRequest, GetSilentFailuresRequest, JobLog, JobLogSource,
    JobState, LogAgreement, LogClass, LogCoverage, RetryAdvice, SubmitJobLogRequest,
    SubmitJobLogResponse,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::made::{Host, attempt, seconds_ago, start};
use crate::running::{Running, until};

const NETWORK: &[u8] = b"n1:7:8 [0] NCCL INFO ordinary\n\
[rank3]:n1:7:8 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<5> with status=12 opcode=0 len=0 vendor err 129 (Send)\n";

const REG_MR: &[u8] =
    b"[rank3]:gpu-01:7:8 [0] NCCL WARN Call to ibv_reg_mr failed with error Bad address\n";

fn source(job: &str, name: &str) -> SubmitJobLogRequest {
    SubmitJobLogRequest {
        item: Some(Item::Source(JobLogSource {
            attempt: attempt(job, 0),
            host: String::new(),
            rank: None,
            name: name.into(),
        })),
    }
}

fn data(bytes: &[u8]) -> SubmitJobLogRequest {
    SubmitJobLogRequest {
        item: Some(Item::Data(bytes.to_vec())),
    }
}

async fn submit(
    collector: &Running,
    requests: Vec<SubmitJobLogRequest>,
) -> Result<SubmitJobLogResponse, Status> {
    let stream = tokio_stream::iter(requests);
    let answer = collector.jobs().submit_job_log(stream).await;
    answer.map(tonic::Response::into_inner)
}

/// A log that came, and whether it had come before.
async fn log(collector: &Running, job: &str, name: &str, bytes: &[u8]) -> (JobLog, bool) {
    let answer = submit(collector, vec![source(job, name), data(bytes)]).await;
    let answer = answer.unwrap();
    (answer.log.unwrap(), answer.repeated)
}

async fn diagnosed(collector: &Running, job: &str) -> DiagnoseResponse {
    let request = DiagnoseRequest {
        job_id: job.into(),
        ..DiagnoseRequest::default()
    };
    let answer = collector.queries().diagnose(request).await;
    answer.unwrap().into_inner()
}

/// An attempt on two hosts of which one fails in reg_mr, ended.
async fn failed_job(collector: &Running, job: &str) {
    let mut jobs = collector.jobs();
    jobs.start_job(start(job, 60, &["gpu-01", "gpu-02"]))
        .await
        .unwrap();
    for name in ["gpu-01", "gpu-02"] {
        let host = Host::new(name);
        let mut agent = collector.agent(host.hello()).await;
        agent.send(1, Host::probe_report(&[])).await;
        let second = if name == "gpu-01" {
            host.failing(job)
        } else {
            host.heartbeat()
        };
        agent.send(2, second).await;
        agent.acknowledged(2).await;
    }
    jobs.end_job(EndJobRequest {
        attempt: attempt(job, 0),
        state: JobState::Failed.into(),
        ended_at: Some(seconds_ago(0)),
        exit_code: Some(1),
        exit_reason: String::new(),
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_log_that_says_network_is_contradicted_everywhere() {
    let collector = Running::start().await;
    failed_job(&collector, "7").await;
    let (kept, repeated) = log(&collector, "7", "slurm-7.out", NETWORK).await;
    assert_eq!(
        (kept.class(), kept.lines, repeated),
        (LogClass::Network, 2, false)
    );
    assert_eq!(kept.decision.unwrap().rank, Some(3));

    let answer = diagnosed(&collector, "7").await;
    let (verdict, opinion) = (answer.verdict.unwrap(), answer.log.unwrap());
    assert_eq!(verdict.errno_name, "EFAULT");
    assert!(opinion.misattributed, "{opinion:?}");
    assert_eq!(opinion.agreement(), LogAgreement::Disagrees);
    assert!(verdict.against.contains(&opinion.statement));
    assert_eq!(
        collector.read("SELECT log_class, misattributed, told_by, logs FROM rdmesh.diagnoses"),
        "network|t|kernel|1"
    );
    let mut statistics = StatisticsServiceClient::new(collector.channel.clone());
    let shares = statistics
        .get_misattribution(GetMisattributionRequest::default())
        .await
        .unwrap()
        .into_inner();
    let (row, all) = (&shares.rows[0], shares.misattributed.unwrap());
    assert_eq!(
        (row.filed_as(), row.misattributed),
        (LogClass::Network, true)
    );
    assert_eq!((all.attempts, all.of_attempts), (1, Some(1.0)));
    assert_eq!(
        collector.read("SELECT filed_as, attempts, gpu_hours FROM rdmesh.misattribution"),
        format!("network|1|{}", all.gpu_hours)
    );
}

#[tokio::test]
async fn a_log_that_tells_the_same_call_is_covered() {
    let collector = Running::start().await;
    failed_job(&collector, "7").await;
    log(&collector, "7", "slurm-7.out", NETWORK).await;
    // The log has grown: what it said first is not all.
    let (kept, repeated) = log(&collector, "7", "slurm-7.out", REG_MR).await;
    assert_eq!((kept.class(), repeated), (LogClass::Syscall, false));
    let opinion = diagnosed(&collector, "7").await.log.unwrap();
    assert_eq!(
        (opinion.agreement(), opinion.coverage(), opinion.logs),
        (LogAgreement::Agrees, LogCoverage::Covered, 1)
    );
    let mut statistics = StatisticsServiceClient::new(collector.channel.clone());
    let coverage = statistics.get_coverage(GetCoverageRequest::default()).await;
    let coverage = coverage.unwrap().into_inner();
    assert_eq!(coverage.covered.unwrap().of_attempts, Some(1.0));
    let silent = statistics
        .get_silent_failures(GetSilentFailuresRequest::default())
        .await;
    let silent = silent.unwrap().into_inner();
    assert_eq!(silent.silent.unwrap().attempts, 1);
    let lost = statistics
        .get_lost_hours(GetLostHoursRequest::default())
        .await;
    let lost = lost.unwrap().into_inner();
    assert_eq!(lost.rows[0].class, "application_arguments");
    // One rank on each of two hosts for a minute.
    let hours = lost.rows[0].share.unwrap().gpu_hours;
    assert!((hours - 2.0 / 60.0).abs() < 0.01, "{hours}");
    for (view, hours) in [
        ("coverage", hours),
        ("lost_hours", hours),
        ("silent", hours),
    ] {
        let in_sql = collector.read(&format!("SELECT gpu_hours FROM rdmesh.{view}"));
        assert_eq!(in_sql, hours.to_string(), "{view}");
    }
}

#[tokio::test]
async fn a_verdict_follows_a_log_that_comes_after_it() {
    let collector = Running::start().await;
    failed_job(&collector, "7").await;
    let logs = || collector.read("SELECT logs FROM rdmesh.diagnoses");
    diagnosed(&collector, "7").await;
    assert_eq!(logs(), "0");
    log(&collector, "7", "", REG_MR).await;
    until("the attempt is diagnosed anew", || async { logs() == "1" }).await;
}

#[tokio::test]
async fn the_same_log_again_changes_nothing() {
    let collector = Running::start().await;
    let (first, repeated) = log(&collector, "7", "a", REG_MR).await;
    assert!(!repeated);
    let (again, repeated) = log(&collector, "7", "a", REG_MR).await;
    assert!(repeated);
    assert_eq!(again, first);
    let (other, repeated) = log(&collector, "7", "b", REG_MR).await;
    assert!(!repeated && other.digest == first.digest);
    assert_eq!(collector.read("SELECT count(*) FROM rdmesh.job_logs"), "2");
    assert_eq!(
        collector.read("SELECT marks FROM rdmesh.jobs"),
        "{\"no scheduler told of it; failing tasks or a log named it\"}"
    );
}

#[tokio::test]
async fn a_log_whose_stream_breaks_leaves_nothing() {
    let collector = Running::start().await;
    let (to, messages) = mpsc::channel(4);
    to.send(source("7", "")).await.unwrap();
    to.send(data(REG_MR)).await.unwrap();
    // A connection of its own, cut while the log is under way.
    let channel = Channel::from_shared(collector.address.clone()).unwrap();
    let mut jobs = JobServiceClient::new(channel.connect().await.unwrap());
    let under_way = tokio::spawn(async move {
        let _ = jobs.submit_job_log(ReceiverStream::new(messages)).await;
    });
    until("the collector takes the log", || async {
        to.capacity() == 4
    })
    .await;
    under_way.abort();
    until("the call is gone", || async { to.is_closed() }).await;
    // Another log comes through, and the broken one does not.
    log(&collector, "7", "whole", NETWORK).await;
    assert_eq!(collector.read("SELECT name FROM rdmesh.job_logs"), "whole");
}

#[tokio::test]
async fn hostile_logs_are_read_in_bounded_memory_and_kept_in_bounded_text() {
    let collector = Running::start().await;
    // 200 MB on one line of binary, with an error in its middle, then a line of 1 MB.
    let byte = |n: u32| u8::try_from(n.wrapping_mul(2_654_435_761) >> 24).unwrap();
    let noise = (0..1_u32 << 20).map(byte);
    let noise: Vec<u8> = noise.map(|b| if b == b'\n' { 0 } else { b }).collect();
    let mut requests = vec![source("7", "noise")];
    requests.extend((0..100).map(|_| data(&noise)));
    requests.push(data(&[b"\n".as_slice(), REG_MR].concat()));
    requests.extend((0..100).map(|_| data(&noise)));
    let before = resident_kib();
    let kept = submit(&collector, requests).await.unwrap().log.unwrap();
    assert_eq!((kept.class(), kept.lines), (LogClass::Syscall, 3));
    assert_eq!(
        kept.bytes,
        (200 << 20) + 1 + u64::try_from(REG_MR.len()).unwrap()
    );
    assert!(kept.decision.unwrap().text.len() <= 512);
    // The requests themselves are in this process; the log's own share is small.
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 300 << 10, "{grown} KiB");
    let row = collector.read("SELECT pg_column_size(l.*) FROM rdmesh.job_logs l");
    assert!(row.parse::<u64>().unwrap() < 64 << 10, "{row}");
    let empty = submit(&collector, vec![source("7", "empty")])
        .await
        .unwrap();
    assert_eq!(empty.log.unwrap().class(), LogClass::CannotTell);
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn what_is_no_log_is_refused_with_what_to_do() {
    let collector = Running::start().await;
    let refused = async |requests, says: &str| {
        let refused = submit(&collector, requests).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
        assert!(refused.message().contains(says), "{}", refused.message());
    };
    refused(vec![], "has no source").await;
    refused(vec![data(b"x")], "first message is no source").await;
    refused(vec![source("", "")], "attempt.job_id is empty").await;
    refused(vec![source("7", "a\u{1b}")], "source.name").await;
    refused(vec![source("7", ""), source("7", "")], "second source").await;
    refused(
        vec![source("7", ""), SubmitJobLogRequest { item: None }],
        "is missing",
    )
    .await;
    refused(
        vec![source("7", ""), data(&vec![0; (1 << 20) + 1])],
        "at most 1048576",
    )
    .await;
    assert_eq!(collector.read("SELECT count(*) FROM rdmesh.job_logs"), "0");
}

#[tokio::test]
async fn many_logs_of_one_job_come_at_once() {
    let collector = Running::start().await;
    let mut submitting = tokio::task::JoinSet::new();
    for rank in 0..64 {
        let mut jobs = collector.jobs();
        submitting.spawn(async move {
            let SubmitJobLogRequest { item } = source("7", "err");
            let Some(Item::Source(mut told)) = item else {
                return;
            };
            told.rank = Some(rank);
            let first = SubmitJobLogRequest {
                item: Some(Item::Source(told)),
            };
            let stream = tokio_stream::iter(vec![first, data(REG_MR)]);
            jobs.submit_job_log(stream).await.unwrap();
        });
    }
    submitting.join_all().await;
    let opinion = diagnosed(&collector, "7").await.log.unwrap();
    assert_eq!((opinion.logs, opinion.class()), (64, LogClass::Syscall));
}

#[tokio::test]
async fn advice_leaves_the_failing_program_alone() {
    let collector = Running::start().await;
    failed_job(&collector, "7").await;
    let request = |job: &str| AdviseRetryRequest {
        job_id: job.into(),
        ..AdviseRetryRequest::default()
    };
    let advice = collector.queries().advise_retry(request("7")).await;
    let advice = advice.unwrap().into_inner();
    assert_eq!(advice.advice(), RetryAdvice::DoNotRetry);
    assert_eq!(advice.route_to, "application owner");
    let unknown = collector.queries().advise_retry(request("8")).await;
    assert_eq!(unknown.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn a_site_says_whom_to_call() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("routes.toml");
    std::fs::write(
        &path,
        "[routes]\napplication_arguments = \"ml-infra on call\"\n",
    )
    .unwrap();
    let database = crate::running::cluster().new_database().unwrap();
    let collector = Running::on(database, |config| {
        config.diagnosis.routes = path.display().to_string();
    })
    .await;
    failed_job(&collector, "7").await;
    let verdict = diagnosed(&collector, "7").await.verdict.unwrap();
    assert_eq!(verdict.route_to, "ml-infra on call");
    assert_eq!(
        collector.read("SELECT route_to FROM rdmesh.diagnoses"),
        "ml-infra on call"
    );
}

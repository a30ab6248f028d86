//! Dumps of PyTorch's Flight Recorder, handed in rank by rank, beside the kernel's evidence.

use rdmesh_proto::collector::v1::submit_job_log_request::Item;
use rdmesh_proto::collector::v1::{
    DiagnoseRequest, JobLogSource, ListJobLogsRequest, Placement, SubmitJobLogRequest,
    SubmitJobLogResponse, VerdictClass,
};
use tonic::{Code, Status};

use crate::made::{Host, attempt, start};
use crate::running::Running;

/// A dump whose rank entered the collectives up to `last`; the last one is not complete.
fn dump(last: u64) -> Vec<u8> {
    let entry = |sequence: u64| {
        let state = if sequence == last {
            "scheduled"
        } else {
            "completed"
        };
        format!(
            "{{\"pg_id\":0,\"process_group\":[\"0\",\"default_pg\"],\
             \"collective_seq_id\":{sequence},\"is_p2p\":false,\
             \"profiling_name\":\"nccl:all_reduce\",\"state\":\"{state}\",\
             \"time_created_ns\":{}}}",
            1_000 + sequence
        )
    };
    let entries: Vec<String> = (1..=last).map(entry).collect();
    format!(
        "{{\"version\":\"2.5\",\"pg_config\":{{\"0\":{{\"name\":\"0\",\"desc\":\"default_pg\",\
         \"ranks\":\"[0, 1, 2, 3]\"}}}},\"entries\":[{}]}}",
        entries.join(",")
    )
    .into_bytes()
}

async fn submit(
    collector: &Running,
    rank: Option<u32>,
    name: &str,
    bytes: Vec<u8>,
) -> Result<SubmitJobLogResponse, Status> {
    let source = Item::Source(JobLogSource {
        attempt: attempt("7", 0),
        host: String::new(),
        rank,
        name: name.into(),
    });
    let items = [source, Item::Data(bytes)];
    let requests = items.map(|item| SubmitJobLogRequest { item: Some(item) });
    let stream = tokio_stream::iter(requests);
    let answer = collector.jobs().submit_job_log(stream).await;
    answer.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn the_rank_that_is_behind_is_named_with_its_host_and_its_failing_call() {
    let collector = Running::start().await;
    let mut job = start("7", 60, &[]);
    job.placements = [("gpu-01", vec![0, 1]), ("gpu-02", vec![2, 3])]
        .map(|(host, ranks)| Placement {
            host: host.into(),
            ranks,
            ..Placement::default()
        })
        .to_vec();
    collector.jobs().start_job(job).await.unwrap();
    let host = Host::new("gpu-02");
    let mut agent = collector.agent(host.hello()).await;
    agent.send(1, host.failing("7")).await;
    agent.acknowledged(1).await;
    // Rank 3, on the host whose call failed, never entered the last; rank 1 left no dump.
    for (rank, last) in [(0, 17), (2, 17), (3, 16)] {
        let name = format!("nccl_trace_rank_{rank}");
        let kept = submit(&collector, Some(rank), &name, dump(last)).await;
        let flight = kept.unwrap().log.unwrap().flight.unwrap();
        assert_eq!((flight.version.as_str(), flight.entries), ("2.5", last));
    }
    submit(
        &collector,
        None,
        "slurm-7.out",
        b"an ordinary line\n".to_vec(),
    )
    .await
    .unwrap();
    let ask = DiagnoseRequest {
        job_id: "7".into(),
        ..DiagnoseRequest::default()
    };
    let answer = collector
        .queries()
        .diagnose(ask)
        .await
        .unwrap()
        .into_inner();
    let finding = &answer.flight[0];
    assert_eq!(
        (
            finding.verdict.as_str(),
            finding.sequence,
            &finding.never_entered[..]
        ),
        ("not_entered", 17, &[3][..])
    );
    assert_eq!(
        (&finding.hosts[..], &finding.no_dump[..]),
        (&["gpu-02".to_owned()][..], &[1][..])
    );
    let verdict = answer.verdict.unwrap();
    // A dump never changes the verdict.
    assert_eq!(verdict.class(), VerdictClass::ApplicationArguments);
    let says = "rank 3 (on gpu-02) never entered nccl:all_reduce 17 of default_pg, in which 2 \
                ranks waited; rank 1 left no dump; the failure is on the host of ranks that are \
                behind, gpu-02";
    assert!(
        verdict.evidence.iter().any(|line| line.contains(says)),
        "{verdict:?}"
    );
    // The log beside them is one log.
    assert_eq!(answer.log.unwrap().logs, 1);

    let ask = |token: &str| ListJobLogsRequest {
        job_id: "7".into(),
        page_size: 3,
        page_token: token.into(),
        ..ListJobLogsRequest::default()
    };
    let page = collector
        .jobs()
        .list_job_logs(ask(""))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((page.logs.len(), page.total), (3, 4));
    let rest = ask(&page.next_page_token);
    let rest = collector
        .jobs()
        .list_job_logs(rest)
        .await
        .unwrap()
        .into_inner();
    assert_eq!((rest.logs.len(), rest.next_page_token.as_str()), (1, ""));
    let all: Vec<_> = page.logs.iter().chain(&rest.logs).collect();
    let dumps = all.iter().filter(|log| log.flight.is_some());
    assert_eq!(dumps.count(), 3);
}

#[tokio::test]
async fn a_pickle_that_would_call_something_is_refused_and_a_json_log_is_a_log() {
    let collector = Running::start().await;
    let evil = b"\x80\x02cos\nsystem\n(S'true'\ntR.".to_vec();
    let refused = submit(&collector, Some(0), "evil", evil).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(
        refused.message().contains("the pickle is refused at byte"),
        "{refused:?}"
    );
    // It begins like a dump and is a log of JSON lines.
    let log = b"{\"entries\": 1, \"msg\": \"NCCL WARN Call to ibv_reg_mr failed with error Bad address\"}\n";
    let kept = submit(&collector, None, "json.log", log.to_vec())
        .await
        .unwrap();
    let kept = kept.log.unwrap();
    assert!(kept.flight.is_none() && kept.lines == 1, "{kept:?}");
    assert_eq!(collector.read("SELECT count(*) FROM rdmesh.job_logs"), "1");
}

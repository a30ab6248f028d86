//! What schedulers tell, in any order.

use rdmesh_proto::collector::v1::{
    DiagnoseRequest, EndJobRequest, GetJobRequest, JobState, ListJobsRequest, PlaceJobRequest,
    Placement, StartJobRequest, VerdictClass,
};
use tonic::Code;

use crate::made::{Host, attempt, seconds_ago, start};
use crate::running::{Running, until};

fn end(job: &str, seconds: u64) -> EndJobRequest {
    EndJobRequest {
        attempt: attempt(job, 0),
        state: JobState::Failed.into(),
        ended_at: Some(seconds_ago(seconds)),
        exit_code: Some(1),
        exit_reason: "rank 3 died".into(),
    }
}

#[tokio::test]
async fn a_scheduler_that_speaks_late_still_gets_its_failures() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    // No task knows its job.
    agent.send(1, host.failing("")).await;
    agent.acknowledged(1).await;
    assert_eq!(
        collector.read("SELECT source, job_id IS NULL FROM rdmesh.failures"),
        "none|t"
    );
    collector.jobs().end_job(end("9", 0)).await.unwrap();
    collector
        .jobs()
        .start_job(start("9", 60, &["gpu-01"]))
        .await
        .unwrap();
    assert_eq!(
        collector.read("SELECT source, job_id FROM rdmesh.failures"),
        "placement|9"
    );
    let request = DiagnoseRequest {
        job_id: "9".into(),
        ..DiagnoseRequest::default()
    };
    let answer = collector
        .queries()
        .diagnose(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        answer.verdict.unwrap().class(),
        VerdictClass::ApplicationArguments
    );
    assert_eq!(answer.job.unwrap().state(), JobState::Failed);
}

#[tokio::test]
async fn a_host_that_never_reports_is_marked_and_said_to_be_unwatched() {
    let collector = Running::start().await;
    let started = collector
        .jobs()
        .start_job(start("9", 60, &["gpu-09"]))
        .await
        .unwrap();
    assert_eq!(
        started.into_inner().job.unwrap().marks,
        ["host gpu-09 has never reported"]
    );
    let request = DiagnoseRequest {
        job_id: "9".into(),
        ..DiagnoseRequest::default()
    };
    let verdict = collector
        .queries()
        .diagnose(request)
        .await
        .unwrap()
        .into_inner()
        .verdict
        .unwrap();
    assert_eq!(verdict.class(), VerdictClass::CannotTell);
    assert_eq!(
        verdict.unwatched,
        ["gpu-09: never reported; nothing of it was watched"]
    );
    assert_eq!(verdict.rule, "nothing-watched");
    assert!(
        verdict.route_to.starts_with("host team (tracers)"),
        "{}",
        verdict.route_to
    );
}

#[tokio::test]
async fn an_end_that_is_told_in_another_way_leaves_a_mark() {
    let collector = Running::start().await;
    let mut jobs = collector.jobs();
    jobs.start_job(start("9", 60, &[])).await.unwrap();
    let completed = EndJobRequest {
        state: JobState::Completed.into(),
        exit_code: Some(0),
        ..end("9", 5)
    };
    let told = [
        (end("9", 10), vec![]),
        (end("9", 10), vec![]),
        (
            completed,
            vec!["told before to have ended otherwise: failed"],
        ),
        (
            end("9", 5),
            vec!["told before to have ended otherwise: failed, then completed"],
        ),
    ];
    for (request, marks) in told {
        let state = request.state();
        let ended = jobs.end_job(request).await.unwrap().into_inner().job;
        let ended = ended.unwrap();
        assert_eq!((ended.state(), ended.marks), (state, texts(&marks)));
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[tokio::test]
async fn a_job_that_ended_before_it_started_is_kept_and_marked() {
    let collector = Running::start().await;
    collector
        .jobs()
        .start_job(start("9", 10, &[]))
        .await
        .unwrap();
    let ended = collector
        .jobs()
        .end_job(end("9", 60))
        .await
        .unwrap()
        .into_inner()
        .job
        .unwrap();
    assert_eq!(ended.marks, ["ended before it started"]);
    assert_eq!(ended.state(), JobState::Failed);
}

#[tokio::test]
async fn the_verdict_on_a_job_that_ended_before_it_started_says_so() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    // No task knows its job: the time between end and start alone gives it.
    agent.send(1, host.failing("")).await;
    agent.acknowledged(1).await;
    let mut jobs = collector.jobs();
    jobs.start_job(start("9", 0, &["gpu-01"])).await.unwrap();
    jobs.end_job(end("9", 3_600)).await.unwrap();
    let request = DiagnoseRequest {
        job_id: "9".into(),
        ..DiagnoseRequest::default()
    };
    let answer = collector.queries().diagnose(request).await.unwrap();
    let verdict = answer.into_inner().verdict.unwrap();
    let says = |lines: &[String], text: &str| lines.iter().any(|line| line.contains(text));
    assert_eq!(verdict.class(), VerdictClass::ApplicationArguments);
    for text in [
        "the times told of the attempt contradict each other: it ended at ",
        "its host and time alone give it to the attempt, whose times contradict each other",
    ] {
        assert!(says(&verdict.against, text), "{:?}", verdict.against);
    }
    assert!(
        says(
            &verdict.unwatched,
            "named no job were looked at only between"
        ),
        "{:?}",
        verdict.unwatched
    );
    assert!(
        !says(&verdict.unwatched, "silent"),
        "{:?}",
        verdict.unwatched
    );
}

#[tokio::test]
async fn placements_come_later_and_calls_repeat_without_effect() {
    let collector = Running::start().await;
    let mut jobs = collector.jobs();
    for _ in 0..2 {
        jobs.start_job(start("9", 10, &["gpu-01"])).await.unwrap();
        let place = PlaceJobRequest {
            attempt: attempt("9", 0),
            placements: vec![Placement {
                host: "gpu-02".into(),
                ..Placement::default()
            }],
        };
        jobs.place_job(place).await.unwrap();
    }
    let request = GetJobRequest {
        job_id: "9".into(),
        ..GetJobRequest::default()
    };
    let answer = jobs.get_job(request).await.unwrap().into_inner();
    let job = answer.job.unwrap();
    let hosts: Vec<&str> = job.placements.iter().map(|p| p.host.as_str()).collect();
    assert_eq!(hosts, ["gpu-01", "gpu-02"]);
    assert_eq!(answer.attempts.len(), 1);
}

#[tokio::test]
async fn attempts_are_told_apart_and_the_latest_answers() {
    let collector = Running::start().await;
    let mut jobs = collector.jobs();
    for requeue in 0..2 {
        let request = StartJobRequest {
            attempt: attempt("9", requeue),
            ..start("9", 10, &[])
        };
        jobs.start_job(request).await.unwrap();
    }
    let latest = GetJobRequest {
        job_id: "9".into(),
        ..GetJobRequest::default()
    };
    let answer = jobs.get_job(latest).await.unwrap().into_inner();
    assert_eq!(answer.job.unwrap().attempt.unwrap().requeue, 1);
    assert_eq!(answer.attempts.len(), 2);
    let third = GetJobRequest {
        job_id: "9".into(),
        requeue: Some(5),
        restart: None,
    };
    let missing = jobs.get_job(third).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    assert!(
        missing.message().contains("known are 9/0, 9/1"),
        "{}",
        missing.message()
    );
}

#[tokio::test]
async fn jobs_are_listed_by_page() {
    let collector = Running::start().await;
    let mut jobs = collector.jobs();
    let many = ["h5", "h1", "h4", "h2", "h3"];
    for (job, seconds, hosts) in [("a", 30, &many[..]), ("b", 20, &[]), ("c", 10, &["h9"])] {
        jobs.start_job(start(job, seconds, hosts)).await.unwrap();
    }
    let mut request = ListJobsRequest {
        page_size: 2,
        user: "ada".into(),
        ..Default::default()
    };
    let mut listed = Vec::new();
    loop {
        let page = jobs.list_jobs(request.clone()).await.unwrap().into_inner();
        listed.extend(page.jobs);
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    let listed: Vec<_> = listed
        .into_iter()
        .map(|job| {
            let id = job.attempt.unwrap().job_id;
            (id, job.hosts_total, job.first_hosts.join(" "))
        })
        .collect();
    let expected = [("c", 1, "h9"), ("b", 0, ""), ("a", 5, "h1 h2 h3 h4")];
    assert_eq!(
        listed,
        expected.map(|(id, total, first)| (id.to_owned(), total, first.to_owned()))
    );
    request.page_token = "zz".into();
    let refused = jobs.list_jobs(request).await.unwrap_err();
    assert!(
        refused
            .message()
            .starts_with("page_token is none of this list")
    );
}

#[tokio::test]
async fn requests_that_say_nonsense_are_refused_with_their_field() {
    let collector = Running::start().await;
    let mut jobs = collector.jobs();
    let told = |status: tonic::Status| {
        assert_eq!(status.code(), Code::InvalidArgument);
        status.message().to_owned()
    };
    let nameless = StartJobRequest::default();
    assert!(told(jobs.start_job(nameless).await.unwrap_err()).starts_with("attempt is missing"));
    let slash = start("a/b", 1, &[]);
    assert!(
        told(jobs.start_job(slash).await.unwrap_err()).starts_with("attempt.job_id is \"a/b\"")
    );
    let twice = start("9", 1, &["gpu-01", "gpu-01"]);
    assert!(told(jobs.start_job(twice).await.unwrap_err()).contains("twice"));
    let running = EndJobRequest {
        state: JobState::Running.into(),
        ..end("9", 1)
    };
    assert!(
        told(jobs.end_job(running).await.unwrap_err()).starts_with("state is running; an end is")
    );
    let unknown = EndJobRequest {
        state: 99,
        ..end("9", 1)
    };
    assert!(told(jobs.end_job(unknown).await.unwrap_err()).starts_with("state is 99, which is"));
    let mut never = end("9", 1);
    never.ended_at = Some(prost_types::Timestamp {
        seconds: i64::MAX,
        nanos: 0,
    });
    assert!(told(jobs.end_job(never).await.unwrap_err()).starts_with("ended_at is no time"));
}

#[tokio::test]
async fn an_attempt_that_ended_badly_gets_its_verdict_unasked() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    agent.send(1, host.failing("9")).await;
    agent.acknowledged(1).await;
    collector
        .jobs()
        .start_job(start("9", 60, &["gpu-01"]))
        .await
        .unwrap();
    collector.jobs().end_job(end("9", 0)).await.unwrap();
    let verdict = "SELECT class FROM rdmesh.diagnoses WHERE job_id = '9'";
    until("a verdict is there", || async {
        collector.read(verdict) == "application_arguments"
    })
    .await;
}

//! Job metadata in any order, and the join.

use rdmesh_store::jobs::{Attempt, AttemptKey, End, JobCursor, JobFilter};
use rdmesh_store::query::FailureFilter;
use rdmesh_store::verdicts::StoredVerdict;
use time::OffsetDateTime;

use crate::made::{
    Database, NOW, at, attempt, chain, count, hello, named, nobody, placed_on, run, snapshot, start,
};

const FAILED: i16 = 4;
const RUNNING: i16 = 2;

fn end(job: &str, requeue: u32, ended_at: Option<OffsetDateTime>) -> End {
    End {
        attempt: attempt(job, requeue),
        state: FAILED,
        ended_at,
        exit_code: Some(1),
        exit_reason: "ranks died".into(),
    }
}

#[tokio::test]
async fn start_place_end_give_one_attempt_and_repeat_without_effect() {
    let db = Database::new().await;
    for _ in 0..2 {
        db.store
            .start_job(&start("7", 0, Some(at(0)), &["gpu-01"]), at(1))
            .await
            .unwrap();
        db.store
            .place_job(&attempt("7", 0), &[placed_on("gpu-02")], at(2))
            .await
            .unwrap();
        db.store
            .end_job(&end("7", 0, Some(at(9))), at(10))
            .await
            .unwrap();
    }
    let job = db.store.attempt(&attempt("7", 0)).await.unwrap().unwrap();
    assert_eq!(
        (job.state, job.started_at, job.ended_at),
        (FAILED, Some(at(0)), Some(at(9)))
    );
    assert_eq!((job.user.as_str(), job.exit_code), ("ada", Some(1)));
    assert_eq!(job.labels, "{\"team\": \"x\"}");
    assert_eq!(
        job.marks,
        [
            "host gpu-01 has never reported",
            "host gpu-02 has never reported"
        ]
    );
    let placements = db.store.placements_of(&attempt("7", 0)).await.unwrap();
    assert_eq!(placements, [placed_on("gpu-01"), placed_on("gpu-02")]);
    assert_eq!(
        db.read("SELECT state, exit_reason, marks FROM rdmesh.jobs"),
        "failed|ranks died|{\"host gpu-01 has never reported\",\"host gpu-02 has never reported\"}"
    );
    assert_eq!(db.read("SELECT count(*) FROM rdmesh.placements"), "2");
}

#[tokio::test]
async fn an_end_that_comes_first_stays_an_end() {
    let db = Database::new().await;
    db.store
        .end_job(&end("7", 0, Some(at(9))), at(10))
        .await
        .unwrap();
    let job = db.store.attempt(&attempt("7", 0)).await.unwrap().unwrap();
    assert_eq!((job.state, job.started_at), (FAILED, None));
    assert_eq!(job.marks, ["ended, but nobody told when it started"]);

    db.store
        .start_job(&start("7", 0, None, &[]), at(11))
        .await
        .unwrap();
    let job = db.store.attempt(&attempt("7", 0)).await.unwrap().unwrap();
    assert_eq!((job.state, job.started_at), (FAILED, None));

    db.store
        .start_job(&start("7", 0, Some(at(3)), &[]), at(12))
        .await
        .unwrap();
    let job = db.store.attempt(&attempt("7", 0)).await.unwrap().unwrap();
    assert_eq!(
        (job.state, job.started_at, job.marks.len()),
        (FAILED, Some(at(3)), 0)
    );
}

#[tokio::test]
async fn ended_before_it_started_is_kept_and_marked() {
    let db = Database::new().await;
    db.store
        .start_job(&start("7", 0, Some(at(9)), &[]), at(9))
        .await
        .unwrap();
    db.store
        .end_job(&end("7", 0, Some(at(2))), at(10))
        .await
        .unwrap();
    let job = db.store.attempt(&attempt("7", 0)).await.unwrap().unwrap();
    assert_eq!(job.marks, ["ended before it started"]);
    assert_eq!((job.started_at, job.ended_at), (Some(at(9)), Some(at(2))));
}

#[tokio::test]
async fn placed_without_start_is_unknown_and_marked() {
    let db = Database::new().await;
    db.store
        .place_job(&attempt("7", 0), &[placed_on("gpu-01")], at(2))
        .await
        .unwrap();
    let job = db.store.attempt(&attempt("7", 0)).await.unwrap().unwrap();
    assert_eq!(job.state, 1);
    assert_eq!(job.marks[0], "placed, but nobody told that it started");
    db.store
        .start_job(&start("7", 0, None, &[]), at(3))
        .await
        .unwrap();
    let job = db.store.attempt(&attempt("7", 0)).await.unwrap().unwrap();
    assert_eq!((job.state, job.started_at), (RUNNING, Some(at(3))));
}

/// (job, requeue, source) of every failure, oldest first.
fn joined(db: &Database) -> String {
    db.read(
        "SELECT string_agg(COALESCE(job_id || '/' || requeue, '-') || ' ' || source, ', ' \
         ORDER BY first_at) FROM rdmesh.failures",
    )
}

#[tokio::test]
async fn metadata_that_comes_after_the_failures_joins_all_the_same() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    let chains = vec![chain(at(5), nobody()), chain(at(20), nobody())];
    db.store
        .ingest(&[snapshot(&run, 1, chains, vec![], vec![])])
        .await
        .unwrap();
    assert_eq!(joined(&db), "- none, - none");
    db.store
        .start_job(&start("7", 2, Some(at(1)), &["gpu-01"]), at(60))
        .await
        .unwrap();
    assert_eq!(joined(&db), "7/2 placement, 7/2 placement");
    db.store
        .end_job(&end("7", 2, Some(at(10))), at(61))
        .await
        .unwrap();
    assert_eq!(joined(&db), "7/2 placement, - none");
    let of_job = FailureFilter {
        job_id: Some("7".into()),
        limit: 9,
        ..Default::default()
    };
    let listed = db.failures(&of_job).await;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].attempt, Some(attempt("7", 2)));
}

#[tokio::test]
async fn two_attempts_on_a_host_at_once_name_none_unless_the_task_does() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    let chains = vec![chain(at(5), nobody()), chain(at(6), named("8", 0, 1))];
    db.store
        .ingest(&[snapshot(&run, 1, chains, vec![], vec![])])
        .await
        .unwrap();
    for job in ["7", "8"] {
        db.store
            .start_job(&start(job, 0, Some(at(1)), &["gpu-01"]), at(1))
            .await
            .unwrap();
    }
    assert_eq!(joined(&db), "- none, 8/0 environment");
}

#[tokio::test]
async fn a_job_named_without_its_attempt_takes_the_attempt_of_that_time() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    let chains = vec![
        chain(at(5), named("7", 0, 2)),
        chain(at(15), named("7", 0, 2)),
        chain(at(25), named("7", 0, 2)),
        chain(at(26), named("7", 1, 1)),
    ];
    db.store
        .ingest(&[snapshot(&run, 1, chains, vec![], vec![])])
        .await
        .unwrap();
    // Nobody told of it yet: the attempt that the tasks named is there.
    let untold = db.store.attempts_of("7").await.unwrap();
    assert_eq!(untold.len(), 2);
    assert_eq!(
        untold[0].marks,
        ["no scheduler told of it; failing tasks named it"]
    );

    db.store
        .start_job(&start("7", 0, Some(at(1)), &["gpu-01"]), at(30))
        .await
        .unwrap();
    db.store
        .end_job(&end("7", 0, Some(at(10))), at(30))
        .await
        .unwrap();
    db.store
        .start_job(&start("7", 1, Some(at(12)), &["gpu-01"]), at(30))
        .await
        .unwrap();
    db.store
        .end_job(&end("7", 1, Some(at(20))), at(30))
        .await
        .unwrap();
    db.store
        .start_job(&start("7", 2, Some(at(21)), &["gpu-01"]), at(30))
        .await
        .unwrap();
    assert_eq!(
        joined(&db),
        "7/0 cgroup, 7/1 cgroup, 7/2 cgroup, 7/1 environment"
    );
    assert_eq!(db.store.attempts_of("7").await.unwrap().len(), 3);
}

#[tokio::test]
async fn an_attempt_that_tasks_named_stands_beside_those_that_were_told() {
    let db = Database::new().await;
    db.store
        .start_job(&start("7", 0, Some(at(0)), &["gpu-01"]), at(1))
        .await
        .unwrap();
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    // An elastic restart that no scheduler tells of, and a cgroup that names the job.
    let chains = vec![
        chain(at(5), named("7", 1, 1)),
        chain(at(6), named("7", 0, 2)),
        chain(at(6), named("8", 0, 2)),
    ];
    db.store
        .ingest(&[snapshot(&run, 1, chains, vec![], vec![])])
        .await
        .unwrap();
    let keys =
        |jobs: Vec<Attempt>| -> Vec<AttemptKey> { jobs.into_iter().map(|j| j.key).collect() };
    let both = [attempt("7", 0), attempt("7", 1)];
    assert_eq!(keys(db.store.attempts_of("7").await.unwrap()), both);
    let filter = JobFilter {
        limit: 10,
        ..JobFilter::default()
    };
    let mut listed = keys(db.store.list_jobs(&filter).await.unwrap());
    listed.sort_by(|a, b| (&a.job_id, a.requeue).cmp(&(&b.job_id, b.requeue)));
    assert_eq!(listed, [&both[..], &[attempt("8", 0)]].concat());
    // Once the scheduler told of 8/1, 8/0 is but the cgroup's word for the job.
    db.store
        .start_job(&start("8", 1, Some(at(2)), &["gpu-01"]), at(3))
        .await
        .unwrap();
    assert_eq!(
        keys(db.store.attempts_of("8").await.unwrap()),
        [attempt("8", 1)]
    );
}

#[tokio::test]
async fn many_silent_hosts_are_one_mark() {
    let db = Database::new().await;
    let hosts: Vec<String> = (0..3_000).map(|n| format!("gpu-{n:04}")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    db.store
        .start_job(&start("7", 0, Some(at(0)), &hosts), at(1))
        .await
        .unwrap();
    let job = db.store.attempt(&attempt("7", 0)).await.unwrap().unwrap();
    assert_eq!(
        job.marks,
        ["3000 hosts have never reported: gpu-0000, gpu-0001, gpu-0002, gpu-0003 and 2996 more"]
    );
    assert_eq!(
        (job.hosts_total, job.first_hosts.join(" ")),
        (3_000, "gpu-0000 gpu-0001 gpu-0002 gpu-0003".to_owned())
    );
}

#[tokio::test]
async fn an_attempt_without_an_end_ends_when_the_next_one_starts() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    let chains = vec![chain(at(5), nobody()), chain(at(15), nobody())];
    db.store
        .ingest(&[snapshot(&run, 1, chains, vec![], vec![])])
        .await
        .unwrap();
    db.store
        .start_job(&start("7", 0, Some(at(1)), &["gpu-01"]), at(1))
        .await
        .unwrap();
    db.store
        .start_job(&start("7", 1, Some(at(10)), &["gpu-01"]), at(10))
        .await
        .unwrap();
    assert_eq!(joined(&db), "7/0 placement, 7/1 placement");
}

#[tokio::test]
async fn jobs_are_listed_newest_first_by_page_and_filter() {
    let db = Database::new().await;
    for (n, job) in (0..).zip(["a", "b", "c"]) {
        db.store
            .start_job(&start(job, 0, Some(at(n)), &["gpu-01"]), at(n))
            .await
            .unwrap();
    }
    db.store
        .end_job(&end("b", 0, Some(at(5))), at(5))
        .await
        .unwrap();
    let ids = |jobs: Vec<rdmesh_store::jobs::Attempt>| {
        jobs.into_iter()
            .map(|job| job.key.job_id)
            .collect::<Vec<_>>()
    };
    let mut filter = JobFilter {
        limit: 2,
        ..JobFilter::default()
    };
    let page = db.store.list_jobs(&filter).await.unwrap();
    filter.after = Some(JobCursor {
        listed_at: page[1].listed_at,
        key: page[1].key.clone(),
    });
    assert_eq!(ids(page), ["c", "b"]);
    assert_eq!(ids(db.store.list_jobs(&filter).await.unwrap()), ["a"]);
    let running = JobFilter {
        limit: 9,
        state: Some(RUNNING),
        host: Some("gpu-01".into()),
        user: Some("ada".into()),
        from: Some(at(4)),
        to: Some(at(60)),
        after: None,
    };
    assert_eq!(ids(db.store.list_jobs(&running).await.unwrap()), ["c", "a"]);
}

#[tokio::test]
async fn a_verdict_is_kept_and_replaced() {
    let db = Database::new().await;
    let mut verdict = StoredVerdict {
        class: "application_arguments".into(),
        layer: 1,
        verb: 2,
        function: "ib_umem_get".into(),
        module: "ib_uverbs".into(),
        errno: 14,
        errno_name: "EFAULT".into(),
        hosts: vec!["gpu-01".into()],
        devices: vec![],
        first_at: Some(NOW),
        confidence: "high".into(),
        route_to: "application owner".into(),
        rule: "r".into(),
        evidence: vec![],
        against: vec![],
        unwatched: vec![],
        summary: "s".into(),
        meaning: "m".into(),
        next_steps: vec!["look".into()],
        failures_looked_at: 5_000,
        failures_total: 12_345,
        ..StoredVerdict::default()
    };
    db.store.end_job(&end("7", 0, None), at(1)).await.unwrap();
    let waiting = db.store.undiagnosed(NOW, at(1), 9).await.unwrap();
    assert_eq!(waiting, [attempt("7", 0)]);
    assert!(
        db.store
            .undiagnosed(at(1), at(9), 9)
            .await
            .unwrap()
            .is_empty()
    );
    db.store
        .keep_verdict(&attempt("7", 0), &verdict, at(1))
        .await
        .unwrap();
    assert!(
        db.store
            .undiagnosed(NOW, at(1), 9)
            .await
            .unwrap()
            .is_empty()
    );
    verdict.confidence = "low".into();
    db.store
        .keep_verdict(&attempt("7", 0), &verdict, at(2))
        .await
        .unwrap();
    assert_eq!(
        db.read("SELECT job_id, class, layer, verb, confidence, next_steps FROM rdmesh.diagnoses"),
        "7|application_arguments|memory|reg_mr|low|{look}"
    );
}

#[tokio::test]
async fn a_job_known_by_its_cgroup_takes_the_attempt_that_was_placed_there_then() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    let rows = vec![
        chain(at(50), named("7", 0, 2)),
        chain(at(150), named("7", 0, 2)),
        // Its environment says that it is the first attempt.
        chain(at(151), named("7", 0, 1)),
    ];
    let counts = vec![count(Some(("/job".to_owned(), named("7", 0, 2))), 5)];
    db.store
        .ingest(&[
            snapshot(&run, 1, rows, vec![], vec![]),
            snapshot(&run, 29, vec![], counts, vec![]),
        ])
        .await
        .unwrap();
    // Nobody told when the first attempt ended, nor when the second started.
    db.store
        .start_job(&start("7", 0, Some(at(0)), &["gpu-01"]), at(1))
        .await
        .unwrap();
    db.store
        .place_job(&attempt("7", 1), &[placed_on("gpu-01")], at(100))
        .await
        .unwrap();
    assert_eq!(
        db.read("SELECT requeue, source FROM rdmesh.failures ORDER BY first_at"),
        "0|cgroup\n1|cgroup\n0|environment"
    );
    assert_eq!(
        db.read("SELECT requeue, count FROM rdmesh.failure_totals"),
        "1|5"
    );
    // The second runs elsewhere: here it is the first still.
    db.sql("UPDATE rdmesh_store.placements SET host = 'gpu-02' WHERE requeue = 1");
    assert_eq!(
        db.read("SELECT requeue, source FROM rdmesh.failures ORDER BY first_at"),
        "0|cgroup\n0|cgroup\n0|environment"
    );
}

#[tokio::test]
async fn a_start_in_the_future_does_not_stand_above_everything_for_ever() {
    let db = Database::new().await;
    let far = at(10 * 365 * 86_400);
    db.store
        .start_job(&start("far", 0, Some(far), &[]), at(1))
        .await
        .unwrap();
    db.store
        .start_job(&start("now", 0, Some(at(5)), &[]), at(6))
        .await
        .unwrap();
    // What is told late stands where it started.
    db.store
        .start_job(&start("old", 0, Some(at(0)), &[]), at(7))
        .await
        .unwrap();
    let filter = JobFilter {
        limit: 10,
        ..JobFilter::default()
    };
    let jobs = db.store.list_jobs(&filter).await.unwrap();
    let ids: Vec<&str> = jobs.iter().map(|job| job.key.job_id.as_str()).collect();
    assert_eq!(ids, ["now", "far", "old"]);
    assert_eq!(jobs[1].started_at, Some(far));
    assert_eq!(jobs[1].marks, ["starts in the future"]);
}

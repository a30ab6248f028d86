//! Whose a failure is, what speaks against it, and what it costs to find out.

use rdmesh_store::jobs::End;
use rdmesh_store::query::FailureFilter;
use time::OffsetDateTime;

use crate::made::{
    Database, at, attempt, chain, count, hello, named, nobody, run, snapshot, start,
};

const CGROUP: i16 = 2;
const ENVIRONMENT: i16 = 1;

async fn began(db: &Database, job: &str, requeue: u32, from: i64, host: &str) {
    let started = start(job, requeue, Some(at(from)), &[host]);
    db.store.start_job(&started, at(from)).await.unwrap();
}

async fn ended(db: &Database, job: &str, requeue: u32, at_: OffsetDateTime) {
    let end = End {
        attempt: attempt(job, requeue),
        state: 4,
        ended_at: Some(at_),
        exit_code: Some(1),
        exit_reason: String::new(),
    };
    db.store.end_job(&end, at_).await.unwrap();
}

/// (requeue, marks of the join) of every failure, oldest first, without the chain's own mark.
fn told(db: &Database) -> Vec<String> {
    db.read(
        "SELECT requeue || ': ' || array_to_string(marks[2:], '; ') \
         FROM rdmesh.failures ORDER BY first_at",
    )
    .lines()
    .map(|line| line.trim_end().to_owned())
    .collect()
}

#[tokio::test]
async fn a_failure_that_names_the_job_alone_takes_the_attempt_that_was_placed_there() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    // The first attempt never told its end; it and the second stand side by side.
    began(&db, "7", 0, 0, "gpu-02").await;
    began(&db, "7", 1, 0, "gpu-01").await;
    let chains = vec![
        chain(at(5), named("7", 0, ENVIRONMENT)),
        chain(at(6), named("7", 0, CGROUP)),
    ];
    db.store
        .ingest(&[snapshot(&run, 1, chains, vec![], vec![])])
        .await
        .unwrap();
    assert_eq!(told(&db), ["1:", "1:"]);
    // Nobody was placed there: the row stays with the job, and says so.
    db.sql("UPDATE rdmesh_store.placements SET host = 'gpu-03' WHERE requeue = 1");
    let elsewhere = "0: its attempt was not placed on this host";
    assert_eq!(told(&db), [elsewhere, elsewhere]);
    // Where nobody told placements at all, nothing speaks against it.
    db.sql("DELETE FROM rdmesh_store.placements");
    assert_eq!(told(&db), ["0:", "0:"]);
}

#[tokio::test]
async fn a_failure_outside_of_its_attempts_time_says_so() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    began(&db, "7", 0, 0, "gpu-01").await;
    began(&db, "7", 1, 100, "gpu-01").await;
    ended(&db, "7", 1, at(200)).await;
    let of = |seconds: i64, requeue: i64| chain(at(seconds), named("7", requeue, ENVIRONMENT));
    let mut restarted = of(51, 0);
    restarted.identity.restart = 1;
    let chains = vec![
        of(50, 1),
        restarted,
        // Schedulers tell whole seconds.
        of(99, 1),
        of(150, 1),
        of(201, 1),
        of(210, 1),
    ];
    db.store
        .ingest(&[snapshot(&run, 1, chains, vec![], vec![])])
        .await
        .unwrap();
    assert_eq!(
        told(&db),
        [
            "1: it came before its attempt started",
            // Nobody told of 7/0.1.
            "0:",
            "1:",
            "1:",
            "1:",
            "1: it came after its attempt ended",
        ]
    );
    let filter = FailureFilter {
        job_id: Some("7".into()),
        limit: 1,
        oldest_first: true,
        ..FailureFilter::default()
    };
    let first = &db.failures(&filter).await[0];
    assert_eq!(first.doubts, ["it came before its attempt started"]);
    assert_eq!(first.marks[1..], first.doubts);
    // Without an end of its own it ends where the next begins.
    db.sql("UPDATE rdmesh_store.attempts SET ended_at = NULL");
    began(&db, "7", 2, 180, "gpu-02").await;
    assert_eq!(
        told(&db)[5],
        "1: it came after the next attempt of its job started"
    );
}

/// An attempt that begins and ends while a group goes on: each row has its own answer.
#[tokio::test]
async fn rows_of_one_group_lie_before_in_and_after_an_attempt() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    // Whole minutes after `at(0)`, whatever that is.
    let minute = 60 - at(0).unix_timestamp().rem_euclid(60);
    let from = |seconds: i64| minute + seconds;
    began(&db, "7", 1, from(20), "gpu-01").await;
    ended(&db, "7", 1, at(from(30))).await;
    let named = |seconds| chain(at(from(seconds)), named("7", 1, ENVIRONMENT));
    let unnamed = |seconds| chain(at(from(seconds)), nobody());
    let seconds = [10, 19, 25, 31, 40];
    let chains = seconds.map(named).into_iter().chain(seconds.map(unnamed));
    db.store
        .ingest(&[snapshot(&run, 1, chains.collect(), vec![], vec![])])
        .await
        .unwrap();
    assert_eq!(
        db.sql("SELECT count(*) FROM rdmesh_store.failure_groups"),
        "2"
    );
    let of = |condition: &str| {
        db.read(&format!(
            "SELECT COALESCE(job_id, '-') || ' ' || array_to_string(marks[2:], '; ') \
             FROM rdmesh.failures WHERE {condition} ORDER BY first_at"
        ))
    };
    assert_eq!(
        of("source = 'environment'").lines().collect::<Vec<_>>(),
        [
            "7 it came before its attempt started",
            "7 ",
            "7 ",
            "7 ",
            "7 it came after its attempt ended"
        ]
    );
    let unnamed = of("source <> 'environment'");
    assert_eq!(
        unnamed.lines().map(str::trim_end).collect::<Vec<_>>(),
        ["-", "-", "7", "-", "-"]
    );
}

#[tokio::test]
async fn a_job_named_alone_while_none_of_its_attempts_ran_says_so() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    began(&db, "7", 1, 100, "gpu-01").await;
    let chains = vec![
        chain(at(5), named("7", 0, CGROUP)),
        // Nobody told of this job at all.
        chain(at(6), named("8", 0, CGROUP)),
    ];
    db.store
        .ingest(&[snapshot(&run, 1, chains, vec![], vec![])])
        .await
        .unwrap();
    assert_eq!(
        told(&db),
        [
            "0: its task names the job alone, and no attempt of it is known to have run then",
            "0:"
        ]
    );
}

/// Attempts of many jobs one after the other on a host, some side by side, with failures
/// that name their job, only the job, or nothing.
async fn busy_host(db: &Database) {
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    for n in 0..40_i64 {
        let job = format!("j{n}");
        began(db, &job, 0, n * 20, "gpu-01").await;
        ended(db, &job, 0, at(n * 20 + 30)).await;
    }
    let mut items = Vec::new();
    for sequence in 1..=160_i64 {
        let job = format!("j{}", sequence % 40);
        let of = |identity| count(Some(("/job".to_owned(), identity)), sequence);
        let counts = vec![of(nobody()), of(named(&job, 0, CGROUP)), count(None, 1)];
        let chains = vec![
            chain(at(sequence * 5), nobody()),
            chain(at(sequence * 5 + 1), named(&job, 0, ENVIRONMENT)),
        ];
        items.push(snapshot(&run, sequence, chains, counts, vec![]));
    }
    db.store.ingest(&items).await.unwrap();
}

#[tokio::test]
async fn totals_and_counts_of_a_job_are_those_of_the_view() {
    let db = Database::new().await;
    busy_host(&db).await;
    let mut unnamed = 0;
    for n in 0..40 {
        let key = attempt(&format!("j{n}"), 0);
        let totals = db.store.totals_of(&key).await.unwrap();
        let sum: i64 = totals.iter().map(|total| total.count).sum();
        let of_job = format!("WHERE job_id = 'j{n}' AND requeue = 0");
        let view = db.read(&format!(
            "SELECT COALESCE(sum(count), 0) FROM rdmesh.failure_totals {of_job}"
        ));
        assert_eq!(sum.to_string(), view, "j{n}");
        let filter = FailureFilter {
            job_id: Some(format!("j{n}")),
            requeue: Some(0),
            restart: Some(0),
            limit: 1_000,
            ..FailureFilter::default()
        };
        let listed = db.failures(&filter).await;
        let counted = db.store.count_failures(&filter).await.unwrap();
        assert_eq!(counted, i64::try_from(listed.len()).unwrap(), "j{n}");
        unnamed += listed.iter().filter(|failure| failure.source == 3).count();
    }
    // Each attempt is alone in the middle ten seconds of its thirty.
    assert!((70..=90).contains(&unnamed), "{unnamed}");
}

#[tokio::test]
async fn no_placement_is_looked_at_for_each_failure_of_a_job() {
    let db = Database::new().await;
    busy_host(&db).await;
    db.sql("ANALYZE");
    for view in ["attempt_counts", "attempt_failures"] {
        let plan = db.sql(&format!(
            "SET jit = off; EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) SELECT * \
             FROM rdmesh_store.{view} WHERE job_id = 'j7' AND requeue = 0 AND restart = 0"
        ));
        // Rows that nobody named are read by the times in which the attempt was alone.
        let (_, unnamed) = plan.split_once(".span").expect("a span in the plan");
        assert!(!unnamed.contains("placements"), "{unnamed}");
        let by_time = plan.lines().any(|line| {
            line.contains("Index Cond")
                && (line.contains("(at >= lower(s") || line.contains("(at > (lower(s"))
                && line.contains("(at < upper(s")
        });
        assert!(by_time, "{plan}");
    }
}

#[tokio::test]
async fn the_next_start_is_kept_in_whatever_order_starts_are_told() {
    let db = Database::new().await;
    let mut state = 15_u64;
    let mut below = |limit: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % limit
    };
    // Attempts out of order, told twice, with a start that moves forth and back.
    for _ in 0..200 {
        let (requeue, from) = (below(12), below(40));
        let from = i64::try_from(from).unwrap();
        began(&db, "7", u32::try_from(requeue).unwrap(), from, "gpu-01").await;
    }
    let wrong = db.sql(
        "SELECT a.requeue, a.started_at, a.next_started_at FROM rdmesh_store.attempts a \
         WHERE a.next_started_at IS DISTINCT FROM ( \
             SELECT min(n.started_at) FROM rdmesh_store.attempts n \
             WHERE n.job_id = a.job_id AND (n.requeue, n.restart) > (a.requeue, a.restart) \
               AND n.started_at > a.started_at)",
    );
    assert_eq!(wrong, "");
    let followed =
        db.sql("SELECT count(*) FROM rdmesh_store.attempts WHERE next_started_at IS NOT NULL");
    assert_ne!(followed.trim(), "0");
}

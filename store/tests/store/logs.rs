//! What is kept of jobs' own logs.

use rdmesh_store::logs::{Kept, LOGS_MAX, LogDecision, LogKey, StoredLog};

use crate::made::{Database, at, attempt, start};

fn log(job: &str, rank: Option<u32>, digest: u8) -> StoredLog {
    StoredLog {
        key: LogKey {
            attempt: attempt(job, 0),
            host: "gpu-01".into(),
            rank,
            name: "rank.err".into(),
        },
        received_at: at(5),
        digest: vec![digest; 32],
        bytes: 3_000_000_000,
        lines: 9,
        matched: 2,
        rules: "1".into(),
        class: "syscall".into(),
        decision: LogDecision {
            weight: 2,
            turn: 0,
            written_at: Some(at(3)),
            line: 4,
            class: "syscall".into(),
            verb: "ibv_reg_mr".into(),
            kind: "register".into(),
            kernel_verb: 2,
            errno_name: "EFAULT".into(),
            rank: Some(4_000_000_000),
            text: "a \"quoted\" line".into(),
            same_lines: 2,
            ..LogDecision::default()
        },
        details: "{\"causes\": []}".into(),
        flight: None,
    }
}

#[tokio::test]
async fn a_log_is_kept_once_and_a_grown_one_takes_its_place() {
    let db = Database::new().await;
    let first = log("7", Some(3), 1);
    assert_eq!(db.store.keep_log(&first).await.unwrap(), Kept::Stored);
    assert_eq!(db.store.keep_log(&first).await.unwrap(), Kept::Repeated);
    assert_eq!(db.store.log(&first.key).await.unwrap(), Some(first.clone()));
    let grown = StoredLog {
        lines: 10,
        ..log("7", Some(3), 2)
    };
    assert_eq!(db.store.keep_log(&grown).await.unwrap(), Kept::Stored);
    let other = StoredLog {
        decision: LogDecision::default(),
        ..log("7", None, 2)
    };
    assert_eq!(db.store.keep_log(&other).await.unwrap(), Kept::Stored);
    let logs = db.store.logs_of(&attempt("7", 0)).await.unwrap();
    assert_eq!((logs.total, &logs.heaviest), (2, &vec![grown, other]));
    assert_eq!(
        db.read("SELECT rank, lines, verb, line_rank, digest = repeat('02', 32) FROM rdmesh.job_logs ORDER BY rank"),
        "3|10|ibv_reg_mr|4000000000|t\n|9|||t"
    );
}

#[tokio::test]
async fn a_log_names_an_attempt_that_nobody_told_of_and_asks_for_a_new_verdict() {
    let db = Database::new().await;
    db.store.keep_log(&log("late", None, 1)).await.unwrap();
    let named = db
        .store
        .attempt(&attempt("late", 0))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        named.marks,
        ["no scheduler told of it; failing tasks or a log named it"]
    );
    db.store
        .start_job(&start("late", 0, Some(at(0)), &[]), at(6))
        .await
        .unwrap();
    let told = db
        .store
        .attempt(&attempt("late", 0))
        .await
        .unwrap()
        .unwrap();
    assert!(told.told && told.marks.is_empty(), "{:?}", told.marks);
    let later = StoredLog {
        received_at: at(60),
        ..log("late", None, 2)
    };
    db.store.keep_log(&later).await.unwrap();
    assert_eq!(
        db.read("SELECT extract(second FROM updated_at) = 0 FROM rdmesh.jobs"),
        "t"
    );
    // The same log again is no news.
    let again = StoredLog {
        received_at: at(90),
        ..later
    };
    assert_eq!(db.store.keep_log(&again).await.unwrap(), Kept::Repeated);
    assert_eq!(
        db.read("SELECT extract(second FROM updated_at) = 0 FROM rdmesh.jobs"),
        "t"
    );
}

#[tokio::test]
async fn logs_of_an_attempt_are_bounded_and_go_with_it() {
    let db = Database::new().await;
    db.store.keep_log(&log("7", None, 1)).await.unwrap();
    db.sql(&format!(
        "INSERT INTO rdmesh_store.job_logs
         SELECT (l.r).* FROM (SELECT jsonb_populate_record(k, jsonb_build_object('rank', n)) AS r
                 FROM rdmesh_store.job_logs k, generate_series(1, {LOGS_MAX} - 1) n) l"
    ));
    let one_more = log("7", Some(4_000_000_000), 2);
    assert_eq!(db.store.keep_log(&one_more).await.unwrap(), Kept::TooMany);
    // One that is there may still grow.
    assert_eq!(
        db.store.keep_log(&log("7", Some(9), 2)).await.unwrap(),
        Kept::Stored
    );
    let logs = db.store.logs_of(&attempt("7", 0)).await.unwrap();
    assert_eq!((logs.total, logs.heaviest.len()), (LOGS_MAX, 1_000));
    db.sql("DELETE FROM rdmesh_store.attempts");
    assert_eq!(db.read("SELECT count(*) FROM rdmesh.job_logs"), "0");
}

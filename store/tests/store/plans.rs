//! Plans of the questions that must stay fast: a lost index fails here and not in production.

use crate::ingest::one_failure;
use crate::made::{Database, hello, run};

/// The indexes and the ways of joining that a plan names, without the weeks of partitions.
fn plan(db: &Database, question: &str) -> Vec<String> {
    let script = format!("SET enable_seqscan = off; EXPLAIN (COSTS OFF) {question}");
    let steps = db.sql(&script);
    let named = steps.lines().filter_map(|line| {
        let (_, index) = line
            .split_once(" using ")
            .or_else(|| line.split_once("Scan on "))?;
        let index = index.split_whitespace().next()?;
        let name = index.replace(|c: char| c.is_ascii_digit(), "");
        Some(name.replace("__", "_"))
    });
    let mut named: Vec<String> = named.collect();
    named.sort();
    named.dedup();
    named
}

#[tokio::test]
async fn questions_find_their_rows_by_index() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    db.store.ingest(&[one_failure(&run, 1)]).await.unwrap();
    for (what, question, indexes) in [
        (
            "failures of a job",
            "SELECT * FROM rdmesh_store.attempt_failures WHERE job_id = '7'",
            &["failures_job_id_at_idx", "placements_pkey"][..],
        ),
        (
            "counts of a job",
            "SELECT * FROM rdmesh_store.attempt_counts WHERE job_id = '7'",
            &["failure_counts_job_id_at_idx"],
        ),
        (
            "failures of a time",
            "SELECT * FROM rdmesh_store.failures WHERE at >= '2026-11-25' AND at < '2026-11-26' \
             ORDER BY at DESC LIMIT 100",
            &["failures_at_host_idx"],
        ),
        (
            "hours of a signature",
            "SELECT host FROM rdmesh_store.signature_hours WHERE signature_id = 7 \
             AND at >= '2026-11-25' AND at < '2026-11-26' GROUP BY host",
            &["signature_hours_signature_id_at_idx"],
        ),
        (
            "hours of a host",
            "SELECT * FROM rdmesh_store.signature_hours WHERE host = 'gpu-01' \
             AND at >= '2026-11-25' AND at < '2026-11-26'",
            &["signature_hours_pkey"],
        ),
        (
            "attempts that ended in a time",
            "SELECT * FROM rdmesh_store.attempts WHERE ended_at >= '2026-11-25'",
            &["attempts_by_end"],
        ),
    ] {
        let found = plan(&db, question);
        for index in indexes {
            assert!(
                found.iter().any(|name| name == index),
                "{what}: {found:?} lacks {index}"
            );
        }
    }
}

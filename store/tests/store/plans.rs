//! Plans of the questions that must stay fast, as goldens on tables that are large enough for
//! Postgres to mind: a lost index, or a condition that no longer finds its groups, fails here
//! and not in production.

use crate::made::Database;

/// Four weeks of a fleet: what a plan depends on, without what rows say.
const FILL: &str = include_str!("plans/fill.sql");

/// The steps of a plan. Weeks of partitions are one line.
fn plan(db: &Database, question: &str) -> String {
    let answer = db.sql(&format!("SET jit = off; EXPLAIN (COSTS OFF) {question}"));
    let mut steps: Vec<String> = Vec::new();
    for line in answer.lines() {
        let step = without_weeks(line);
        // Of each week alike, and its condition is what the question says.
        let is_new = !steps.iter().rev().take(6).any(|known| *known == step);
        if is_new && step.contains("Scan") {
            steps.push(step);
        }
    }
    steps.join("\n")
}

/// `failure_groups_20261123 g_1` is a part of `failure_groups g`.
fn without_weeks(line: &str) -> String {
    let line = line.trim_start().trim_start_matches("->").trim_start();
    let words = line.split(' ').map(|word| {
        let parts = word.split('_').filter(|part| {
            let number = part.chars().all(|c| c.is_ascii_digit());
            part.is_empty() || !number
        });
        parts.collect::<Vec<_>>().join("_")
    });
    words.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn questions_find_their_rows_by_index() {
    let db = Database::new().await;
    db.sql(FILL);
    let mut goldens = String::new();
    for (what, question) in [
        (
            "failures of a job, to list them",
            "SELECT * FROM rdmesh_store.joined_failures WHERE job_id = '7' AND requeue = 0 AND \
             (named_job_id = '7' OR named_job_id IS NULL AND host = ANY (ARRAY( \
                 SELECT p.host FROM rdmesh_store.placements p WHERE p.job_id = '7')) \
              AND group_at > (SELECT min(w.from_at) - interval '1 minute' \
                              FROM rdmesh_store.attempt_windows w WHERE w.job_id = '7') \
              AND group_at < (SELECT max(w.to_at) FROM rdmesh_store.attempt_windows w \
                              WHERE w.job_id = '7')) \
             ORDER BY at, host, run_id, seq, ordinal LIMIT 5000",
        ),
        (
            "failures of a job, to count them",
            "SELECT count(*) FROM (SELECT FROM rdmesh_store.attempt_failures \
             WHERE job_id = '7' LIMIT 50000) f",
        ),
        (
            "counts of a job",
            "SELECT sum(delta) FROM rdmesh_store.attempt_counts WHERE job_id = '7'",
        ),
        (
            "the group where a page of the newest ends",
            "SELECT at FROM rdmesh_store.failure_groups ORDER BY at DESC OFFSET 20 LIMIT 1",
        ),
        (
            "a page of the newest",
            "SELECT * FROM rdmesh_store.joined_failures WHERE at >= '2026-11-25 12:00Z' \
             AND group_at > -interval '1 minute' + timestamptz '2026-11-25 12:00Z' \
             ORDER BY at DESC, host DESC, run_id DESC, seq DESC, ordinal DESC LIMIT 1000",
        ),
        (
            "failures of a host in an hour",
            "SELECT * FROM rdmesh_store.joined_failures WHERE host = 'gpu-1' \
             AND at >= '2026-11-25 12:00Z' AND at < '2026-11-25 13:00Z' \
             AND group_at > '2026-11-25 11:59Z' AND group_at < '2026-11-25 13:00Z'",
        ),
        (
            "the whole fleet in a day",
            "SELECT signature_id, host, sum(calls) FROM rdmesh_store.signature_hours \
             WHERE at >= '2026-11-25' AND at < '2026-11-26' GROUP BY 1, 2",
        ),
        (
            "hours of a signature",
            "SELECT host FROM rdmesh_store.signature_hours WHERE signature_id = 7 \
             AND at >= '2026-11-25' AND at < '2026-11-26' GROUP BY host",
        ),
        (
            "hours of a host",
            "SELECT * FROM rdmesh_store.signature_hours WHERE host = 'gpu-1' \
             AND at >= '2026-11-25' AND at < '2026-11-26'",
        ),
        (
            "attempts that ended in a time",
            "SELECT * FROM rdmesh_store.attempts \
             WHERE ended_at >= '2026-11-25' AND ended_at < '2026-11-25 01:00Z'",
        ),
        (
            "leases that are open",
            "SELECT count(*) FROM rdmesh_store.window_leases \
             WHERE ended_at IS NULL AND expires_at > '2026-11-25'",
        ),
        (
            "whether a signature has a fork, or a window waits for it",
            "SELECT EXISTS (SELECT FROM rdmesh_store.forks WHERE signature_id = 7) \
             OR EXISTS (SELECT FROM rdmesh_store.window_leases WHERE signature_id = 7 \
                        AND ended_at IS NULL AND expires_at > '2026-11-25')",
        ),
        (
            "the baseline for a failing call",
            "SELECT body FROM rdmesh_store.baselines WHERE kernel_release = '6.1.7' \
             AND driver = 'mlx5_ib' AND verb = 'reg_mr' \
             ORDER BY good_calls DESC, recorded_at DESC LIMIT 1",
        ),
    ] {
        let steps = plan(&db, question);
        goldens += &format!("{what}\n    {}\n\n", steps.replace('\n', "\n    "));
    }
    insta::assert_snapshot!(goldens.trim_end());
}

/// Plans that depend on the time of day of the test would be no goldens.
#[test]
fn weeks_are_taken_off_names_and_nothing_else() {
    let line = "  ->  Index Scan using failure_groups_20261123_host_at_idx on \
                failure_groups_20261123 g_2";
    assert_eq!(
        without_weeks(line),
        "Index Scan using failure_groups_host_at_idx on failure_groups g"
    );
}

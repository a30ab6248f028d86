//! A database that was filled under the schema with a row for each failing call answers the
//! same after it was brought up to date.

use sqlx::migrate::Migrator;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};

use crate::made::{cluster, open};

/// The last migration before failing calls were put into groups.
const LAST_OF_ROWS: i64 = 16;

/// Rows of every kind: several attempts and jobs in a snapshot, none, marks, times that differ
/// from the host's, counts beyond 32 bits, spans of hours.
const FILL: &str = include_str!("upgrade/fill.sql");

/// Whatever was answered from rows. Joined rows by their attempts, too.
const ANSWERS: [(&str, &str); 7] = [
    (
        "rdmesh.failures",
        "SELECT * FROM rdmesh.failures \
         ORDER BY first_at, host, run_id, sequence, tid, count, last_at",
    ),
    (
        "places in lists",
        "SELECT host, at, run_id, seq, ordinal, last_at, host_first_at, host_last_at \
         FROM rdmesh_store.failures ORDER BY 1, 2, 3, 4, 5",
    ),
    (
        "failures of attempts",
        "SELECT job_id, requeue, restart, host, count(*), min(at), max(at), sum(errnos[1]) \
         FROM rdmesh_store.attempt_failures GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4",
    ),
    (
        "counts of attempts",
        "SELECT job_id, requeue, restart, host, function, errno, sum(delta), count(*) \
         FROM rdmesh_store.attempt_counts GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6",
    ),
    (
        "rdmesh.failure_totals",
        "SELECT * FROM rdmesh.failure_totals \
         ORDER BY job_id, requeue, restart, host, function, errno",
    ),
    (
        "rdmesh.host_failure_totals",
        "SELECT * FROM rdmesh.host_failure_totals ORDER BY 1, 2, 3, 6",
    ),
    (
        "columns and what is said of them",
        "SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), \
                col_description(c.oid, a.attnum), obj_description(c.oid) \
         FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 \
         WHERE c.relnamespace = 'rdmesh'::regnamespace \
           AND c.relname IN ('failures', 'failure_totals', 'host_failure_totals', 'probes') \
         ORDER BY c.relname, a.attnum",
    ),
];

async fn migrated_to_rows(name: &str) {
    let url = cluster().url(name);
    let options: PgConnectOptions = url.parse().unwrap();
    let options = options.options([("search_path", "rdmesh_store"), ("timezone", "UTC")]);
    let mut connection = PgConnection::connect_with(&options).await.unwrap();
    sqlx::query("CREATE SCHEMA rdmesh_store")
        .execute(&mut connection)
        .await
        .unwrap();
    let all = sqlx::migrate!("./migrations");
    let rows = all.migrations.iter().filter(|m| m.version <= LAST_OF_ROWS);
    let before = Migrator {
        migrations: rows.cloned().collect::<Vec<_>>().into(),
        ..all
    };
    before.run_direct(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

#[tokio::test]
async fn rows_that_became_groups_answer_the_same() {
    let name = cluster().new_database().unwrap();
    migrated_to_rows(&name).await;
    let ask = |sql: &str| cluster().psql(&name, "rdmesh", sql).unwrap();
    ask(FILL);
    let before: Vec<String> = ANSWERS.iter().map(|(_, sql)| ask(sql)).collect();
    assert!(before.iter().all(|answer| answer.lines().count() > 10));
    open(&cluster().url(&name)).migrate().await.unwrap();
    for ((what, sql), before) in ANSWERS.iter().zip(&before) {
        let after = ask(sql);
        let first = after.lines().zip(before.lines()).find(|(a, b)| a != b);
        assert_eq!(first, None, "{what}");
        assert_eq!(after.lines().count(), before.lines().count(), "{what}");
    }
    // Arrays took the place of rows.
    let rows = ask("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'rows_of%'");
    assert_eq!(rows.trim(), "0");
    let groups: u32 = ask("SELECT count(*) FROM rdmesh_store.failure_groups")
        .trim()
        .parse()
        .unwrap();
    let rows = before[0].lines().count();
    assert!(
        // Rows of one snapshot, attempt and minute are few in this data.
        usize::try_from(groups).unwrap() < rows,
        "{groups} groups of {rows} rows"
    );
}

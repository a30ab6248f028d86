//! Rows of what came of windows.

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::{StoredBaseline, StoredFork};
use crate::StoreError;

/// The last recording of a host stands for it.
pub(super) async fn baseline(
    connection: &mut PgConnection,
    baseline: &StoredBaseline,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO rdmesh_store.baselines
             (host, kernel_release, driver, verb, recorded_at, received_at, good_calls,
              functions, body)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (host, kernel_release, driver, verb) DO UPDATE
         SET recorded_at = excluded.recorded_at, received_at = excluded.received_at,
             good_calls = excluded.good_calls, functions = excluded.functions,
             body = excluded.body",
    )
    .bind(&baseline.host)
    .bind(&baseline.kernel_release)
    .bind(&baseline.driver)
    .bind(&baseline.verb)
    .bind(baseline.recorded_at)
    .bind(now)
    .bind(baseline.good_calls)
    .bind(baseline.functions)
    .bind(&baseline.body)
    .execute(connection)
    .await?;
    Ok(())
}

/// The first of its signature on its host stays.
pub(super) async fn fork(
    connection: &mut PgConnection,
    signature_id: i64,
    fork: &StoredFork,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO rdmesh_store.forks
             (host, signature_id, captured_at, kernel_release, driver, verb, call_errno, path,
              errno, good_calls, baseline_host, baseline_recorded_at, body)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
         ON CONFLICT (host, signature_id) DO NOTHING",
    )
    .bind(&fork.host)
    .bind(signature_id)
    .bind(now)
    .bind(&fork.kernel_release)
    .bind(&fork.driver)
    .bind(&fork.seen.verb)
    .bind(fork.seen.call_errno)
    .bind(&fork.seen.path)
    .bind(fork.seen.errno)
    .bind(fork.seen.good_calls)
    .bind(&fork.seen.baseline_host)
    .bind(fork.seen.baseline_recorded_at)
    .bind(&fork.seen.body)
    .execute(connection)
    .await?;
    Ok(())
}

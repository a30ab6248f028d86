//! Weekly partitions of the large tables: made ahead, made when a row needs one,
//! dropped as a whole when their time is over.

use std::time::Duration;

use sqlx::{Connection, PgConnection};
use time::{Date, OffsetDateTime, Time};

use crate::ingest::KnownWords;
use crate::{Store, StoreError};

/// Tables that are partitioned by their column `at`.
const TABLES: [&str; 7] = [
    "snapshots",
    "failure_groups",
    "count_groups",
    "drops",
    "co_signals",
    "wire_windows",
    "signature_hours",
];

/// Rows may be this much older than their receipt, at most: an agent's spool is
/// bounded to less. It bounds how many partitions a wrong clock can make.
pub const FURTHEST_BACK: Duration = Duration::from_secs(35 * 24 * 3600);

/// Rows may be this much later than their receipt: clocks are corrected, so that only
/// the error of the estimate is left.
pub const FURTHEST_AHEAD: Duration = Duration::from_secs(3600);

/// Weeks made ahead: a collector that was busy or down for a week still finds one.
const WEEKS_AHEAD: i32 = 2;

/// One collector at a time makes or drops partitions. Any constant does.
const ADVISORY_LOCK: i64 = 0x7264_6d65_7368_0001;

/// Attaching and dropping need a short lock on the parent; rather than queue behind a
/// long query (and ingest behind us) it is given up and tried again.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '3s'";

const SECONDS_A_WEEK: i64 = 7 * 24 * 3600;
/// 1970-01-05 was a Monday.
const FIRST_MONDAY: i64 = 4 * 24 * 3600;

/// How long what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Exact snapshots.
    pub exact: Duration,
    /// Failures, counters, co-signals, windows, and whatever else belongs to a time.
    pub detail: Duration,
    /// Sums by hour.
    pub hours: Duration,
}

impl From<Duration> for Keep {
    /// All for as long.
    fn from(keep: Duration) -> Self {
        Self {
            exact: keep,
            detail: keep,
            hours: keep,
        }
    }
}

impl Keep {
    /// Kind of what a partitioned table holds, as `rdmesh_store.ages` names it, and how long
    /// it is kept.
    fn of(&self, table: &str) -> (&'static str, Duration) {
        match table {
            "snapshots" => ("exact", self.exact),
            "signature_hours" => ("hours", self.hours),
            _ => ("detail", self.detail),
        }
    }
}

/// Since when what is whole; none: nothing of it has aged out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ages {
    /// Exact snapshots.
    pub exact: Option<OffsetDateTime>,
    /// Failures and whatever else belongs to a time.
    pub detail: Option<OffsetDateTime>,
    /// Sums by hour.
    pub hours: Option<OffsetDateTime>,
}

/// What retention took away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retained {
    /// Names of the partitions that were dropped.
    pub partitions: Vec<String>,
    /// Rows of small tables that were deleted.
    pub rows: u64,
}

/// The number of the week (from Monday, UTC) that holds `at`: retention drops whole weeks.
#[must_use]
pub fn week_of(at: OffsetDateTime) -> i32 {
    let week = (at.unix_timestamp() - FIRST_MONDAY).div_euclid(SECONDS_A_WEEK);
    i32::try_from(week).unwrap_or(i32::MAX)
}

/// When the week begins.
pub(crate) fn start_of_week(week: i32) -> Result<OffsetDateTime, StoreError> {
    Ok(monday(week)?.with_time(Time::MIDNIGHT).assume_utc())
}

fn monday(week: i32) -> Result<Date, StoreError> {
    OffsetDateTime::from_unix_timestamp(i64::from(week) * SECONDS_A_WEEK + FIRST_MONDAY)
        .map(OffsetDateTime::date)
        .map_err(|_| StoreError::Data(format!("week {week} is beyond the calendar")))
}

fn partition_name(table: &str, monday: Date) -> String {
    format!(
        "{table}_{:04}{:02}{:02}",
        monday.year(),
        u8::from(monday.month()),
        monday.day()
    )
}

impl Store {
    /// Makes the partitions of this week and the coming ones.
    ///
    /// # Errors
    /// When Postgres is away or does not permit it.
    pub async fn create_partitions_ahead(&self, now: OffsetDateTime) -> Result<(), StoreError> {
        let this = week_of(now);
        self.ensure_weeks(this - 1..=this + WEEKS_AHEAD).await
    }

    /// Makes the partitions of `weeks` that are not there yet.
    pub(crate) async fn ensure_weeks(
        &self,
        weeks: impl IntoIterator<Item = i32>,
    ) -> Result<(), StoreError> {
        let missing: Vec<i32> = {
            let known = self.known_weeks();
            weeks
                .into_iter()
                .filter(|week| !known.contains(week))
                .collect()
        };
        if missing.is_empty() {
            return Ok(());
        }
        let mut connection = self.pool.acquire().await?;
        let mut transaction = connection.begin().await?;
        lock(&mut transaction).await?;
        for week in &missing {
            for table in TABLES {
                create(&mut transaction, table, *week).await?;
            }
        }
        transaction.commit().await?;
        self.known_weeks().extend(missing);
        Ok(())
    }

    /// Forgets which partitions are there, and what stands in dictionaries for their rows:
    /// another collector may have dropped some.
    pub(crate) fn forget_weeks(&self) {
        self.known_weeks().clear();
        self.known_words().clear();
    }

    pub(crate) fn known_words(&self) -> std::sync::MutexGuard<'_, KnownWords> {
        self.words
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn known_weeks(&self) -> std::sync::MutexGuard<'_, std::collections::BTreeSet<i32>> {
        self.weeks
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Since when what is kept.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn ages(&self) -> Result<Ages, StoreError> {
        let rows: Vec<(String, Option<OffsetDateTime>)> =
            sqlx::query_as("SELECT kind, kept_from FROM rdmesh_store.ages")
                .fetch_all(&self.pool)
                .await?;
        let since = |kind: &str| {
            let row = rows.iter().find(|(of, _)| of == kind);
            row.and_then(|(_, since)| *since)
        };
        Ok(Ages {
            exact: since("exact"),
            detail: since("detail"),
            hours: since("hours"),
        })
    }

    /// Drops the partitions whose whole week is older than `keep`, and rows of small
    /// tables that nothing refers to any more. Sums by hour are to be kept for as long as
    /// failures, or longer.
    ///
    /// # Errors
    /// When Postgres is away, or a long query holds a partition; then call again later.
    pub async fn retain(
        &self,
        now: OffsetDateTime,
        keep: impl Into<Keep>,
    ) -> Result<Retained, StoreError> {
        let keep = keep.into();
        let cutoff = now - keep.detail;
        let mut retained = Retained::default();
        let mut connection = self.pool.acquire().await?;
        for table in TABLES {
            let mut transaction = connection.begin().await?;
            lock(&mut transaction).await?;
            let (kind, keep) = keep.of(table);
            let first_kept = week_of(now - keep);
            let kept_from = partition_name(table, monday(first_kept)?);
            // Names sort by time.
            let old: Vec<String> = sqlx::query_scalar(
                "SELECT c.relname::text FROM pg_inherits i
                 JOIN pg_class c ON c.oid = i.inhrelid
                 WHERE i.inhparent = ('rdmesh_store.' || $1)::regclass AND c.relname < $2
                 ORDER BY 1",
            )
            .bind(table)
            .bind(&kept_from)
            .fetch_all(&mut *transaction)
            .await?;
            for name in &old {
                sqlx::query(&format!("DROP TABLE rdmesh_store.{name}"))
                    .execute(&mut *transaction)
                    .await?;
            }
            if !old.is_empty() {
                sqlx::query(
                    "UPDATE rdmesh_store.ages SET kept_from = GREATEST(kept_from, $2)
                     WHERE kind = $1",
                )
                .bind(kind)
                .bind(start_of_week(first_kept)?)
                .execute(&mut *transaction)
                .await?;
            }
            transaction.commit().await?;
            retained.partitions.extend(old);
        }
        self.forget_weeks();
        retained.rows += forget_signatures(&mut connection).await?;
        retained.rows += forget_words(&mut connection, cutoff).await?;
        for statement in [
            "DELETE FROM rdmesh_store.agent_runs WHERE last_seen_at < $1",
            "DELETE FROM rdmesh_store.probe_reports r WHERE received_at < $1 AND EXISTS (
                 SELECT FROM rdmesh_store.probe_reports n
                 WHERE n.host = r.host AND n.received_at > r.received_at)",
            "DELETE FROM rdmesh_store.inventories i WHERE received_at < $1 AND EXISTS (
                 SELECT FROM rdmesh_store.inventories n
                 WHERE n.host = i.host AND n.seen_at > i.seen_at)",
            "DELETE FROM rdmesh_store.wires WHERE to_at < $1",
            "DELETE FROM rdmesh_store.baselines WHERE received_at < $1",
            "DELETE FROM rdmesh_store.forks WHERE captured_at < $1",
            "DELETE FROM rdmesh_store.window_leases WHERE granted_at < $1",
            "DELETE FROM rdmesh_store.verdicts WHERE diagnosed_at < $1",
            "DELETE FROM rdmesh_store.attempts
             WHERE updated_at < $1 AND state <> 2 AND COALESCE(ended_at, updated_at) < $1",
        ] {
            let done = sqlx::query(statement)
                .bind(cutoff)
                .execute(&mut *connection)
                .await?;
            retained.rows += done.rows_affected();
        }
        Ok(retained)
    }
}

/// Signatures that no hour has any more. The lock keeps off an ingest that found one of
/// them and has not yet stored its hour.
async fn forget_signatures(connection: &mut PgConnection) -> Result<u64, StoreError> {
    let mut transaction = connection.begin().await?;
    for statement in [
        LOCK_TIMEOUT,
        "LOCK TABLE rdmesh_store.signatures IN SHARE ROW EXCLUSIVE MODE",
    ] {
        sqlx::query(statement).execute(&mut *transaction).await?;
    }
    let forgotten = sqlx::query(
        "DELETE FROM rdmesh_store.signatures s WHERE NOT EXISTS (
             SELECT FROM rdmesh_store.signature_hours h WHERE h.signature_id = s.id)",
    )
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(forgotten.rows_affected())
}

/// Devices and returns that only rows had which are dropped. What is told late says so of the
/// week that it is told for, which is younger than whatever is dropped.
async fn forget_words(
    connection: &mut PgConnection,
    cutoff: OffsetDateTime,
) -> Result<u64, StoreError> {
    let mut forgotten = 0;
    for table in ["devices", "returns"] {
        // Partitions go week by week: of the week that holds the cutoff all is there.
        let statement = format!(
            "DELETE FROM rdmesh_store.{table} WHERE used_at < $1::timestamptz - interval '7 days'"
        );
        let done = sqlx::query(&statement)
            .bind(cutoff)
            .execute(&mut *connection)
            .await?;
        forgotten += done.rows_affected();
    }
    Ok(forgotten)
}

async fn lock(connection: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query(LOCK_TIMEOUT).execute(&mut *connection).await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(ADVISORY_LOCK)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

/// Made apart and then attached: attaching takes a lock that lets ingest go on, where
/// `CREATE TABLE … PARTITION OF` would stop it.
async fn create(connection: &mut PgConnection, table: &str, week: i32) -> Result<(), StoreError> {
    let (from, to) = (monday(week)?, monday(week + 1)?);
    let name = partition_name(table, from);
    let attached: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = ('rdmesh_store.' || $1)::regclass AND c.relname = $2)",
    )
    .bind(table)
    .bind(&name)
    .fetch_one(&mut *connection)
    .await?;
    if attached {
        return Ok(());
    }
    let (from, to) = (from.with_time(Time::MIDNIGHT), to.with_time(Time::MIDNIGHT));
    let range = format!("FROM ('{}+00') TO ('{}+00')", stamp(from), stamp(to));
    for statement in [
        format!(
            "CREATE TABLE rdmesh_store.{name}
             (LIKE rdmesh_store.{table} INCLUDING DEFAULTS INCLUDING STORAGE
              INCLUDING COMPRESSION){}",
            options(table)
        ),
        format!(
            "ALTER TABLE rdmesh_store.{table} ATTACH PARTITION rdmesh_store.{name} FOR VALUES {range}"
        ),
    ] {
        sqlx::query(&statement).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Rows of arrays are compressed from this size on, where they stand (the smallest that
/// Postgres takes).
fn options(table: &str) -> &'static str {
    match table {
        "failure_groups" | "count_groups" => " WITH (toast_tuple_target = 128)",
        _ => "",
    }
}

fn stamp(at: time::PrimitiveDateTime) -> String {
    format!(
        "{:04}-{:02}-{:02} 00:00:00",
        at.year(),
        u8::from(at.month()),
        at.day()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::{date, datetime};

    #[test]
    fn weeks_begin_on_monday() {
        let sunday = week_of(datetime!(2026-11-29 23:59:59 UTC));
        let next = week_of(datetime!(2026-11-30 00:00 UTC));
        assert_eq!(next, sunday + 1);
        assert_eq!(monday(next).unwrap(), date!(2026 - 11 - 30));
        assert_eq!(
            partition_name("failure_groups", monday(next).unwrap()),
            "failure_groups_20261130"
        );
    }
}

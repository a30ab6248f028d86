//! Attempts of jobs and where they were placed.
//!
//! Every call is idempotent, and the calls of an attempt may come in any order.

use sqlx::{PgConnection, Postgres, QueryBuilder, Row};
use time::OffsetDateTime;

use crate::{Store, StoreError};

/// One run of a job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptKey {
    /// The scheduler's job id.
    pub job_id: String,
    /// How often the scheduler had requeued it.
    pub requeue: u32,
    /// How often the launcher had restarted its workers inside that run.
    pub restart: u32,
}

/// A host of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The host.
    pub host: String,
    /// Ranks there.
    pub ranks: Vec<u32>,
    /// RDMA devices that it may use there; empty: not told.
    pub devices: Vec<String>,
    /// GPUs there.
    pub gpus: Vec<String>,
    /// Virtual functions there.
    pub virtual_functions: Vec<String>,
}

/// What a scheduler tells when an attempt begins. Empty text: not told.
#[derive(Debug, Clone)]
pub struct Start {
    /// Which.
    pub attempt: AttemptKey,
    /// Name of the job.
    pub name: String,
    /// Who owns it.
    pub user: String,
    /// Which scheduler.
    pub scheduler: String,
    /// Which cluster.
    pub cluster: String,
    /// A class of the site's own.
    pub job_class: String,
    /// None: when the request came.
    pub started_at: Option<OffsetDateTime>,
    /// Hosts.
    pub placements: Vec<Placement>,
    /// Labels, as a JSON object of texts.
    pub labels: String,
}

/// What a scheduler tells when an attempt ends.
#[derive(Debug, Clone)]
pub struct End {
    /// Which.
    pub attempt: AttemptKey,
    /// How, as the contract numbers it.
    pub state: i16,
    /// None: when the request came.
    pub ended_at: Option<OffsetDateTime>,
    /// Exit code.
    pub exit_code: Option<i32>,
    /// Why, in words.
    pub exit_reason: String,
}

/// An attempt as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Which.
    pub key: AttemptKey,
    /// Whether a scheduler told of it; else failing tasks named it.
    pub told: bool,
    /// Name of the job.
    pub name: String,
    /// Who owns it.
    pub user: String,
    /// Which scheduler.
    pub scheduler: String,
    /// Which cluster.
    pub cluster: String,
    /// A class of the site's own.
    pub job_class: String,
    /// As the contract numbers it.
    pub state: i16,
    /// None: nobody told.
    pub started_at: Option<OffsetDateTime>,
    /// None: it has not ended, or nobody told.
    pub ended_at: Option<OffsetDateTime>,
    /// Exit code.
    pub exit_code: Option<i32>,
    /// Why it ended, in words.
    pub exit_reason: String,
    /// Labels, as a JSON object of texts.
    pub labels: String,
    /// What is odd about what was told.
    pub marks: Vec<String>,
    /// Where it stands in lists: start, else end, else when it was first told.
    pub listed_at: OffsetDateTime,
    /// The first of its hosts by name, at most four.
    pub first_hosts: Vec<String>,
    /// On how many hosts it was placed.
    pub hosts_total: u32,
}

/// Which attempts to list. None and empty do not filter.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Owner.
    pub user: Option<String>,
    /// Placed on this host.
    pub host: Option<String>,
    /// State, as the contract numbers it.
    pub state: Option<i16>,
    /// Ran at or after this.
    pub from: Option<OffsetDateTime>,
    /// Ran before this.
    pub to: Option<OffsetDateTime>,
    /// Continue after this one.
    pub after: Option<JobCursor>,
    /// At most so many.
    pub limit: u32,
}

/// A place in a list of attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobCursor {
    /// [`Attempt::listed_at`].
    pub listed_at: OffsetDateTime,
    /// [`Attempt::key`].
    pub key: AttemptKey,
}

const COLUMNS: &str =
    "job_id, requeue, restart, told, name, user_name, scheduler, cluster, job_class,
    state, started_at, ended_at, exit_code, exit_reason, labels::text AS labels, marks, listed_at,
    first_hosts, hosts_total";

/// A task in a cgroup knows the job and not the attempt: 0/0 that only tasks named is
/// no attempt of its own once a scheduler told of one. Any other was named on purpose.
const LISTED: &str = "(told OR (requeue, restart) <> (0, 0) OR NOT EXISTS (
    SELECT FROM rdmesh_store.attempts o WHERE o.job_id = d.job_id AND o.told))";

/// First key of the lock of a job's starts; the second is its hash.
const STARTS_LOCK: i32 = 0x7264_6d01;

impl Store {
    /// An attempt began. `now` is when the request came.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn start_job(&self, start: &Start, now: OffsetDateTime) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        let before = start_before(&mut transaction, &start.attempt).await?;
        sqlx::query(
            "INSERT INTO rdmesh_store.attempts AS a
                 (job_id, requeue, restart, told, name, user_name, scheduler, cluster, job_class,
                  state, started_at, labels, first_told_at, updated_at)
             VALUES ($1, $2, $3, true, $4, $5, $6, $7, $8, 2, COALESCE($9, $11),
                     $10::text::jsonb, $11, $11)
             ON CONFLICT (job_id, requeue, restart) DO UPDATE SET
                 told = true,
                 name = COALESCE(NULLIF(excluded.name, ''), a.name),
                 user_name = COALESCE(NULLIF(excluded.user_name, ''), a.user_name),
                 scheduler = COALESCE(NULLIF(excluded.scheduler, ''), a.scheduler),
                 cluster = COALESCE(NULLIF(excluded.cluster, ''), a.cluster),
                 job_class = COALESCE(NULLIF(excluded.job_class, ''), a.job_class),
                 -- An end that came first stays an end.
                 state = CASE WHEN a.state <= 1 THEN 2 ELSE a.state END,
                 -- A start without a time that comes after the end tells no time.
                 started_at = COALESCE($9, a.started_at,
                                       CASE WHEN a.ended_at IS NULL THEN $11 END),
                 labels = a.labels || excluded.labels,
                 first_told_at = LEAST(a.first_told_at, excluded.first_told_at),
                 updated_at = excluded.updated_at",
        )
        .bind(&start.attempt.job_id)
        .bind(i64::from(start.attempt.requeue))
        .bind(i64::from(start.attempt.restart))
        .bind(&start.name)
        .bind(&start.user)
        .bind(&start.scheduler)
        .bind(&start.cluster)
        .bind(&start.job_class)
        .bind(start.started_at)
        .bind(&start.labels)
        .bind(now)
        .execute(&mut *transaction)
        .await?;
        keep_next_starts(&mut transaction, &start.attempt, before).await?;
        place(&mut transaction, &start.attempt, &start.placements, now).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// An attempt runs on these hosts too; a host that is named again is replaced.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn place_job(
        &self,
        attempt: &AttemptKey,
        placements: &[Placement],
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query(
            "INSERT INTO rdmesh_store.attempts AS a
                 (job_id, requeue, restart, told, first_told_at, updated_at)
             VALUES ($1, $2, $3, true, $4, $4)
             ON CONFLICT (job_id, requeue, restart) DO UPDATE SET
                 told = true, updated_at = excluded.updated_at",
        )
        .bind(&attempt.job_id)
        .bind(i64::from(attempt.requeue))
        .bind(i64::from(attempt.restart))
        .bind(now)
        .execute(&mut *transaction)
        .await?;
        place(&mut transaction, attempt, placements, now).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// An attempt ended.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn end_job(&self, end: &End, now: OffsetDateTime) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO rdmesh_store.attempts AS a
                 (job_id, requeue, restart, told, state, ended_at, exit_code, exit_reason,
                  first_told_at, updated_at)
             VALUES ($1, $2, $3, true, $4, COALESCE($5, $8), $6, $7, $8, $8)
             ON CONFLICT (job_id, requeue, restart) DO UPDATE SET
                 told = true,
                 -- An end that was told before in another way is kept for a mark; the last
                 -- few are enough.
                 earlier_states = CASE WHEN a.state > 2 AND a.state <> excluded.state
                     THEN (a.earlier_states || a.state)[
                         greatest(1, cardinality(a.earlier_states) - 2) : ]
                     ELSE a.earlier_states END,
                 state = excluded.state,
                 ended_at = COALESCE($5, a.ended_at, $8),
                 exit_code = COALESCE(excluded.exit_code, a.exit_code),
                 exit_reason = COALESCE(NULLIF(excluded.exit_reason, ''), a.exit_reason),
                 updated_at = excluded.updated_at",
        )
        .bind(&end.attempt.job_id)
        .bind(i64::from(end.attempt.requeue))
        .bind(i64::from(end.attempt.restart))
        .bind(end.state)
        .bind(end.ended_at)
        .bind(end.exit_code)
        .bind(&end.exit_reason)
        .bind(now)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Attempts of a job, oldest first. Those that only failing tasks named are left
    /// out when a scheduler told of others, because a task in a cgroup knows the job
    /// and not the attempt.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn attempts_of(&self, job_id: &str) -> Result<Vec<Attempt>, StoreError> {
        let rows = sqlx::query(&format!(
            "SELECT {COLUMNS} FROM rdmesh_store.described_attempts d
             WHERE job_id = $1 AND {LISTED}
             ORDER BY requeue, restart"
        ))
        .bind(job_id)
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(attempt).collect()
    }

    /// One attempt, also one that only failing tasks named.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn attempt(&self, key: &AttemptKey) -> Result<Option<Attempt>, StoreError> {
        let row = sqlx::query(&format!(
            "SELECT {COLUMNS} FROM rdmesh_store.described_attempts
             WHERE job_id = $1 AND requeue = $2 AND restart = $3"
        ))
        .bind(&key.job_id)
        .bind(i64::from(key.requeue))
        .bind(i64::from(key.restart))
        .fetch_optional(&self.pool)
        .await?;
        row.as_ref().map(attempt).transpose()
    }

    /// Hosts of an attempt, by name.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn placements_of(&self, key: &AttemptKey) -> Result<Vec<Placement>, StoreError> {
        let rows = sqlx::query(
            "SELECT host, ranks, devices, gpus, virtual_functions FROM rdmesh_store.placements
             WHERE job_id = $1 AND requeue = $2 AND restart = $3 ORDER BY host",
        )
        .bind(&key.job_id)
        .bind(i64::from(key.requeue))
        .bind(i64::from(key.restart))
        .fetch_all(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                Ok(Placement {
                    host: row.try_get("host")?,
                    ranks: row
                        .try_get::<Vec<i64>, _>("ranks")?
                        .into_iter()
                        .map(|rank| u32::try_from(rank).unwrap_or_default())
                        .collect(),
                    devices: row.try_get("devices")?,
                    gpus: row.try_get("gpus")?,
                    virtual_functions: row.try_get("virtual_functions")?,
                })
            })
            .collect()
    }

    /// Attempts, newest first.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn list_jobs(&self, filter: &JobFilter) -> Result<Vec<Attempt>, StoreError> {
        let mut query = QueryBuilder::<Postgres>::new(format!(
            "SELECT {COLUMNS} FROM rdmesh_store.described_attempts d
             WHERE {LISTED}"
        ));
        if let Some(user) = &filter.user {
            query.push(" AND user_name = ").push_bind(user);
        }
        if let Some(state) = filter.state {
            query.push(" AND state = ").push_bind(state);
        }
        if let Some(host) = &filter.host {
            query
                .push(
                    " AND EXISTS (SELECT FROM rdmesh_store.placements p
                       WHERE p.job_id = d.job_id AND p.requeue = d.requeue
                         AND p.restart = d.restart AND p.host = ",
                )
                .push_bind(host)
                .push(")");
        }
        if let Some(from) = filter.from {
            query
                .push(" AND COALESCE(ended_at, CASE WHEN state = 2 THEN 'infinity'::timestamptz END, listed_at) >= ")
                .push_bind(from);
        }
        if let Some(to) = filter.to {
            query.push(" AND listed_at < ").push_bind(to);
        }
        if let Some(after) = &filter.after {
            query.push(" AND (listed_at < ").push_bind(after.listed_at);
            query.push(" OR listed_at = ").push_bind(after.listed_at);
            query
                .push(" AND (job_id, requeue, restart) > (")
                .push_bind(&after.key.job_id);
            query.push(", ").push_bind(i64::from(after.key.requeue));
            query
                .push(", ")
                .push_bind(i64::from(after.key.restart))
                .push("))");
        }
        query
            .push(" ORDER BY listed_at DESC, job_id, requeue, restart LIMIT ")
            .push_bind(i64::from(filter.limit));
        let rows = query.build().fetch_all(&self.pool).await?;
        rows.iter().map(attempt).collect()
    }
}

/// Separates names that travel as one text; no name holds it.
const SEPARATOR: char = '\u{1f}';

/// One statement for all hosts: a job may have ten thousand. An array of arrays cannot
/// be unnested by row, so that each host's lists travel as one text.
/// When the attempt started, as far as it was told; and keeps other starts of its job off
/// until the transaction ends, because two at once would not see each other.
async fn start_before(
    connection: &mut PgConnection,
    attempt: &AttemptKey,
) -> Result<Option<OffsetDateTime>, StoreError> {
    sqlx::query("SELECT pg_advisory_xact_lock($1, hashtext($2))")
        .bind(STARTS_LOCK)
        .bind(&attempt.job_id)
        .execute(&mut *connection)
        .await?;
    let before: Option<Option<OffsetDateTime>> = sqlx::query_scalar(
        "SELECT started_at FROM rdmesh_store.attempts
         WHERE job_id = $1 AND requeue = $2 AND restart = $3",
    )
    .bind(&attempt.job_id)
    .bind(i64::from(attempt.requeue))
    .bind(i64::from(attempt.restart))
    .fetch_optional(connection)
    .await?;
    Ok(before.flatten())
}

/// Keeps `next_started_at` of a job's attempts after the start of one was told: its own, and
/// that of earlier ones which it follows, or followed where it stood `before`.
async fn keep_next_starts(
    connection: &mut PgConnection,
    attempt: &AttemptKey,
    before: Option<OffsetDateTime>,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE rdmesh_store.attempts a
         SET next_started_at = (
             SELECT min(l.started_at) FROM rdmesh_store.attempts l
             WHERE l.job_id = a.job_id AND (l.requeue, l.restart) > (a.requeue, a.restart)
               AND l.started_at > a.started_at)
         FROM rdmesh_store.attempts x
         WHERE x.job_id = $1 AND x.requeue = $2 AND x.restart = $3 AND a.job_id = x.job_id
           AND x.started_at IS DISTINCT FROM $4
           AND ((a.requeue, a.restart) = (x.requeue, x.restart)
                OR (a.requeue, a.restart) < (x.requeue, x.restart)
                   AND (a.started_at < x.started_at
                            AND (a.next_started_at IS NULL OR a.next_started_at > x.started_at)
                        OR a.next_started_at = $4))",
    )
    .bind(&attempt.job_id)
    .bind(i64::from(attempt.requeue))
    .bind(i64::from(attempt.restart))
    .bind(before)
    .execute(connection)
    .await?;
    Ok(())
}

async fn place(
    connection: &mut PgConnection,
    attempt: &AttemptKey,
    placements: &[Placement],
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    if placements.is_empty() {
        return Ok(());
    }
    let mut sorted: Vec<&Placement> = placements.iter().collect();
    sorted.sort_by(|a, b| a.host.cmp(&b.host));
    let column = |names: fn(&Placement) -> &[String]| -> Vec<String> {
        sorted
            .iter()
            .map(|placement| names(placement).join(&SEPARATOR.to_string()))
            .collect()
    };
    let ranks: Vec<String> = sorted
        .iter()
        .map(|placement| {
            let ranks: Vec<String> = placement.ranks.iter().map(u32::to_string).collect();
            ranks.join(",")
        })
        .collect();
    sqlx::query(
        "INSERT INTO rdmesh_store.placements
             (job_id, requeue, restart, host, ranks, devices, gpus, virtual_functions, placed_at)
         SELECT $1, $2, $3, p.host, string_to_array(p.ranks, ',')::bigint[],
                string_to_array(p.devices, $9), string_to_array(p.gpus, $9),
                string_to_array(p.functions, $9), $10
         FROM unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
              p (host, ranks, devices, gpus, functions)
         ON CONFLICT (job_id, requeue, restart, host) DO UPDATE SET
             ranks = excluded.ranks, devices = excluded.devices, gpus = excluded.gpus,
             virtual_functions = excluded.virtual_functions",
    )
    .bind(&attempt.job_id)
    .bind(i64::from(attempt.requeue))
    .bind(i64::from(attempt.restart))
    .bind(
        sorted
            .iter()
            .map(|placement| placement.host.clone())
            .collect::<Vec<_>>(),
    )
    .bind(ranks)
    .bind(column(|placement| &placement.devices))
    .bind(column(|placement| &placement.gpus))
    .bind(column(|placement| &placement.virtual_functions))
    .bind(SEPARATOR.to_string())
    .bind(now)
    .execute(connection)
    .await?;
    Ok(())
}

/// Counts are written from `u32`.
pub(crate) fn key_of(job_id: String, requeue: i64, restart: i64) -> AttemptKey {
    AttemptKey {
        job_id,
        requeue: u32::try_from(requeue).unwrap_or_default(),
        restart: u32::try_from(restart).unwrap_or_default(),
    }
}

fn attempt(row: &sqlx::postgres::PgRow) -> Result<Attempt, StoreError> {
    Ok(Attempt {
        key: key_of(
            row.try_get("job_id")?,
            row.try_get("requeue")?,
            row.try_get("restart")?,
        ),
        told: row.try_get("told")?,
        name: row.try_get("name")?,
        user: row.try_get("user_name")?,
        scheduler: row.try_get("scheduler")?,
        cluster: row.try_get("cluster")?,
        job_class: row.try_get("job_class")?,
        state: row.try_get("state")?,
        started_at: row.try_get("started_at")?,
        ended_at: row.try_get("ended_at")?,
        exit_code: row.try_get("exit_code")?,
        exit_reason: row.try_get("exit_reason")?,
        labels: row.try_get("labels")?,
        marks: row.try_get("marks")?,
        listed_at: row.try_get("listed_at")?,
        first_hosts: row.try_get("first_hosts")?,
        hosts_total: u32::try_from(row.try_get::<i64, _>("hosts_total")?).unwrap_or(u32::MAX),
    })
}

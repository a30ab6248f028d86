//! What is kept of jobs' own logs.

use sqlx::Row;
use time::OffsetDateTime;

use crate::jobs::AttemptKey;
use crate::{Store, StoreError};

/// Logs of one attempt: one for each rank of a job four times the size of today's
/// largest. More of them come from a fault, such as names that never repeat.
pub const LOGS_MAX: i64 = 131_072;

/// Logs that a diagnosis looks at: those whose line weighs most, the earliest first.
const LOOKED_AT: i64 = 1_000;

/// Whose log it is. The same log that comes again takes the place of the former.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogKey {
    /// The attempt.
    pub attempt: AttemptKey,
    /// Host that wrote it; empty: of the whole attempt, or not told.
    pub host: String,
    /// Rank that wrote it; none: of the whole attempt, or not told.
    pub rank: Option<u32>,
    /// Tells logs of one attempt, host and rank apart; may be empty.
    pub name: String,
}

/// What a log says in one line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogDecision {
    /// 2: a cause, 1: a weak sign, 0: it decides nothing.
    pub weight: i16,
    /// Where no time decides: 0 broke, 1 no answer came, 2 waited.
    pub turn: i16,
    /// When it was written, as far as its text says so with a date.
    pub written_at: Option<OffsetDateTime>,
    /// Its number, from 1; 0: no line says anything.
    pub line: i64,
    /// `syscall`, …; empty: no line.
    pub class: String,
    /// Verb or event.
    pub verb: String,
    /// What the verb does: `create`, …; empty: not known.
    pub kind: String,
    /// The verb as the contract numbers it; 0: no hook watches it.
    pub kernel_verb: i16,
    /// Errno.
    pub errno_name: String,
    /// Completion status or event.
    pub status: String,
    /// RDMA device.
    pub device: String,
    /// The other end.
    pub peer: String,
    /// Rank that wrote it.
    pub rank: Option<i64>,
    /// Host that wrote it.
    pub host: String,
    /// The rule that read it.
    pub rule: String,
    /// The text around the message.
    pub text: String,
    /// Lines that say the same.
    pub same_lines: i64,
}

/// What is kept of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLog {
    /// Whose it is.
    pub key: LogKey,
    /// When it came.
    pub received_at: OffsetDateTime,
    /// SHA-256 of it.
    pub digest: Vec<u8>,
    /// Its length.
    pub bytes: i64,
    /// Lines.
    pub lines: i64,
    /// Lines in which a rule found something.
    pub matched: i64,
    /// The rules that were applied.
    pub rules: String,
    /// What it is evidence of.
    pub class: String,
    /// The line that decides; where none does, the one that tells most.
    pub decision: LogDecision,
    /// Further causes and counts, as a JSON object.
    pub details: String,
    /// A dump of the Flight Recorder, as a JSON object; none: it is a log.
    pub flight: Option<String>,
}

/// A dump of the Flight Recorder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDump {
    /// Whose it is, as far as whoever sent it said.
    pub rank: Option<u32>,
    /// What is kept of it, as a JSON object.
    pub dump: String,
}

/// A page of an attempt's logs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogPage {
    /// By host, rank and name.
    pub logs: Vec<StoredLog>,
    /// Of all pages.
    pub total: i64,
}

/// What became of a log that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It is new, or took the place of a former one.
    Stored,
    /// The same bytes were there already.
    Repeated,
    /// The attempt has [`LOGS_MAX`] others.
    TooMany,
}

/// What a diagnosis sees of the logs of an attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Logs {
    /// How many came.
    pub total: i64,
    /// Those whose line weighs most, at most a thousand.
    pub heaviest: Vec<StoredLog>,
}

const COLUMNS: &str = "host, rank, name, received_at, digest, bytes, lines, matched, rules, class,
    weight, turn, written_at, line, line_class, verb, kind, kernel_verb, errno_name, status,
    device, peer, line_rank, line_host, rule, text, same_lines, details::text AS details, flight::text AS flight";

impl Store {
    /// The log that is kept under `key`.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn log(&self, key: &LogKey) -> Result<Option<StoredLog>, StoreError> {
        let row = sqlx::query(&format!(
            "SELECT {COLUMNS} FROM rdmesh_store.job_logs
             WHERE job_id = $1 AND requeue = $2 AND restart = $3
               AND host = $4 AND rank = $5 AND name = $6"
        ))
        .bind(&key.attempt.job_id)
        .bind(i64::from(key.attempt.requeue))
        .bind(i64::from(key.attempt.restart))
        .bind(&key.host)
        .bind(rank_column(key.rank))
        .bind(&key.name)
        .fetch_optional(&self.pool)
        .await?;
        row.as_ref()
            .map(|row| stored(&key.attempt, row))
            .transpose()
    }

    /// Keeps a log in place of the one with its key. The attempt need not be known: it is
    /// named by the log then, and diagnosed anew in any case.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn keep_log(&self, log: &StoredLog) -> Result<Kept, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let key = &log.key.attempt;
        // Holds the attempt's row, so that two of its logs are kept one after the other.
        sqlx::query(
            "INSERT INTO rdmesh_store.attempts AS a
                 (job_id, requeue, restart, told, first_told_at, updated_at)
             VALUES ($1, $2, $3, false, $4, $4)
             ON CONFLICT (job_id, requeue, restart) DO UPDATE SET updated_at = a.updated_at",
        )
        .bind(&key.job_id)
        .bind(i64::from(key.requeue))
        .bind(i64::from(key.restart))
        .bind(log.received_at)
        .execute(&mut *transaction)
        .await?;
        let (same, others): (bool, i64) = sqlx::query_as(
            "SELECT COALESCE(bool_or(mine AND digest = $7), false), count(*) FILTER (WHERE NOT mine)
             FROM (SELECT digest, host = $4 AND rank = $5 AND name = $6 AS mine
                   FROM rdmesh_store.job_logs
                   WHERE job_id = $1 AND requeue = $2 AND restart = $3) l",
        )
        .bind(&key.job_id)
        .bind(i64::from(key.requeue))
        .bind(i64::from(key.restart))
        .bind(&log.key.host)
        .bind(rank_column(log.key.rank))
        .bind(&log.key.name)
        .bind(&log.digest)
        .fetch_one(&mut *transaction)
        .await?;
        if same || others >= LOGS_MAX {
            transaction.rollback().await?;
            return Ok(if same { Kept::Repeated } else { Kept::TooMany });
        }
        insert(&mut transaction, log).await?;
        sqlx::query(
            "UPDATE rdmesh_store.attempts SET updated_at = GREATEST(updated_at, $4)
             WHERE job_id = $1 AND requeue = $2 AND restart = $3",
        )
        .bind(&key.job_id)
        .bind(i64::from(key.requeue))
        .bind(i64::from(key.restart))
        .bind(log.received_at)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(Kept::Stored)
    }

    /// Dumps of the Flight Recorder of an attempt.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn flights_of(
        &self,
        key: &AttemptKey,
        limit: u32,
    ) -> Result<Vec<StoredDump>, StoreError> {
        let rows: Vec<(i64, String)> = sqlx::query_as(
            "SELECT rank, flight::text FROM rdmesh_store.job_logs
             WHERE job_id = $1 AND requeue = $2 AND restart = $3 AND flight IS NOT NULL
             ORDER BY rank, host, name LIMIT $4",
        )
        .bind(&key.job_id)
        .bind(i64::from(key.requeue))
        .bind(i64::from(key.restart))
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await?;
        let dump = |(rank, dump)| StoredDump {
            rank: u32::try_from(rank).ok(),
            dump,
        };
        Ok(rows.into_iter().map(dump).collect())
    }

    /// Logs and dumps of an attempt by host, rank and name: `limit` of them from `offset` on.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn list_logs(
        &self,
        key: &AttemptKey,
        offset: i64,
        limit: i64,
    ) -> Result<LogPage, StoreError> {
        let total: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM rdmesh_store.job_logs
             WHERE job_id = $1 AND requeue = $2 AND restart = $3",
        )
        .bind(&key.job_id)
        .bind(i64::from(key.requeue))
        .bind(i64::from(key.restart))
        .fetch_one(&self.pool)
        .await?;
        let rows = sqlx::query(&format!(
            "SELECT {COLUMNS} FROM rdmesh_store.job_logs
             WHERE job_id = $1 AND requeue = $2 AND restart = $3
             ORDER BY host, rank, name LIMIT $4 OFFSET $5"
        ))
        .bind(&key.job_id)
        .bind(i64::from(key.requeue))
        .bind(i64::from(key.restart))
        .bind(limit)
        .bind(offset)
        .fetch_all(&self.pool)
        .await?;
        let logs = rows.iter().map(|row| stored(key, row));
        Ok(LogPage {
            logs: logs.collect::<Result<_, _>>()?,
            total,
        })
    }

    /// The logs of an attempt, without dumps.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn logs_of(&self, key: &AttemptKey) -> Result<Logs, StoreError> {
        let rows = sqlx::query(&format!(
            "SELECT {COLUMNS}, count(*) OVER () AS total FROM rdmesh_store.job_logs
             WHERE job_id = $1 AND requeue = $2 AND restart = $3 AND flight IS NULL
             ORDER BY weight DESC, written_at, turn, host, rank, name LIMIT $4"
        ))
        .bind(&key.job_id)
        .bind(i64::from(key.requeue))
        .bind(i64::from(key.restart))
        .bind(LOOKED_AT)
        .fetch_all(&self.pool)
        .await?;
        let total = match rows.first() {
            Some(row) => row.try_get("total")?,
            None => 0,
        };
        let heaviest = rows.iter().map(|row| stored(key, row));
        Ok(Logs {
            total,
            heaviest: heaviest.collect::<Result<_, _>>()?,
        })
    }
}

async fn insert(connection: &mut sqlx::PgConnection, log: &StoredLog) -> Result<(), StoreError> {
    let decision = &log.decision;
    sqlx::query(
        "INSERT INTO rdmesh_store.job_logs
             (job_id, requeue, restart, host, rank, name, received_at, digest, bytes, lines,
              matched, rules, class, weight, turn, written_at, line, line_class, verb, kind,
              kernel_verb, errno_name, status, device, peer, line_rank, line_host, rule, text,
              same_lines, details, flight)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
                 $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31::text::jsonb,
                 $32::text::jsonb)
         ON CONFLICT (job_id, requeue, restart, host, rank, name) DO UPDATE SET
             received_at = excluded.received_at, digest = excluded.digest,
             bytes = excluded.bytes, lines = excluded.lines, matched = excluded.matched,
             rules = excluded.rules, class = excluded.class, weight = excluded.weight,
             turn = excluded.turn, written_at = excluded.written_at, line = excluded.line,
             line_class = excluded.line_class, verb = excluded.verb, kind = excluded.kind,
             kernel_verb = excluded.kernel_verb, errno_name = excluded.errno_name,
             status = excluded.status, device = excluded.device, peer = excluded.peer,
             line_rank = excluded.line_rank, line_host = excluded.line_host,
             rule = excluded.rule, text = excluded.text, same_lines = excluded.same_lines,
             details = excluded.details, flight = excluded.flight",
    )
    .bind(&log.key.attempt.job_id)
    .bind(i64::from(log.key.attempt.requeue))
    .bind(i64::from(log.key.attempt.restart))
    .bind(&log.key.host)
    .bind(rank_column(log.key.rank))
    .bind(&log.key.name)
    .bind(log.received_at)
    .bind(&log.digest)
    .bind(log.bytes)
    .bind(log.lines)
    .bind(log.matched)
    .bind(&log.rules)
    .bind(&log.class)
    .bind(decision.weight)
    .bind(decision.turn)
    .bind(decision.written_at)
    .bind(decision.line)
    .bind(&decision.class)
    .bind(&decision.verb)
    .bind(&decision.kind)
    .bind(decision.kernel_verb)
    .bind(&decision.errno_name)
    .bind(&decision.status)
    .bind(&decision.device)
    .bind(&decision.peer)
    .bind(decision.rank)
    .bind(&decision.host)
    .bind(&decision.rule)
    .bind(&decision.text)
    .bind(decision.same_lines)
    .bind(&log.details)
    .bind(&log.flight)
    .execute(connection)
    .await?;
    Ok(())
}

/// A key has no nulls.
fn rank_column(rank: Option<u32>) -> i64 {
    rank.map_or(-1, i64::from)
}

fn stored(attempt: &AttemptKey, row: &sqlx::postgres::PgRow) -> Result<StoredLog, StoreError> {
    let rank: i64 = row.try_get("rank")?;
    Ok(StoredLog {
        key: LogKey {
            attempt: attempt.clone(),
            host: row.try_get("host")?,
            rank: u32::try_from(rank).ok(),
            name: row.try_get("name")?,
        },
        received_at: row.try_get("received_at")?,
        digest: row.try_get("digest")?,
        bytes: row.try_get("bytes")?,
        lines: row.try_get("lines")?,
        matched: row.try_get("matched")?,
        rules: row.try_get("rules")?,
        class: row.try_get("class")?,
        decision: LogDecision {
            weight: row.try_get("weight")?,
            turn: row.try_get("turn")?,
            written_at: row.try_get("written_at")?,
            line: row.try_get("line")?,
            class: row.try_get("line_class")?,
            verb: row.try_get("verb")?,
            kind: row.try_get("kind")?,
            kernel_verb: row.try_get("kernel_verb")?,
            errno_name: row.try_get("errno_name")?,
            status: row.try_get("status")?,
            device: row.try_get("device")?,
            peer: row.try_get("peer")?,
            rank: row.try_get("line_rank")?,
            host: row.try_get("line_host")?,
            rule: row.try_get("rule")?,
            text: row.try_get("text")?,
            same_lines: row.try_get("same_lines")?,
        },
        details: row.try_get("details")?,
        flight: row.try_get("flight")?,
    })
}

//! Verdicts: kept for SQL and for when the details that they were decided by have aged out.

use time::OffsetDateTime;

use crate::jobs::{AttemptKey, key_of};
use crate::{Store, StoreError};

/// A verdict as it is kept for SQL. Numbers are those of the contract.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoredVerdict {
    /// `application_arguments`, ….
    pub class: String,
    /// Layer.
    pub layer: i16,
    /// Verb.
    pub verb: i16,
    /// Deepest failing function.
    pub function: String,
    /// Its module.
    pub module: String,
    /// Positive; 0: none.
    pub errno: i32,
    /// Its name.
    pub errno_name: String,
    /// Hosts concerned.
    pub hosts: Vec<String>,
    /// Devices concerned.
    pub devices: Vec<String>,
    /// First failure.
    pub first_at: Option<OffsetDateTime>,
    /// `low`, `medium`, `high`.
    pub confidence: String,
    /// Whom to call.
    pub route_to: String,
    /// The rule that decided.
    pub rule: String,
    /// What speaks for it.
    pub evidence: Vec<String>,
    /// What speaks against it.
    pub against: Vec<String>,
    /// What was not watched.
    pub unwatched: Vec<String>,
    /// One sentence.
    pub summary: String,
    /// What it means.
    pub meaning: String,
    /// What to check next.
    pub next_steps: Vec<String>,
    /// Failures that were looked at.
    pub failures_looked_at: i64,
    /// Failures that the attempt has, counted up to a bound.
    pub failures_total: i64,
    /// Earlier attempts of the job with the same failure.
    pub same_failure: Vec<String>,
    /// What is counted of the attempt.
    pub counted: Counted,
    /// `rdmesh.collector.v1.Verdict`, encoded.
    pub body: Vec<u8>,
    /// [`Signature::id`](crate::fleet::Signature::id) of the failing call that decided; none:
    /// no call did.
    pub signature_id: Option<i64>,
}

/// What its logs say beside the verdict, and what the shares count of the attempt. Empty
/// texts: no log came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// Logs that had come.
    pub logs: i64,
    /// What they say together.
    pub log_class: String,
    /// Verb of the line that decides among them.
    pub log_verb: String,
    /// Its errno.
    pub log_errno_name: String,
    /// Its text.
    pub log_text: String,
    /// How they stand to the verdict.
    pub log_agreement: String,
    /// Whether a probe could show the failing call that they tell; empty: they tell none.
    pub log_coverage: String,
    /// They file it under the network, wrongly.
    pub misattributed: bool,
    /// Co-signals near it.
    pub co_signals: i64,
    /// `kernel`, `co_signal`, `log`, `nothing`.
    pub told_by: String,
    /// Class under which its hours count.
    pub lost_class: String,
}

/// A verdict that was kept, as it was told.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct KeptVerdict {
    /// When it was decided.
    pub diagnosed_at: OffsetDateTime,
    /// `rdmesh.collector.v1.Verdict`, encoded; none: kept by a collector that kept none.
    pub body: Option<Vec<u8>>,
    /// The failing call that decided; none: no call did, or it was not kept.
    pub signature_id: Option<i64>,
}

/// The last verdict on an earlier attempt of the same job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastVerdict {
    /// Which attempt.
    pub key: AttemptKey,
    /// Class of the cause.
    pub class: String,
    /// Deepest failing function; empty: none decided.
    pub function: String,
    /// Positive; 0: none.
    pub errno: i32,
    /// Hosts concerned.
    pub hosts: Vec<String>,
}

impl Store {
    /// Attempts that ended badly at or before `until` and have no verdict since what was
    /// told of them last, oldest first.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn undiagnosed(
        &self,
        since: OffsetDateTime,
        until: OffsetDateTime,
        limit: u32,
    ) -> Result<Vec<AttemptKey>, StoreError> {
        let rows: Vec<(String, i64, i64)> = sqlx::query_as(
            "SELECT a.job_id, a.requeue, a.restart FROM rdmesh_store.attempts a
             LEFT JOIN rdmesh_store.verdicts v USING (job_id, requeue, restart)
             WHERE a.updated_at > $1 AND a.updated_at <= $2 AND a.state BETWEEN 4 AND 8
               AND (v.diagnosed_at IS NULL OR v.diagnosed_at < a.updated_at)
             ORDER BY a.updated_at LIMIT $3",
        )
        .bind(since)
        .bind(until)
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|(job, requeue, restart)| key_of(job, requeue, restart))
            .collect())
    }

    /// Keeps a verdict for `rdmesh.diagnoses`.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn keep_verdict(
        &self,
        key: &AttemptKey,
        verdict: &StoredVerdict,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO rdmesh_store.verdicts
                 (job_id, requeue, restart, diagnosed_at, class, layer, verb, function, module,
                  errno, errno_name, hosts, devices, first_at, confidence, route_to, rule,
                  evidence, against, unwatched, summary, meaning, next_steps,
                  failures_looked_at, failures_total, logs, log_class, log_verb, log_errno_name,
                  log_text, log_agreement, log_coverage, misattributed, co_signals, told_by,
                  lost_class, same_failure, body, signature_id)
             -- One that a crash of the server loses is decided again by whoever asks next.
             SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
                     $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32,
                     $33, $34, $35, $36, $37, $38, $39
             FROM set_config('synchronous_commit', 'off', true)
             ON CONFLICT (job_id, requeue, restart) DO UPDATE SET
                 diagnosed_at = excluded.diagnosed_at, class = excluded.class,
                 layer = excluded.layer, verb = excluded.verb, function = excluded.function,
                 module = excluded.module, errno = excluded.errno,
                 errno_name = excluded.errno_name, hosts = excluded.hosts,
                 devices = excluded.devices, first_at = excluded.first_at,
                 confidence = excluded.confidence, route_to = excluded.route_to,
                 rule = excluded.rule, evidence = excluded.evidence,
                 against = excluded.against, unwatched = excluded.unwatched,
                 summary = excluded.summary, meaning = excluded.meaning,
                 next_steps = excluded.next_steps,
                 failures_looked_at = excluded.failures_looked_at,
                 failures_total = excluded.failures_total, logs = excluded.logs,
                 log_class = excluded.log_class, log_verb = excluded.log_verb,
                 log_errno_name = excluded.log_errno_name, log_text = excluded.log_text,
                 log_agreement = excluded.log_agreement, log_coverage = excluded.log_coverage,
                 misattributed = excluded.misattributed, co_signals = excluded.co_signals,
                 told_by = excluded.told_by, lost_class = excluded.lost_class,
                 same_failure = excluded.same_failure, body = excluded.body,
                 signature_id = excluded.signature_id",
        )
        .bind(&key.job_id)
        .bind(i64::from(key.requeue))
        .bind(i64::from(key.restart))
        .bind(now)
        .bind(&verdict.class)
        .bind(verdict.layer)
        .bind(verdict.verb)
        .bind(&verdict.function)
        .bind(&verdict.module)
        .bind(verdict.errno)
        .bind(&verdict.errno_name)
        .bind(&verdict.hosts)
        .bind(&verdict.devices)
        .bind(verdict.first_at)
        .bind(&verdict.confidence)
        .bind(&verdict.route_to)
        .bind(&verdict.rule)
        .bind(&verdict.evidence)
        .bind(&verdict.against)
        .bind(&verdict.unwatched)
        .bind(&verdict.summary)
        .bind(&verdict.meaning)
        .bind(&verdict.next_steps)
        .bind(verdict.failures_looked_at)
        .bind(verdict.failures_total)
        .bind(verdict.counted.logs)
        .bind(&verdict.counted.log_class)
        .bind(&verdict.counted.log_verb)
        .bind(&verdict.counted.log_errno_name)
        .bind(&verdict.counted.log_text)
        .bind(&verdict.counted.log_agreement)
        .bind(&verdict.counted.log_coverage)
        .bind(verdict.counted.misattributed)
        .bind(verdict.counted.co_signals)
        .bind(&verdict.counted.told_by)
        .bind(&verdict.counted.lost_class)
        .bind(&verdict.same_failure)
        .bind(&verdict.body)
        .bind(verdict.signature_id)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// The verdict that was kept last on an attempt.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn kept_verdict(&self, key: &AttemptKey) -> Result<Option<KeptVerdict>, StoreError> {
        let kept = sqlx::query_as(
            "SELECT diagnosed_at, body, signature_id FROM rdmesh_store.verdicts
             WHERE job_id = $1 AND requeue = $2 AND restart = $3",
        )
        .bind(&key.job_id)
        .bind(i64::from(key.requeue))
        .bind(i64::from(key.restart))
        .fetch_optional(&self.pool)
        .await?;
        Ok(kept)
    }

    /// The last verdicts on the attempts of the job before `key`, oldest first, the latest
    /// `limit` of them.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn past_verdicts(
        &self,
        key: &AttemptKey,
        limit: u32,
    ) -> Result<Vec<PastVerdict>, StoreError> {
        let rows: Vec<(i64, i64, String, String, i32, Vec<String>)> = sqlx::query_as(
            "SELECT requeue, restart, class, function, errno, hosts FROM rdmesh_store.verdicts
             WHERE job_id = $1 AND (requeue, restart) < ($2, $3)
             ORDER BY requeue DESC, restart DESC LIMIT $4",
        )
        .bind(&key.job_id)
        .bind(i64::from(key.requeue))
        .bind(i64::from(key.restart))
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await?;
        let past =
            rows.into_iter()
                .rev()
                .map(
                    |(requeue, restart, class, function, errno, hosts)| PastVerdict {
                        key: key_of(key.job_id.clone(), requeue, restart),
                        class,
                        function,
                        errno,
                        hosts,
                    },
                );
        Ok(past.collect())
    }
}

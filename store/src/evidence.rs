//! All that a diagnosis looks at, and the verdicts that came of it.

use sqlx::Row;
use time::OffsetDateTime;

use crate::jobs::{AttemptKey, key_of};
use crate::{Store, StoreError};

/// Failing returns of an attempt by host, function and errno: exact.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Total {
    /// The host.
    pub host: String,
    /// Kernel function.
    pub function: String,
    /// Its module.
    pub module: String,
    /// Its layer.
    pub layer: i16,
    /// Positive.
    pub errno: i32,
    /// How many.
    pub count: i64,
}

/// What was watched on a host while an attempt ran.
#[derive(Debug, Clone, PartialEq)]
pub struct HostWatch {
    /// The host.
    pub host: String,
    /// Whether any agent of it ever reported.
    pub known: bool,
    /// The probe report that was in force, encoded: the last before the attempt's end,
    /// else the first after it.
    pub probe_report: Option<Vec<u8>>,
    /// The inventory that was in force, encoded.
    pub inventory: Option<Vec<u8>>,
    /// Seconds of the attempt that its tracer reported on.
    pub watched_seconds: f64,
    /// Seconds of the attempt until now or its end.
    pub attempt_seconds: f64,
    /// Whether that end is so long ago that no report of its time is on its way.
    pub settled: bool,
    /// Records that its ring dropped meanwhile.
    pub drops: i64,
    /// Failing returns that were counted without their errno or cgroup.
    pub counter_overflow: i64,
    /// Calls that the kernel did not show to its probes.
    pub unseen: i64,
}

/// A co-signal near an attempt's failures.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct NearSignal {
    /// The host.
    pub host: String,
    /// When, collector time.
    pub at: OffsetDateTime,
    /// Its kind, as the contract numbers it.
    pub kind: i16,
    /// Whether it can be a cause.
    pub independent: bool,
    /// What it is.
    pub name: String,
    /// In words.
    pub detail: String,
    /// RDMA device; empty: none.
    pub device: String,
}

/// A port that has an address.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct AddressOwner {
    /// The address, 16 bytes.
    pub gid: Vec<u8>,
    /// The host.
    pub host: String,
    /// RDMA device.
    pub device: String,
}

/// Shaping of a host while an attempt ran, summed over its windows.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct Shaping {
    /// The shaped host.
    pub host: String,
    /// Name of the wire.
    pub wire: String,
    /// Lowest rate in force, bit/s; 0: it was never shaped.
    pub rate_bps: i64,
    /// Windows with a rate and without bypass.
    pub windows: i64,
    /// Windows that show an outage of the shaper, or frames that its port dropped.
    pub invalid: i64,
    /// Time without a window, after one that came within an hour before the attempt or
    /// while it ran, seconds.
    pub silent_seconds: f64,
}

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

impl Store {
    /// Exact failing returns of an attempt.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn totals_of(&self, key: &AttemptKey) -> Result<Vec<Total>, StoreError> {
        let totals = sqlx::query_as(
            "SELECT host, function, module, layer, errno, rdmesh_store.bounded(sum(delta)) AS count
             FROM rdmesh_store.attempt_counts
             WHERE job_id = $1 AND requeue = $2 AND restart = $3
             GROUP BY host, function, module, layer, errno
             ORDER BY count DESC, host, layer, function, errno",
        )
        .bind(&key.job_id)
        .bind(i64::from(key.requeue))
        .bind(i64::from(key.restart))
        .fetch_all(&mut *self.reading(true).await?)
        .await?;
        Ok(totals)
    }

    /// What was watched on `hosts` in `from` … `to`.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn watch_of(
        &self,
        hosts: &[String],
        from: OffsetDateTime,
        to: OffsetDateTime,
    ) -> Result<Vec<HostWatch>, StoreError> {
        let rows = sqlx::query(
            "SELECT k.host,
                 EXISTS (SELECT FROM rdmesh_store.hosts h WHERE h.host = k.host) AS known,
                 (SELECT body FROM rdmesh_store.probe_reports p WHERE p.host = k.host
                  ORDER BY received_at > $3,
                           CASE WHEN received_at <= $3 THEN received_at END DESC NULLS LAST,
                           received_at, seq DESC
                  LIMIT 1) AS probe_report,
                 (SELECT body FROM rdmesh_store.inventories i WHERE i.host = k.host
                  ORDER BY seen_at > $3,
                           CASE WHEN seen_at <= $3 THEN seen_at END DESC NULLS LAST, seen_at
                  LIMIT 1) AS inventory,
                 COALESCE((
                     SELECT sum(upper(g) - lower(g))::float8 / 1e9
                     FROM rdmesh_store.agent_runs r,
                          unnest(r.watched * int8multirange(int8range(
                              (EXTRACT(epoch FROM $2) * 1e9)::bigint - r.boot_epoch_ns,
                              GREATEST((EXTRACT(epoch FROM $3) * 1e9)::bigint,
                                       (EXTRACT(epoch FROM $2) * 1e9)::bigint)
                                  - r.boot_epoch_ns))) g
                     WHERE r.host = k.host AND r.agent = 1 AND r.boot_epoch_ns IS NOT NULL
                 ), 0)::float8 AS watched_seconds,
                 -- Three intervals: one to end, two for an uplink that tries again.
                 $3 < now() - interval '15 seconds' AS settled,
                 l.drops, l.counter_overflow, l.unseen
             FROM unnest($1::text[]) WITH ORDINALITY k (host, position)
             CROSS JOIN LATERAL (
                 SELECT COALESCE(rdmesh_store.bounded(sum(delta) FILTER (WHERE kind = 1)), 0)
                            AS drops,
                        COALESCE(rdmesh_store.bounded(sum(delta) FILTER (WHERE kind = 2)), 0)
                            AS counter_overflow,
                        COALESCE(rdmesh_store.bounded(sum(delta) FILTER (WHERE kind = 3)), 0)
                            AS unseen
                 FROM rdmesh_store.drops d
                 WHERE d.host = k.host AND d.at >= $2 AND d.at < $3 + interval '10 seconds'
             ) l
             ORDER BY k.position",
        )
        .bind(hosts)
        .bind(from)
        .bind(to)
        .fetch_all(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                Ok(HostWatch {
                    host: row.try_get("host")?,
                    known: row.try_get("known")?,
                    probe_report: row.try_get("probe_report")?,
                    inventory: row.try_get("inventory")?,
                    watched_seconds: row.try_get("watched_seconds")?,
                    settled: row.try_get("settled")?,
                    attempt_seconds: (to - from).as_seconds_f64().max(0.0),
                    drops: row.try_get("drops")?,
                    counter_overflow: row.try_get("counter_overflow")?,
                    unseen: row.try_get("unseen")?,
                })
            })
            .collect()
    }

    /// Co-signals of `hosts` in `from` … `to`, oldest first; not those about processes of
    /// other jobs than `key`'s.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn signals_of(
        &self,
        key: &AttemptKey,
        hosts: &[String],
        from: OffsetDateTime,
        to: OffsetDateTime,
        limit: u32,
    ) -> Result<Vec<NearSignal>, StoreError> {
        let signals = sqlx::query_as(
            "SELECT host, at, kind, independent, name, detail, device
             FROM rdmesh_store.co_signals
             WHERE host = ANY ($1) AND at >= $2 AND at < $3
               AND (job_id IS NULL OR job_id = $5)
             ORDER BY at, host, run_id, seq, ordinal LIMIT $4",
        )
        .bind(hosts)
        .bind(from)
        .bind(to)
        .bind(i64::from(limit))
        .bind(&key.job_id)
        .fetch_all(&self.pool)
        .await?;
        Ok(signals)
    }

    /// Whose addresses these are, by the newest inventories. Two owners of one: it was given
    /// twice, or a host that went still stands here.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn owners_of(
        &self,
        gids: &[Vec<u8>],
        limit: u32,
    ) -> Result<Vec<AddressOwner>, StoreError> {
        let owners = sqlx::query_as(
            "SELECT DISTINCT gid, host, device FROM rdmesh_store.addresses
             WHERE gid = ANY ($1) ORDER BY gid, host, device LIMIT $2",
        )
        .bind(gids)
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await?;
        Ok(owners)
    }

    /// Shaping of `hosts` in `from` … `to`, by the wires that the attempt could use: where
    /// its placement on a host names virtual functions, by theirs alone.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn shaping_of(
        &self,
        key: &AttemptKey,
        hosts: &[String],
        from: OffsetDateTime,
        to: OffsetDateTime,
    ) -> Result<Vec<Shaping>, StoreError> {
        let shaping = sqlx::query_as(
            "SELECT w.shaped_host AS host, w.wire,
                    COALESCE(min(w.rate_bps) FILTER (WHERE shaped), 0) AS rate_bps,
                    count(*) FILTER (WHERE shaped) AS windows,
                    -- Causes 1 and 5: the port dropped, the data path was down.
                    count(*) FILTER (WHERE within AND w.invalid && '{1,5}'::smallint[])
                        AS invalid,
                    GREATEST(0, EXTRACT(epoch FROM
                        $3 - GREATEST($2, min(w.at))
                        - sum(GREATEST(interval '0', LEAST(w.to_at, $3) - GREATEST(w.at, $2)))
                    ))::float8 AS silent_seconds
             FROM (SELECT v.*, v.to_at > $2 AS within,
                          v.to_at > $2 AND v.rate_bps > 0 AND NOT v.bypass AS shaped
                   FROM rdmesh_store.wire_windows v
                   -- A window lasts a minute at the most; one of the hour before tells that
                   -- the wire was there.
                   WHERE v.shaped_host = ANY ($1) AND v.at < $3
                     AND v.at >= $2 - interval '1 hour') w
             WHERE NOT EXISTS (
                 SELECT FROM rdmesh_store.placements p
                 WHERE p.job_id = $4 AND p.requeue = $5 AND p.restart = $6
                   AND p.host = w.shaped_host AND p.virtual_functions <> '{}'
                   AND w.virtual_function <> ALL (p.virtual_functions))
             GROUP BY w.shaped_host, w.wire ORDER BY w.shaped_host, w.wire",
        )
        .bind(hosts)
        .bind(from)
        .bind(to)
        .bind(&key.job_id)
        .bind(i64::from(key.requeue))
        .bind(i64::from(key.restart))
        .fetch_all(&self.pool)
        .await?;
        Ok(shaping)
    }

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
                  lost_class, same_failure)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
                     $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32,
                     $33, $34, $35, $36, $37)
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
                 same_failure = excluded.same_failure",
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
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

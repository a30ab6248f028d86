//! All that a diagnosis looks at.

use sqlx::Row;
use time::OffsetDateTime;

use crate::jobs::AttemptKey;
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
}

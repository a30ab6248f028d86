//! Runs of agents.

use time::OffsetDateTime;

use crate::ingest::RunKey;
use crate::{Store, StoreError};

/// What the collector has learnt of a host's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockEstimate {
    /// Collector time at which the host's boot clock stood at 0, nanoseconds since 1970.
    pub boot_epoch_ns: i64,
    /// Host clock minus collector clock, nanoseconds.
    pub offset_ns: i64,
    /// Jumps of the host's clock seen at this item.
    pub jumps: i32,
}

/// What an agent says of itself.
#[derive(Debug, Clone)]
pub struct Hello {
    /// The run.
    pub run: RunKey,
    /// The boot of its host.
    pub boot_id: String,
    /// Its version.
    pub version: String,
    /// Where it can be dialled; empty: nowhere.
    pub address: String,
    /// When it started, its own time.
    pub started_at: OffsetDateTime,
    /// When the Hello came.
    pub received_at: OffsetDateTime,
    /// What the Hello says of the clock.
    pub clock: Option<ClockEstimate>,
    /// When the certificate ends that it showed; none: it showed none.
    pub certificate_ends_at: Option<OffsetDateTime>,
}

impl Store {
    /// Registers a run, or its reconnection; returns the sequence through which
    /// everything of it is done (0: nothing yet).
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn hello(&self, hello: &Hello) -> Result<i64, StoreError> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query(
            "INSERT INTO rdmesh_store.hosts (host, first_seen_at) VALUES ($1, $2)
             ON CONFLICT (host) DO NOTHING",
        )
        .bind(&hello.run.host)
        .bind(hello.received_at)
        .execute(&mut *transaction)
        .await?;
        let through: i64 = sqlx::query_scalar(
            "INSERT INTO rdmesh_store.agent_runs AS r
                 (host, agent, run_id, boot_id, version, address, started_at, first_hello_at,
                  last_hello_at, last_seen_at, boot_epoch_ns, clock_offset_ns,
                  certificate_ends_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $8, $9, $10, $11)
             ON CONFLICT (host, agent, run_id) DO UPDATE SET
                 version = excluded.version,
                 address = excluded.address,
                 certificate_ends_at = excluded.certificate_ends_at,
                 last_hello_at = GREATEST(r.last_hello_at, excluded.last_hello_at),
                 last_seen_at = GREATEST(r.last_seen_at, excluded.last_seen_at),
                 boot_epoch_ns = COALESCE(excluded.boot_epoch_ns, r.boot_epoch_ns),
                 clock_offset_ns = COALESCE(excluded.clock_offset_ns, r.clock_offset_ns)
             RETURNING COALESCE(
                 (SELECT upper(s) - 1 FROM unnest(r.seqs) s WHERE s @> 1::bigint), 0)",
        )
        .bind(&hello.run.host)
        .bind(hello.run.agent)
        .bind(hello.run.run_id)
        .bind(&hello.boot_id)
        .bind(&hello.version)
        .bind(&hello.address)
        .bind(hello.started_at)
        .bind(hello.received_at)
        .bind(hello.clock.map(|c| c.boot_epoch_ns))
        .bind(hello.clock.map(|c| c.offset_ns))
        .bind(hello.certificate_ends_at)
        .fetch_one(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(through)
    }
}

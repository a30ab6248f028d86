//! Automatic mode: windows leased to tracers, and what came of them.
//!
//! One transaction grants a window, under a lock: two collectors never grant more than the
//! fleet may have.

mod grant;
mod keep;

use sqlx::Connection;
use sqlx::types::Uuid;
use time::{Duration, OffsetDateTime};

use crate::fleet::Signature;
use crate::{Store, StoreError};

/// Windows are granted one after the other. Any constant does.
const ADVISORY_LOCK: i64 = 0x7264_6d65_7368_0013;

/// Windows that one host may have within an hour: what makes ever new failures is a fuzzer,
/// and its host has other work.
pub const HOST_WINDOWS_AN_HOUR: i64 = 6;

/// Windows for one kind of failing call of which none saw it: it does not come back.
pub const TRIES: i64 = 3;

/// What a window is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// Good calls of these verbs are recorded.
    Record {
        /// Those without a baseline on the host.
        verbs: Vec<String>,
    },
    /// A failing call is laid beside good ones.
    Capture {
        /// Its verb, as baselines name it.
        verb: String,
        /// Its chain.
        signature: Signature,
        /// The host has a baseline itself.
        has_baseline: bool,
    },
}

/// What a tracer asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseAsk {
    /// Its host.
    pub host: String,
    /// Its run.
    pub run_id: Uuid,
    /// `uname -r`.
    pub kernel_release: String,
    /// Module of the RDMA driver.
    pub driver: String,
    /// What for.
    pub purpose: Purpose,
}

/// What the fleet allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseBounds {
    /// Hosts with a window at a time.
    pub hosts_at_once: u32,
    /// How long a lease lasts whose tracer says nothing.
    pub lasts: Duration,
}

/// A window that was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Its id.
    pub id: Uuid,
    /// From then on it is another host's turn.
    pub expires_at: OffsetDateTime,
    /// The verbs to watch.
    pub verbs: Vec<String>,
    /// What a failing call is laid beside, where its host has none.
    pub baseline: Option<StoredBaseline>,
}

/// Why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoLease {
    /// As many hosts as may be have a window.
    FleetBusy,
    /// The host had [`HOST_WINDOWS_AN_HOUR`].
    HostBusy,
    /// Baselines of all of it are there, or are being recorded.
    Recorded,
    /// It was captured, or is being captured.
    Captured,
    /// There is nothing to lay it beside.
    NoBaseline,
    /// [`TRIES`] windows did not see it.
    NotSeen,
}

/// What good calls of a verb do.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct StoredBaseline {
    /// The host that recorded it.
    pub host: String,
    /// Its kernel.
    pub kernel_release: String,
    /// Module of the RDMA driver.
    pub driver: String,
    /// The verb.
    pub verb: String,
    /// End of its window, by the host's clock.
    pub recorded_at: OffsetDateTime,
    /// Calls in it.
    pub good_calls: i64,
    /// Functions that were watched.
    pub functions: i64,
    /// As the contract encodes it.
    pub body: Vec<u8>,
}

/// Where a failing call left good ones.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct ForkSeen {
    /// The verb, as baselines name it.
    pub verb: String,
    /// How the call failed, positive.
    pub call_errno: i32,
    /// From the entry point to the function.
    pub path: Vec<String>,
    /// What the function returned, positive; 0: no error.
    pub errno: i32,
    /// Good calls that it was laid beside.
    pub good_calls: i64,
    /// The host that recorded them.
    pub baseline_host: String,
    /// When, by that host's clock.
    pub baseline_recorded_at: Option<OffsetDateTime>,
    /// As the contract encodes it.
    pub body: Vec<u8>,
}

/// The same with what its lease says.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct StoredFork {
    /// The host on which it was captured.
    pub host: String,
    /// Its kernel.
    pub kernel_release: String,
    /// Module of the RDMA driver.
    pub driver: String,
    /// What was seen.
    #[sqlx(flatten)]
    pub seen: ForkSeen,
}

/// What a lease says of its window.
#[derive(Debug, sqlx::FromRow)]
struct Leased {
    signature_id: Option<i64>,
    kernel_release: String,
    driver: String,
}

/// What came of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Its host.
    pub host: String,
    /// The lease.
    pub lease_id: Uuid,
    /// What was recorded.
    pub baselines: Vec<StoredBaseline>,
    /// What was captured.
    pub fork: Option<ForkSeen>,
    /// Why there is no result; empty: there is one.
    pub failure: String,
}

impl Store {
    /// Grants a window, or says why there is none. A lease that the host had before ends:
    /// its tracer restarted, or never heard the answer.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn lease_window(
        &self,
        ask: &LeaseAsk,
        bounds: LeaseBounds,
        now: OffsetDateTime,
    ) -> Result<Result<Lease, NoLease>, StoreError> {
        let mut connection = self.pool.acquire().await?;
        let mut transaction = connection.begin().await?;
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(ADVISORY_LOCK)
            .execute(&mut *transaction)
            .await?;
        sqlx::query(
            "UPDATE rdmesh_store.window_leases SET ended_at = $2, outcome = 'asked again'
             WHERE host = $1 AND ended_at IS NULL",
        )
        .bind(&ask.host)
        .bind(now)
        .execute(&mut *transaction)
        .await?;
        let granted = grant::grant(&mut transaction, ask, bounds, now).await?;
        transaction.commit().await?;
        Ok(granted)
    }

    /// Keeps what came of a window and ends its lease; false when there is no such lease,
    /// or it ended. One that only expired still counts: the work is done.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn finish_window(
        &self,
        finished: &Finished,
        now: OffsetDateTime,
    ) -> Result<bool, StoreError> {
        let mut connection = self.pool.acquire().await?;
        let mut transaction = connection.begin().await?;
        let lease: Option<Leased> = sqlx::query_as(
            "UPDATE rdmesh_store.window_leases SET ended_at = $3, outcome = $4
             WHERE host = $1 AND lease_id = $2 AND ended_at IS NULL
             RETURNING signature_id, kernel_release, driver",
        )
        .bind(&finished.host)
        .bind(finished.lease_id)
        .bind(now)
        .bind(&finished.failure)
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(lease) = lease else {
            return Ok(false);
        };
        for baseline in &finished.baselines {
            keep::baseline(&mut transaction, baseline, now).await?;
        }
        if let (Some(id), Some(seen)) = (lease.signature_id, &finished.fork) {
            let fork = StoredFork {
                host: finished.host.clone(),
                kernel_release: lease.kernel_release,
                driver: lease.driver,
                seen: seen.clone(),
            };
            keep::fork(&mut transaction, id, &fork, now).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// Where a call of this signature left good ones: on one of these hosts if on any, the
    /// newest first.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn fork_of(
        &self,
        signature_id: i64,
        hosts: &[String],
    ) -> Result<Option<StoredFork>, StoreError> {
        let fork = sqlx::query_as(
            "SELECT host, kernel_release, driver, verb, call_errno, path, errno, good_calls,
                    baseline_host, baseline_recorded_at, body
             FROM rdmesh_store.forks WHERE signature_id = $1
             ORDER BY host = ANY ($2) DESC, captured_at DESC LIMIT 1",
        )
        .bind(signature_id)
        .bind(hosts)
        .fetch_optional(&self.pool)
        .await?;
        Ok(fork)
    }
}

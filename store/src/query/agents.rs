//! Agents and their last reports.

use rdmesh_proto::tracer::v1::MissingReason;
use sqlx::Row;
use sqlx::types::Uuid;
use time::OffsetDateTime;

use crate::{Store, StoreError};

/// The last run of an agent, and what is known of its host.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct AgentStatus {
    /// The host.
    pub host: String,
    /// Kind of agent, as the contract numbers it.
    pub agent: i16,
    /// The run.
    pub run_id: Uuid,
    /// The boot of its host.
    pub boot_id: String,
    /// Other runs that reported under the same name while this one did.
    pub beside: i64,
    /// Its version.
    pub version: String,
    /// Where it can be dialled; empty: nowhere.
    pub address: String,
    /// When something came from it last.
    pub last_seen_at: OffsetDateTime,
    /// Host clock minus collector clock, nanoseconds.
    pub clock_offset_ns: Option<i64>,
    /// Jumps of the host's clock in this run.
    pub clock_jumps: i32,
    /// Snapshots stored.
    pub snapshots: i64,
    /// Items that never came.
    pub missing: i64,
    /// Items refused.
    pub rejected: i64,
    /// Why the last one was refused.
    pub last_rejection: Option<String>,
    /// Failing returns counted.
    pub failures: i64,
    /// Records dropped on the host.
    pub drops: i64,
    /// Calls that the kernel did not show to its probes.
    pub unseen: i64,
    /// When the certificate ends that it showed last; none: it showed none.
    pub certificate_ends_at: Option<OffsetDateTime>,
    /// How old what it told last was when it came; none: it told of no interval.
    pub lag_seconds: Option<f64>,
    /// Of its last probe report; empty and 0: none came.
    pub kernel_release: String,
    /// Whether a probe report ever came from its host.
    pub probe_report_came: bool,
    /// Logical hooks that are served.
    pub logical_attached: i32,
    /// Logical hooks in all.
    pub logical_total: i32,
    /// What keeps all probes away; empty: nothing.
    pub obstacle: String,
    /// Logical hooks that no probe serves although one could, by name. A hook whose only
    /// reason is that the driver lacks the operation is not among them: there is nothing
    /// to watch and nothing to mend.
    pub missing_hooks: Vec<String>,
    /// Why, one for each of them; several reasons are joined by `; `.
    pub missing_reasons: Vec<String>,
}

/// What a probe counted since its run began.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct ProbeCount {
    /// Kernel function.
    pub function: String,
    /// Its module.
    pub module: String,
    /// Failing returns.
    pub failures: i64,
    /// Records dropped.
    pub drops: i64,
    /// Calls that the kernel did not show to it.
    pub unseen: i64,
}

/// The probe report that a host sent last.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct StoredReport {
    /// The run that sent it.
    pub run_id: Uuid,
    /// When it came.
    pub received_at: OffsetDateTime,
    /// The message, encoded.
    pub body: Vec<u8>,
    /// What is odd about it.
    pub marks: Vec<String>,
}

impl Store {
    /// The last run of every agent, by host and kind.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn agents(&self) -> Result<Vec<AgentStatus>, StoreError> {
        let rows = sqlx::query_as(
            "SELECT r.host, r.agent, r.run_id, r.boot_id, r.version, r.address, r.last_seen_at,
                    r.clock_offset_ns, r.clock_jumps, r.snapshots,
                    -- What was given up is a hole in the sequence as well.
                    GREATEST(r.given_up,
                             COALESCE(upper(range_merge(r.seqs)) - 1, 0)
                             - (SELECT COALESCE(sum(upper(s) - lower(s)), 0)::bigint
                                FROM unnest(r.seqs) s)) AS missing,
                    r.rejected, r.last_rejection, r.failures, r.drops, r.unseen,
                    r.certificate_ends_at,
                    rdmesh_store.lag_seconds(r.watched, r.boot_epoch_ns, r.last_seen_at)
                        AS lag_seconds,
                    COALESCE(p.kernel_release, '') AS kernel_release,
                    p.kernel_release IS NOT NULL AS probe_report_came,
                    COALESCE(p.logical_attached, 0) AS logical_attached,
                    COALESCE(p.logical_total, 0) AS logical_total,
                    COALESCE(p.obstacle, '') AS obstacle,
                    m.hooks AS missing_hooks, m.reasons AS missing_reasons,
                    -- A run that a restart ended is last heard of before the next begins, but
                    -- for what its uplink still tries to hand over.
                    (SELECT count(*) FROM rdmesh_store.agent_runs o
                     WHERE o.host = r.host AND o.agent = r.agent AND o.run_id <> r.run_id
                       AND o.last_seen_at > r.first_hello_at + interval '30 seconds'
                       AND o.first_hello_at < r.last_seen_at
                       AND o.last_seen_at > r.last_seen_at - interval '5 minutes') AS beside
             FROM (SELECT DISTINCT ON (host, agent) * FROM rdmesh_store.agent_runs
                   ORDER BY host, agent, last_seen_at DESC, first_hello_at DESC) r
             LEFT JOIN LATERAL (
                 SELECT kernel_release, logical_attached, logical_total, obstacle
                 FROM rdmesh_store.probe_reports q
                 WHERE q.host = r.host AND r.agent = 1
                 ORDER BY received_at DESC, seq DESC LIMIT 1
             ) p ON true
             LEFT JOIN LATERAL (
                 SELECT COALESCE(array_agg(g.hook ORDER BY g.hook), '{}') AS hooks,
                        COALESCE(array_agg(g.reason ORDER BY g.hook), '{}') AS reasons
                 FROM (SELECT hook, string_agg(reason, '; ' ORDER BY ordinal) AS reason
                       FROM rdmesh_store.probes q
                       WHERE q.host = r.host AND r.agent = 1 AND logical
                       GROUP BY hook
                       -- Neither attached nor replaced by one that is.
                       HAVING bool_and(state NOT IN (1, 3))
                          AND bool_or(missing_because <> ARRAY[$1]::smallint[])) g
             ) m ON true
             ORDER BY r.host, r.agent",
        )
        .bind(i32::from(MissingReason::DriverHasNoOperation))
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }

    /// The probe report that a host sent last.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn last_probe_report(&self, host: &str) -> Result<Option<StoredReport>, StoreError> {
        let report = sqlx::query_as(
            "SELECT run_id, received_at, body, marks FROM rdmesh_store.probe_reports
             WHERE host = $1 ORDER BY received_at DESC, seq DESC LIMIT 1",
        )
        .bind(host)
        .fetch_optional(&self.pool)
        .await?;
        Ok(report)
    }

    /// What the probes of a run counted so far.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn probe_counts(
        &self,
        host: &str,
        run_id: Uuid,
    ) -> Result<Vec<ProbeCount>, StoreError> {
        let counts = sqlx::query_as(
            "SELECT function, module, failures, drops, unseen FROM rdmesh_store.probe_counts
             WHERE host = $1 AND run_id = $2",
        )
        .bind(host)
        .bind(run_id)
        .fetch_all(&self.pool)
        .await?;
        Ok(counts)
    }

    /// Whether any agent of the host ever said Hello.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn host_is_known(&self, host: &str) -> Result<bool, StoreError> {
        let row =
            sqlx::query("SELECT EXISTS (SELECT FROM rdmesh_store.hosts WHERE host = $1) AS known")
                .bind(host)
                .fetch_one(&self.pool)
                .await?;
        Ok(row.try_get("known")?)
    }
}

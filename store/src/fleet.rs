//! What a fleet asks of its failures: incidents, what foretold them, classes over time.
//! The documented functions of schema `rdmesh`, so that every asker has the same numbers.

use sqlx::Row;
use time::{Duration, OffsetDateTime};

use crate::ingest::{Signature as Words, Step};
use crate::jobs::{AttemptKey, key_of};
use crate::statistics::{Ended, Share};
use crate::{Store, StoreError};

/// How far from its first failure an attempt's incident is looked for: an incident ends
/// with a day's silence.
const AROUND: Duration = Duration::hours(24);

/// Hosts from which on the same failure is an incident, as `rdmesh.incidents` has it.
const HOSTS_MIN: i64 = 8;

/// Incidents of an answer: a fleet that has more of them has one reason or no order.
const INCIDENTS_MAX: i64 = 1_000;

/// Precursors of an answer.
const PRECURSORS_MAX: i64 = 10_000;

/// A chain without its times and task, for a look at who else has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// Module of the RDMA driver.
    pub driver: String,
    /// What the application asked for.
    pub verb: i16,
    /// Innermost first.
    pub steps: Vec<Step>,
}

impl Signature {
    /// Its number in the store, the same in every collector and as `rdmesh_store.signature_id`
    /// has it: of a failure that no rule calls normal.
    #[must_use]
    pub fn id(&self) -> i64 {
        let words = Words {
            driver: &self.driver,
            verb: self.verb,
            expected: false,
            steps: &self.steps,
        };
        words.id()
    }
}

/// What failing hosts share and others lack.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct SharedFact {
    /// `driver of mlx5_ib`.
    pub fact: String,
    /// `24.10`.
    pub value: String,
    /// When the first of the failing hosts got it; none: they had it all along.
    pub since: Option<OffsetDateTime>,
    /// Failing hosts that have it.
    pub failing: i64,
    /// Failing hosts that told what they are.
    pub failing_of: i64,
    /// Other hosts that have it.
    pub healthy: i64,
    /// Other hosts that told what they are.
    pub healthy_of: i64,
}

/// The same failure on many hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NearIncident {
    /// First such call.
    pub first_at: OffsetDateTime,
    /// Last such call.
    pub last_at: OffsetDateTime,
    /// Hosts.
    pub hosts: i64,
    /// Attempts on them.
    pub attempts: i64,
    /// What they share.
    pub shared: Vec<SharedFact>,
}

/// A row of `rdmesh.incidents`.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Incident {
    /// The signature.
    pub signature_id: i64,
    /// First such call.
    pub first_at: OffsetDateTime,
    /// Last such call.
    pub last_at: OffsetDateTime,
    /// `reg_mr`, ….
    pub verb: String,
    /// Deepest failing function.
    pub function: String,
    /// Its module.
    pub module: String,
    /// Its layer.
    pub layer: String,
    /// Positive.
    pub errno: i32,
    /// Its name.
    pub errno_name: String,
    /// Module of the RDMA driver.
    pub driver: String,
    /// The whole chain, innermost first.
    pub functions: Vec<String>,
    /// Its errnos.
    pub errnos: Vec<i32>,
    /// Hosts.
    pub hosts: i64,
    /// Attempts on them.
    pub attempts: i64,
    /// Failing calls.
    pub calls: i64,
    /// The first four hosts by name.
    pub first_hosts: Vec<String>,
    /// What they share and others lack, in words.
    pub shared: Vec<String>,
}

/// A row of `rdmesh.precursors`.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct Precursor {
    /// The job.
    pub job_id: String,
    /// How often it had been requeued.
    pub requeue: i64,
    /// How often its workers had been restarted.
    pub restart: i64,
    /// The host.
    pub host: String,
    /// The function that decided.
    pub function: String,
    /// Positive.
    pub errno: i32,
    /// Its name.
    pub errno_name: String,
    /// First such call within a day before the attempt.
    pub rose_at: OffsetDateTime,
    /// First failure of the attempt.
    pub failed_at: OffsetDateTime,
    /// Seconds between the two.
    pub lead_seconds: f64,
    /// Calls in the day before.
    pub calls_day_before: i64,
    /// Calls in the day before that.
    pub calls_day_earlier: i64,
}

impl Precursor {
    /// The attempt.
    pub fn key(&self) -> AttemptKey {
        key_of(self.job_id.clone(), self.requeue, self.restart)
    }
}

/// How wide the steps of a look at time are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeStep {
    /// An hour.
    Hour,
    /// A day of UTC.
    Day,
    /// A week from Monday.
    Week,
    /// A month.
    Month,
}

impl TimeStep {
    /// As Postgres writes it.
    fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }
}

/// A row of `rdmesh.classes`.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct ClassStep {
    /// Start of the step.
    pub step_at: OffsetDateTime,
    /// Class.
    pub class: String,
    /// Of the step.
    #[sqlx(flatten)]
    pub share: Share,
}

/// A row of `rdmesh.class_trends`.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct ClassTrend {
    /// Class.
    pub class: String,
    /// Attempts.
    pub attempts: i64,
    /// Share of all.
    pub of_attempts: Option<f64>,
    /// Share in the earlier half of the steps.
    pub earlier: Option<f64>,
    /// Share in the later half; none: there is only one step.
    pub later: Option<f64>,
    /// `rises`, `falls`, `steady`.
    pub trend: String,
}

impl Store {
    /// The incident that a failure at `at` is part of; none: its signature is on few hosts.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn incident_of(
        &self,
        signature: &Signature,
        at: OffsetDateTime,
    ) -> Result<Option<NearIncident>, StoreError> {
        let (from, to) = (at - AROUND, at + AROUND);
        let id = signature.id();
        if !self.is_on_many_hosts(id, from, to).await? {
            return Ok(None);
        }
        let row = sqlx::query(
            "SELECT i.signature_id, i.first_at, i.last_at, i.hosts, i.attempts
             FROM rdmesh_store.incidents($1, $2, $3) i
             WHERE i.first_at <= $4 AND i.last_at >= $4",
        )
        .bind(from)
        .bind(to)
        .bind(id)
        .bind(at)
        .fetch_optional(&self.pool)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let (first_at, last_at) = (row.try_get("first_at")?, row.try_get("last_at")?);
        let shared = sqlx::query_as("SELECT * FROM rdmesh.shared_by($1, $2, $3)")
            .bind(row.try_get::<i64, _>("signature_id")?)
            .bind::<OffsetDateTime>(first_at)
            .bind::<OffsetDateTime>(last_at)
            .fetch_all(&self.pool)
            .await?;
        Ok(Some(NearIncident {
            first_at,
            last_at,
            hosts: row.try_get("hosts")?,
            attempts: row.try_get("attempts")?,
            shared,
        }))
    }

    /// Whether enough hosts have it for an incident: most failures are on a few, and this look
    /// at them is a hundredth of the whole.
    async fn is_on_many_hosts(
        &self,
        signature_id: i64,
        from: OffsetDateTime,
        to: OffsetDateTime,
    ) -> Result<bool, StoreError> {
        let hosts: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM (
                 SELECT FROM rdmesh_store.signature_hours h
                 WHERE h.signature_id = $1 AND h.at >= $2 AND h.at < $3
                 GROUP BY h.host LIMIT $4) o",
        )
        .bind(signature_id)
        .bind(from)
        .bind(to)
        .bind(HOSTS_MIN)
        .fetch_one(&self.pool)
        .await?;
        Ok(hosts >= HOSTS_MIN)
    }

    /// The same failure on many hosts, those on most first.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn incidents(&self, time: Ended) -> Result<Vec<Incident>, StoreError> {
        let rows = sqlx::query_as("SELECT * FROM rdmesh.incidents_in($1, $2) LIMIT $3")
            .bind(time.from)
            .bind(time.to)
            .bind(INCIDENTS_MAX)
            .fetch_all(&self.pool)
            .await?;
        Ok(rows)
    }

    /// What foretold failures, the newest first.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn precursors(&self, ended: Ended) -> Result<Vec<Precursor>, StoreError> {
        let rows = sqlx::query_as("SELECT * FROM rdmesh.precursors_in($1, $2) LIMIT $3")
            .bind(ended.from)
            .bind(ended.to)
            .bind(PRECURSORS_MAX)
            .fetch_all(&self.pool)
            .await?;
        Ok(rows)
    }

    /// Each class's share by step.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn classes(
        &self,
        ended: Ended,
        step: TimeStep,
    ) -> Result<Vec<ClassStep>, StoreError> {
        self.by_step("classes", ended, step).await
    }

    /// Whether the share of a class rises.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn class_trends(
        &self,
        ended: Ended,
        step: TimeStep,
    ) -> Result<Vec<ClassTrend>, StoreError> {
        self.by_step("class_trends", ended, step).await
    }

    async fn by_step<T>(
        &self,
        which: &'static str,
        ended: Ended,
        step: TimeStep,
    ) -> Result<Vec<T>, StoreError>
    where
        T: for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow> + Send + Unpin,
    {
        let rows = sqlx::query_as(&format!("SELECT * FROM rdmesh.{which}_in($1, $2, $3)"))
            .bind(ended.from)
            .bind(ended.to)
            .bind(step.name())
            .fetch_all(&self.pool)
            .await?;
        Ok(rows)
    }
}

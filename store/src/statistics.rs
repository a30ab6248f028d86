//! Shares over the attempts that ended badly: the documented functions of schema
//! `rdmesh`, so that every asker has the same numbers.

use time::OffsetDateTime;

use crate::{Store, StoreError};

/// When attempts ended; none: open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ended {
    /// At or after this.
    pub from: Option<OffsetDateTime>,
    /// Before this.
    pub to: Option<OffsetDateTime>,
}

/// Attempts, their GPU hours, and both as a share of what is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, sqlx::FromRow)]
pub struct Share {
    /// Attempts.
    pub attempts: i64,
    /// GPU hours, as far as known.
    pub gpu_hours: f64,
    /// 0 to 1; none: left out, or nothing is counted.
    pub of_attempts: Option<f64>,
    /// 0 to 1; none: left out, or no hours are known.
    pub of_gpu_hours: Option<f64>,
    /// Attempts whose GPU hours are not known.
    pub unmeasured: i64,
}

/// A row of `rdmesh.misattribution`.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct Misattribution {
    /// Class of the logs; empty: none came.
    pub filed_as: String,
    /// Filed under the network while the failing call is none of the network's.
    pub misattributed: bool,
    /// Of the attempts with a log.
    #[sqlx(flatten)]
    pub share: Share,
}

/// A row of `rdmesh.coverage`.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct Coverage {
    /// `covered`, ….
    pub coverage: String,
    /// Left out of the shares.
    pub excluded: bool,
    /// Of those that are not excluded.
    #[sqlx(flatten)]
    pub share: Share,
}

/// A row of `rdmesh.silent`.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct Silent {
    /// Nothing else was seen.
    pub silent: bool,
    /// Of all.
    #[sqlx(flatten)]
    pub share: Share,
}

/// A row of `rdmesh.lost_hours`.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct LostHours {
    /// Class of the verdict or of the log.
    pub class: String,
    /// `kernel`, `co_signal`, `log`, `nothing`.
    pub told_by: String,
    /// `covered`, …; empty: no failing call tells of it.
    pub coverage: String,
    /// It carries no hours.
    pub excluded: bool,
    /// Of all.
    #[sqlx(flatten)]
    pub share: Share,
}

impl Store {
    /// Under which class logs file attempts for which the kernel shows the failing call.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn misattribution(&self, ended: Ended) -> Result<Vec<Misattribution>, StoreError> {
        self.rows("misattribution", ended).await
    }

    /// Failing calls that logs tell, by whether a probe could show them.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn coverage(&self, ended: Ended) -> Result<Vec<Coverage>, StoreError> {
        self.rows("coverage", ended).await
    }

    /// Attempts with a failing call near which nothing else was seen.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn silent(&self, ended: Ended) -> Result<Vec<Silent>, StoreError> {
        self.rows("silent", ended).await
    }

    /// GPU hours of attempts that ended badly, by class.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn lost_hours(&self, ended: Ended) -> Result<Vec<LostHours>, StoreError> {
        self.rows("lost_hours", ended).await
    }

    /// Attempts that ended badly and have no verdict.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn undiagnosed_in(&self, ended: Ended) -> Result<i64, StoreError> {
        let count = sqlx::query_scalar(
            "SELECT count(*) FROM rdmesh.judged_attempts
             WHERE NOT diagnosed AND ended_at >= COALESCE($1, '-infinity')
               AND ended_at < COALESCE($2, 'infinity')",
        )
        .bind(ended.from)
        .bind(ended.to)
        .fetch_one(&self.pool)
        .await?;
        Ok(count)
    }

    async fn rows<T>(&self, which: &'static str, ended: Ended) -> Result<Vec<T>, StoreError>
    where
        T: for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow> + Send + Unpin,
    {
        let rows = sqlx::query_as(&format!("SELECT * FROM rdmesh.{which}_in($1, $2)"))
            .bind(ended.from)
            .bind(ended.to)
            .fetch_all(&self.pool)
            .await?;
        Ok(rows)
    }
}

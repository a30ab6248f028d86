//! Earlier verdicts of a job.

use crate::jobs::{AttemptKey, key_of};
use crate::{Store, StoreError};

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
    /// Whether the attempt has a verdict.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn has_verdict(&self, key: &AttemptKey) -> Result<bool, StoreError> {
        let found = sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM rdmesh_store.verdicts
                            WHERE job_id = $1 AND requeue = $2 AND restart = $3)",
        )
        .bind(&key.job_id)
        .bind(i64::from(key.requeue))
        .bind(i64::from(key.restart))
        .fetch_one(&self.pool)
        .await?;
        Ok(found)
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

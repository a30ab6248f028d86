//! Failures that several attempts may have made.

use crate::jobs::AttemptKey;
use crate::{Store, StoreError};

/// Failing calls on a host that nobody named while several attempts were placed there:
/// the join gives them to none.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Ambiguous {
    /// The host.
    pub host: String,
    /// How many calls.
    pub calls: i64,
    /// The other attempts, as JOB/REQUEUE or JOB/REQUEUE.RESTART.
    pub others: Vec<String>,
}

impl Store {
    /// Failures that may belong to this attempt or to another one, by host. Failures that
    /// are part of normal work are left out.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn ambiguous_of(&self, key: &AttemptKey) -> Result<Vec<Ambiguous>, StoreError> {
        let rows = sqlx::query_as(
            "WITH mine AS MATERIALIZED (
                 SELECT q.host, w.from_at, w.to_at
                 FROM rdmesh_store.attempt_windows w
                 JOIN rdmesh_store.placements q USING (job_id, requeue, restart)
                 WHERE job_id = $1 AND requeue = $2 AND restart = $3
             ), others AS MATERIALIZED (
                 SELECT q.host, w.from_at, w.to_at,
                        q.job_id || '/' || q.requeue
                        || CASE WHEN q.restart > 0 THEN '.' || q.restart ELSE '' END AS attempt
                 FROM mine m
                 JOIN rdmesh_store.placements q USING (host)
                 JOIN rdmesh_store.attempt_windows w USING (job_id, requeue, restart)
                 WHERE (job_id, requeue, restart) <> ($1, $2, $3)
                   AND w.from_at < m.to_at AND w.to_at > m.from_at
             ), shared AS (
                 SELECT f.host, f.count,
                        ARRAY(SELECT o.attempt FROM others o
                              WHERE o.host = f.host AND f.at >= o.from_at AND f.at < o.to_at)
                            AS attempts
                 FROM mine m
                 JOIN rdmesh_store.failures f
                   ON f.host = m.host AND f.at >= m.from_at AND f.at < m.to_at
                      AND f.group_at > m.from_at - interval '1 minute'
                      AND f.group_at < m.to_at
                 WHERE f.job_id IS NULL AND NOT f.expected
                   AND EXISTS (SELECT FROM others o WHERE o.host = m.host)
             )
             SELECT s.host, rdmesh_store.bounded(sum(s.count)) AS calls,
                    (SELECT array_agg(DISTINCT a ORDER BY a)
                     FROM shared t, unnest(t.attempts) a WHERE t.host = s.host) AS others
             FROM shared s WHERE s.attempts <> '{}'
             GROUP BY s.host ORDER BY s.host",
        )
        .bind(&key.job_id)
        .bind(i64::from(key.requeue))
        .bind(i64::from(key.restart))
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }
}

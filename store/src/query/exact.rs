//! Snapshots as they came.

use sqlx::types::Uuid;

use crate::{Store, StoreError};

/// What is kept of a snapshot, compressed.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct ExactSnapshot {
    /// The snapshot.
    pub body: Vec<u8>,
    /// The one that it is compressed against, which stands by itself; none: it does too.
    pub reference: Option<Vec<u8>>,
}

impl Store {
    /// A snapshot as it came; none: it is not stored, or has aged out.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn exact_snapshot(
        &self,
        host: &str,
        run_id: Uuid,
        sequence: i64,
    ) -> Result<Option<ExactSnapshot>, StoreError> {
        let found = sqlx::query_as(
            "SELECT s.body, r.body AS reference
             FROM rdmesh_store.snapshots s
             LEFT JOIN rdmesh_store.snapshots r
                 ON r.host = s.host AND r.run_id = s.run_id AND r.seq = s.reference_seq
             WHERE s.host = $1 AND s.run_id = $2 AND s.seq = $3",
        )
        .bind(host)
        .bind(run_id)
        .bind(sequence)
        .fetch_optional(&self.pool)
        .await?;
        Ok(found)
    }
}

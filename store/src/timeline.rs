//! What a timeline shows beside failures and co-signals.

use time::OffsetDateTime;

use crate::{Store, StoreError};

/// A window of a wire of a shaped host.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct SpanWindow {
    /// The shaped host.
    pub host: String,
    /// Name of the wire.
    pub wire: String,
    /// Its virtual function.
    pub virtual_function: String,
    /// Begin, collector time.
    pub from_at: OffsetDateTime,
    /// End.
    pub to_at: OffsetDateTime,
    /// Rate in force at its end, bit/s; 0: not shaped.
    pub rate_bps: i64,
    /// Around the shaper.
    pub bypass: bool,
    /// Why it does not show the wire that was asked for, as the contract numbers it.
    pub invalid: Vec<i16>,
}

impl Store {
    /// Windows of the wires of `hosts` that overlap `from` … `to`, by host and wire, oldest
    /// first.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn windows_of(
        &self,
        hosts: &[String],
        from: OffsetDateTime,
        to: OffsetDateTime,
        limit: u32,
    ) -> Result<Vec<SpanWindow>, StoreError> {
        let windows = sqlx::query_as(
            "SELECT shaped_host AS host, wire, virtual_function, at AS from_at, to_at, rate_bps,
                    bypass, invalid
             FROM rdmesh_store.wire_windows
             -- A window lasts a minute at the most.
             WHERE shaped_host = ANY ($1) AND at >= $2 - interval '1 minute' AND at < $3
               AND to_at > $2
             ORDER BY shaped_host, wire, at LIMIT $4",
        )
        .bind(hosts)
        .bind(from)
        .bind(to)
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await?;
        Ok(windows)
    }
}

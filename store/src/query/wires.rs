//! Wires of the fleet, their windows, and stretches of time side by side.

use std::collections::BTreeMap;

use sqlx::postgres::types::PgInterval;
use time::OffsetDateTime;

use crate::{Store, StoreError};

/// Which wires. Empty fields do not filter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WireFilter {
    /// Host of the shaper, or the shaped host.
    pub host: String,
    /// Host of the shaper.
    pub shaper_host: String,
    /// Name of the wire.
    pub wire: String,
    /// Host whose virtual function is shaped.
    pub shaped_host: String,
    /// The virtual function.
    pub virtual_function: String,
}

/// A wire as its last window tells.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct FleetWire {
    /// Host of the shaper.
    pub host: String,
    /// Name of the wire.
    pub wire: String,
    /// Host whose virtual function is shaped.
    pub shaped_host: String,
    /// The virtual function.
    pub virtual_function: String,
    /// Start of the last window, collector time.
    pub at: OffsetDateTime,
    /// Its end.
    pub to_at: OffsetDateTime,
    /// What is odd about it.
    pub marks: Vec<String>,
    /// Windows that the shaper's run gave up so far.
    pub windows_given_up: i64,
    /// The last time without a window.
    pub gap_from_at: Option<OffsetDateTime>,
    /// Its end.
    pub gap_to_at: Option<OffsetDateTime>,
    /// The last window, encoded; its times are those of the shaper's clock.
    pub body: Vec<u8>,
    /// Attempts that use the wire now: jobs,
    pub job_ids: Vec<String>,
    /// their requeues,
    pub requeues: Vec<i64>,
    /// and restarts.
    pub restarts: Vec<i64>,
}

/// The last run of a shaper.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Shaper {
    /// Its host, as it names itself.
    pub host: String,
    /// Where it can be dialled; empty: it did not say.
    pub address: String,
    /// When something came from it last.
    pub last_seen_at: OffsetDateTime,
}

/// How far a watcher has seen each wire: by shaper's host and wire, the start of its
/// latest window.
pub type WindowPlaces = BTreeMap<(String, String), OffsetDateTime>;

/// A window as a watcher gets it.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct StoredWindow {
    /// Host of the shaper.
    pub host: String,
    /// Name of the wire.
    pub wire: String,
    /// Start, collector time.
    pub at: OffsetDateTime,
    /// End.
    pub to_at: OffsetDateTime,
    /// What is odd about it.
    pub marks: Vec<String>,
    /// The message, encoded.
    pub body: Vec<u8>,
}

/// A stretch of time, collector's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Begin.
    pub from: OffsetDateTime,
    /// End.
    pub to: OffsetDateTime,
}

/// Two stretches of time of one wire.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The first.
    pub a: SpanSummary,
    /// The second.
    pub b: SpanSummary,
}

/// Whole windows within a stretch of time; figures of valid ones alone, none where there
/// is no valid one.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct SpanSummary {
    /// Begin.
    pub from_at: OffsetDateTime,
    /// End.
    pub to_at: OffsetDateTime,
    /// Version of the engine.
    pub engine_version: String,
    /// Digest of the configuration.
    pub configuration_hash: String,
    /// Windows.
    pub windows: i64,
    /// Valid ones.
    pub valid_windows: i64,
    /// Time without a window, microseconds.
    #[sqlx(try_from = "PgInterval")]
    pub gaps: Microseconds,
    /// Lowest line rate, bit/s.
    pub lowest_rate_bps: Option<i64>,
    /// Highest line rate, bit/s.
    pub highest_rate_bps: Option<i64>,
    /// Mean rate sent, bit/s.
    pub mean_sent_bps: Option<i64>,
    /// Frames sent.
    pub sent_frames: Option<i64>,
    /// Highest of a window.
    pub queue_frames_p99: Option<i64>,
    /// Highest of a window.
    pub queue_frames_max: Option<i64>,
    /// Highest of a window, nanoseconds.
    pub waited_ns_p99: Option<i64>,
    /// Highest of a window, nanoseconds.
    pub waited_ns_max: Option<i64>,
    /// Frames marked Congestion Experienced.
    pub ce_marks: Option<i64>,
    /// Wire time lost to poll gaps, picoseconds.
    pub lost_ps: Option<i64>,
    /// Frames that a sender sent again.
    pub repeated_frames: Option<i64>,
}

/// A length of time. Sums of gaps have neither months nor days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Microseconds(pub i64);

impl From<PgInterval> for Microseconds {
    fn from(interval: PgInterval) -> Self {
        const DAY: i64 = 86_400_000_000;
        let days = i64::from(interval.months) * 30 + i64::from(interval.days);
        Self(
            interval
                .microseconds
                .saturating_add(days.saturating_mul(DAY)),
        )
    }
}

/// What every filter says, as conditions on `w`.
const FITS: &str = "($1 = '' OR w.host = $1 OR w.shaped_host = $1) AND ($2 = '' OR w.host = $2)
    AND ($3 = '' OR w.wire = $3) AND ($4 = '' OR w.shaped_host = $4)
    AND ($5 = '' OR w.virtual_function = $5)";

impl Store {
    /// Wires by shaper and name, `limit` of them after the first `offset`, with the
    /// attempts that use each at `now`.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn wires(
        &self,
        filter: &WireFilter,
        now: OffsetDateTime,
        offset: u32,
        limit: u32,
    ) -> Result<Vec<FleetWire>, StoreError> {
        let query = format!(
            "SELECT w.host, w.wire, w.shaped_host, w.virtual_function, w.at, w.to_at, w.marks,
                    w.windows_given_up, w.gap_from_at, w.gap_to_at, w.body,
                    j.job_ids, j.requeues, j.restarts
             FROM (SELECT * FROM rdmesh_store.wires w WHERE {FITS}
                   ORDER BY w.host, w.wire OFFSET $7 LIMIT $8) w
             CROSS JOIN LATERAL (
                 SELECT COALESCE(array_agg(p.job_id ORDER BY a.started_at DESC), '{{}}') AS job_ids,
                        COALESCE(array_agg(p.requeue ORDER BY a.started_at DESC), '{{}}') AS requeues,
                        COALESCE(array_agg(p.restart ORDER BY a.started_at DESC), '{{}}') AS restarts
                 FROM rdmesh_store.placements p
                 JOIN rdmesh_store.attempts a USING (job_id, requeue, restart)
                 WHERE p.host = w.shaped_host AND a.state = 2 AND a.started_at <= $6
                   AND (p.virtual_functions = '{{}}'
                        OR w.virtual_function = ANY (p.virtual_functions))
             ) j
             ORDER BY w.host, w.wire"
        );
        let wires = sqlx::query_as(&query)
            .bind(&filter.host)
            .bind(&filter.shaper_host)
            .bind(&filter.wire)
            .bind(&filter.shaped_host)
            .bind(&filter.virtual_function)
            .bind(now)
            .bind(i64::from(offset))
            .bind(i64::from(limit))
            .fetch_all(&self.pool)
            .await?;
        Ok(wires)
    }

    /// The last run of every shaper, by host.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn shapers(&self) -> Result<Vec<Shaper>, StoreError> {
        let shapers = sqlx::query_as(
            "SELECT DISTINCT ON (host) host, address, last_seen_at
             FROM rdmesh_store.agent_runs WHERE agent = 2
             ORDER BY host, first_hello_at DESC, last_seen_at DESC",
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(shapers)
    }

    /// Windows of the wires that fit, oldest first: of a wire among `seen` those after its
    /// place, of another its last one alone, and that only when it ended at `alive_since`
    /// or later. `limit` of them at most; the next call goes on.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn windows_after(
        &self,
        filter: &WireFilter,
        seen: &WindowPlaces,
        alive_since: OffsetDateTime,
        limit: u32,
    ) -> Result<Vec<StoredWindow>, StoreError> {
        let query = format!(
            "SELECT n.host, n.wire, n.at, n.to_at, n.marks, n.body
             FROM (SELECT w.host, w.wire, w.at,
                          COALESCE(c.after, w.at - interval '1 microsecond') AS after
                   FROM rdmesh_store.wires w
                   LEFT JOIN unnest($6::text[], $7::text[], $8::timestamptz[])
                        c (host, wire, after) USING (host, wire)
                   WHERE {FITS} AND w.at > COALESCE(c.after, '-infinity')
                     AND (c.after IS NOT NULL OR w.to_at >= $9)) r
             CROSS JOIN LATERAL (
                 SELECT * FROM rdmesh_store.wire_windows n
                 WHERE n.host = r.host AND n.wire = r.wire AND n.at > r.after AND n.at <= r.at
             ) n
             ORDER BY n.at, n.host, n.wire LIMIT $10"
        );
        let (mut hosts, mut wires, mut after) = (Vec::new(), Vec::new(), Vec::new());
        for ((host, wire), at) in seen {
            hosts.push(host);
            wires.push(wire);
            after.push(*at);
        }
        let windows = sqlx::query_as(&query)
            .bind(&filter.host)
            .bind(&filter.shaper_host)
            .bind(&filter.wire)
            .bind(&filter.shaped_host)
            .bind(&filter.virtual_function)
            .bind(hosts)
            .bind(wires)
            .bind(after)
            .bind(alive_since)
            .bind(i64::from(limit))
            .fetch_all(&self.pool)
            .await?;
        Ok(windows)
    }

    /// Two stretches of time of one wire.
    ///
    /// # Errors
    /// [`StoreError::NotComparable`] when a stretch has no whole window, or the windows
    /// carry different engines or configurations.
    pub async fn compare_wire(
        &self,
        host: &str,
        wire: &str,
        a: Span,
        b: Span,
    ) -> Result<Comparison, StoreError> {
        let rows: Vec<SpanSummary> =
            sqlx::query_as("SELECT * FROM rdmesh.compare_wire($1, $2, $3, $4, $5, $6)")
                .bind(host)
                .bind(wire)
                .bind(a.from)
                .bind(a.to)
                .bind(b.from)
                .bind(b.to)
                .fetch_all(&self.pool)
                .await?;
        match <[SpanSummary; 2]>::try_from(rows) {
            Ok([a, b]) => Ok(Comparison { a, b }),
            Err(rows) => Err(StoreError::Other(format!(
                "a comparison of two stretches has {} rows",
                rows.len()
            ))),
        }
    }
}

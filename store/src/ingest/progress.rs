//! How far runs have got: their sequences, what they watched, and their counters.

use std::collections::BTreeMap;

use sqlx::{PgConnection, Row};
use time::OffsetDateTime;

use crate::StoreError;
use crate::ingest::tables::{drops_of, failures_of};
use crate::ingest::write::{Progress, agents, hosts, run_ids};
use crate::ingest::{Content, DropKind, Heartbeat, Item, NO_SEQUENCE, RunKey, Snapshot};

/// Holes in a run's sequences before the oldest are closed, and separate watched
/// intervals before the oldest are forgotten. A well-behaved agent has none or a few;
/// the bound keeps the row of a bad one small (some 20 kB).
const RANGES_MAX: i64 = 1_024;

/// What a run's row gains.
#[derive(Default)]
struct Gain {
    snapshots: i64,
    heartbeats: i64,
    rejected: i64,
    failures: i64,
    drops: i64,
    unseen: i64,
    jumps: i32,
    given_up: i64,
    rejection: Option<String>,
    inventory_id: Option<String>,
    last_seen_at: Option<OffsetDateTime>,
    boot_epoch_ns: Option<i64>,
    offset_ns: Option<i64>,
}

impl Gain {
    fn add(&mut self, item: &Item) {
        self.last_seen_at = self.last_seen_at.max(Some(item.received_at));
        if let Some(clock) = item.clock {
            self.boot_epoch_ns = Some(clock.boot_epoch_ns);
            self.offset_ns = Some(clock.offset_ns);
            self.jumps += clock.jumps;
        }
        match &item.content {
            Content::Snapshot(snapshot) => self.add_snapshot(snapshot),
            Content::Heartbeat(Heartbeat {
                inventory_id,
                given_up,
                ..
            }) => {
                self.heartbeats += 1;
                self.given_up = self.given_up.max(*given_up);
                self.inventory_id = Some(inventory_id.clone());
            }
            Content::Inventory(inventory) => self.inventory_id = Some(inventory.id.clone()),
            Content::Rejected(reason) => {
                self.rejected += 1;
                self.rejection = Some(reason.clone());
            }
            Content::WireWindow(window) => {
                self.given_up = self.given_up.max(window.windows_given_up);
            }
            Content::ProbeReport(_) => {}
        }
    }

    fn add_snapshot(&mut self, snapshot: &Snapshot) {
        self.snapshots += 1;
        self.given_up = self.given_up.max(snapshot.given_up);
        self.inventory_id = Some(snapshot.inventory_id.clone());
        self.failures = self.failures.saturating_add(failures_of(snapshot));
        let of_kind = |kind| drops_of(snapshot, kind);
        self.drops = self.drops.saturating_add(of_kind(DropKind::Ring));
        self.unseen = self.unseen.saturating_add(of_kind(DropKind::Unseen));
    }
}

const ADVANCE: &str = "
    WITH k AS (
        SELECT * FROM unnest($1::text[], $2::smallint[], $3::uuid[], $4::bigint[], $5::bigint[],
                             $6::bigint[], $7::bigint[], $8::bigint[], $9::int[], $10::bigint[],
                             $11::text[], $12::text[], $13::timestamptz[], $14::bigint[],
                             $15::bigint[], $16::bigint[])
            WITH ORDINALITY k (host, agent, run_id, snapshots, heartbeats, rejected, failures,
                               drops, jumps, given_up, rejection, inventory_id,
                               last_seen_at, boot_epoch_ns, offset_ns, unseen, run)
    ), s AS (
        SELECT run, range_agg(int8range(seq, seq + 1)) AS seqs
        FROM unnest($17::bigint[], $18::bigint[]) f (run, seq) GROUP BY run
    ), w AS (
        SELECT run, range_agg(int8range(from_ns, to_ns)) AS watched
        FROM unnest($19::bigint[], $20::bigint[], $21::bigint[]) f (run, from_ns, to_ns)
        GROUP BY run
    )
    UPDATE rdmesh_store.agent_runs r SET
        seqs = r.seqs + COALESCE(s.seqs, '{}'),
        watched = r.watched + COALESCE(w.watched, '{}'),
        snapshots = r.snapshots + k.snapshots,
        heartbeats = r.heartbeats + k.heartbeats,
        rejected = r.rejected + k.rejected,
        last_rejection = COALESCE(k.rejection, r.last_rejection),
        failures = rdmesh_store.bounded(r.failures::numeric + k.failures),
        drops = rdmesh_store.bounded(r.drops::numeric + k.drops),
        unseen = rdmesh_store.bounded(r.unseen::numeric + k.unseen),
        clock_jumps = r.clock_jumps + k.jumps,
        given_up = GREATEST(r.given_up, k.given_up),
        inventory_id = COALESCE(k.inventory_id, r.inventory_id),
        last_seen_at = GREATEST(r.last_seen_at, k.last_seen_at),
        boot_epoch_ns = COALESCE(k.boot_epoch_ns, r.boot_epoch_ns),
        clock_offset_ns = COALESCE(k.offset_ns, r.clock_offset_ns)
    FROM k LEFT JOIN s USING (run) LEFT JOIN w USING (run)
    WHERE r.host = k.host AND r.agent = k.agent AND r.run_id = k.run_id
    RETURNING k.run,
        COALESCE((SELECT upper(q) - 1 FROM unnest(r.seqs) q WHERE q @> 1::bigint), 0) AS through,
        (SELECT count(*) FROM unnest(r.seqs)) AS seq_ranges,
        (SELECT count(*) FROM unnest(r.watched)) AS watched_ranges";

/// Columns of [`ADVANCE`] that have a row for each item rather than for each run.
#[derive(Default)]
struct PerItem {
    seq_runs: Vec<i64>,
    seqs: Vec<i64>,
    watched_runs: Vec<i64>,
    from_ns: Vec<i64>,
    to_ns: Vec<i64>,
}

impl PerItem {
    fn add(&mut self, run: i64, item: &Item) {
        if item.sequence != NO_SEQUENCE {
            self.seq_runs.push(run);
            self.seqs.push(item.sequence);
        }
        let interval = match &item.content {
            Content::Snapshot(snapshot) => snapshot.interval,
            Content::Heartbeat(heartbeat) => heartbeat.interval,
            _ => return,
        };
        self.watched_runs.push(run);
        self.from_ns.push(interval.from_boot_ns);
        self.to_ns.push(interval.to_boot_ns);
    }
}

/// Adds what the new items bring to the rows of their runs, which are locked.
pub(super) async fn advance_runs(
    connection: &mut PgConnection,
    runs: &[&RunKey],
    new: &[&Item],
) -> Result<Vec<Progress>, StoreError> {
    let number: BTreeMap<&RunKey, i64> = runs.iter().copied().zip(1..).collect();
    let mut gains: BTreeMap<&RunKey, Gain> =
        runs.iter().map(|run| (*run, Gain::default())).collect();
    let mut items = PerItem::default();
    for item in new {
        gains.entry(&item.run).or_default().add(item);
        items.add(number[&*item.run], item);
    }
    let gains: Vec<&Gain> = runs.iter().map(|run| &gains[run]).collect();
    let mut progress = Vec::with_capacity(runs.len());
    for row in update(connection, runs, &gains, items).await? {
        let index = usize::try_from(row.try_get::<i64, _>("run")? - 1).unwrap_or(usize::MAX);
        let Some(run) = runs.get(index).copied() else {
            continue;
        };
        let mut through = row.try_get("through")?;
        if row.try_get::<i64, _>("seq_ranges")? > RANGES_MAX {
            through = close_old_holes(connection, run).await?;
        }
        if row.try_get::<i64, _>("watched_ranges")? > RANGES_MAX {
            forget_old_intervals(connection, run).await?;
        }
        progress.push(Progress {
            run: run.clone(),
            through,
            repeated: 0,
            stored: Vec::new(),
        });
    }
    Ok(progress)
}

async fn update(
    connection: &mut PgConnection,
    runs: &[&RunKey],
    gains: &[&Gain],
    items: PerItem,
) -> Result<Vec<sqlx::postgres::PgRow>, StoreError> {
    fn column<T>(gains: &[&Gain], field: impl Fn(&Gain) -> T) -> Vec<T> {
        gains.iter().map(|gain| field(gain)).collect()
    }
    let rows = sqlx::query(ADVANCE)
        .bind(hosts(runs))
        .bind(agents(runs))
        .bind(run_ids(runs))
        .bind(column(gains, |g| g.snapshots))
        .bind(column(gains, |g| g.heartbeats))
        .bind(column(gains, |g| g.rejected))
        .bind(column(gains, |g| g.failures))
        .bind(column(gains, |g| g.drops))
        .bind(column(gains, |g| g.jumps))
        .bind(column(gains, |g| g.given_up))
        .bind(column(gains, |g| g.rejection.clone()))
        .bind(column(gains, |g| g.inventory_id.clone()))
        .bind(column(gains, |g| g.last_seen_at))
        .bind(column(gains, |g| g.boot_epoch_ns))
        .bind(column(gains, |g| g.offset_ns))
        .bind(column(gains, |g| g.unseen))
        .bind(items.seq_runs)
        .bind(items.seqs)
        .bind(items.watched_runs)
        .bind(items.from_ns)
        .bind(items.to_ns)
        .fetch_all(connection)
        .await?;
    Ok(rows)
}

/// Fills the holes before the newer half of the ranges: what is missing there counts
/// as lost. Returns how far the run has got.
async fn close_old_holes(connection: &mut PgConnection, run: &RunKey) -> Result<i64, StoreError> {
    let through = sqlx::query_scalar(
        "UPDATE rdmesh_store.agent_runs r SET seqs = r.seqs + int8multirange(int8range(1,
             (SELECT lower(q) FROM unnest(r.seqs) q ORDER BY q DESC OFFSET $4 LIMIT 1)))
         WHERE host = $1 AND agent = $2 AND run_id = $3
         RETURNING (SELECT upper(q) - 1 FROM unnest(seqs) q WHERE q @> 1::bigint)",
    )
    .bind(&run.host)
    .bind(run.agent)
    .bind(run.run_id)
    .bind(RANGES_MAX / 2)
    .fetch_one(&mut *connection)
    .await?;
    Ok(through)
}

async fn forget_old_intervals(
    connection: &mut PgConnection,
    run: &RunKey,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE rdmesh_store.agent_runs r SET watched = (
             SELECT range_agg(q) FROM (
                 SELECT q FROM unnest(r.watched) q ORDER BY q DESC LIMIT $4) newest (q))
         WHERE host = $1 AND agent = $2 AND run_id = $3",
    )
    .bind(&run.host)
    .bind(run.agent)
    .bind(run.run_id)
    .bind(RANGES_MAX / 2)
    .execute(&mut *connection)
    .await?;
    Ok(())
}

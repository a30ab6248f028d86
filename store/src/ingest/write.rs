//! A batch of items of many runs in one transaction.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::types::Uuid;
use sqlx::{PgConnection, Row};
use time::OffsetDateTime;

use crate::ingest::small::{note_attempts, store_inventory, store_probes};
use crate::ingest::tables::{LargeTables, drops_of, failures_of};
use crate::ingest::{Content, Heartbeat, Item, RunKey, Snapshot};
use crate::partitions::week_of;
use crate::{Store, StoreError};

/// Holes in a run's sequences before the oldest are closed, and separate watched
/// intervals before the oldest are forgotten. A well-behaved agent has none or a few;
/// the bound keeps the row of a bad one small (some 20 kB).
const RANGES_MAX: i64 = 1_024;

/// How far a run has got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The run.
    pub run: RunKey,
    /// Everything up to this sequence is committed or rejected.
    pub through: i64,
    /// Items of this batch that had been stored before.
    pub repeated: u64,
}

impl Store {
    /// Stores a batch: all of it or nothing. Returns how far each of its runs has got.
    ///
    /// # Errors
    /// [`StoreError::UnknownRun`] for a run without Hello; [`StoreError::Data`] when
    /// Postgres refused a value of one of the items; else see
    /// [`StoreError::is_retryable`].
    pub async fn ingest(&self, items: &[Item]) -> Result<Vec<Progress>, StoreError> {
        self.ensure_weeks(weeks(items)).await?;
        let result = self.ingest_into_partitions(items).await;
        if matches!(result, Err(StoreError::NoPartition(_))) {
            self.forget_weeks();
        }
        result
    }

    async fn ingest_into_partitions(&self, items: &[Item]) -> Result<Vec<Progress>, StoreError> {
        // Sorted, so that two collectors that write the same runs lock them in the
        // same order.
        let runs: Vec<&RunKey> = items
            .iter()
            .map(|item| &*item.run)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let mut transaction = self.pool.begin().await?;
        let fresh = lock_and_select_new(&mut transaction, &runs, items).await?;
        let new: Vec<&Item> = fresh.iter().map(|index| &items[*index]).collect();
        let mut tables = LargeTables::new();
        for item in &new {
            match &item.content {
                Content::Snapshot(snapshot) => tables.add_snapshot(item, snapshot),
                Content::WireWindow(window) => tables.add_wire_window(item, window),
                _ => {}
            }
        }
        tables.send(&mut transaction).await?;
        for item in &new {
            match &item.content {
                Content::ProbeReport(report) => {
                    store_probes(&mut transaction, item, report).await?
                }
                Content::Inventory(inventory) => {
                    store_inventory(&mut transaction, item, inventory).await?;
                }
                _ => {}
            }
        }
        note_attempts(&mut transaction, &new).await?;
        let mut progress = advance_runs(&mut transaction, &runs, &new).await?;
        transaction.commit().await?;
        for progress in &mut progress {
            let of_run = |item: &&Item| *item.run == progress.run;
            let sent = items.iter().filter(of_run).count();
            let stored = new.iter().copied().filter(of_run).count();
            progress.repeated = (sent - stored) as u64;
        }
        Ok(progress)
    }
}

/// Weeks into which rows of the batch fall.
fn weeks(items: &[Item]) -> BTreeSet<i32> {
    let mut weeks = BTreeSet::new();
    for item in items {
        match &item.content {
            Content::Snapshot(snapshot) => {
                weeks.insert(week_of(snapshot.ended_at));
                weeks.extend(snapshot.chains.iter().map(|c| week_of(c.first_at)));
                weeks.extend(snapshot.co_signals.iter().map(|s| week_of(s.at)));
            }
            Content::WireWindow(window) => {
                weeks.insert(week_of(window.from_at));
            }
            _ => {}
        }
    }
    weeks
}

/// Locks the runs and returns the indices of items that were not stored before, each
/// sequence once, in the order of the batch.
async fn lock_and_select_new(
    connection: &mut PgConnection,
    runs: &[&RunKey],
    items: &[Item],
) -> Result<Vec<usize>, StoreError> {
    let run_index: BTreeMap<&RunKey, usize> = runs
        .iter()
        .enumerate()
        .map(|(index, run)| (*run, index))
        .collect();
    let item_runs: Vec<i64> = items
        .iter()
        .map(|item| run_index[&*item.run] as i64 + 1)
        .collect();
    let sequences: Vec<i64> = items.iter().map(|item| item.sequence).collect();
    let rows = sqlx::query(
        "WITH locked AS MATERIALIZED (
             SELECT k.run, r.seqs
             FROM unnest($1::text[], $2::smallint[], $3::uuid[])
                  WITH ORDINALITY k (host, agent, run_id, run)
             JOIN rdmesh_store.agent_runs r USING (host, agent, run_id)
             ORDER BY k.run
             FOR UPDATE OF r
         ), fresh AS (
             SELECT min(i.item) AS item
             FROM unnest($4::bigint[], $5::bigint[]) WITH ORDINALITY i (run, seq, item)
             JOIN locked l USING (run)
             WHERE NOT l.seqs @> i.seq
             GROUP BY i.run, i.seq
         )
         SELECT (SELECT count(*) FROM locked) AS known, item FROM fresh
         UNION ALL SELECT count(*), NULL FROM locked
         ORDER BY item NULLS FIRST",
    )
    .bind(hosts(runs))
    .bind(agents(runs))
    .bind(run_ids(runs))
    .bind(item_runs)
    .bind(sequences)
    .fetch_all(&mut *connection)
    .await?;
    let known: i64 = rows.first().map_or(Ok(0), |row| row.try_get("known"))?;
    if usize::try_from(known).ok() != Some(runs.len()) {
        return Err(StoreError::UnknownRun);
    }
    rows.iter()
        .filter_map(|row| row.try_get::<Option<i64>, _>("item").transpose())
        .map(|item| Ok(usize::try_from(item? - 1).unwrap_or(usize::MAX)))
        .collect()
}

fn hosts(runs: &[&RunKey]) -> Vec<String> {
    runs.iter().map(|run| run.host.clone()).collect()
}

fn agents(runs: &[&RunKey]) -> Vec<i16> {
    runs.iter().map(|run| run.agent).collect()
}

fn run_ids(runs: &[&RunKey]) -> Vec<Uuid> {
    runs.iter().map(|run| run.run_id).collect()
}

/// What a run's row gains.
#[derive(Default)]
struct Gain {
    snapshots: i64,
    heartbeats: i64,
    rejected: i64,
    failures: i64,
    drops: i64,
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
            Content::ProbeReport(_) | Content::WireWindow(_) => {}
        }
    }

    fn add_snapshot(&mut self, snapshot: &Snapshot) {
        self.snapshots += 1;
        self.given_up = self.given_up.max(snapshot.given_up);
        self.inventory_id = Some(snapshot.inventory_id.clone());
        self.failures = self.failures.saturating_add(failures_of(snapshot));
        self.drops = self.drops.saturating_add(drops_of(snapshot));
    }
}

const ADVANCE: &str = "
    WITH k AS (
        SELECT * FROM unnest($1::text[], $2::smallint[], $3::uuid[], $4::bigint[], $5::bigint[],
                             $6::bigint[], $7::bigint[], $8::bigint[], $9::int[], $10::bigint[],
                             $11::text[], $12::text[], $13::timestamptz[], $14::bigint[],
                             $15::bigint[])
            WITH ORDINALITY k (host, agent, run_id, snapshots, heartbeats, rejected, failures,
                               drops, jumps, given_up, rejection, inventory_id,
                               last_seen_at, boot_epoch_ns, offset_ns, run)
    ), s AS (
        SELECT run, range_agg(int8range(seq, seq + 1)) AS seqs
        FROM unnest($16::bigint[], $17::bigint[]) f (run, seq) GROUP BY run
    ), w AS (
        SELECT run, range_agg(int8range(from_ns, to_ns)) AS watched
        FROM unnest($18::bigint[], $19::bigint[], $20::bigint[]) f (run, from_ns, to_ns)
        GROUP BY run
    )
    UPDATE rdmesh_store.agent_runs r SET
        seqs = r.seqs + COALESCE(s.seqs, '{}'),
        watched = r.watched + COALESCE(w.watched, '{}'),
        snapshots = r.snapshots + k.snapshots,
        heartbeats = r.heartbeats + k.heartbeats,
        rejected = r.rejected + k.rejected,
        last_rejection = COALESCE(k.rejection, r.last_rejection),
        failures = r.failures + k.failures,
        drops = r.drops + k.drops,
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

async fn advance_runs(
    connection: &mut PgConnection,
    runs: &[&RunKey],
    new: &[&Item],
) -> Result<Vec<Progress>, StoreError> {
    let mut gains: BTreeMap<&RunKey, Gain> =
        runs.iter().map(|run| (*run, Gain::default())).collect();
    let number: BTreeMap<&RunKey, i64> = runs.iter().copied().zip(1..).collect();
    let (mut seq_runs, mut seqs) = (Vec::new(), Vec::new());
    let (mut watched_runs, mut from_ns, mut to_ns) = (Vec::new(), Vec::new(), Vec::new());
    for item in new {
        gains.entry(&item.run).or_default().add(item);
        seq_runs.push(number[&*item.run]);
        seqs.push(item.sequence);
        let interval = match &item.content {
            Content::Snapshot(snapshot) => snapshot.interval,
            Content::Heartbeat(heartbeat) => heartbeat.interval,
            _ => continue,
        };
        watched_runs.push(number[&*item.run]);
        from_ns.push(interval.from_boot_ns);
        to_ns.push(interval.to_boot_ns);
    }
    let gains: Vec<&Gain> = runs.iter().map(|run| &gains[run]).collect();
    let longs = |field: fn(&Gain) -> i64| gains.iter().map(|g| field(g)).collect::<Vec<i64>>();
    let rows = sqlx::query(ADVANCE)
        .bind(hosts(runs))
        .bind(agents(runs))
        .bind(run_ids(runs))
        .bind(longs(|g| g.snapshots))
        .bind(longs(|g| g.heartbeats))
        .bind(longs(|g| g.rejected))
        .bind(longs(|g| g.failures))
        .bind(longs(|g| g.drops))
        .bind(gains.iter().map(|g| g.jumps).collect::<Vec<i32>>())
        .bind(longs(|g| g.given_up))
        .bind(
            gains
                .iter()
                .map(|g| g.rejection.clone())
                .collect::<Vec<_>>(),
        )
        .bind(
            gains
                .iter()
                .map(|g| g.inventory_id.clone())
                .collect::<Vec<_>>(),
        )
        .bind(gains.iter().map(|g| g.last_seen_at).collect::<Vec<_>>())
        .bind(gains.iter().map(|g| g.boot_epoch_ns).collect::<Vec<_>>())
        .bind(gains.iter().map(|g| g.offset_ns).collect::<Vec<_>>())
        .bind(seq_runs)
        .bind(seqs)
        .bind(watched_runs)
        .bind(from_ns)
        .bind(to_ns)
        .fetch_all(&mut *connection)
        .await?;
    let mut progress = Vec::with_capacity(rows.len());
    for row in rows {
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
        });
    }
    Ok(progress)
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

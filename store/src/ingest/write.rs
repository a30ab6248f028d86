//! A batch of items of many runs in one transaction.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use sqlx::types::Uuid;
use sqlx::{PgConnection, Row};

use crate::ingest::hours::add_hours;
use crate::ingest::progress::advance_runs;
use crate::ingest::small::{note_attempts, store_inventory, store_probes};
use crate::ingest::tables::store_large;
use crate::ingest::wires::note_wires;
use crate::ingest::words::Words;
use crate::ingest::{Content, Item, NO_SEQUENCE, RunKey};
use crate::partitions::week_of;
use crate::{Store, StoreError};

/// How far a run has got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The run.
    pub run: RunKey,
    /// Everything up to this sequence is committed or rejected.
    pub through: i64,
    /// Items of this batch that had been stored before.
    pub repeated: u64,
    /// Sequences that this batch stored, in their order.
    pub stored: Vec<i64>,
}

impl Store {
    /// Stores a batch: all of it or nothing. Returns how far each of its runs has got.
    ///
    /// # Errors
    /// [`StoreError::UnknownRun`] for a run without Hello; [`StoreError::Data`] when
    /// Postgres refused a value of one of the items; else see
    /// [`StoreError::is_retryable`].
    pub async fn ingest<I>(&self, items: &[I]) -> Result<Vec<Progress>, StoreError>
    where
        I: Borrow<Item>,
    {
        let items: Vec<&Item> = items.iter().map(Borrow::borrow).collect();
        self.ingest_all(&items).await
    }

    async fn ingest_all(&self, items: &[&Item]) -> Result<Vec<Progress>, StoreError> {
        self.ensure_weeks(weeks(items)).await?;
        let result = self.ingest_into_partitions(items).await;
        if matches!(result, Err(StoreError::NoPartition(_))) {
            self.forget_weeks();
        }
        result
    }

    async fn ingest_into_partitions(&self, items: &[&Item]) -> Result<Vec<Progress>, StoreError> {
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
        let new: Vec<&Item> = fresh.iter().map(|index| items[*index]).collect();
        let words = Words::of(&new);
        let unknown = words.unknown(&self.known_words());
        words.store(&mut transaction, &unknown).await?;
        store_large(&mut transaction, &new, &words).await?;
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
        add_hours(&mut transaction, &new, &words).await?;
        note_attempts(&mut transaction, &new).await?;
        note_wires(&mut transaction, &new).await?;
        let mut progress = advance_runs(&mut transaction, &runs, &new).await?;
        transaction.commit().await?;
        self.known_words().extend(unknown);
        for progress in &mut progress {
            let of_run = |item: &&Item| *item.run == progress.run;
            let sent = items.iter().copied().filter(of_run).count();
            let stored = new.iter().copied().filter(of_run);
            progress.stored = stored.map(|item| item.sequence).collect();
            progress.stored.sort_unstable();
            progress.repeated = (sent - progress.stored.len()) as u64;
        }
        Ok(progress)
    }
}

/// Weeks into which rows of the batch fall.
fn weeks(items: &[&Item]) -> BTreeSet<i32> {
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
    items: &[&Item],
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
             -- Items without a sequence are each their own.
             GROUP BY i.run, i.seq, CASE WHEN i.seq = $6 THEN i.item END
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
    .bind(NO_SEQUENCE)
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

pub(super) fn hosts(runs: &[&RunKey]) -> Vec<String> {
    runs.iter().map(|run| run.host.clone()).collect()
}

pub(super) fn agents(runs: &[&RunKey]) -> Vec<i16> {
    runs.iter().map(|run| run.agent).collect()
}

pub(super) fn run_ids(runs: &[&RunKey]) -> Vec<Uuid> {
    runs.iter().map(|run| run.run_id).collect()
}

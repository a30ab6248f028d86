//! A writer: takes items in order, commits them in batches, tells the ledgers.

use std::sync::Arc;
use std::time::Duration;

use rdmesh_store::ingest::{Content, Item, NO_SEQUENCE, Progress};
use rdmesh_store::{Store, StoreError};
use tokio::time::{Instant, sleep, timeout_at};

use crate::ingest::exact::References;
use crate::ingest::ledger::Ledger;
use crate::ingest::limits::{BATCH_MAX_BYTES, REASON_MAX_BYTES, TOO_SLOW_FROM_BYTES};
use crate::ingest::queue::{Next, QueueEnd, Queued, Room};
use crate::live::Live;
use crate::metrics::IngestMetrics;
use crate::status;
use crate::wires::WireFigures;

/// Longest wait between two tries of a batch: Postgres is back within seconds of a
/// restart, and recovery must not wait much longer than it.
const RETRY_WAIT_MAX: Duration = Duration::from_secs(1);

/// How a writer batches and retries.
#[derive(Debug, Clone, Copy)]
pub struct WriterPace {
    /// Items of one transaction at most.
    pub batch_items: usize,
    /// How long a batch waits for more.
    pub batch_wait: Duration,
    /// How long a batch is tried again.
    pub retry_for: Duration,
}

/// An item of a batch, and where it came from.
struct Entry {
    item: Item,
    weight: usize,
    sequence: u64,
    ledger: Arc<Ledger>,
    _room: Room,
    /// The message of a snapshot that is compressed by itself: once it is stored, others may
    /// be compressed against it.
    message: Option<Vec<u8>>,
}

impl Entry {
    fn new(queued: Queued, references: &References) -> Self {
        let weight = queued.item.weight;
        let (item, message) = queued.item.into_item(references);
        let alone = matches!(&item.content, Content::Snapshot(s) if s.reference_seq.is_none());
        Self {
            weight,
            item,
            sequence: queued.sequence,
            ledger: queued.ledger,
            _room: queued.room,
            message: message.filter(|_| alone),
        }
    }
}

/// One of the tasks that write.
#[derive(Debug)]
pub struct Writer {
    store: Store,
    pace: WriterPace,
    metrics: IngestMetrics,
    wires: WireFigures,
    live: Live,
    references: References,
}

impl Writer {
    /// A writer into `store`, which notes in `wires` what windows say and tells `live` of
    /// failures.
    #[must_use]
    pub fn new(store: Store, pace: WriterPace, wires: WireFigures, live: Live) -> Self {
        Self {
            store,
            pace,
            metrics: IngestMetrics::new(),
            wires,
            live,
            references: References::default(),
        }
    }

    /// Writes until every sender is gone and the queue is empty.
    pub async fn run(mut self, mut queue: QueueEnd) {
        while let Some(batch) = self.collect(&mut queue).await {
            self.write(batch).await;
        }
    }

    /// Items that wait, up to a batch; a lone item waits a little for company.
    async fn collect(&self, queue: &mut QueueEnd) -> Option<Vec<Entry>> {
        let first = queue.next().await?;
        let mut weight = first.item.weight;
        let mut batch = vec![Entry::new(first, &self.references)];
        let until = Instant::now() + self.pace.batch_wait;
        while batch.len() < self.pace.batch_items && weight < BATCH_MAX_BYTES {
            match queue.take(BATCH_MAX_BYTES - weight) {
                Next::Item(queued) => {
                    weight += queued.item.weight;
                    batch.push(Entry::new(*queued, &self.references));
                }
                Next::TooHeavy | Next::Closed => break,
                Next::Nothing => {
                    if timeout_at(until, queue.changed()).await.is_err() {
                        break;
                    }
                }
            }
        }
        Some(batch)
    }

    /// Writes a batch. Where Postgres refuses it, or takes too long, it is written in
    /// parts, in order, down to the one item that is at fault.
    async fn write(&mut self, batch: Vec<Entry>) {
        let mut parts = vec![batch];
        while let Some(mut part) = parts.pop() {
            part.retain(|entry| !entry.ledger.is_failed());
            if part.is_empty() {
                continue;
            }
            match self.commit(&mut part).await {
                Ok(()) => self.settle(&part),
                Err(error) if may_be_one_items_fault(&error) => {
                    if let [_] = part[..] {
                        self.at_fault(part, &error).await;
                        continue;
                    }
                    tracing::warn!(items = part.len(), %error, "batch is written in parts");
                    self.metrics.retried();
                    let later = part.split_off(part.len() / 2);
                    parts.extend([later, part]);
                }
                Err(error) => self.send_off(&part, &error),
            }
        }
    }

    /// One item that Postgres does not take: it becomes a rejection where the item itself
    /// is at fault.
    async fn at_fault(&mut self, mut part: Vec<Entry>, error: &StoreError) {
        for entry in &mut part {
            let Some(reason) = fault(entry, error) else {
                self.send_off(std::slice::from_ref(entry), error);
                continue;
            };
            let (host, sequence) = (&entry.item.run.host, entry.item.sequence);
            tracing::warn!(%host, sequence, %error, "postgres does not take an item");
            let reason = rdmesh_store::text::storable(reason.as_bytes(), REASON_MAX_BYTES).text;
            entry.item.content = Content::Rejected(reason);
            let entry = std::slice::from_mut(entry);
            match self.commit(entry).await {
                Ok(()) => self.settle(entry),
                // Not even the rejection can be kept: it is told all the same, or the
                // agent would come again with the item for ever.
                Err(error) if error.is_about_data() => {
                    tracing::error!(sequence, %error, "a rejection was not stored");
                    self.settle(entry);
                }
                Err(error) => self.send_off(entry, &error),
            }
        }
    }

    /// Commits, trying again within bounds while Postgres is away.
    async fn commit(&mut self, part: &mut [Entry]) -> Result<(), StoreError> {
        let progress = self.commit_items(part).await?;
        for entry in part {
            let (Content::Snapshot(snapshot), Some(message)) =
                (&entry.item.content, entry.message.take())
            else {
                continue;
            };
            let run = progress.iter().find(|run| run.run == *entry.item.run);
            // What came again had been stored before, maybe against another one.
            if run.is_some_and(|run| run.stored.binary_search(&entry.item.sequence).is_ok()) {
                let week = rdmesh_store::week_of(snapshot.ended_at);
                let sequence = entry.item.sequence;
                self.references
                    .keep(&entry.item.run, week, sequence, message);
            }
        }
        Ok(())
    }

    async fn commit_items(&self, part: &[Entry]) -> Result<Vec<Progress>, StoreError> {
        let items: Vec<&Item> = part.iter().map(|entry| &entry.item).collect();
        let give_up_at = Instant::now() + self.pace.retry_for;
        let mut wait = Duration::ZERO;
        loop {
            let began = Instant::now();
            match self.store.ingest(&items).await {
                Ok(progress) => {
                    let repeated = progress.iter().map(|run| run.repeated).sum();
                    self.metrics
                        .committed(items.len() as u64, repeated, began.elapsed());
                    self.wires.committed(&items);
                    self.live.committed(&items, &progress);
                    return Ok(progress);
                }
                Err(error) if error.is_retryable() => {
                    wait = (wait * 2).max(error.retry_after()).min(RETRY_WAIT_MAX);
                    if Instant::now() + wait > give_up_at {
                        return Err(error);
                    }
                    tracing::debug!(items = items.len(), %error, "batch is tried again");
                    self.metrics.retried();
                    sleep(wait).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Their agents keep what is not acknowledged and come again.
    fn send_off(&self, part: &[Entry], error: &StoreError) {
        tracing::error!(items = part.len(), %error, "batch not stored; agents keep it and come again");
        self.metrics.sent_off(part.len() as u64);
        let status = status::for_agent(error);
        for entry in part {
            entry.ledger.fail(status.clone());
        }
    }

    /// Tells the ledgers what is committed.
    fn settle(&self, part: &[Entry]) {
        for entry in part {
            let rejected = match &entry.item.content {
                Content::Rejected(reason) => {
                    self.metrics.rejected(1);
                    Some(reason.clone())
                }
                _ => None,
            };
            match rejected {
                Some(reason) if entry.item.sequence == NO_SEQUENCE => {
                    entry.ledger.refused(entry.sequence, reason);
                }
                rejected => entry.ledger.committed(entry.sequence, rejected),
            }
        }
    }
}

/// Whether a smaller batch may be stored where this one was not.
fn may_be_one_items_fault(error: &StoreError) -> bool {
    error.is_about_data() || matches!(error, StoreError::TooSlow(_))
}

/// Why an item that was tried alone can never be stored; none where it is not at fault.
fn fault(entry: &Entry, error: &StoreError) -> Option<String> {
    if error.is_about_data() {
        return Some(error.to_string());
    }
    let heavy = entry.weight >= TOO_SLOW_FROM_BYTES;
    heavy.then(|| {
        format!(
            "storing its {} bytes of rows takes longer than a statement may; report fewer \
             chains or counters at once",
            entry.weight
        )
    })
}

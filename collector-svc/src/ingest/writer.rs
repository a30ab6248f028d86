//! A writer: takes items in order, commits them in batches, tells the ledgers.

use std::time::Duration;

use rdmesh_store::ingest::{Content, Item, NO_SEQUENCE};
use rdmesh_store::{Store, StoreError};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::Status;

use crate::ingest::limits::REASON_MAX_BYTES;
use crate::ingest::queue::Queued;
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

/// Where an item came from.
struct Tag {
    sequence: u64,
    ledger: std::sync::Arc<crate::ingest::ledger::Ledger>,
    _room: tokio::sync::OwnedSemaphorePermit,
}

/// One of the tasks that write.
#[derive(Debug)]
pub struct Writer {
    store: Store,
    pace: WriterPace,
    metrics: IngestMetrics,
    wires: WireFigures,
}

impl Writer {
    /// A writer into `store`, which notes in `wires` what windows say.
    #[must_use]
    pub fn new(store: Store, pace: WriterPace, wires: WireFigures) -> Self {
        Self {
            store,
            pace,
            metrics: IngestMetrics::new(),
            wires,
        }
    }

    /// Writes until every sender is gone and the queue is empty.
    pub async fn run(self, mut queue: mpsc::UnboundedReceiver<Queued>) {
        while let Some(batch) = self.collect(&mut queue).await {
            self.write(batch).await;
        }
    }

    /// Items that wait, up to a batch; a lone item waits a little for company.
    async fn collect(&self, queue: &mut mpsc::UnboundedReceiver<Queued>) -> Option<Vec<Queued>> {
        let mut batch = Vec::new();
        if queue.recv_many(&mut batch, self.pace.batch_items).await == 0 {
            return None;
        }
        let until = Instant::now() + self.pace.batch_wait;
        while batch.len() < self.pace.batch_items {
            match timeout_at(until, queue.recv()).await {
                Ok(Some(queued)) => batch.push(queued),
                Ok(None) | Err(_) => break,
            }
        }
        Some(batch)
    }

    async fn write(&self, batch: Vec<Queued>) {
        let (items, tags): (Vec<Item>, Vec<Tag>) = batch
            .into_iter()
            .filter(|queued| !queued.ledger.is_failed())
            .map(
                |Queued {
                     item,
                     sequence,
                     ledger,
                     room,
                 }| {
                    (
                        item,
                        Tag {
                            sequence,
                            ledger,
                            _room: room,
                        },
                    )
                },
            )
            .unzip();
        if items.is_empty() {
            return;
        }
        match self.commit(&items).await {
            Ok(()) => settle(&items, &tags, &self.metrics),
            Err(error) if error.is_about_data() => self.write_one_by_one(items, &tags).await,
            Err(error) => self.send_off(&tags, &error),
        }
    }

    /// Postgres refused a value of one of them: that one becomes a rejection, and the
    /// others are stored.
    async fn write_one_by_one(&self, items: Vec<Item>, tags: &[Tag]) {
        for (mut item, tag) in items.into_iter().zip(tags) {
            if tag.ledger.is_failed() {
                continue;
            }
            let mut result = self.commit(std::slice::from_ref(&item)).await;
            if let Err(error) = &result
                && error.is_about_data()
            {
                tracing::warn!(host = %item.run.host, sequence = item.sequence, %error, "postgres refused an item");
                let reason =
                    rdmesh_store::text::storable(error.to_string().as_bytes(), REASON_MAX_BYTES);
                item.content = Content::Rejected(reason.text);
                result = self.commit(std::slice::from_ref(&item)).await;
            }
            let tag = std::slice::from_ref(tag);
            match result {
                // Not even the rejection can be kept: it is told all the same, or the
                // agent would come again with the item for ever.
                Err(error) if error.is_about_data() => {
                    tracing::error!(host = %item.run.host, sequence = item.sequence, %error, "a rejection was not stored");
                    settle(std::slice::from_ref(&item), tag, &self.metrics);
                }
                Ok(()) => settle(std::slice::from_ref(&item), tag, &self.metrics),
                Err(error) => self.send_off(tag, &error),
            }
        }
    }

    /// Commits, trying again within bounds while Postgres is away.
    async fn commit(&self, items: &[Item]) -> Result<(), StoreError> {
        let give_up_at = Instant::now() + self.pace.retry_for;
        let mut wait = Duration::ZERO;
        loop {
            let began = Instant::now();
            match self.store.ingest(items).await {
                Ok(progress) => {
                    let repeated = progress.iter().map(|run| run.repeated).sum();
                    self.metrics
                        .committed(items.len() as u64, repeated, began.elapsed());
                    self.wires.committed(items);
                    return Ok(());
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
    fn send_off(&self, tags: &[Tag], error: &StoreError) {
        tracing::error!(items = tags.len(), %error, "batch not stored; agents keep it and come again");
        self.metrics.sent_off(tags.len() as u64);
        let status: Status = status::from_store(error);
        for tag in tags {
            tag.ledger.fail(status.clone());
        }
    }
}

fn settle(items: &[Item], tags: &[Tag], metrics: &IngestMetrics) {
    for (item, tag) in items.iter().zip(tags) {
        let rejected = match &item.content {
            Content::Rejected(reason) => {
                metrics.rejected(1);
                Some(reason.clone())
            }
            _ => None,
        };
        match rejected {
            Some(reason) if item.sequence == NO_SEQUENCE => {
                tag.ledger.refused(tag.sequence, reason);
            }
            rejected => tag.ledger.committed(tag.sequence, rejected),
        }
    }
}

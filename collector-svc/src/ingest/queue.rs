//! The queue between streams and writers, bounded by bytes.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use rdmesh_store::ingest::{Item, RunKey};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::ingest::ledger::Ledger;

/// Room is counted in KiB.
const UNIT_BYTES: usize = 1_024;
const UNITS_A_MIB: usize = 1_024;

/// Validated rows take more than the message that they came from: names that a message
/// holds once stand in each row.
const ROWS_TO_MESSAGE: usize = 2;

/// An item on its way to a writer. Its room is free again when it is dropped.
#[derive(Debug)]
pub struct Queued {
    pub(crate) item: Item,
    pub(crate) sequence: u64,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) room: OwnedSemaphorePermit,
}

/// The way in. Cheap to clone; when the last clone is gone the writers finish.
#[derive(Debug, Clone)]
pub struct Queue {
    writers: Arc<Vec<mpsc::UnboundedSender<Queued>>>,
    room: Arc<Semaphore>,
    units: usize,
}

impl Queue {
    /// A queue of `mib` mebibytes, and the ends that `writers` writers read.
    #[must_use]
    pub fn new(mib: usize, writers: usize) -> (Self, Vec<mpsc::UnboundedReceiver<Queued>>) {
        let units = mib.saturating_mul(UNITS_A_MIB).min(Semaphore::MAX_PERMITS);
        let (senders, receivers) = (0..writers.max(1))
            .map(|_| mpsc::unbounded_channel())
            .unzip();
        let queue = Self {
            writers: Arc::new(senders),
            room: Arc::new(Semaphore::new(units)),
            units,
        };
        (queue, receivers)
    }

    /// Waits for room for an item whose message has `bytes` bytes.
    pub(crate) async fn room(self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = (bytes * ROWS_TO_MESSAGE / UNIT_BYTES + 1).min(self.units);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        self.room.acquire_many_owned(units).await.ok()
    }

    /// Hands an item to the writer of its run. Returns whether there still is one.
    pub(crate) fn push(&self, queued: Queued) -> bool {
        let writer = self.writer_of(&queued.item.run);
        queued.ledger.queued();
        self.writers[writer].send(queued).is_ok()
    }

    /// One writer for all of a run keeps its items in order.
    fn writer_of(&self, run: &RunKey) -> usize {
        let mut hasher = DefaultHasher::new();
        run.hash(&mut hasher);
        let writers = self.writers.len() as u64;
        usize::try_from(hasher.finish() % writers).unwrap_or(0)
    }

    /// Share of the room that is taken, 0 to 1.
    pub(crate) fn fill(&self) -> f64 {
        let free = u32::try_from(self.room.available_permits()).unwrap_or(u32::MAX);
        let units = u32::try_from(self.units).unwrap_or(u32::MAX);
        1.0 - f64::from(free) / f64::from(units.max(1))
    }
}

//! The queue between streams and writers: bounded by what its items weigh, and fair among
//! agents.
//!
//! Each writer has lanes, one an agent, and serves them in turn, each for as many bytes of
//! rows as [`TURN_BYTES`]: an agent whose items are heavy waits for several turns, and one
//! whose items are small does not wait behind them.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdmesh_store::ingest::RunKey;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::ingest::item::Incoming;
use crate::ingest::ledger::Ledger;

/// Room is counted in KiB.
const UNIT_BYTES: usize = 1_024;
const UNITS_A_MIB: usize = 1_024;

/// One stream may take an eighth of the queue: its agent cannot leave others without room.
const STREAM_SHARE: usize = 8;

/// Bytes of rows that an agent may write before it is another's turn: a few hundred
/// snapshots of a quiet host, a twentieth of the heaviest item.
const TURN_BYTES: usize = 1 << 20;

/// Room that an item holds until it is dropped: of its stream's share and of the queue.
#[derive(Debug)]
pub(crate) struct Room {
    _share: OwnedSemaphorePermit,
    _queue: OwnedSemaphorePermit,
}

/// An item on its way to a writer. Its room is free again when it is dropped.
#[derive(Debug)]
pub struct Queued {
    pub(crate) item: Incoming,
    pub(crate) sequence: u64,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) room: Room,
}

/// Items of one agent.
#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Queued>,
    /// Bytes of rows that it may still write in this turn.
    credit: usize,
}

/// All lanes of a writer. A lane is in `turns` exactly as long as something waits in it.
#[derive(Debug, Default)]
struct Lanes {
    by_run: HashMap<Arc<RunKey>, Lane>,
    turns: VecDeque<Arc<RunKey>>,
    /// No stream is left that could bring more.
    closed: bool,
    /// The writer is gone.
    gone: bool,
}

/// What a writer gets when it asks.
#[derive(Debug)]
pub(crate) enum Next {
    /// An item.
    Item(Box<Queued>),
    /// The item whose turn it is is heavier than what was asked for.
    TooHeavy,
    /// Nothing waits.
    Nothing,
    /// Nothing waits, and nothing will.
    Closed,
}

impl Lanes {
    fn add(&mut self, queued: Queued) {
        let run = queued.item.run.clone();
        let lane = self.by_run.entry(run.clone()).or_default();
        if lane.waiting.is_empty() {
            self.turns.push_back(run);
        }
        lane.waiting.push_back(queued);
    }

    /// The item whose turn it is, unless it is heavier than `at_most`.
    fn next(&mut self, at_most: usize) -> Next {
        while let Some(run) = self.turns.front().cloned() {
            let Some(lane) = self.by_run.get_mut(&run) else {
                self.turns.pop_front();
                continue;
            };
            let weight = lane.waiting.front().map_or(0, |queued| queued.item.weight);
            if lane.credit < weight {
                lane.credit += TURN_BYTES;
                self.turns.rotate_left(1);
                continue;
            }
            if weight > at_most {
                return Next::TooHeavy;
            }
            lane.credit -= weight;
            let next = lane.waiting.pop_front();
            if lane.waiting.is_empty() {
                // Credit is not saved up: an agent that returns begins anew.
                self.by_run.remove(&run);
                self.turns.pop_front();
            }
            if let Some(queued) = next {
                return Next::Item(Box::new(queued));
            }
        }
        if self.closed {
            Next::Closed
        } else {
            Next::Nothing
        }
    }
}

/// The lanes of a writer, and how it learns of items.
#[derive(Debug, Default)]
struct Shared {
    lanes: Mutex<Lanes>,
    changed: Notify,
}

impl Shared {
    /// Nothing is left half done under the lock.
    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way in of all writers; when the last clone of the queue is gone they finish.
#[derive(Debug)]
struct Ways(Vec<Arc<Shared>>);

impl Drop for Ways {
    fn drop(&mut self) {
        for shared in &self.0 {
            shared.lock().closed = true;
            shared.changed.notify_one();
        }
    }
}

/// A writer's end.
#[derive(Debug)]
pub struct QueueEnd(Arc<Shared>);

impl QueueEnd {
    /// The item whose turn it is; none when there will be no more.
    pub(crate) async fn next(&mut self) -> Option<Queued> {
        loop {
            match self.take(usize::MAX) {
                Next::Item(queued) => return Some(*queued),
                Next::Closed => return None,
                Next::Nothing | Next::TooHeavy => self.0.changed.notified().await,
            }
        }
    }

    /// The item whose turn it is, at once, unless its rows take more than `at_most` bytes.
    pub(crate) fn take(&mut self, at_most: usize) -> Next {
        self.0.lock().next(at_most)
    }

    /// Completes when something was added since the last time, or there will be no more.
    pub(crate) async fn changed(&mut self) {
        self.0.changed.notified().await;
    }
}

impl Drop for QueueEnd {
    fn drop(&mut self) {
        let mut lanes = self.0.lock();
        *lanes = Lanes {
            gone: true,
            ..Lanes::default()
        };
    }
}

/// The way in. Cheap to clone; when the last clone is gone the writers finish.
#[derive(Debug, Clone)]
pub struct Queue {
    writers: Arc<Ways>,
    room: Arc<Semaphore>,
    units: usize,
}

impl Queue {
    /// A queue of `mib` mebibytes, and the ends that `writers` writers read.
    #[must_use]
    pub fn new(mib: usize, writers: usize) -> (Self, Vec<QueueEnd>) {
        let most = usize::try_from(u32::MAX).unwrap_or(usize::MAX);
        let units = mib
            .saturating_mul(UNITS_A_MIB)
            .min(Semaphore::MAX_PERMITS)
            .min(most);
        let shared: Vec<Arc<Shared>> = (0..writers.max(1)).map(|_| Arc::default()).collect();
        let ends = shared.iter().cloned().map(QueueEnd).collect();
        let queue = Self {
            writers: Arc::new(Ways(shared)),
            room: Arc::new(Semaphore::new(units)),
            units,
        };
        (queue, ends)
    }

    /// What one stream may take of it.
    pub(crate) fn share(&self) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(self.share_units()))
    }

    fn share_units(&self) -> usize {
        (self.units / STREAM_SHARE).max(1)
    }

    /// Waits for room for `bytes` bytes, first in the stream's share. What is larger than
    /// all there is takes all of it.
    pub(crate) async fn room(self, share: Arc<Semaphore>, bytes: usize) -> Option<Room> {
        let units = |most: usize| {
            let units = (bytes / UNIT_BYTES + 1).min(most);
            u32::try_from(units).unwrap_or(u32::MAX)
        };
        let share = share.acquire_many_owned(units(self.share_units())).await;
        let queue = self.room.acquire_many_owned(units(self.units)).await;
        Some(Room {
            _share: share.ok()?,
            _queue: queue.ok()?,
        })
    }

    /// Hands an item to the writer of its run. Returns whether there still is one.
    pub(crate) fn push(&self, queued: Queued) -> bool {
        let shared = &self.writers.0[self.writer_of(&queued.item.run)];
        queued.ledger.queued();
        let mut lanes = shared.lock();
        if lanes.gone {
            return false;
        }
        lanes.add(queued);
        drop(lanes);
        shared.changed.notify_one();
        true
    }

    /// One writer for all of a run keeps its items in order.
    fn writer_of(&self, run: &RunKey) -> usize {
        let mut hasher = DefaultHasher::new();
        run.hash(&mut hasher);
        let writers = self.writers.0.len() as u64;
        usize::try_from(hasher.finish() % writers).unwrap_or(0)
    }

    /// Share of the room that is taken, 0 to 1.
    pub(crate) fn fill(&self) -> f64 {
        let free = u32::try_from(self.room.available_permits()).unwrap_or(u32::MAX);
        let units = u32::try_from(self.units).unwrap_or(u32::MAX);
        1.0 - f64::from(free) / f64::from(units.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmesh_store::ingest::Content;
    use time::OffsetDateTime;
    use uuid::Uuid;

    use crate::ingest::item::Pending;

    async fn push(queue: &Queue, share: &Arc<Semaphore>, host: &str, sequence: u64, weight: usize) {
        let run = RunKey {
            host: host.into(),
            agent: 1,
            run_id: Uuid::nil(),
        };
        let item = Incoming {
            run: Arc::new(run),
            sequence: 1,
            received_at: OffsetDateTime::UNIX_EPOCH,
            clock: None,
            content: Pending::Ready(Content::Rejected(String::new())),
            weight,
            held: 2_000,
        };
        let room = queue.clone().room(share.clone(), item.held).await.unwrap();
        assert!(queue.push(Queued {
            item,
            sequence,
            ledger: Arc::default(),
            room,
        }));
    }

    fn taken(end: &mut QueueEnd) -> Vec<(String, u64)> {
        std::iter::from_fn(|| match end.take(usize::MAX) {
            Next::Item(queued) => Some((queued.item.run.host.clone(), queued.sequence)),
            _ => None,
        })
        .collect()
    }

    #[tokio::test]
    async fn a_quiet_agent_does_not_wait_behind_a_noisy_one() {
        let (queue, mut ends) = Queue::new(8, 1);
        let share = queue.share();
        for sequence in 1..=20 {
            push(&queue, &share, "noisy", sequence, 8 * TURN_BYTES).await;
        }
        for sequence in 1..=3 {
            push(&queue, &queue.share(), "quiet", sequence, 1_000).await;
        }
        let order = taken(&mut ends[0]);
        let of = |host: &str| -> Vec<u64> {
            let own = order.iter().filter(|(of, _)| of == host);
            own.map(|(_, sequence)| *sequence).collect()
        };
        assert_eq!(of("noisy"), (1..=20).collect::<Vec<_>>());
        assert_eq!(of("quiet"), [1, 2, 3]);
        // All of the quiet one's come before the second of the noisy one's.
        let last_quiet = order.iter().rposition(|(host, _)| host == "quiet").unwrap();
        assert!(last_quiet <= 3, "{order:?}");
    }

    #[tokio::test]
    async fn equal_agents_take_turns() {
        let (queue, mut ends) = Queue::new(8, 1);
        for host in ["a", "b", "c"] {
            for sequence in 1..=3 {
                push(&queue, &queue.share(), host, sequence, TURN_BYTES).await;
            }
        }
        let hosts: Vec<String> = taken(&mut ends[0]).into_iter().map(|(h, _)| h).collect();
        assert_eq!(hosts, ["a", "b", "c", "a", "b", "c", "a", "b", "c"]);
    }

    #[tokio::test]
    async fn an_item_that_does_not_fit_stays() {
        let (queue, mut ends) = Queue::new(8, 1);
        push(&queue, &queue.share(), "a", 1, 1_000).await;
        assert!(matches!(ends[0].take(999), Next::TooHeavy));
        assert!(matches!(ends[0].take(1_000), Next::Item(_)));
        assert!(matches!(ends[0].take(1_000), Next::Nothing));
        drop(queue);
        assert!(ends[0].next().await.is_none());
    }

    #[tokio::test]
    async fn one_stream_leaves_room_for_others() {
        let (queue, _ends) = Queue::new(8, 1);
        let share = queue.share();
        let one_mib = UNITS_A_MIB * UNIT_BYTES - 1;
        let first = queue.clone().room(share.clone(), one_mib).await;
        let second = queue.clone().room(share.clone(), 1);
        tokio::pin!(second);
        let now = std::future::ready(());
        tokio::select! {
            biased;
            _ = &mut second => panic!("a stream took more than its share"),
            () = now => {}
        }
        assert!((queue.fill() - 0.125).abs() < 0.001, "{}", queue.fill());
        assert!(queue.clone().room(queue.share(), one_mib).await.is_some());
        drop(first);
        assert!(second.await.is_some());
    }
}

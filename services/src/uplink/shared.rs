//! What the makers of items and the task that sends them share.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use prost::Message;
use rdmesh_proto::collector::v1::{Ack, ReportRequest};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::backlog::{Entry, Evicted};
use super::item::{Item, Kind};
use super::queue::{Gap, Head, Queue};
use super::spool::Waker;
use super::{Drained, MAX_ITEM_BYTES, MAX_SLOW_DOWN, UplinkConfig};

/// Bytes of a rejection's reason that are logged.
const MAX_REASON_BYTES: usize = 300;

/// Why an item was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// The collector would refuse it, and everything behind it would wait.
    #[error(
        "the item has {bytes} bytes on the wire and the limit is {limit}; report fewer chains or \
         samples at once"
    )]
    TooLarge {
        /// Its size, bytes.
        bytes: usize,
        /// [`MAX_ITEM_BYTES`].
        limit: usize,
    },
    /// The uplink is draining or has ended.
    #[error("the uplink is closed and takes no more items")]
    Closed,
}

/// How an uplink fares. Counts are of this run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Since when it is connected; `None`: it is not.
    pub connected_since: Option<SystemTime>,
    /// When the last acknowledgement came.
    pub last_ack_at: Option<SystemTime>,
    /// The sequence up to which everything is committed or rejected.
    pub acknowledged_through: u64,
    /// The sequence of the newest item.
    pub newest: u64,
    /// Items that wait for their acknowledgement, sent or not, in memory or on disk.
    pub queued_items: usize,
    /// What they take in memory.
    pub queued_bytes: usize,
    /// Snapshots that will not be sent any more, those of earlier runs in the spool
    /// included.
    pub snapshots_given_up: u64,
    /// Items of all kinds that fell out of memory, or out of the spool.
    pub items_given_up: u64,
    /// Items that the collector will never store.
    pub rejected: u64,
    /// Items that were too large to be queued.
    pub too_large: u64,
    /// Connections that were made; the first one is no reconnect.
    pub connections: u64,
    /// Why the last connection ended or could not be made.
    pub last_error: Option<String>,
}

impl Status {
    /// Connections after the first.
    #[must_use]
    pub fn reconnects(&self) -> u64 {
        self.connections.saturating_sub(1)
    }

    fn count_given_up(&mut self, evicted: Evicted) {
        self.items_given_up += evicted.items;
        self.snapshots_given_up += evicted.snapshots;
    }
}

/// One queue with its counters.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Notify,
    connected: watch::Sender<bool>,
    wall_clock: fn() -> SystemTime,
    /// Whom to tell of changes, where there is a spool.
    spool: Option<Waker>,
    of_earlier_run: bool,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    closed: bool,
    /// The collector asked to hold back until then; outlives the connection.
    held_until: Option<Instant>,
    status: Status,
}

/// What the sender may do next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Send this.
    Send(Entry),
    /// The window is full, or there is nothing to send.
    Wait,
    /// Closed, and nothing waits any more.
    Done,
}

impl Shared {
    pub(crate) fn new(config: &UplinkConfig, wall_clock: fn() -> SystemTime) -> Self {
        let (max_items, max_bytes) = bounds(config);
        Self::of_queue(Queue::new(max_items, max_bytes), wall_clock)
    }

    /// With a spool behind it.
    pub(crate) fn spooled(
        config: &UplinkConfig,
        wall_clock: fn() -> SystemTime,
        spool: Waker,
    ) -> Self {
        Self {
            spool: Some(spool),
            ..Self::new(config, wall_clock)
        }
    }

    /// What a run that has ended left on disk: it takes nothing more.
    pub(crate) fn of_earlier_run(config: &UplinkConfig, on_disk: Gap, spool: Waker) -> Self {
        let (max_items, max_bytes) = bounds(config);
        let queue = Queue::on_disk(max_items, max_bytes, on_disk);
        let shared = Self {
            spool: Some(spool),
            of_earlier_run: true,
            ..Self::of_queue(queue, SystemTime::now)
        };
        let mut state = shared.lock();
        state.closed = true;
        state.status.newest = on_disk.to;
        drop(state);
        shared
    }

    fn of_queue(queue: Queue, wall_clock: fn() -> SystemTime) -> Self {
        let state = State {
            queue,
            closed: false,
            held_until: None,
            status: Status::default(),
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            connected: watch::Sender::new(false),
            wall_clock,
            spool: None,
            of_earlier_run: false,
        }
    }

    /// Whether these items are of a run that has ended.
    pub(crate) fn is_of_earlier_run(&self) -> bool {
        self.of_earlier_run
    }

    /// Whether what waits outlives the process.
    pub(crate) fn has_spool(&self) -> bool {
        self.spool.is_some()
    }

    fn wake_spool(&self) {
        if let Some(spool) = &self.spool {
            spool.look();
        }
    }

    /// A panic elsewhere leaves the counts as they were: nothing here can be half done.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, item: Item) -> Result<u64, PushError> {
        let kind = item.kind();
        let mut request = ReportRequest {
            sequence: u64::MAX,
            item: Some(item.into_wire()),
        };
        let bytes = request.encoded_len();
        let mut state = self.lock();
        if state.closed {
            return Err(PushError::Closed);
        }
        if bytes > MAX_ITEM_BYTES {
            state.status.too_large += 1;
            state.status.snapshots_given_up += u64::from(kind == Kind::Snapshot);
            return Err(PushError::TooLarge {
                bytes,
                limit: MAX_ITEM_BYTES,
            });
        }
        state.status.newest += 1;
        let sequence = state.status.newest;
        request.sequence = sequence;
        let entry = Entry {
            sequence,
            kind,
            bytes: request.encode_to_vec().into(),
        };
        let evicted = state.queue.push(entry);
        state.status.count_given_up(evicted);
        drop(state);
        self.changed.notify_one();
        self.wake_spool();
        if evicted.items > 0 {
            tracing::debug!(
                items = evicted.items,
                "memory is full; gave up the oldest items"
            );
        }
        Ok(sequence)
    }

    pub(crate) fn given_up(&self) -> u64 {
        self.lock().status.snapshots_given_up
    }

    pub(crate) fn status(&self) -> Status {
        let state = self.lock();
        Status {
            queued_items: state.queue.len(),
            queued_bytes: state.queue.memory_bytes(),
            ..state.status.clone()
        }
    }

    /// Takes no more items and lets the sender finish.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    pub(crate) fn is_done(&self) -> bool {
        let state = self.lock();
        state.closed && state.queue.is_empty()
    }

    pub(crate) fn left(&self) -> Drained {
        let state = self.lock();
        Drained {
            items_left: state.queue.len(),
            snapshots_left: state.queue.snapshots(),
            kept_on_disk: self.has_spool() && state.queue.is_written(),
        }
    }

    /// Completes when an item came or the queue was closed; remembers one such event.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What to send after `sent` with at most `window` items in flight.
    pub(crate) fn next(&self, sent: u64, window: usize) -> Next {
        let mut state = self.lock();
        if state.closed && state.queue.is_empty() {
            return Next::Done;
        }
        match state.queue.after(sent) {
            Head::Entry(entry) if state.queue.through(sent) < window => {
                // From now on it may be in flight.
                state.queue.note_sent(entry.sequence);
                Next::Send(entry)
            }
            Head::OnDisk => {
                drop(state);
                self.wake_spool();
                Next::Wait
            }
            _ => Next::Wait,
        }
    }

    /// Whether items up to `sent` wait for their acknowledgement.
    pub(crate) fn owes(&self, sent: u64) -> bool {
        self.lock().queue.through(sent) > 0
    }

    pub(crate) fn connected(&self) {
        let mut state = self.lock();
        state.status.connections += 1;
        state.status.connected_since = Some((self.wall_clock)());
        drop(state);
        self.connected.send_replace(true);
    }

    /// Completes once the collector answered a Hello.
    pub(crate) async fn first_connected(&self) {
        // The sender lives as long as this.
        let _ = self.connected.subscribe().wait_for(|is| *is).await;
    }

    pub(crate) fn disconnected(&self, why: &str) {
        let mut state = self.lock();
        state.status.connected_since = None;
        state.status.last_error = Some(why.to_owned());
    }

    /// Until when the collector asked to hold back; may be past.
    pub(crate) fn held_until(&self) -> Option<Instant> {
        self.lock().held_until
    }

    /// Lets go of what `ack` covers and returns how many items that settled. `sent` is the highest sequence of this connection
    /// or an earlier one: an acknowledgement of more would lose what was never sent.
    pub(crate) fn apply(&self, ack: &Ack, sent: u64, now: Instant) -> usize {
        let mut state = self.lock();
        let before = state.queue.len();
        for rejection in &ack.rejected {
            // Not there: an earlier acknowledgement said so already.
            if rejection.sequence <= sent && state.queue.release(rejection.sequence) {
                state.status.rejected += 1;
                tracing::warn!(
                    sequence = rejection.sequence,
                    reason = shortened(&rejection.reason),
                    "the collector rejected an item"
                );
            }
        }
        if ack.sequence > sent {
            tracing::warn!(
                ack = ack.sequence,
                sent,
                "the collector acknowledged what was not sent"
            );
        }
        let through = ack.sequence.min(sent);
        state.queue.release_through(through);
        state.status.acknowledged_through = state.status.acknowledged_through.max(through);
        state.status.last_ack_at = Some((self.wall_clock)());
        let slow_down = Duration::from_millis(u64::from(ack.slow_down_ms)).min(MAX_SLOW_DOWN);
        state.held_until = (!slow_down.is_zero()).then(|| now + slow_down);
        let settled = before - state.queue.len();
        drop(state);
        if settled > 0 {
            self.wake_spool();
        }
        settled
    }
}

/// What the keeper of the spool does.
impl Shared {
    /// See [`Queue::unwritten`].
    pub(crate) fn unwritten(&self, bytes: usize) -> Vec<Entry> {
        self.lock().queue.unwritten(bytes)
    }

    /// See [`Queue::wrote`].
    pub(crate) fn wrote(&self, through: u64) {
        self.change(|queue| queue.wrote(through));
    }

    /// See [`Queue::set_spooling`].
    pub(crate) fn set_spooling(&self, spooling: bool) {
        self.change(|queue| queue.set_spooling(spooling));
    }

    /// See [`Queue::wants`].
    pub(crate) fn wants(&self) -> Option<u64> {
        self.lock().queue.wants()
    }

    /// See [`Queue::refill`].
    pub(crate) fn refill(&self, entries: Vec<Entry>, reached: u64) -> Evicted {
        let lost = self.change(|queue| queue.refill(entries, reached));
        self.changed.notify_one();
        lost
    }

    /// See [`Queue::nothing_on_disk`].
    pub(crate) fn nothing_on_disk(&self) -> Evicted {
        let lost = self.change(Queue::nothing_on_disk);
        self.changed.notify_one();
        lost
    }

    /// See [`Queue::dropped`]; whoever drops counts.
    pub(crate) fn dropped(&self, items: &[(u64, Kind)]) -> Evicted {
        let dropped = self.lock().queue.dropped(items);
        self.changed.notify_one();
        dropped
    }

    /// Counts what will not be sent any more.
    pub(crate) fn count_given_up(&self, evicted: Evicted) {
        self.lock().status.count_given_up(evicted);
    }

    /// The sequence up to which everything is committed or rejected.
    pub(crate) fn settled_through(&self) -> u64 {
        self.lock().status.acknowledged_through
    }

    /// Everything up to here is on disk.
    pub(crate) fn written_through(&self) -> u64 {
        self.lock().queue.written()
    }

    /// Whether nothing waits.
    pub(crate) fn is_settled(&self) -> bool {
        self.lock().queue.is_empty()
    }

    fn change(&self, change: impl FnOnce(&mut Queue) -> Evicted) -> Evicted {
        let mut state = self.lock();
        let evicted = change(&mut state.queue);
        state.status.count_given_up(evicted);
        evicted
    }
}

/// Items and bytes that memory may hold.
fn bounds(config: &UplinkConfig) -> (usize, usize) {
    (
        usize::try_from(config.memory_items).unwrap_or(usize::MAX),
        usize::try_from(config.memory_bytes).unwrap_or(usize::MAX),
    )
}

/// The first bytes of a text from outside, without control characters.
fn shortened(text: &str) -> String {
    let mut end = text.len().min(MAX_REASON_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end]
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

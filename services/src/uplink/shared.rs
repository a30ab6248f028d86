//! What the makers of items and the task that sends them share.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use prost::Message;
use rdmesh_proto::collector::v1::{Ack, ReportRequest};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::backlog::{Backlog, Entry};
use super::item::{Item, Kind};
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
    /// Items that wait for their acknowledgement, sent or not.
    pub queued_items: usize,
    /// What they take in memory.
    pub queued_bytes: usize,
    /// Snapshots that will not be sent any more.
    pub snapshots_given_up: u64,
    /// Items of all kinds that fell out of memory.
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
}

/// One queue with its counters.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Notify,
    wall_clock: fn() -> SystemTime,
}

#[derive(Debug)]
struct State {
    backlog: Backlog,
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
        let max_items = usize::try_from(config.memory_items).unwrap_or(usize::MAX);
        let max_bytes = usize::try_from(config.memory_bytes).unwrap_or(usize::MAX);
        let state = State {
            backlog: Backlog::new(max_items, max_bytes),
            closed: false,
            held_until: None,
            status: Status::default(),
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            wall_clock,
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
        let evicted = state.backlog.push(entry);
        state.status.items_given_up += evicted.items;
        state.status.snapshots_given_up += evicted.snapshots;
        drop(state);
        self.changed.notify_one();
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
            queued_items: state.backlog.len(),
            queued_bytes: state.backlog.bytes(),
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
        state.closed && state.backlog.is_empty()
    }

    pub(crate) fn left(&self) -> Drained {
        let state = self.lock();
        Drained {
            items_left: state.backlog.len(),
            snapshots_left: state.backlog.snapshots(),
        }
    }

    /// Completes when an item came or the queue was closed; remembers one such event.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What to send after `sent` with at most `window` items in flight.
    pub(crate) fn next(&self, sent: u64, window: usize) -> Next {
        let state = self.lock();
        if state.closed && state.backlog.is_empty() {
            return Next::Done;
        }
        match state.backlog.after(sent) {
            Some(entry) if state.backlog.through(sent) < window => Next::Send(entry.clone()),
            _ => Next::Wait,
        }
    }

    /// Whether items up to `sent` wait for their acknowledgement.
    pub(crate) fn owes(&self, sent: u64) -> bool {
        self.lock().backlog.through(sent) > 0
    }

    pub(crate) fn connected(&self) {
        let mut state = self.lock();
        state.status.connections += 1;
        state.status.connected_since = Some((self.wall_clock)());
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
        let before = state.backlog.len();
        for rejection in &ack.rejected {
            // Not there: an earlier acknowledgement said so already.
            if rejection.sequence <= sent && state.backlog.release(rejection.sequence) {
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
        state.backlog.release_through(through);
        state.status.acknowledged_through = state.status.acknowledged_through.max(through);
        state.status.last_ack_at = Some((self.wall_clock)());
        let slow_down = Duration::from_millis(u64::from(ack.slow_down_ms)).min(MAX_SLOW_DOWN);
        state.held_until = (!slow_down.is_zero()).then(|| now + slow_down);
        before - state.backlog.len()
    }
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

//! Who follows failures as they are stored.
//!
//! A writer announces what it has committed; it never waits for a follower. Each follower
//! has a queue of its own, of bounded length: what does not fit is counted, and told with
//! the next that does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rdmesh_store::ingest::{Content, Item, Progress};
use rdmesh_store::query::StoredSnapshot;
use tokio::sync::mpsc;

/// Followers at once: each reads what it follows from the store.
pub const FOLLOWERS_MAX: usize = 64;

/// Snapshots that wait for one follower: those of a thousand failing hosts in one
/// interval. About 150 bytes each.
pub const QUEUE_SNAPSHOTS: usize = 1_024;

/// What was stored by this collector, handed to whoever follows.
#[derive(Debug, Clone, Default)]
pub struct Live {
    followers: Arc<Mutex<Vec<Follower>>>,
}

#[derive(Debug)]
struct Follower {
    /// Of this host alone; none: of all.
    host: Option<String>,
    expected: bool,
    to: mpsc::Sender<StoredSnapshot>,
    missed: Arc<AtomicU64>,
}

/// One follower's end.
#[derive(Debug)]
pub struct Following {
    /// Snapshots with failures, in the order in which they were stored.
    pub snapshots: mpsc::Receiver<StoredSnapshot>,
    missed: Arc<AtomicU64>,
}

impl Following {
    /// Failures that found no room since the last look.
    pub fn take_missed(&self) -> u64 {
        self.missed.swap(0, Ordering::Relaxed)
    }
}

impl Live {
    /// Follows from now on; none where [`FOLLOWERS_MAX`] do already. `expected`: also
    /// snapshots whose failures are all part of normal work.
    pub fn follow(&self, host: Option<String>, expected: bool) -> Option<Following> {
        let mut followers = self.followers();
        followers.retain(|follower| !follower.to.is_closed());
        if followers.len() >= FOLLOWERS_MAX {
            return None;
        }
        let (to, snapshots) = mpsc::channel(QUEUE_SNAPSHOTS);
        let missed = Arc::<AtomicU64>::default();
        followers.push(Follower {
            host,
            expected,
            to,
            missed: Arc::clone(&missed),
        });
        Some(Following { snapshots, missed })
    }

    /// Tells followers of the items of a batch that `progress` says are stored now and
    /// were not before.
    pub fn committed(&self, items: &[&Item], progress: &[Progress]) {
        let mut followers = self.followers();
        if followers.is_empty() {
            return;
        }
        followers.retain(|follower| !follower.to.is_closed());
        for item in items {
            let is_new = progress.iter().any(|run| {
                run.run == *item.run && run.stored.binary_search(&item.sequence).is_ok()
            });
            if !is_new {
                continue;
            }
            if let Some(stored) = stored(item) {
                followers.iter().for_each(|to| to.tell(&stored, item));
            }
        }
    }

    fn followers(&self) -> std::sync::MutexGuard<'_, Vec<Follower>> {
        self.followers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Follower {
    fn tell(&self, stored: &StoredSnapshot, item: &Item) {
        if self.host.as_ref().is_some_and(|host| *host != stored.host) {
            return;
        }
        let failures = failures(item, self.expected);
        if failures > 0 && self.to.try_send(stored.clone()).is_err() {
            self.missed.fetch_add(failures, Ordering::Relaxed);
        }
    }
}

/// Rows of the item that a follower sees, before the rest of its filter.
fn failures(item: &Item, expected: bool) -> u64 {
    let Content::Snapshot(snapshot) = &item.content else {
        return 0;
    };
    let seen = snapshot.chains.iter().filter(|c| expected || !c.expected);
    u64::try_from(seen.count()).unwrap_or(u64::MAX)
}

/// Where its rows are found; none where it has none.
fn stored(item: &Item) -> Option<StoredSnapshot> {
    let Content::Snapshot(snapshot) = &item.content else {
        return None;
    };
    let times = || snapshot.chains.iter().map(|chain| chain.first_at);
    Some(StoredSnapshot {
        host: item.run.host.clone(),
        run_id: item.run.run_id,
        sequence: item.sequence,
        first_at: times().min()?,
        last_at: times().max()?,
    })
}

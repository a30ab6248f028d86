//! What a stream is owed: written by the writer, read by the stream's task.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rdmesh_proto::collector::v1::Rejection;
use tokio::sync::Notify;
use tonic::Status;

/// The account of one stream.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    account: Mutex<Account>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Account {
    through: u64,
    in_flight: usize,
    rejected: Vec<Rejection>,
    failed: Option<Status>,
}

/// What the next acknowledgement says.
#[derive(Debug)]
pub(crate) struct Owed {
    /// Everything up to this sequence that came is committed or rejected.
    pub(crate) through: u64,
    /// Since the last acknowledgement.
    pub(crate) rejected: Vec<Rejection>,
    /// Why the stream must end.
    pub(crate) failed: Option<Status>,
}

impl Ledger {
    /// Nothing is left half done under the lock.
    fn lock(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An item went into the queue.
    pub(crate) fn queued(&self) {
        self.lock().in_flight += 1;
    }

    /// An item is committed, as itself or as a rejection.
    pub(crate) fn committed(&self, sequence: u64, rejected: Option<String>) {
        let mut account = self.lock();
        account.in_flight = account.in_flight.saturating_sub(1);
        account.through = account.through.max(sequence);
        if let Some(reason) = rejected {
            account.rejected.push(Rejection { sequence, reason });
        }
        drop(account);
        self.changed.notify_one();
    }

    /// An item is refused and counted whose sequence is none: nothing is acknowledged by it.
    pub(crate) fn refused(&self, sequence: u64, reason: String) {
        let mut account = self.lock();
        account.in_flight = account.in_flight.saturating_sub(1);
        account.rejected.push(Rejection { sequence, reason });
        drop(account);
        self.changed.notify_one();
    }

    /// The stream must end; its agent comes again with what is not acknowledged.
    pub(crate) fn fail(&self, status: Status) {
        self.lock().failed.get_or_insert(status);
        self.changed.notify_one();
    }

    /// Whether the stream is to end. Its later items must not be committed: their
    /// acknowledgement would cover the ones that were not.
    pub(crate) fn is_failed(&self) -> bool {
        self.lock().failed.is_some()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.lock().in_flight
    }

    /// Completes when something changed since the last time.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Takes what is owed.
    pub(crate) fn take(&self) -> Owed {
        let mut account = self.lock();
        Owed {
            through: account.through,
            rejected: std::mem::take(&mut account.rejected),
            failed: account.failed.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_are_cumulative_and_rejections_are_told_once() {
        let ledger = Ledger::default();
        for _ in 0..3 {
            ledger.queued();
        }
        ledger.committed(2, None);
        ledger.committed(1, Some("chains.count[0] is 0".into()));
        let owed = ledger.take();
        assert_eq!((owed.through, owed.rejected.len()), (2, 1));
        assert_eq!(ledger.in_flight(), 1);
        ledger.refused(u64::MAX, "sequence is none".into());
        assert_eq!(ledger.in_flight(), 0);
        let refused = ledger.take();
        assert_eq!((refused.through, refused.rejected.len()), (2, 1));
        assert!(ledger.take().rejected.is_empty());
    }

    #[test]
    fn the_first_failure_is_told() {
        let ledger = Ledger::default();
        ledger.fail(Status::unavailable("first"));
        ledger.fail(Status::unavailable("second"));
        assert_eq!(ledger.take().failed.unwrap().message(), "first");
        assert!(ledger.is_failed());
    }
}

//! Live failures for those who watch: bounded, and those who are slow are told
//! what they missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rdmesh_proto::tracer::v1::watch_failures_response::Event;
use rdmesh_proto::tracer::v1::{ObservedFailure, WatchFailuresResponse};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// Watchers at a time. People and one collector watch a host, not a crowd; each
/// costs a stream.
pub const SUBSCRIBERS: usize = 16;

/// Failures that wait for the slowest watcher. A burst of a crashing job of 16
/// ranks fits; at a kilobyte each the tracer's memory stays bounded.
pub const SUBSCRIBER_EVENTS: usize = 512;

/// All watchers.
#[derive(Clone, Debug)]
pub struct Feed {
    sender: broadcast::Sender<Arc<ObservedFailure>>,
    subscribers: Arc<AtomicUsize>,
}

/// There are [`SUBSCRIBERS`] watchers already.
#[derive(Debug, thiserror::Error)]
#[error(
    "{SUBSCRIBERS} clients watch this host already; end one of them, or ask the collector for its failures"
)]
pub struct FeedFull;

impl Default for Feed {
    fn default() -> Self {
        let (sender, _) = broadcast::channel(SUBSCRIBER_EVENTS);
        Self {
            sender,
            subscribers: Arc::default(),
        }
    }
}

impl Feed {
    /// Whether anyone watches: else a failure need not be put into words.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.subscribers.load(Ordering::Relaxed) > 0
    }

    /// Tells all watchers. Never waits.
    pub fn publish(&self, failure: ObservedFailure) {
        // An error says that nobody watches.
        let _ = self.sender.send(Arc::new(failure));
    }

    /// A new watcher.
    ///
    /// # Errors
    /// [`FeedFull`].
    pub fn subscribe(&self, include_expected: bool) -> Result<Subscription, FeedFull> {
        let taken = self.subscribers.fetch_add(1, Ordering::Relaxed);
        let place = Place(Arc::clone(&self.subscribers));
        if taken >= SUBSCRIBERS {
            return Err(FeedFull);
        }
        Ok(Subscription {
            receiver: self.sender.subscribe(),
            include_expected,
            _place: place,
        })
    }
}

/// Gives its place back when the watcher goes.
#[derive(Debug)]
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One watcher.
#[derive(Debug)]
pub struct Subscription {
    receiver: broadcast::Receiver<Arc<ObservedFailure>>,
    include_expected: bool,
    _place: Place,
}

impl Subscription {
    /// The next failure, or how many were missed. `None` when the tracer ends.
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<WatchFailuresResponse> {
        loop {
            let event = match self.receiver.recv().await {
                Ok(failure) if failure.expected && !self.include_expected => continue,
                Ok(failure) => Event::Failure(failure.as_ref().clone()),
                Err(RecvError::Lagged(missed)) => Event::Missed(missed),
                Err(RecvError::Closed) => return None,
            };
            return Some(WatchFailuresResponse { event: Some(event) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(tid: u32, expected: bool) -> ObservedFailure {
        ObservedFailure {
            tid,
            expected,
            ..Default::default()
        }
    }

    #[tokio::test]
    async fn a_slow_watcher_is_told_what_it_missed() {
        let feed = Feed::default();
        let mut slow = feed.subscribe(false).unwrap();
        let published = u32::try_from(SUBSCRIBER_EVENTS).unwrap() + 7;
        for tid in 0..published {
            feed.publish(failure(tid, false));
        }
        assert_eq!(slow.next().await.unwrap().event, Some(Event::Missed(7)));
        let Some(Event::Failure(next)) = slow.next().await.unwrap().event else {
            panic!("no failure")
        };
        assert_eq!(next.tid, 7);
    }

    #[tokio::test]
    async fn expected_failures_are_for_those_who_ask() {
        let feed = Feed::default();
        let mut plain = feed.subscribe(false).unwrap();
        let mut all = feed.subscribe(true).unwrap();
        feed.publish(failure(1, true));
        feed.publish(failure(2, false));
        let tid = |response: WatchFailuresResponse| match response.event {
            Some(Event::Failure(f)) => f.tid,
            other => panic!("{other:?}"),
        };
        assert_eq!(tid(plain.next().await.unwrap()), 2);
        assert_eq!(tid(all.next().await.unwrap()), 1);
    }

    #[test]
    fn watchers_are_bounded_and_places_come_back() {
        let feed = Feed::default();
        let mut watchers: Vec<_> = (0..SUBSCRIBERS)
            .map(|_| feed.subscribe(false).unwrap())
            .collect();
        assert!(feed.subscribe(false).is_err());
        assert!(feed.is_watched());
        watchers.pop();
        assert!(feed.subscribe(false).is_ok());
        drop(watchers);
        assert!(!feed.is_watched());
    }
}

//! Windows as they are stored, whichever collector stored them.

use std::time::Duration;

use rdmesh_proto::collector::v1::WatchWiresResponse;
use rdmesh_services::shutdown::Closing;
use rdmesh_store::Store;
use rdmesh_store::query::{StoredWindow, WindowPlaces, WireFilter};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tonic::Status;

use super::list;
use crate::status;
use crate::times::Now;

/// How often the store is asked for new windows: below what a person notices, and a
/// query of a small table.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A wire whose last window is older is not shown before it speaks again.
const ALIVE_WITHIN: Duration = Duration::from_secs(120);

/// Windows of one look: after an outage the rest follow in the next ones.
const WINDOWS_AT_ONCE: u32 = 2_000;

/// Tries while Postgres is away before the watcher is told: it goes on where it was.
const TRIES: u32 = 20;

/// One watcher.
pub(super) struct Watcher {
    pub(super) store: Store,
    pub(super) filter: WireFilter,
    pub(super) now: Now,
    pub(super) ending: Closing,
    pub(super) to: mpsc::Sender<Result<WatchWiresResponse, Status>>,
    /// Its place among the watchers.
    pub(super) _place: OwnedSemaphorePermit,
}

impl Watcher {
    /// Runs until the watcher goes, or the collector ends.
    pub(super) async fn run(self) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut seen = WindowPlaces::new();
        let mut failures = 0;
        loop {
            tokio::select! {
                () = self.ending.requested() => return,
                () = self.to.closed() => return,
                _ = looks.tick() => {}
            }
            let alive_since = (self.now)() - ALIVE_WITHIN;
            let windows =
                self.store
                    .windows_after(&self.filter, &seen, alive_since, WINDOWS_AT_ONCE);
            let windows = match windows.await {
                Ok(windows) => windows,
                Err(error) if error.is_retryable() && failures < TRIES => {
                    failures += 1;
                    continue;
                }
                Err(error) => {
                    let _ = self.to.send(Err(status::from_store(&error))).await;
                    return;
                }
            };
            failures = 0;
            for window in windows {
                seen.insert((window.host.clone(), window.wire.clone()), window.at);
                if self.to.send(Ok(response(window))).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn response(window: StoredWindow) -> WatchWiresResponse {
    WatchWiresResponse {
        window: Some(list::placed(&window.body, window.at, window.to_at)),
        shaper_host: window.host,
        marks: window.marks,
    }
}

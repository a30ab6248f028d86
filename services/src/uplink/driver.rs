//! Connection after connection, with a wait between them.

use std::sync::Arc;
use std::time::Duration;

use rdmesh_proto::collector::v1::Hello;
use tokio::time::{Instant, sleep, timeout};

use super::backoff::Backoff;
use super::session::{End, Lost, Session};
use super::shared::Shared;
use super::{Dial, Pace};

/// The task behind an uplink.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    dialer: Arc<dyn Dial>,
    hello: Arc<dyn Fn() -> Hello + Send + Sync>,
    pace: Pace,
    backoff: Backoff,
    /// Since when the collector is away, for the log.
    away_since: Option<Instant>,
}

impl Driver {
    pub(crate) fn new(
        shared: Arc<Shared>,
        dialer: Arc<dyn Dial>,
        pace: Pace,
        seed: u64,
        hello: Arc<dyn Fn() -> Hello + Send + Sync>,
    ) -> Self {
        let backoff = Backoff::new(pace.backoff_min, pace.backoff_max, seed);
        Self {
            shared,
            dialer,
            hello,
            pace,
            backoff,
            away_since: None,
        }
    }

    /// Runs until the queue is closed and everything is acknowledged.
    pub(crate) async fn run(mut self) {
        while !self.shared.is_done() {
            let began = Instant::now();
            let lost = match self.session().await {
                End::Done => break,
                End::Lost(lost) => lost,
            };
            // An idle stream that held for long was a good one, though nothing was settled.
            let held = began.elapsed() > self.pace.connect_within + self.pace.backoff_max;
            self.shared.disconnected(&lost.why);
            if lost.progressed {
                self.away_since = None;
            }
            self.log(&lost);
            if lost.progressed || held {
                self.backoff.reset();
            } else if lost.refused {
                self.backoff.slowest();
            }
            self.wait(lost.retry_after.unwrap_or_default()).await;
        }
        self.shared.disconnected("the uplink was closed");
    }

    /// One connection, from dialling to its end.
    async fn session(&mut self) -> End {
        let opening = async {
            let channel = self
                .dialer
                .dial()
                .await
                .map_err(|e| Lost::before_answer(e.to_string()))?;
            let hello = (self.hello)();
            Session::open(Arc::clone(&self.shared), self.pace, channel, hello).await
        };
        let session = match timeout(self.pace.connect_within, opening).await {
            Ok(Ok(session)) => session,
            Ok(Err(lost)) => return End::Lost(lost),
            Err(_) => {
                let why = format!("no stream within {:?}", self.pace.connect_within);
                return End::Lost(Lost::before_answer(why));
            }
        };
        session.run(self.away_since).await
    }

    /// One line when the collector goes away, not one for each attempt.
    fn log(&mut self, lost: &Lost) {
        let why = lost.why.as_str();
        // The live run tells of the collector.
        let told = self.away_since.is_some() || self.shared.is_of_earlier_run();
        if told {
            self.away_since.get_or_insert_with(Instant::now);
            tracing::debug!(why, "still not connected to the collector");
            return;
        }
        self.away_since = Some(Instant::now());
        let on_disk = self.shared.has_spool();
        if lost.refused {
            tracing::error!(why, on_disk, "the collector refuses this agent; items wait");
        } else {
            tracing::warn!(why, on_disk, "not connected to the collector; items wait");
        }
    }

    /// Waits for the next attempt, `least` at least. Closing the queue ends the wait, since the process is
    /// about to end.
    async fn wait(&mut self, least: Duration) {
        let was_closed = self.shared.is_closed();
        let wait = self.backoff.wait().max(self.backoff.spread(least));
        let closed = async {
            while was_closed || !self.shared.is_closed() {
                self.shared.changed().await;
            }
        };
        tokio::select! {
            () = sleep(wait) => {}
            () = closed => {}
        }
    }
}

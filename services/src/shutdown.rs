//! How a service ends: signals, the token that streams watch, and the budget of
//! time that the steps share.
//!
//! The sequence is NOT_SERVING → stop accepting → end streams → flush.
//! [`crate::server::Server::serve`] does the first three and returns the
//! [`Budget`] that the flushes (uplink, store, telemetry) run in.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Time for all steps together unless the configuration says otherwise. systemd
/// kills after 90 s and Kubernetes after 30 s; this stays well below both.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(10);

/// What each later step gets at least, however long the earlier ones took: a flush
/// to a live peer on the same site takes milliseconds.
pub const MIN_STEP: Duration = Duration::from_millis(500);

/// Asks for the end. Dropping it asks too, so that a task which failed cannot
/// leave the others running.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

/// Tells when the end was asked for. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Closing(watch::Receiver<bool>);

/// A trigger and what it triggers.
#[must_use]
pub fn channel() -> (Trigger, Closing) {
    let (sender, receiver) = watch::channel(false);
    (Trigger(sender), Closing(receiver))
}

impl Trigger {
    /// Asks for the end; asking again changes nothing.
    pub fn fire(&self) {
        self.0.send_replace(true);
    }

    /// Another token of this trigger.
    #[must_use]
    pub fn closing(&self) -> Closing {
        Closing(self.0.subscribe())
    }
}

impl Closing {
    /// Completes when the end was asked for. Cancel safe, and wakes nobody before.
    pub async fn requested(&self) {
        let mut receiver = self.0.clone();
        // An error says that the trigger is gone, which asks too.
        let _ = receiver.wait_for(|asked| *asked).await;
    }

    /// Whether the end was asked for.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

/// A signal that asks the process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM, from systemd or Kubernetes.
    Terminate,
    /// SIGINT, from the terminal.
    Interrupt,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        })
    }
}

/// Handlers for both signals, installed at once, so that a signal between start-up
/// and the first await is not lost.
#[derive(Debug)]
pub struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    /// Installs the handlers. Needs a tokio runtime with I/O.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn install() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Completes with the first signal.
    pub async fn received(&mut self) -> Signal {
        let signal = tokio::select! {
            _ = self.terminate.recv() => Signal::Terminate,
            _ = self.interrupt.recv() => Signal::Interrupt,
        };
        tracing::info!(%signal, "asked to end");
        signal
    }
}

/// The time that the steps of the end share.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    until: Instant,
}

impl Budget {
    /// Starts the clock.
    #[must_use]
    pub fn start(grace: Duration) -> Self {
        Self {
            until: Instant::now() + grace,
        }
    }

    /// What is left for the next step: never less than [`MIN_STEP`].
    #[must_use]
    pub fn left(&self) -> Duration {
        self.until
            .saturating_duration_since(Instant::now())
            .max(MIN_STEP)
    }

    /// Runs one step within what is left. `None`, and a warning with the step's
    /// name, when it did not end in time; the step is then dropped.
    pub async fn step<F: Future>(&self, name: &'static str, step: F) -> Option<F::Output> {
        let left = self.left();
        let began = Instant::now();
        match tokio::time::timeout(left, step).await {
            Ok(output) => {
                tracing::debug!(step = name, took = ?began.elapsed(), "shutdown step done");
                Some(output)
            }
            Err(_) => {
                tracing::warn!(step = name, waited = ?left, "shutdown step cut short");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    }

    #[test]
    fn tokens_see_the_trigger_whenever_they_were_made() {
        runtime().block_on(async {
            let (trigger, early) = channel();
            assert!(!early.is_requested());
            trigger.fire();
            trigger.fire();
            let late = trigger.closing();
            early.requested().await;
            late.requested().await;
            assert!(early.is_requested() && late.is_requested());
        });
    }

    #[test]
    fn a_lost_trigger_asks_too() {
        runtime().block_on(async {
            let (trigger, closing) = channel();
            drop(trigger);
            closing.requested().await;
            assert!(closing.is_requested());
        });
    }

    #[test]
    fn each_signal_is_told_apart() {
        let _guard = ONE_AT_A_TIME.lock().unwrap();
        runtime().block_on(async {
            for (raise, expected) in [
                (rustix::process::Signal::TERM, Signal::Terminate),
                (rustix::process::Signal::INT, Signal::Interrupt),
            ] {
                let mut signals = Signals::install().unwrap();
                rustix::process::kill_process(rustix::process::getpid(), raise).unwrap();
                let got = tokio::time::timeout(Duration::from_secs(10), signals.received());
                assert_eq!(got.await.unwrap(), expected);
            }
        });
    }

    /// Signals reach every handler of the process.
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn steps_share_the_budget_and_a_stuck_one_is_cut() {
        runtime().block_on(async {
            let budget = Budget::start(Duration::from_millis(50));
            assert_eq!(budget.step("quick", async { 7 }).await, Some(7));
            let began = Instant::now();
            let cut = budget.step("stuck", std::future::pending::<()>()).await;
            assert_eq!(cut, None);
            assert!(began.elapsed() < Duration::from_secs(5));
            // The flush after a stuck step still gets its minimum.
            assert_eq!(budget.left(), MIN_STEP);
            assert_eq!(budget.step("flush", async { "done" }).await, Some("done"));
        });
    }
}

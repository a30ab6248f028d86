//! One window at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::WindowError;

/// What a window takes beside its time: finding and attaching the functions, and taking
/// them off.
const BESIDE: Duration = Duration::from_secs(90);
/// Longest wait for a window that is closed: where functions are taken off one by one
/// that took 15 s on an emulated machine.
const CLOSING: Duration = Duration::from_secs(30);

/// The window that is open.
#[derive(Clone, Debug)]
struct Open {
    what: &'static str,
    until: Instant,
    closed: Arc<AtomicBool>,
}

/// Lets one window in. Clones are the same gate.
#[derive(Clone, Debug)]
pub(super) struct Gate(Arc<watch::Sender<Option<Open>>>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

/// Whoever has it has the window; dropping it lets the next one in.
#[derive(Debug)]
pub(super) struct Pass {
    gate: Gate,
    closed: Arc<AtomicBool>,
    /// Its receivers see the end.
    lives: watch::Sender<()>,
}

/// Tells when a window is over.
#[derive(Debug)]
pub(super) struct Over(watch::Receiver<()>);

impl Gate {
    /// Takes the window, for so long.
    pub(super) fn enter(&self, what: &'static str, length: Duration) -> Result<Pass, WindowError> {
        let closed = Arc::new(AtomicBool::new(false));
        let open = Open {
            what,
            until: Instant::now() + length + BESIDE,
            closed: Arc::clone(&closed),
        };
        let mut before = None;
        self.0.send_if_modified(|now| {
            before.clone_from(now);
            if now.is_none() {
                *now = Some(open);
            }
            before.is_none()
        });
        match before {
            None => Ok(Pass {
                gate: self.clone(),
                closed,
                lives: watch::Sender::new(()),
            }),
            Some(other) => Err(WindowError::Busy {
                what: other.what.to_owned(),
                left: other
                    .until
                    .saturating_duration_since(Instant::now())
                    .as_secs(),
            }),
        }
    }

    /// Closes the window that is open and waits for its end.
    pub(super) async fn close(&self) {
        let mut state = self.0.subscribe();
        if let Some(open) = &*state.borrow_and_update() {
            open.closed.store(true, Ordering::Relaxed);
        }
        // The sender lives in this gate; and who asked goes on after the limit.
        let _ = tokio::time::timeout(CLOSING, state.wait_for(Option::is_none)).await;
    }
}

#[cfg(test)]
impl Gate {
    /// Waits for the end of the window that is open.
    pub(super) async fn over(&self) {
        let mut state = self.0.subscribe();
        state.wait_for(Option::is_none).await.unwrap();
    }
}

impl Pass {
    /// Set when the window is to end before its time.
    pub(super) fn closed(&self) -> &Arc<AtomicBool> {
        &self.closed
    }

    /// Whether it is to go on.
    pub(super) fn goes_on(&self) -> bool {
        !self.closed.load(Ordering::Relaxed)
    }

    /// For waiting until it is over.
    pub(super) fn over(&self) -> Over {
        Over(self.lives.subscribe())
    }
}

impl Over {
    /// Completes when the window is over. Cancel safe.
    pub(super) async fn over(&mut self) {
        // Nothing is ever sent: the error says that the pass is gone.
        while self.0.changed().await.is_ok() {}
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.gate.0.send_replace(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_and_the_next_when_it_is_over() {
        let gate = Gate::default();
        let pass = gate.enter("a recording", Duration::from_secs(10)).unwrap();
        let error = gate.enter("a comparison", Duration::ZERO).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("a recording") && error.contains(" 99 s"),
            "{error}"
        );
        assert!(pass.goes_on());
        let mut over = pass.over();
        let window = tokio::spawn(async move {
            while pass.goes_on() {
                tokio::task::yield_now().await;
            }
        });
        gate.close().await;
        window.await.unwrap();
        over.over().await;
        gate.enter("a comparison", Duration::ZERO).unwrap();
        // Without a window there is nothing to wait for.
        gate.close().await;
    }
}

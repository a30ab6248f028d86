//! What the poll loop shares with the rest of the service.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::handoff::{Latest, Mailbox};
use super::order::{ORDER_WORDS, Order};
use super::window::{WINDOW_WORDS, WindowCounts};

/// One wire's two hand-offs.
#[derive(Debug, Default)]
pub struct WireLink {
    pub(super) orders: Latest<ORDER_WORDS>,
    pub(super) windows: Mailbox<WINDOW_WORDS>,
    /// Generation of the policy that is in force.
    pub(super) in_force: AtomicU64,
    /// Keeps a second writer out of `orders`; the poll loop never takes it.
    writers: Mutex<()>,
}

impl WireLink {
    /// Tells the poll loop what the wire is to do; the newest order wins.
    pub fn order(&self, order: Order) {
        let _alone = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        self.orders.write(order.to_words());
    }

    /// Generation of the policy that the poll loop has put in force.
    #[must_use]
    pub fn generation_in_force(&self) -> u64 {
        self.in_force.load(Ordering::Acquire)
    }

    /// The window that was closed last, once.
    pub fn take_window(&self) -> Option<WindowCounts> {
        self.windows
            .take()
            .map(|words| WindowCounts::from_words(&words))
    }
}

/// What the poll thread shows of itself, and how it is stopped.
#[derive(Debug, Default)]
pub struct ThreadLink {
    pub(super) stop: AtomicBool,
    /// Turns of the loop: stands still when it hangs.
    pub(super) turns: AtomicU64,
    pub(super) fault: Mutex<Option<String>>,
    pub(super) faulted: AtomicBool,
    pub(super) ended: AtomicBool,
}

impl ThreadLink {
    /// Asks the loop to end: it sends what waits at the port's speed, then returns.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Turns of the loop so far.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Whether the thread has returned.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Why shaping ended before it was asked to; frames pass unshaped since then.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        if !self.faulted.load(Ordering::Acquire) {
            return None;
        }
        self.fault
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn report_fault(&self, what: String) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
        self.faulted.store(true, Ordering::Release);
    }
}

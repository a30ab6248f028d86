//! What the poll loop shares with the rest of the service.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::handoff::{Latest, Mailbox};
use super::order::{ORDER_WORDS, Order};
use super::window::{WINDOW_WORDS, WindowCounts};

/// Windows on their way out. An order is written only after they were taken. Until the
/// next one the poll loop can close a window at its own time (only if none is on its
/// way), two at the orders that it has read and not obeyed yet, two where their rules
/// end, and two at a stop: there is always room, so a window has one rate.
pub(super) const WINDOWS_ON_THEIR_WAY: usize = 8;

/// One wire's two hand-offs.
#[derive(Debug, Default)]
pub struct WireLink {
    pub(super) orders: Latest<ORDER_WORDS>,
    /// Filled and emptied in a circle.
    pub(super) windows: [Mailbox<WINDOW_WORDS>; WINDOWS_ON_THEIR_WAY],
    /// Generation of the policy that is in force.
    pub(super) in_force: AtomicU64,
    /// Keeps a second writer out of `orders` and a second taker out of `windows`; the
    /// poll loop never takes it.
    others: Mutex<Taken>,
}

/// Windows that have left the poll loop.
#[derive(Debug, Default)]
struct Taken {
    /// The mailbox that is filled next.
    next: usize,
    /// Oldest first. At most seven for each change of the wire, and changes are written
    /// to disk; they are collected every few milliseconds.
    windows: VecDeque<WindowCounts>,
}

impl WireLink {
    /// Tells the poll loop what the wire is to do; the newest order wins.
    pub fn order(&self, order: Order) {
        let alone = self.take_all();
        self.orders.write(order.to_words());
        drop(alone);
    }

    /// Generation of the policy that the poll loop has put in force.
    #[must_use]
    pub fn generation_in_force(&self) -> u64 {
        self.in_force.load(Ordering::Acquire)
    }

    /// The oldest window that nobody has taken yet.
    pub fn take_window(&self) -> Option<WindowCounts> {
        self.take_all().windows.pop_front()
    }

    fn take_all(&self) -> MutexGuard<'_, Taken> {
        let mut taken = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(words) = self.windows[taken.next].take() {
            taken.windows.push_back(WindowCounts::from_words(&words));
            taken.next = (taken.next + 1) % WINDOWS_ON_THEIR_WAY;
        }
        taken
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

//! Fixed numbers of words that cross between two threads whole. Built from atomics
//! alone, so there is nothing unsafe in them.

use super::atomics::{AtomicU64, Ordering, fence};

/// A value of which the reader wants the newest: a sequence lock. One writer at a
/// time; a reader that meets a write in progress sees it at its next try.
#[derive(Debug)]
pub struct Latest<const N: usize> {
    /// Odd while a write is in progress.
    sequence: AtomicU64,
    words: [AtomicU64; N],
}

impl<const N: usize> Latest<N> {
    /// Without a value.
    #[must_use]
    pub fn new() -> Self {
        Self {
            sequence: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Puts a value in place of the one before. The caller keeps other writers out.
    pub fn write(&self, value: [u64; N]) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence
            .store(sequence.wrapping_add(1), Ordering::Relaxed);
        // No word may be seen before the odd sequence.
        fence(Ordering::Release);
        for (word, value) in self.words.iter().zip(value) {
            word.store(value, Ordering::Relaxed);
        }
        self.sequence
            .store(sequence.wrapping_add(2), Ordering::Release);
    }

    /// The value, if it is newer than the one that `seen` stands for.
    #[inline]
    pub fn read_newer(&self, seen: &mut u64) -> Option<[u64; N]> {
        let before = self.sequence.load(Ordering::Acquire);
        if before == *seen || before % 2 == 1 {
            return None;
        }
        let value = std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed));
        // All words are read before the sequence is looked at again.
        fence(Ordering::Acquire);
        if self.sequence.load(Ordering::Relaxed) != before {
            return None;
        }
        *seen = before;
        Some(value)
    }
}

impl<const N: usize> Default for Latest<N> {
    fn default() -> Self {
        Self::new()
    }
}

const EMPTY: u64 = 0;
const FULL: u64 = 1;

/// Values of which none may be lost: one place, one sender, one taker. A sender that
/// finds it full keeps its value and tries again later.
#[derive(Debug)]
pub struct Mailbox<const N: usize> {
    state: AtomicU64,
    words: [AtomicU64; N],
}

impl<const N: usize> Mailbox<N> {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: AtomicU64::new(EMPTY),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Whether [`Mailbox::offer`] would take a value now. For the sender.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.state.load(Ordering::Acquire) == EMPTY
    }

    /// Puts a value in; false if the one before was not taken yet.
    pub fn offer(&self, value: &[u64; N]) -> bool {
        if !self.is_empty() {
            return false;
        }
        for (word, value) in self.words.iter().zip(value) {
            word.store(*value, Ordering::Relaxed);
        }
        self.state.store(FULL, Ordering::Release);
        true
    }

    /// Takes the value out.
    pub fn take(&self) -> Option<[u64; N]> {
        if self.state.load(Ordering::Acquire) != FULL {
            return None;
        }
        let value = std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed));
        self.state.store(EMPTY, Ordering::Release);
        Some(value)
    }
}

impl<const N: usize> Default for Mailbox<N> {
    fn default() -> Self {
        Self::new()
    }
}

//! The two hand-offs between the poll loop and everybody else: [`Latest`] brings
//! policy in, [`Mailbox`] brings statistics out. Neither side ever waits for the
//! other, allocates or locks.
//!
//! `tests/handoff.rs` runs the same source under loom.

mod cells;

/// What `cells` is built from; loom has its own.
mod atomics {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};
}

pub use cells::{Latest, Mailbox};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_value_is_read_once() {
        let cell = Latest::<2>::new();
        let mut seen = 0;
        assert_eq!(cell.read_newer(&mut seen), None);
        cell.write([1, 2]);
        cell.write([3, 4]);
        assert_eq!(cell.read_newer(&mut seen), Some([3, 4]));
        assert_eq!(cell.read_newer(&mut seen), None);
    }

    #[test]
    fn a_full_mailbox_gives_the_value_back() {
        let cell = Mailbox::<2>::new();
        assert_eq!(cell.take(), None);
        assert!(cell.offer(&[1, 2]));
        assert!(!cell.offer(&[3, 4]));
        assert_eq!(cell.take(), Some([1, 2]));
        assert!(cell.offer(&[3, 4]));
        assert_eq!(cell.take(), Some([3, 4]));
    }
}

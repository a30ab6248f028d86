//! The hand-offs of the poll loop under loom: every order in which two threads can
//! run is tried.
#![allow(clippy::unwrap_used)]

use loom::sync::Arc;
use loom::thread;

mod atomics {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

#[path = "../src/datapath/handoff/cells.rs"]
#[allow(dead_code, unreachable_pub)]
mod cells;

use cells::{Latest, Mailbox};

#[test]
fn the_latest_policy_is_never_torn_and_never_goes_back() {
    loom::model(|| {
        let cell = Arc::new(Latest::<2>::new());
        let writer = Arc::clone(&cell);
        let writing = thread::spawn(move || {
            writer.write([1, 1]);
            writer.write([2, 2]);
        });
        let (mut seen, mut last) = (0, 0);
        for _ in 0..2 {
            if let Some([a, b]) = cell.read_newer(&mut seen) {
                assert_eq!(a, b, "torn");
                assert!(a > last, "{a} after {last}");
                last = a;
            }
        }
        writing.join().unwrap();
        match cell.read_newer(&mut seen) {
            Some(value) => assert_eq!(value, [2, 2]),
            None => assert_eq!(last, 2, "the last value is seen once the writer is done"),
        }
    });
}

/// As windows go: the sender and the taker walk a circle of places.
#[test]
fn windows_in_a_circle_come_in_order_and_whole() {
    loom::model(|| {
        let cells = Arc::new([Mailbox::<2>::new(), Mailbox::<2>::new()]);
        let sender = Arc::clone(&cells);
        let sending = thread::spawn(move || {
            let (mut place, mut sent) = (0, 0);
            for _ in 0..3 {
                if sender[place].offer(&[sent + 1, sent + 1]) {
                    sent += 1;
                    place = 1 - place;
                }
            }
            sent
        });
        let (mut place, mut taken) = (0, 0);
        let mut take = || {
            if let Some([a, b]) = cells[place].take() {
                assert_eq!(a, b, "torn");
                assert_eq!(a, taken + 1, "out of order");
                (taken, place) = (a, 1 - place);
            }
            taken
        };
        take();
        let sent = sending.join().unwrap();
        assert!((2..=3).contains(&sent));
        assert_eq!((0..2).map(|_| take()).last(), Some(sent));
    });
}

#[test]
fn no_window_is_lost_torn_or_seen_twice() {
    loom::model(|| {
        let cell = Arc::new(Mailbox::<2>::new());
        let sender = Arc::clone(&cell);
        let sending = thread::spawn(move || {
            // A window that is not taken grows until it is.
            let mut open = 0;
            let mut sent = 0;
            for _ in 0..3 {
                open += 1;
                if sender.offer(&[open, open]) {
                    sent += open;
                    open = 0;
                }
            }
            (sent, open)
        });
        let mut taken = 0;
        for _ in 0..2 {
            if let Some([a, b]) = cell.take() {
                assert_eq!(a, b, "torn");
                taken += a;
            }
        }
        let (sent, open) = sending.join().unwrap();
        taken += cell.take().map_or(0, |[a, _]| a);
        assert_eq!(taken, sent);
        assert_eq!(sent + open, 3);
    });
}

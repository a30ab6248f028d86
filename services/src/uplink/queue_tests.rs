use super::*;
use proptest::prelude::*;

/// What an entry costs besides its bytes.
const OVERHEAD: usize = 96;

fn entry(sequence: u64, kind: Kind, bytes: usize) -> Entry {
    Entry {
        sequence,
        kind,
        bytes: vec![0; bytes].into(),
    }
}

fn waiting(queue: &Queue) -> Vec<u64> {
    let head = queue.head.iter_after(0);
    head.chain(queue.tail.iter_after(0))
        .map(|e| e.sequence)
        .collect()
}

fn evicted(items: u64, snapshots: u64) -> Evicted {
    Evicted { items, snapshots }
}

#[test]
fn the_oldest_report_goes_first_and_states_stay() {
    let mut queue = Queue::new(3, usize::MAX);
    queue.push(entry(1, Kind::State, 1));
    queue.push(entry(2, Kind::Interval, 1));
    queue.push(entry(3, Kind::Snapshot, 1));
    assert_eq!(queue.push(entry(4, Kind::Snapshot, 1)), evicted(1, 0));
    assert_eq!(queue.push(entry(5, Kind::Snapshot, 1)), evicted(1, 1));
    assert_eq!(waiting(&queue), [1, 4, 5]);
}

#[test]
fn with_states_alone_the_oldest_state_goes() {
    let mut queue = Queue::new(2, usize::MAX);
    for n in 1..=3 {
        queue.push(entry(n, Kind::State, 1));
    }
    assert_eq!(waiting(&queue), [2, 3]);
}

#[test]
fn one_large_entry_pushes_out_many_small_ones_and_stays() {
    let mut queue = Queue::new(100, 10 * (1 + OVERHEAD));
    for n in 1..=10 {
        assert_eq!(queue.push(entry(n, Kind::Snapshot, 1)).items, 0);
    }
    assert_eq!(
        queue.push(entry(11, Kind::Snapshot, 5_000)),
        evicted(10, 10)
    );
    assert_eq!(waiting(&queue), [11]);
}

#[test]
fn single_releases_leave_holes_that_lookups_step_over() {
    let mut queue = Queue::new(10, usize::MAX);
    for n in 1..=4 {
        queue.push(entry(n, Kind::Snapshot, 1));
    }
    assert!(queue.release(2));
    assert!(!queue.release(2));
    assert!(matches!(queue.after(1), Head::Entry(e) if e.sequence == 3));
    assert_eq!(queue.through(3), 2);
    queue.release_through(3);
    assert_eq!(waiting(&queue), [4]);
}

#[test]
fn with_a_spool_the_middle_leaves_memory_and_comes_back() {
    let mut queue = Queue::new(4, usize::MAX);
    queue.set_spooling(true);
    for n in 1..=4 {
        queue.push(entry(n, Kind::Snapshot, 1));
    }
    queue.wrote(4);
    assert_eq!(queue.push(entry(5, Kind::Snapshot, 1)), evicted(0, 0));
    queue.wrote(5);
    for n in 6..=9 {
        assert_eq!(queue.push(entry(n, Kind::Snapshot, 1)), evicted(0, 0));
        assert_eq!(queue.unwritten(100).len(), 1);
        queue.wrote(n);
    }
    // One place is for what is not written yet.
    assert_eq!(waiting(&queue), [1, 2, 3]);
    assert_eq!(
        (queue.len(), queue.snapshots(), queue.memory_items()),
        (9, 9, 3)
    );
    assert_eq!(queue.wants(), None);
    queue.note_sent(3);
    assert!(matches!(queue.after(3), Head::OnDisk));
    queue.release_through(2);
    assert_eq!(queue.wants(), Some(4));
    let back = (4..=7).map(|n| entry(n, Kind::Snapshot, 1)).collect();
    assert_eq!(queue.refill(back, 7), evicted(0, 0));
    assert!(matches!(queue.after(3), Head::Entry(e) if e.sequence == 4));
    queue.note_sent(7);
    queue.release_through(7);
    // One of the last two is damaged: it is given up once that is known.
    assert_eq!(
        queue.refill(vec![entry(9, Kind::Snapshot, 1)], 9),
        evicted(1, 1)
    );
    assert_eq!((queue.len(), waiting(&queue)), (1, vec![9]));
}

#[test]
fn what_may_be_in_flight_stays_in_memory() {
    let mut queue = Queue::new(2, usize::MAX);
    queue.set_spooling(true);
    for n in 1..=3 {
        queue.push(entry(n, Kind::Snapshot, 1));
    }
    queue.note_sent(3);
    queue.wrote(3);
    assert_eq!(waiting(&queue), [1, 2, 3]);
    assert_eq!(queue.gap, None);
}

#[test]
fn what_the_disk_drops_goes_from_memory_and_from_the_gap() {
    let mut queue = Queue::new(2, usize::MAX);
    queue.set_spooling(true);
    for n in 1..=6 {
        queue.push(entry(n, Kind::Snapshot, 1));
        queue.wrote(n);
    }
    assert_eq!(waiting(&queue), [1]);
    let gone = [
        (1, Kind::Snapshot),
        (3, Kind::Snapshot),
        (77, Kind::Snapshot),
    ];
    assert_eq!(queue.dropped(&gone), evicted(2, 2));
    assert_eq!(queue.len(), 4);
    assert_eq!(queue.nothing_on_disk(), evicted(4, 4));
    assert!(queue.is_empty());
}

#[test]
fn a_disk_that_takes_nothing_leaves_what_memory_holds() {
    let mut queue = Queue::new(3, usize::MAX);
    queue.set_spooling(true);
    for n in 1..=5 {
        assert_eq!(queue.push(entry(n, Kind::Snapshot, 1)).items, 0, "{n}");
    }
    // The disk is busy: up to twice as much. It fails: no more than there is to be.
    assert_eq!(queue.set_spooling(false), evicted(2, 2));
    assert_eq!(waiting(&queue), [3, 4, 5]);
}

/// A disk as the keeper drives it, beside what should be there.
#[derive(Default)]
struct Model {
    disk: Vec<Entry>,
    pushed: u64,
    gone: u64,
    acked: u64,
    sent: u64,
}

impl Model {
    fn step(&mut self, queue: &mut Queue, what: u8, size: usize, amount: u64) {
        match what {
            0 | 1 => {
                self.pushed += 1;
                let kind = [Kind::Snapshot, Kind::State][usize::from(what)];
                self.gone += queue.push(entry(self.pushed, kind, size)).items;
            }
            2 => {
                let entries = queue.unwritten(size * 3);
                if let Some(last) = entries.last().map(|e| e.sequence) {
                    self.disk.extend(entries);
                    self.gone += queue.wrote(last).items;
                }
            }
            3 => {
                for _ in 0..amount {
                    let Head::Entry(next) = queue.after(self.sent) else {
                        break;
                    };
                    assert!(next.sequence > self.sent);
                    self.sent = next.sequence;
                    queue.note_sent(self.sent);
                }
            }
            4 => {
                self.acked = self.acked.max(self.sent.saturating_sub(amount));
                queue.release_through(self.acked);
            }
            5 => {
                if let Some(from) = queue.wants() {
                    let part: Vec<Entry> = self
                        .disk
                        .iter()
                        .filter(|e| e.sequence >= from)
                        .take(4)
                        .cloned()
                        .collect();
                    self.gone += match part.last().map(|e| e.sequence) {
                        Some(reached) => queue.refill(part, reached).items,
                        None => queue.nothing_on_disk().items,
                    };
                }
            }
            // A new connection.
            6 => self.sent = self.acked,
            _ => self.gone += queue.set_spooling(amount.is_multiple_of(2)).items,
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_items_come_once_in_order_and_books_hold(
        steps in prop::collection::vec((0_u8..8, 0_usize..400, 0_u64..9), 1..300),
    ) {
        let (max_items, max_bytes) = (8, 1_500);
        let mut queue = Queue::new(max_items, max_bytes);
        queue.set_spooling(true);
        let mut model = Model::default();
        for (what, size, amount) in steps {
            model.step(&mut queue, what, size, amount);
            let memory = waiting(&queue);
            prop_assert!(memory.is_sorted_by(|a, b| a < b), "{memory:?}");
            let bytes: usize = queue.head.iter_after(0).chain(queue.tail.iter_after(0))
                .map(|e| e.bytes.len() + OVERHEAD).sum();
            prop_assert_eq!(queue.memory_bytes(), bytes);
            prop_assert!(queue.gap.is_some() || queue.tail.is_empty());
            if let Some(gap) = queue.gap {
                prop_assert!(gap.from <= gap.to && gap.to <= queue.written());
                prop_assert!(memory.iter().all(|n| !(gap.from..=gap.to).contains(n)));
                prop_assert!(gap.from > model.acked);
            }
            // Refills may bring more than half of the memory at once.
            prop_assert!(queue.memory_items() <= BUSY_DISK_FACTOR * max_items + 4);
        }
        // Let the disk and the peer take everything: each item is settled or was given up.
        model.step(&mut queue, 7, 0, 0);
        for _ in 0..2_000 {
            if queue.is_empty() { break; }
            model.step(&mut queue, 2, 4_000, 0);
            model.step(&mut queue, 3, 0, 100);
            model.step(&mut queue, 4, 0, 0);
            model.step(&mut queue, 5, 0, 0);
        }
        prop_assert!(queue.is_empty());
        prop_assert!(model.gone <= model.pushed);
    }
}

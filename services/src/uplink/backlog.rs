//! What waits for an acknowledgement. In memory; a spool on disk can take the place of
//! this type, since it deals in encoded bytes and sequences alone.

use std::collections::VecDeque;

use prost::bytes::Bytes;

use super::item::Kind;

/// What an entry costs besides its bytes: the entry itself, the allocation's head, the
/// reference count of `Bytes`.
const ENTRY_OVERHEAD_BYTES: usize = 96;

/// An item as it goes over the wire.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) sequence: u64,
    pub(crate) kind: Kind,
    /// The encoded `ReportRequest`.
    pub(crate) bytes: Bytes,
}

impl Entry {
    fn cost(&self) -> usize {
        self.bytes.len() + ENTRY_OVERHEAD_BYTES
    }
}

/// What fell out to make room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evicted {
    pub(crate) items: u64,
    pub(crate) snapshots: u64,
}

/// Entries in the order of their sequences, bounded by count and bytes.
#[derive(Debug)]
pub(crate) struct Backlog {
    entries: VecDeque<Entry>,
    bytes: usize,
    max_items: usize,
    max_bytes: usize,
}

impl Backlog {
    pub(crate) fn new(max_items: usize, max_bytes: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            max_items: max_items.max(1),
            max_bytes,
        }
    }

    /// Appends an entry, whose sequence is higher than all before, and makes room. The
    /// newest entry itself never goes.
    pub(crate) fn push(&mut self, entry: Entry) -> Evicted {
        debug_assert!(
            self.entries
                .back()
                .is_none_or(|last| last.sequence < entry.sequence)
        );
        self.bytes += entry.cost();
        self.entries.push_back(entry);
        let mut evicted = Evicted::default();
        while self.entries.len() > 1
            && (self.entries.len() > self.max_items || self.bytes > self.max_bytes)
        {
            let Some(gone) = self.remove(self.least_missed()) else {
                break;
            };
            evicted.items += 1;
            evicted.snapshots += u64::from(gone.kind == Kind::Snapshot);
        }
        evicted
    }

    /// The oldest report of an interval; where there is none, the oldest of all. Never
    /// the newest entry.
    fn least_missed(&self) -> usize {
        let older = self.entries.len() - 1;
        self.entries
            .iter()
            .take(older)
            .position(|e| e.kind != Kind::State)
            .unwrap_or(0)
    }

    /// The first entry after `sequence`.
    pub(crate) fn after(&self, sequence: u64) -> Option<&Entry> {
        self.entries.get(self.through(sequence))
    }

    /// How many entries have a sequence up to `sequence`.
    pub(crate) fn through(&self, sequence: u64) -> usize {
        self.entries.partition_point(|e| e.sequence <= sequence)
    }

    /// Lets go of every entry up to `sequence`. Returns how many.
    pub(crate) fn release_through(&mut self, sequence: u64) -> usize {
        let released = self.through(sequence);
        for gone in self.entries.drain(..released) {
            self.bytes -= gone.cost();
        }
        if self.entries.is_empty() {
            // After an outage the ring may have grown to thousands of slots.
            self.entries.shrink_to(64);
        }
        released
    }

    /// Lets go of one entry. Returns whether it was there.
    pub(crate) fn release(&mut self, sequence: u64) -> bool {
        match self.entries.binary_search_by_key(&sequence, |e| e.sequence) {
            Ok(at) => self.remove(at).is_some(),
            Err(_) => false,
        }
    }

    fn remove(&mut self, at: usize) -> Option<Entry> {
        let gone = self.entries.remove(at)?;
        self.bytes -= gone.cost();
        Some(gone)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn snapshots(&self) -> usize {
        self.entries
            .iter()
            .filter(|e| e.kind == Kind::Snapshot)
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(sequence: u64, kind: Kind, bytes: usize) -> Entry {
        Entry {
            sequence,
            kind,
            bytes: vec![0; bytes].into(),
        }
    }

    fn sequences(backlog: &Backlog) -> Vec<u64> {
        backlog.entries.iter().map(|e| e.sequence).collect()
    }

    #[test]
    fn the_oldest_report_goes_first_and_states_stay() {
        let mut backlog = Backlog::new(3, usize::MAX);
        backlog.push(entry(1, Kind::State, 1));
        backlog.push(entry(2, Kind::Interval, 1));
        backlog.push(entry(3, Kind::Snapshot, 1));
        assert_eq!(
            backlog.push(entry(4, Kind::Snapshot, 1)),
            Evicted {
                items: 1,
                snapshots: 0
            }
        );
        assert_eq!(
            backlog.push(entry(5, Kind::Snapshot, 1)),
            Evicted {
                items: 1,
                snapshots: 1
            }
        );
        assert_eq!(sequences(&backlog), [1, 4, 5]);
    }

    #[test]
    fn with_states_alone_the_oldest_state_goes() {
        let mut backlog = Backlog::new(2, usize::MAX);
        for n in 1..=3 {
            backlog.push(entry(n, Kind::State, 1));
        }
        assert_eq!(sequences(&backlog), [2, 3]);
    }

    #[test]
    fn one_large_entry_pushes_out_many_small_ones_and_stays() {
        let mut backlog = Backlog::new(100, 10 * (1 + ENTRY_OVERHEAD_BYTES));
        for n in 1..=10 {
            assert_eq!(backlog.push(entry(n, Kind::Snapshot, 1)).items, 0);
        }
        let evicted = backlog.push(entry(11, Kind::Snapshot, 5_000));
        assert_eq!(
            evicted,
            Evicted {
                items: 10,
                snapshots: 10
            }
        );
        assert_eq!(sequences(&backlog), [11]);
    }

    #[test]
    fn single_releases_leave_gaps_that_lookups_step_over() {
        let mut backlog = Backlog::new(10, usize::MAX);
        for n in 1..=4 {
            backlog.push(entry(n, Kind::Snapshot, 1));
        }
        assert!(backlog.release(2));
        assert!(!backlog.release(2));
        assert_eq!(backlog.after(1).map(|e| e.sequence), Some(3));
        assert_eq!(backlog.through(3), 2);
        assert_eq!(backlog.release_through(3), 2);
        assert_eq!(sequences(&backlog), [4]);
    }

    proptest! {
        #[test]
        fn bounds_and_books_hold(
            steps in prop::collection::vec((0_u8..4, 0_usize..400, 1_u64..60), 1..200),
        ) {
            let (max_items, max_bytes) = (8, 1_500);
            let mut backlog = Backlog::new(max_items, max_bytes);
            let (mut next, mut out, mut let_go) = (1, 0, 0);
            for (what, size, sequence) in steps {
                match what {
                    0 => let_go += backlog.release_through(sequence) as u64,
                    1 => let_go += u64::from(backlog.release(sequence)),
                    kind => {
                        let kind = if kind == 2 { Kind::Snapshot } else { Kind::State };
                        out += backlog.push(entry(next, kind, size)).items;
                        next += 1;
                    }
                }
                prop_assert!(backlog.len() <= max_items);
                prop_assert!(backlog.bytes() <= max_bytes || backlog.len() == 1);
                let sum: usize = backlog.entries.iter().map(Entry::cost).sum();
                prop_assert_eq!(backlog.bytes(), sum);
                prop_assert_eq!(backlog.len() as u64 + out + let_go, next - 1);
                prop_assert!(backlog.entries.iter().is_sorted_by(|a, b| a.sequence < b.sequence));
            }
        }
    }
}

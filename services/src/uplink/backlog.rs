//! Encoded items in memory, in the order of their sequences.

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

impl Evicted {
    pub(crate) fn add(&mut self, other: Self) {
        self.items += other.items;
        self.snapshots += other.snapshots;
    }

    pub(crate) fn count(&mut self, kind: Kind) {
        self.items += 1;
        self.snapshots += u64::from(kind == Kind::Snapshot);
    }
}

/// Entries in the order of their sequences.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl Backlog {
    /// Appends an entry, whose sequence is higher than all before.
    pub(crate) fn push(&mut self, entry: Entry) {
        debug_assert!(
            self.entries
                .back()
                .is_none_or(|last| last.sequence < entry.sequence)
        );
        self.bytes += entry.cost();
        self.entries.push_back(entry);
    }

    /// Lets go of the oldest report of an interval; where there is none, of the oldest of
    /// all. Never of the newest entry, unless it is the only one.
    pub(crate) fn give_up_least_missed(&mut self) -> Option<Entry> {
        let older = self.entries.len().saturating_sub(1);
        let at = self
            .entries
            .iter()
            .take(older)
            .position(|e| e.kind != Kind::State)
            .unwrap_or(0);
        self.remove(at)
    }

    pub(crate) fn first(&self) -> Option<&Entry> {
        self.entries.front()
    }

    pub(crate) fn last(&self) -> Option<&Entry> {
        self.entries.back()
    }

    pub(crate) fn pop_first(&mut self) -> Option<Entry> {
        let gone = self.entries.pop_front()?;
        self.bytes -= gone.cost();
        Some(gone)
    }

    pub(crate) fn pop_last(&mut self) -> Option<Entry> {
        let gone = self.entries.pop_back()?;
        self.bytes -= gone.cost();
        Some(gone)
    }

    /// The first entry after `sequence`.
    pub(crate) fn after(&self, sequence: u64) -> Option<&Entry> {
        self.entries.get(self.through(sequence))
    }

    /// All entries after `sequence`.
    pub(crate) fn iter_after(&self, sequence: u64) -> impl Iterator<Item = &Entry> {
        self.entries.range(self.through(sequence)..)
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

//! What waits for an acknowledgement: the oldest and the newest items in memory, and those
//! between them on disk alone, where there is a spool.
//!
//! ```text
//! oldest ──────────────────────────────────────────────────────────▶ newest
//! head: in memory, sent from here │ gap: on disk alone │ tail: not on disk yet
//! ```
//!
//! Without a gap there is no tail. A gap opens when memory is full: the newest items that
//! are on disk already leave it. It closes when its last item was read back.

use super::backlog::{Backlog, Entry, Evicted};
use super::item::Kind;

/// While the disk takes what comes, memory may hold so many times as much as it is meant
/// to: a write that takes a moment costs no item.
const BUSY_DISK_FACTOR: usize = 2;

/// Items that are on disk alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gap {
    /// Sequence of the first.
    pub(crate) from: u64,
    /// Sequence of the last.
    pub(crate) to: u64,
    /// How many.
    pub(crate) items: u64,
    /// Snapshots among them.
    pub(crate) snapshots: u64,
}

/// What to send next.
#[derive(Clone, Debug)]
pub(crate) enum Head {
    /// This.
    Entry(Entry),
    /// It must be read back first.
    OnDisk,
    /// Nothing waits.
    Nothing,
}

/// Items of one run in the order of their sequences.
#[derive(Debug)]
pub(crate) struct Queue {
    head: Backlog,
    gap: Option<Gap>,
    tail: Backlog,
    max_items: usize,
    max_bytes: usize,
    /// Whether a spool takes what comes.
    spooling: bool,
    /// Everything up to this sequence is on disk.
    written: u64,
    /// The highest sequence that was sent: what may be in flight stays in memory.
    sent: u64,
}

impl Queue {
    pub(crate) fn new(max_items: usize, max_bytes: usize) -> Self {
        Self {
            head: Backlog::default(),
            gap: None,
            tail: Backlog::default(),
            max_items: max_items.max(1),
            max_bytes,
            spooling: false,
            written: 0,
            sent: 0,
        }
    }

    /// A queue whose items are all on disk.
    pub(crate) fn on_disk(max_items: usize, max_bytes: usize, gap: Gap) -> Self {
        Self {
            gap: (gap.items > 0).then_some(gap),
            written: gap.to,
            spooling: true,
            ..Self::new(max_items, max_bytes)
        }
    }

    /// Appends an entry, whose sequence is higher than all before, and makes room. Returns
    /// what had to go for good.
    pub(crate) fn push(&mut self, entry: Entry) -> Evicted {
        if self.gap.is_some() {
            self.tail.push(entry);
        } else {
            self.head.push(entry);
        }
        self.make_room()
    }

    /// Says whether a spool takes what comes. Where it does not, memory is all there is.
    pub(crate) fn set_spooling(&mut self, spooling: bool) -> Evicted {
        self.spooling = spooling;
        self.make_room()
    }

    /// Entries that are not on disk, oldest first, with `bytes` at most unless the first
    /// alone has more.
    pub(crate) fn unwritten(&self, bytes: usize) -> Vec<Entry> {
        let mut room = bytes;
        let mut entries = Vec::new();
        let head = self.head.iter_after(self.written);
        for entry in head.chain(self.tail.iter_after(self.written)) {
            if !entries.is_empty() && entry.bytes.len() > room {
                break;
            }
            room = room.saturating_sub(entry.bytes.len());
            entries.push(entry.clone());
        }
        entries
    }

    /// Everything up to `through` is on disk.
    pub(crate) fn wrote(&mut self, through: u64) -> Evicted {
        self.written = self.written.max(through);
        self.make_room()
    }

    fn is_over(&self, factor: usize) -> bool {
        self.memory_items() > self.max_items.saturating_mul(factor)
            || self.memory_bytes() > self.max_bytes.saturating_mul(factor)
    }

    fn make_room(&mut self) -> Evicted {
        if self.gap.is_some() {
            while self
                .tail
                .first()
                .is_some_and(|e| e.sequence <= self.written)
            {
                let Some(entry) = self.tail.pop_first() else {
                    break;
                };
                self.leave_to_disk(&entry, false);
            }
        }
        while self.is_over(1) {
            let last = self.head.last().map(|e| e.sequence);
            // The first of all stays: it is what is sent next.
            let may_go = self.head.len() > 1;
            match last {
                Some(last) if may_go && last <= self.written && last > self.sent => {
                    let Some(entry) = self.head.pop_last() else {
                        break;
                    };
                    self.leave_to_disk(&entry, true);
                }
                _ => break,
            }
        }
        let factor = if self.spooling { BUSY_DISK_FACTOR } else { 1 };
        let mut evicted = Evicted::default();
        while self.is_over(factor) && self.memory_items() > 1 {
            // The head never loses its last entry to a tail that is to be kept too: the tail
            // is what the disk does not take.
            let from = if self.head.len() > 1 || self.tail.len() <= 1 {
                &mut self.head
            } else {
                &mut self.tail
            };
            match from.give_up_least_missed() {
                Some(gone) => evicted.count(gone.kind),
                None => break,
            }
        }
        evicted
    }

    fn leave_to_disk(&mut self, entry: &Entry, before: bool) {
        let gap = self.gap.get_or_insert(Gap {
            from: entry.sequence,
            to: entry.sequence,
            ..Gap::default()
        });
        if before {
            gap.from = entry.sequence;
        } else {
            gap.to = entry.sequence;
        }
        gap.items += 1;
        gap.snapshots += u64::from(entry.kind == Kind::Snapshot);
    }

    /// From which sequence on items are to be read back, when there is room for them.
    pub(crate) fn wants(&self) -> Option<u64> {
        let room =
            self.memory_items() <= self.max_items / 2 && self.memory_bytes() <= self.max_bytes / 2;
        self.gap
            .filter(|_| room || self.head.is_empty())
            .map(|gap| gap.from)
    }

    /// Items that were read back; nothing up to `reached` is left to be read. Returns what
    /// turned out to be lost, once that is known.
    pub(crate) fn refill(&mut self, entries: Vec<Entry>, reached: u64) -> Evicted {
        let Some(gap) = &mut self.gap else {
            return Evicted::default();
        };
        let mut last = gap.from.saturating_sub(1);
        for entry in entries {
            if entry.sequence > last && entry.sequence <= gap.to {
                last = entry.sequence;
                gap.items = gap.items.saturating_sub(1);
                gap.snapshots -= u64::from(entry.kind == Kind::Snapshot).min(gap.snapshots);
                self.head.push(entry);
            }
        }
        gap.from = gap.from.max(reached.saturating_add(1));
        self.close_gap()
    }

    /// Nothing is left on disk that could be read.
    pub(crate) fn nothing_on_disk(&mut self) -> Evicted {
        if let Some(gap) = &mut self.gap {
            gap.from = gap.to.saturating_add(1);
        }
        self.close_gap()
    }

    fn close_gap(&mut self) -> Evicted {
        let Some(gap) = self.gap.filter(|gap| gap.from > gap.to) else {
            return Evicted::default();
        };
        self.gap = None;
        while let Some(entry) = self.tail.pop_first() {
            self.head.push(entry);
        }
        Evicted {
            items: gap.items,
            snapshots: gap.snapshots,
        }
    }

    /// These were dropped from the disk for good: they go from memory too. Returns how many
    /// that were.
    pub(crate) fn dropped(&mut self, items: &[(u64, Kind)]) -> Evicted {
        let mut evicted = Evicted::default();
        for (sequence, kind) in items {
            let waited = match &mut self.gap {
                Some(gap) if (gap.from..=gap.to).contains(sequence) => {
                    gap.items = gap.items.saturating_sub(1);
                    gap.snapshots -= u64::from(*kind == Kind::Snapshot).min(gap.snapshots);
                    true
                }
                _ => self.head.release(*sequence) || self.tail.release(*sequence),
            };
            if waited {
                evicted.count(*kind);
            }
        }
        evicted
    }

    /// What to send after `sent`.
    pub(crate) fn after(&self, sent: u64) -> Head {
        match (self.head.after(sent), self.gap, self.tail.after(sent)) {
            (Some(entry), _, _) => Head::Entry(entry.clone()),
            (None, Some(_), _) => Head::OnDisk,
            (None, None, Some(entry)) => Head::Entry(entry.clone()),
            (None, None, None) => Head::Nothing,
        }
    }

    /// An item was sent.
    pub(crate) fn note_sent(&mut self, sequence: u64) {
        self.sent = self.sent.max(sequence);
    }

    /// How many items have a sequence up to `sequence`, which was sent.
    pub(crate) fn through(&self, sequence: u64) -> usize {
        self.head.through(sequence)
    }

    /// Lets go of every item up to `sequence`, which was sent.
    pub(crate) fn release_through(&mut self, sequence: u64) {
        self.head.release_through(sequence);
    }

    /// Lets go of one item. Returns whether it was there.
    pub(crate) fn release(&mut self, sequence: u64) -> bool {
        self.head.release(sequence)
    }

    /// Whether the spool has everything that waits.
    pub(crate) fn is_written(&self) -> bool {
        let last = self.tail.last().or(self.head.last());
        last.is_none_or(|last| last.sequence <= self.written)
    }

    /// Everything up to here is on disk, or was acknowledged before it came to that.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    fn memory_items(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// What items take in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.head.bytes() + self.tail.bytes()
    }

    fn on_disk_alone(&self) -> u64 {
        self.gap.map_or(0, |gap| gap.items)
    }

    /// Items that wait, in memory or not.
    pub(crate) fn len(&self) -> usize {
        self.memory_items() + usize::try_from(self.on_disk_alone()).unwrap_or(usize::MAX)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.gap.is_none() && self.memory_items() == 0
    }

    /// Snapshots that wait.
    pub(crate) fn snapshots(&self) -> usize {
        let on_disk = self.gap.map_or(0, |gap| gap.snapshots);
        self.head.snapshots() + self.tail.snapshots() + usize::try_from(on_disk).unwrap_or(0)
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;

//! Which sub-queue a key with a backlog uses, and how many of its frames wait there.
//!
//! A key keeps its sub-queue until its last frame has left: were it moved earlier,
//! to a sub-queue that became free, its later frames would overtake its earlier
//! ones. A sub-queue of its own it keeps even longer, until another key needs it: on
//! a wire that is faster than its traffic every frame is the last one of its key, and
//! entering and forgetting the key each time would cost more than the frame. Open
//! addressing with linear probing; a removed entry is closed up by
//! shifting its followers back, so the table never fills with leftovers.

/// Multiplier of Fibonacci hashing, 2^64 divided by the golden ratio. Keys are
/// hashes already; this keeps the table good for keys that are small numbers.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

const VACANT: u32 = u32::MAX;

/// One key.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyEntry {
    pub(super) key: u64,
    pub(super) queue: u32,
    /// Frames of this key in a sub-queue that it shares. While the sub-queue is its
    /// own, the length of the sub-queue is the count.
    pub(super) shared_frames: u32,
}

const NO_KEY: KeyEntry = KeyEntry {
    key: 0,
    queue: VACANT,
    shared_frames: 0,
};

/// All keys that have a sub-queue.
#[derive(Debug)]
pub(super) struct KeyTable {
    entries: Box<[KeyEntry]>,
    mask: usize,
    shift: u32,
}

impl KeyTable {
    /// Room for `keys` keys at a load of two thirds at most.
    pub(super) fn with_room_for(keys: u32) -> Self {
        let len = Self::entries_for(keys);
        Self {
            entries: vec![NO_KEY; len].into_boxed_slice(),
            mask: len - 1,
            shift: 64 - len.trailing_zeros(),
        }
    }

    /// Memory of a table for `keys` keys, bytes.
    pub(super) fn memory_bytes(keys: u32) -> u64 {
        (Self::entries_for(keys) * size_of::<KeyEntry>()) as u64
    }

    fn entries_for(keys: u32) -> usize {
        let keys = keys as usize;
        (keys + keys / 2 + 1).next_power_of_two()
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the shift leaves the bits of the mask"
    )]
    fn home_of(&self, key: u64) -> usize {
        (key.wrapping_mul(SPREAD) >> self.shift) as usize
    }

    /// What is known of `key`, if it has a sub-queue.
    #[inline]
    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut KeyEntry> {
        let place = self.place_of(key);
        let entry = &mut self.entries[place];
        (entry.queue != VACANT).then_some(entry)
    }

    /// The sub-queue of `key`, or a number that is no sub-queue's.
    #[inline]
    pub(super) fn queue_of(&self, key: u64) -> u32 {
        self.entries[self.place_of(key)].queue
    }

    /// Enters a key that is not known yet.
    pub(super) fn insert(&mut self, entry: KeyEntry) {
        let place = self.place_of(entry.key);
        self.entries[place] = entry;
    }

    /// The place of `key`, or the vacant place where it would go.
    #[inline]
    fn place_of(&self, key: u64) -> usize {
        let mut place = self.home_of(key);
        loop {
            let entry = &self.entries[place & self.mask];
            if entry.key == key || entry.queue == VACANT {
                return place & self.mask;
            }
            place = place.wrapping_add(1);
        }
    }

    /// Forgets all keys.
    pub(super) fn clear(&mut self) {
        self.entries.fill(NO_KEY);
    }

    /// Forgets a key, if it is known.
    pub(super) fn remove(&mut self, key: u64) {
        let mut hole = self.place_of(key);
        if self.entries[hole].queue == VACANT {
            return;
        }
        let mut next = hole;
        loop {
            next = (next + 1) & self.mask;
            let entry = self.entries[next];
            if entry.queue == VACANT {
                break;
            }
            // An entry may fill the hole unless its home lies behind the hole.
            let from_home = next.wrapping_sub(self.home_of(entry.key)) & self.mask;
            let from_hole = next.wrapping_sub(hole) & self.mask;
            if from_home >= from_hole {
                self.entries[hole] = entry;
                hole = next;
            }
        }
        self.entries[hole] = NO_KEY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// A small table, so that runs of occupied places wrap around its end.
        #[test]
        fn finds_what_a_map_finds(
            steps in prop::collection::vec((0_u64..24, any::<bool>()), 0..300),
        ) {
            let mut table = KeyTable::with_room_for(8);
            let mut map = BTreeMap::new();
            for (step, (key, insert)) in steps.into_iter().enumerate() {
                prop_assert_eq!(table.get_mut(key).map(|e| e.queue), map.get(&key).copied());
                let queue = u32::try_from(step).expect("few steps");
                if insert && map.len() < 8 && !map.contains_key(&key) {
                    table.insert(KeyEntry { key, queue, shared_frames: 0 });
                    map.insert(key, queue);
                } else if !insert {
                    map.remove(&key);
                    table.remove(key);
                }
            }
            for key in 0..24 {
                prop_assert_eq!(table.get_mut(key).map(|e| e.queue), map.get(&key).copied());
            }
        }
    }
}

//! A bounded map that forgets what was used longest ago.

use std::borrow::Borrow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

#[derive(Debug)]
pub(super) struct Lru<K, V> {
    limit: usize,
    uses: u64,
    values: HashMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
}

impl<K: Eq + Hash + Clone, V> Lru<K, V> {
    /// Keeps at most `limit` entries, at least 1.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            uses: 0,
            values: HashMap::new(),
            by_use: BTreeMap::new(),
        }
    }

    /// The value of a key, which counts as a use.
    pub(super) fn get<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let (used, value) = self.values.get_mut(key)?;
        self.uses += 1;
        if let Some(key) = self.by_use.remove(used) {
            self.by_use.insert(self.uses, key);
        }
        *used = self.uses;
        Some(value)
    }

    /// The value of a key, made when it is not there; either way a use. When
    /// full, one other is forgotten first.
    pub(super) fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        if !self.values.contains_key(&key)
            && self.values.len() >= self.limit
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.values.remove(&oldest);
        }
        self.uses += 1;
        self.by_use.insert(self.uses, key.clone());
        match self.values.entry(key) {
            Entry::Occupied(slot) => {
                let (used, value) = slot.into_mut();
                self.by_use.remove(used);
                *used = self.uses;
                value
            }
            Entry::Vacant(slot) => &mut slot.insert((self.uses, make())).1,
        }
    }

    /// Sets a value, which counts as a use.
    pub(super) fn insert(&mut self, key: K, value: V) {
        if let Some((used, _)) = self.values.remove(&key) {
            self.by_use.remove(&used);
        }
        self.get_or_insert_with(key, || value);
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let mut lru = Lru::new(2);
        lru.insert(1, "a");
        lru.insert(2, "b");
        assert!(lru.get(&1).is_some());
        lru.insert(3, "c");
        assert!(lru.get(&2).is_none());
        assert_eq!(lru.get(&1), Some(&mut "a"));
    }

    proptest! {
        #[test]
        fn never_above_its_limit_and_its_parts_agree(keys in proptest::collection::vec(0u8..20, 0..200), limit in 1usize..8) {
            let mut lru = Lru::new(limit);
            for key in keys {
                if key % 3 == 0 {
                    lru.insert(key, key);
                }
                prop_assert_eq!(*lru.get_or_insert_with(key, || key), key);
                prop_assert!(lru.len() <= limit);
                prop_assert_eq!(lru.by_use.len(), lru.len());
                prop_assert!(lru.values.contains_key(&key));
            }
        }
    }
}

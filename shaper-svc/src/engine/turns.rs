//! Round robin over numbered places: two levels of bitmap, so that the next taker
//! is found in a few instructions among up to [`MAX_PLACES`].

/// Places that two levels of 64-bit words can hold.
pub(super) const MAX_PLACES: u32 = 64 * 64;

const WORDS: usize = 64;

/// A set of places, walked in a circle.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    words: Box<[u64; WORDS]>,
    /// One bit for each word that is not empty.
    summary: u64,
}

impl Turns {
    pub(super) fn empty() -> Self {
        Self {
            words: Box::new([0; WORDS]),
            summary: 0,
        }
    }

    #[inline]
    pub(super) fn set(&mut self, place: u32) {
        let word = word_of(place);
        self.words[word] |= 1 << (place % 64);
        self.summary |= 1 << word;
    }

    #[inline]
    pub(super) fn clear(&mut self, place: u32) {
        let word = word_of(place);
        self.words[word] &= !(1 << (place % 64));
        if self.words[word] == 0 {
            self.summary &= !(1 << word);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.summary == 0
    }

    /// The place that is set, if it is the only one.
    #[inline]
    pub(super) fn only(&self) -> Option<u32> {
        let word = self.summary.trailing_zeros() as usize % WORDS;
        let bits = self.words[word];
        (self.summary.is_power_of_two() && bits.is_power_of_two()).then(|| place_of(word, bits))
    }

    /// The first place of the circle after `place`, which itself comes last.
    #[inline]
    pub(super) fn next_after(&self, place: u32) -> Option<u32> {
        self.walk_after(place).next(self)
    }

    /// The first of `count` places that is not set, in the circle after `place`, which
    /// itself comes last. A word at a time: 16 steps for 1,024 places that are all set.
    pub(super) fn next_vacant_after(&self, place: u32, count: u32) -> Option<u32> {
        let from = place.wrapping_add(1);
        let vacant_of = |word: u32| {
            let places = count.saturating_sub(word * 64);
            let all = if places < 64 {
                (1 << places) - 1
            } else {
                u64::MAX
            };
            !self.words[word as usize % WORDS] & all
        };
        let first = from / 64;
        let behind = vacant_of(first) & (u64::MAX << (from % 64));
        let words = count.div_ceil(64);
        std::iter::once((first, behind))
            .chain(
                (first + 1..words)
                    .chain(0..=first)
                    .map(|word| (word, vacant_of(word))),
            )
            .find(|(_, bits)| *bits != 0)
            .map(|(word, bits)| place_of(word as usize % WORDS, bits))
    }

    /// A walk around the circle that begins after `place`.
    #[inline]
    pub(super) fn walk_after(&self, place: u32) -> Walk {
        let from = place.wrapping_add(1);
        let word = word_of(from);
        Walk {
            word,
            rest: self.words[word] & (u64::MAX << (from % 64)),
        }
    }
}

/// A walk around the circle. Places that it has passed may be cleared meanwhile;
/// none may be set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk {
    word: usize,
    /// Places of the word that are still ahead. Held here because the way from one
    /// place to the next is what a burst waits for: a step within a word then takes
    /// one cycle and not a load and two shifts.
    rest: u64,
}

impl Walk {
    #[inline]
    pub(super) fn next(&mut self, turns: &Turns) -> Option<u32> {
        if self.rest == 0 {
            let beyond = turns.summary & (!1 << self.word);
            let around = if beyond == 0 { turns.summary } else { beyond };
            if around == 0 {
                return None;
            }
            self.word = around.trailing_zeros() as usize % WORDS;
            self.rest = turns.words[self.word];
        }
        let place = place_of(self.word, self.rest);
        self.rest &= self.rest.wrapping_sub(1);
        Some(place)
    }
}

#[inline]
const fn word_of(place: u32) -> usize {
    (place as usize / 64) % WORDS
}

/// The lowest place set in `bits`, the content of word `word`.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a word number is below 64")]
const fn place_of(word: usize, bits: u64) -> u32 {
    word as u32 * 64 + bits.trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_place_can_hold_and_the_circle_closes() {
        let mut turns = Turns::empty();
        assert_eq!(turns.next_after(0), None);
        turns.set(MAX_PLACES - 1);
        assert_eq!(turns.next_after(MAX_PLACES - 1), Some(MAX_PLACES - 1));
        turns.set(0);
        assert_eq!(turns.next_after(MAX_PLACES - 1), Some(0));
        assert_eq!(turns.next_after(0), Some(MAX_PLACES - 1));
        turns.clear(0);
        turns.clear(MAX_PLACES - 1);
        assert!(turns.is_empty());
    }

    proptest! {
        #[test]
        fn walks_like_an_ordered_set(
            changes in prop::collection::vec((0..MAX_PLACES, any::<bool>()), 0..200),
            from in 0..MAX_PLACES,
        ) {
            let mut turns = Turns::empty();
            let mut set = BTreeSet::new();
            for (place, present) in changes {
                if present {
                    turns.set(place);
                    set.insert(place);
                } else {
                    turns.clear(place);
                    set.remove(&place);
                }
            }
            let expected = set.range(from + 1..).next().or_else(|| set.first()).copied();
            prop_assert_eq!(turns.next_after(from), expected);
            let count = from + 1;
            let vacant = (0..count).find(|place| !set.contains(place));
            prop_assert_eq!(turns.next_vacant_after(from, count), vacant);
            let vacant = (from + 1..MAX_PLACES).chain(0..=from).find(|place| !set.contains(place));
            prop_assert_eq!(turns.next_vacant_after(from, MAX_PLACES), vacant);
            let only = set.first().copied().filter(|_| set.len() == 1);
            prop_assert_eq!(turns.only(), only);
            let mut walk = turns.walk_after(from);
            let twice = set.range(from + 1..).chain(&set).chain(&set).take(2 * set.len());
            for place in twice {
                prop_assert_eq!(walk.next(&turns), Some(*place));
            }
            prop_assert_eq!(walk.next(&turns).is_none(), set.is_empty());
        }
    }
}

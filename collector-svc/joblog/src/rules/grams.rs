//! Which of some hundred words stand in a line, and where: one pass that asks a small
//! table for every three bytes. The table stays in the processor's nearest cache, and
//! no step waits for the one before; an automaton of all words does neither.

use std::collections::HashMap;

/// Bytes of a gram.
pub(super) const GRAM_BYTES: usize = 3;

/// Bits of the table for each word: few bytes of a line ask for a word by chance.
const BITS_PER_WORD: usize = 64;

/// The table's size as a power of two: 1 KiB, and at most 128 KiB.
const TABLE_POWERS: std::ops::RangeInclusive<u32> = 13..=20;

/// A multiplier whose product's upper bits depend on all bits of a gram (Knuth, The Art
/// of Computer Programming, volume 3, 6.4: the golden ratio of the word's size).
const MULTIPLIER: u32 = 0x9e37_79b1;

/// Words with the table that finds them.
#[derive(Debug)]
pub(super) struct Grams {
    /// A bit for each value of the hash that a word's gram has.
    table: Vec<u64>,
    /// Set bits before each part of the table.
    ranks: Vec<u32>,
    /// How far a product is shifted to be a place in the table.
    shift: u32,
    /// By hash.
    entries: Vec<Entry>,
    /// Of each set bit of the table: its first entry.
    firsts: Vec<u32>,
    words: Vec<Box<[u8]>>,
}

/// A word, by the gram that it is found by.
#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u32,
    word: usize,
    /// Where the gram stands in the word.
    at: usize,
}

impl Grams {
    /// Of these words in lower case, each of [`GRAM_BYTES`] or more. A word is found by
    /// its rarest gram in `lines`, which are such as will be searched.
    pub(super) fn of(words: &[&str], lines: &[&str]) -> Grams {
        let mut common: HashMap<u32, u32> = HashMap::new();
        for line in lines {
            for gram in line.to_ascii_lowercase().as_bytes().windows(GRAM_BYTES) {
                *common.entry(value(gram)).or_default() += 1;
            }
        }
        let wanted = (words.len() * BITS_PER_WORD).next_power_of_two();
        let power = wanted.trailing_zeros();
        let power = power.clamp(*TABLE_POWERS.start(), *TABLE_POWERS.end());
        let shift = u32::BITS - power;
        let mut entries: Vec<Entry> = Vec::with_capacity(words.len());
        for (word, text) in words.iter().enumerate() {
            let grams = text.as_bytes().windows(GRAM_BYTES).enumerate();
            let rarest = grams.min_by_key(|(_, gram)| common.get(&value(gram)).copied());
            entries.extend(rarest.map(|(at, gram)| Entry {
                hash: hash(value(gram), shift),
                word,
                at,
            }));
        }
        entries.sort_by_key(|entry| entry.hash);
        let mut table = vec![0_u64; (1_usize << power) / 64];
        let mut firsts = Vec::new();
        let mut before = None;
        for (number, entry) in (0..).zip(&entries) {
            table[entry.hash as usize / 64] |= 1 << (entry.hash % 64);
            if before.replace(entry.hash) != Some(entry.hash) {
                firsts.push(number);
            }
        }
        let ranks = table.iter().scan(0, |rank, bits| {
            let before = *rank;
            *rank += bits.count_ones();
            Some(before)
        });
        Grams {
            ranks: ranks.collect(),
            table,
            shift,
            entries,
            firsts,
            words: words
                .iter()
                .map(|word| Box::from(word.as_bytes()))
                .collect(),
        }
    }

    /// Tells every word in the line, which is in lower case, with its number, begin and
    /// end; each word's places are in order.
    pub(super) fn each(&self, line: &[u8], mut tell: impl FnMut(usize, usize, usize)) {
        for (at, gram) in line.windows(GRAM_BYTES).enumerate() {
            let hash = hash(value(gram), self.shift);
            if (self.table[hash as usize / 64] >> (hash % 64)) & 1 == 1 {
                self.each_at(line, at, hash, &mut tell);
            }
        }
    }

    /// Words with a gram of that hash at that place.
    #[inline(never)]
    fn each_at(
        &self,
        line: &[u8],
        at: usize,
        hash: u32,
        tell: &mut impl FnMut(usize, usize, usize),
    ) {
        let (part, below) = (hash as usize / 64, (1_u64 << (hash % 64)) - 1);
        let rank = self.ranks[part] + (self.table[part] & below).count_ones();
        let first = self.firsts[rank as usize] as usize;
        for entry in self.entries[first..].iter().take_while(|e| e.hash == hash) {
            let word = &self.words[entry.word];
            let Some(start) = at.checked_sub(entry.at) else {
                continue;
            };
            if line[start..].starts_with(word) {
                tell(entry.word, start, start + word.len());
            }
        }
    }
}

/// The bytes of a gram as a number.
fn value(gram: &[u8]) -> u32 {
    u32::from(gram[0]) | u32::from(gram[1]) << 8 | u32::from(gram[2]) << 16
}

fn hash(value: u32, shift: u32) -> u32 {
    value.wrapping_mul(MULTIPLIER) >> shift
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(grams: &Grams, line: &str) -> Vec<(usize, usize, usize)> {
        let mut found = Vec::new();
        grams.each(line.as_bytes(), |word, start, end| {
            found.push((word, start, end));
        });
        found.sort_unstable();
        found
    }

    #[test]
    fn words_are_found_by_their_rarest_gram() {
        let grams = Grams::of(&["call to", "all", "to ibv"], &["to to to all"]);
        assert_eq!(
            found(&grams, "call to ibv"),
            [(0, 0, 7), (1, 1, 4), (2, 5, 11)]
        );
        assert!(found(&grams, "cal").is_empty());
        assert!(found(&grams, "").is_empty());
        // The gram stands there, and the word before it does not fit.
        assert!(found(&grams, "l to").is_empty());
    }

    proptest! {
        /// None is missed and none is invented, whatever the table's size.
        #[test]
        fn every_word_is_found_everywhere(
            words in prop::collection::hash_set("[ab c]{3,6}", 0..300),
            line in "[ab c]{0,60}",
            lines in prop::collection::vec("[ab c]{0,20}", 0..3),
        ) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let mut expected = Vec::new();
            for (number, word) in words.iter().enumerate() {
                let places = (0..line.len()).filter(|at| line[*at..].starts_with(word));
                expected.extend(places.map(|at| (number, at, at + word.len())));
            }
            prop_assert_eq!(found(&Grams::of(&words, &lines), &line), expected);
        }
    }
}

//! One pass over a line finds the few rules that can match there.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use memchr::memmem::Finder;

use super::needs::{Choice, Common, Shown};
use crate::errno::{self, WordsAt};

/// Words for errnos that are kept of one line: more than messages that are read.
const MAX_ERRNOS: usize = 1_024;

/// The literals of a rule set.
pub(crate) struct Literals {
    /// Keys, then the words for errnos.
    words: AhoCorasick,
    /// Rules of each key.
    rules_of: Vec<Vec<u16>>,
    /// Of the words behind the keys.
    errnos: Vec<i32>,
    /// Of each rule: whether every match begins with a key.
    begins: Vec<bool>,
    /// Further choices of each rule, by number.
    needs: Vec<Vec<u16>>,
    choices: Vec<Vec<Finder<'static>>>,
}

/// Where a key of a rule stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    pub(crate) start: usize,
    pub(crate) end: usize,
    key: usize,
}

/// What a line was found to hold, as far as somebody asked.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// The line in lower case.
    lower: Vec<u8>,
    /// Of each choice.
    holds: Vec<Option<bool>>,
    /// Choices that were asked for.
    asked: Vec<u16>,
    errnos: Vec<WordsAt>,
}

impl Held {
    /// Of another line nothing is known.
    fn begin(&mut self, line: &[u8]) {
        self.lower.clear();
        self.lower.extend(line.iter().map(u8::to_ascii_lowercase));
        for choice in self.asked.drain(..) {
            self.holds[usize::from(choice)] = None;
        }
        self.errnos.clear();
    }

    /// Words for errnos in the line.
    pub(crate) fn errnos(&self) -> &[WordsAt] {
        &self.errnos
    }
}

impl Literals {
    /// Of these rules: patterns with the literals that their file names, of which a
    /// line must hold one. `lines` are such as the rules are for. The error is the
    /// number of a rule that has neither, or the searcher's.
    pub(super) fn of<'a>(
        rules: impl Iterator<Item = (&'a str, &'a [String])>,
        lines: &[&str],
    ) -> Result<Literals, LiteralsError> {
        let shown: Vec<Shown> = rules
            .map(|(pattern, named)| Shown::by(pattern, named))
            .collect();
        let common = Common::of(&shown, lines)
            .map_err(|error| LiteralsError::Searcher(error.to_string()))?;
        let (mut keys, mut begins, mut needs) = (Vec::new(), Vec::new(), Vec::new());
        let mut numbers: HashMap<Choice, u16> = HashMap::new();
        for (rule, shown) in shown.into_iter().enumerate() {
            let parts = shown.parts(&common);
            if parts.key.is_empty() {
                return Err(LiteralsError::Nothing(rule));
            }
            let mut needed = Vec::new();
            for choice in parts.needs {
                // Past 65,536 different choices a rule needs less than it could.
                let Ok(next) = u16::try_from(numbers.len()) else {
                    break;
                };
                needed.push(*numbers.entry(choice).or_insert(next));
            }
            keys.push(parts.key);
            begins.push(parts.begins);
            needs.push(needed);
        }
        let mut choices = vec![Vec::new(); numbers.len()];
        for (choice, number) in numbers {
            let finders = choice.iter().map(|text| Finder::new(text).into_owned());
            choices[usize::from(number)] = finders.collect();
        }
        let (mut words, rules_of) = self::keys(&keys);
        let errnos: Vec<(String, i32)> = errno::words().collect();
        words.extend(errnos.iter().map(|(text, _)| text.as_str()));
        let words = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::DFA))
            .build(&words)
            .map_err(|error| LiteralsError::Searcher(error.to_string()))?;
        Ok(Literals {
            words,
            rules_of,
            errnos: errnos.iter().map(|(_, number)| *number).collect(),
            begins,
            needs,
            choices,
        })
    }

    /// Tells each key in the line with the rules that it is one of; the places of one key
    /// in order.
    pub(crate) fn each_hit(&self, line: &[u8], held: &mut Held, mut tell: impl FnMut(Hit, &[u16])) {
        held.begin(line);
        let Held { lower, errnos, .. } = held;
        for found in self.words.find_overlapping_iter(lower.as_slice()) {
            let (word, start, end) = (found.pattern().as_usize(), found.start(), found.end());
            if let Some(rules) = self.rules_of.get(word) {
                let key = word;
                tell(Hit { start, end, key }, rules);
            } else if errnos.len() < MAX_ERRNOS {
                let number = self.errnos[word - self.rules_of.len()];
                errnos.push(WordsAt { start, end, number });
            }
        }
    }

    /// Whether a match of the rule can begin at the hit.
    pub(crate) fn begins_at(&self, rule: u16, hit: &Hit) -> bool {
        self.rules_of[hit.key].contains(&rule)
    }

    /// Whether every match of the rule begins with one of its keys.
    pub(crate) fn is_beginning(&self, rule: u16) -> bool {
        self.begins[usize::from(rule)]
    }

    /// Whether the line of the last [`Literals::each_hit`] holds all that the rule cannot
    /// match without.
    pub(crate) fn are_met(&self, rule: u16, held: &mut Held) -> bool {
        let Held {
            lower,
            holds,
            asked,
            ..
        } = held;
        holds.resize(self.choices.len(), None);
        self.needs[usize::from(rule)].iter().all(|number| {
            let choice = usize::from(*number);
            *holds[choice].get_or_insert_with(|| {
                asked.push(*number);
                let mut texts = self.choices[choice].iter();
                texts.any(|text| text.find(lower).is_some())
            })
        })
    }
}

impl fmt::Debug for Literals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Literals")
            .field("rules", &self.begins.len())
            .field("keys", &self.rules_of.len())
            .finish_non_exhaustive()
    }
}

/// Why literals serve no search.
#[derive(Debug)]
pub(super) enum LiteralsError {
    /// The rule of that number has none.
    Nothing(usize),
    /// The searcher cannot be built.
    Searcher(String),
}

/// The keys of all rules, each once, and the rules of each.
fn keys(keys: &[Choice]) -> (Vec<&str>, Vec<Vec<u16>>) {
    let mut rules_of: BTreeMap<&str, Vec<u16>> = BTreeMap::new();
    for (rule, key) in keys.iter().enumerate() {
        // A set has fewer rules than a u16 counts.
        let rule = u16::try_from(rule).unwrap_or(u16::MAX);
        for text in key {
            rules_of.entry(text).or_default().push(rule);
        }
    }
    rules_of.into_iter().unzip()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use regex::bytes::RegexBuilder;

    /// Whether the pattern shows any literal.
    fn shows(pattern: &str) -> bool {
        let shown = [Shown::by(pattern, &[])];
        let common = Common::of(&shown, &[]).unwrap();
        let [shown] = shown;
        !shown.parts(&common).key.is_empty()
    }

    fn hits(literals: &Literals, line: &[u8], held: &mut Held) -> Vec<(Hit, Vec<u16>)> {
        let mut hits = Vec::new();
        literals.each_hit(line, held, |hit, rules| hits.push((hit, rules.to_vec())));
        hits
    }

    /// Rules of these patterns; where one shows no literal, `named` is its own.
    fn literals(patterns: &[&str]) -> Literals {
        let named = ["named".to_owned()];
        let rules = patterns
            .iter()
            .map(|pattern| (*pattern, &named[..usize::from(!shows(pattern))]));
        Literals::of(rules, &[]).unwrap()
    }

    #[test]
    fn only_rules_that_can_match_are_left() {
        let literals = literals(&["failed to (?:open|close)", "failed", "[0-9]+"]);
        let left = |line: &str| -> Vec<u16> {
            let line = line.as_bytes();
            let mut held = Held::default();
            let hits = hits(&literals, line, &mut held).into_iter();
            let mut left: Vec<u16> = hits
                .flat_map(|(_, rules)| rules)
                .filter(|rule| literals.are_met(*rule, &mut held))
                .collect();
            left.sort_unstable();
            left.dedup();
            left
        };
        assert_eq!(left("it FAILED"), [1]);
        assert_eq!(left("Failed to close x"), [0, 1]);
        assert_eq!(left("a Named thing"), [2]);
        assert!(left("nothing").is_empty());
    }

    #[test]
    fn a_rule_without_any_literal_is_named() {
        let none: [(&str, &[String]); 2] = [("abcd", &[]), ("[0-9]+", &[])];
        let refused = Literals::of(none.into_iter(), &[]).unwrap_err();
        assert!(matches!(refused, LiteralsError::Nothing(1)), "{refused:?}");
    }

    /// Some of these pieces, one behind the other.
    fn of_pieces(pieces: &'static [&'static str]) -> impl Strategy<Value = String> {
        let pieces = prop::collection::vec(prop::sample::select(pieces), 0..6);
        pieces.prop_map(|pieces| pieces.concat())
    }

    proptest! {
        /// No rule is left out that would match, and none matches elsewhere.
        #[test]
        fn literals_are_there_wherever_the_pattern_matches(
            pattern in of_pieces(&[
                "abca", "(abca|cabx)", "(?:bca)?", "x{0,3}", "[Aa]bc", "(?P<n>a|bcab)", "(?:abca)+",
                "\\w*?", "\\b",
            ]),
            line in of_pieces(&["abca", "cab", "BCA", "x", "ABC", " ", "abcab"]),
        ) {
            let line = line.as_bytes();
            let compiled = RegexBuilder::new(&pattern)
                .case_insensitive(true)
                .unicode(false)
                .build();
            // Two groups of one name are no pattern.
            prop_assume!(compiled.is_ok());
            let literals = literals(&[pattern.as_str()]);
            let Some(found) = compiled.unwrap().find(line) else {
                return Ok(());
            };
            if !shows(&pattern) {
                return Ok(());
            }
            let mut held = Held::default();
            let hits = hits(&literals, line, &mut held);
            prop_assert!(literals.are_met(0, &mut held), "{} {:?}", pattern, line);
            let mut hits = hits.iter();
            let is_there = hits.any(|(hit, _)| !literals.is_beginning(0) || hit.start == found.start());
            prop_assert!(is_there, "{} {:?}", pattern, line);
        }
    }
}

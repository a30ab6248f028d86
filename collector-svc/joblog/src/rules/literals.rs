//! Literals that a pattern cannot match without, read from the pattern itself, so that
//! one pass over a line finds the few rules that can match there.
//!
//! Of each pattern one choice of literals is its key: the most telling, which is the
//! one that the fewest example lines of all rules hold. A line that holds no key of a
//! rule is not looked at for it, and one that lacks any other choice neither:
//! `A ... (B|C) ... D` is not run over a line without D.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use memchr::memmem::Finder;
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind};

/// Shortest literal: two letters stand in every line and tell nothing.
pub(super) const MIN_LITERAL_BYTES: usize = 3;

/// A choice of shorter literals is a key only where there is no other.
const LONG_BYTES: usize = 4;

/// Most literals of which one must stand in the line; a choice of more excludes
/// little.
const MAX_CHOICES: usize = 64;

/// Choices that are kept for one pattern beside its key, the most telling ones.
const MAX_NEEDS: usize = 5;

/// Up to so many bytes of keys their searcher is a full DFA (some megabytes); beyond,
/// one that is smaller and slower.
const DFA_KEY_BYTES: usize = 32 << 10;

/// Literals of which one stands in whatever matches; lower case, in order.
type Choice = Vec<String>;

/// The literals of a rule set.
pub(crate) struct Literals {
    keys: AhoCorasick,
    /// Rules of each key.
    rules_of: Vec<Vec<u16>>,
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
pub(crate) struct Line {
    lower: Vec<u8>,
    /// Of each choice.
    holds: Vec<Option<bool>>,
}

impl Line {
    pub(crate) fn new(line: &[u8]) -> Line {
        Line {
            lower: line.to_ascii_lowercase(),
            holds: Vec::new(),
        }
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
        let common = Common::of(&shown, lines)?;
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
        let (searcher, rules_of) = searcher(&keys)?;
        Ok(Literals {
            keys: searcher,
            rules_of,
            begins,
            needs,
            choices,
        })
    }

    /// Keys in the line, each with the rules that it is one of.
    pub(crate) fn hits(&self, line: &[u8]) -> impl Iterator<Item = (Hit, &[u16])> {
        let found = self.keys.find_overlapping_iter(line);
        found.map(move |found| {
            let key = found.pattern().as_usize();
            let hit = Hit {
                start: found.start(),
                end: found.end(),
                key,
            };
            (hit, self.rules_of[key].as_slice())
        })
    }

    /// Whether a match of the rule can begin at the hit.
    pub(crate) fn begins_at(&self, rule: u16, hit: &Hit) -> bool {
        self.rules_of[hit.key].contains(&rule)
    }

    /// Whether every match of the rule begins with one of its keys.
    pub(crate) fn is_beginning(&self, rule: u16) -> bool {
        self.begins[usize::from(rule)]
    }

    /// Whether the line holds all that the rule cannot match without.
    pub(crate) fn are_met(&self, rule: u16, line: &mut Line) -> bool {
        if line.holds.is_empty() {
            line.holds = vec![None; self.choices.len()];
        }
        let (lower, holds) = (line.lower.as_slice(), &mut line.holds);
        self.needs[usize::from(rule)].iter().all(|choice| {
            let choice = usize::from(*choice);
            let look = || {
                self.choices[choice]
                    .iter()
                    .any(|text| text.find(lower).is_some())
            };
            *holds[choice].get_or_insert_with(look)
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

/// One pass for the keys of all rules.
fn searcher(keys: &[Choice]) -> Result<(AhoCorasick, Vec<Vec<u16>>), LiteralsError> {
    let mut rules_of: HashMap<&str, Vec<u16>> = HashMap::new();
    for (rule, key) in keys.iter().enumerate() {
        // A set has fewer rules than a u16 counts.
        let rule = u16::try_from(rule).unwrap_or(u16::MAX);
        for text in key {
            rules_of.entry(text).or_default().push(rule);
        }
    }
    let (texts, rules_of): (Vec<&str>, Vec<Vec<u16>>) = rules_of.into_iter().unzip();
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    let searcher = AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .kind((bytes <= DFA_KEY_BYTES).then_some(AhoCorasickKind::DFA))
        .build(&texts)
        .map_err(|error| LiteralsError::Searcher(error.to_string()))?;
    Ok((searcher, rules_of))
}

/// How many example lines hold each literal.
struct Common(HashMap<String, Vec<u64>>);

impl Common {
    fn of(shown: &[Shown], lines: &[&str]) -> Result<Common, LiteralsError> {
        let choices = shown
            .iter()
            .flat_map(|shown| shown.choices.iter().chain(&shown.beginning));
        let mut texts: Vec<&String> = choices.flatten().collect();
        texts.sort_unstable();
        texts.dedup();
        let searcher = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .build(&texts)
            .map_err(|error| LiteralsError::Searcher(error.to_string()))?;
        let mut held = vec![vec![0_u64; lines.len().div_ceil(64)]; texts.len()];
        for (at, line) in lines.iter().enumerate() {
            for found in searcher.find_overlapping_iter(line) {
                held[found.pattern().as_usize()][at / 64] |= 1 << (at % 64);
            }
        }
        Ok(Common(texts.into_iter().cloned().zip(held).collect()))
    }

    /// How many of the lines hold one of the choice.
    fn lines_with(&self, choice: &[String]) -> u32 {
        let held: Vec<&Vec<u64>> = choice.iter().filter_map(|text| self.0.get(text)).collect();
        let words = held.first().map_or(0, |words| words.len());
        let with = |word: usize| held.iter().fold(0, |bits, held| bits | held[word]);
        (0..words).map(|word| with(word).count_ones()).sum()
    }

    fn worth(&self, choice: &[String]) -> Worth {
        let shortest = choice.iter().map(String::len).min().unwrap_or(0);
        Worth {
            is_long: shortest >= LONG_BYTES || choice.len() == 1,
            rare: Reverse(self.lines_with(choice)),
            shortest,
            fewest: Reverse(choice.len()),
        }
    }
}

/// How much a choice tells, the least first. Short ones stand in lines that no example
/// shows, inside of other words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Worth {
    is_long: bool,
    rare: Reverse<u32>,
    shortest: usize,
    fewest: Reverse<usize>,
}

/// The literals that a pattern shows.
struct Shown {
    /// What each match begins with one of.
    beginning: Option<Choice>,
    /// What each match holds one of.
    choices: Vec<Choice>,
    /// Those of its file.
    named: Choice,
}

/// What serves a search.
struct Parts {
    key: Choice,
    begins: bool,
    needs: Vec<Choice>,
}

impl Shown {
    fn by(pattern: &str, named: &[String]) -> Shown {
        let parsed = ParserBuilder::new()
            .unicode(false)
            .utf8(false)
            .build()
            .parse(pattern);
        // Its compiler refuses what does not parse.
        let (beginning, choices) = parsed.map_or((None, Vec::new()), |hir| {
            let choices = needed_by(&hir).into_iter().map(in_order);
            (beginning(&hir).map(in_order), choices.collect())
        });
        Shown {
            beginning,
            choices,
            named: in_order(named.iter().map(|text| text.to_ascii_lowercase()).collect()),
        }
    }

    fn parts(self, common: &Common) -> Parts {
        let Shown {
            beginning,
            mut choices,
            named,
        } = self;
        choices.sort_by_cached_key(|choice| Reverse(common.worth(choice)));
        choices.dedup();
        // A beginning that is not much more common saves the search for the match's begin.
        let best = choices.first().map(|choice| common.worth(choice));
        let beginning = beginning.filter(|choice| {
            let Worth { is_long, rare, .. } = common.worth(choice);
            is_long && best.is_none_or(|best| rare.0 <= 2 * best.rare.0 + 1)
        });
        let begins = beginning.is_some();
        let key = beginning
            .or_else(|| choices.first().cloned())
            .unwrap_or_else(|| named.clone());
        choices.retain(|choice| *choice != key);
        choices.truncate(MAX_NEEDS);
        let shows = |choice: &Choice| implies(choice, &named);
        if !named.is_empty() && !shows(&key) && !choices.iter().any(shows) {
            choices.push(named);
        }
        Parts {
            key,
            begins,
            needs: choices,
        }
    }
}

/// Whether a line that holds one of the first holds one of the second.
fn implies(first: &[String], second: &[String]) -> bool {
    first
        .iter()
        .all(|text| second.iter().any(|part| text.contains(part)))
}

fn in_order(mut choice: Choice) -> Choice {
    choice.sort_unstable();
    choice.dedup();
    choice
}

fn literal(bytes: &[u8]) -> Option<Choice> {
    let text = std::str::from_utf8(bytes).ok()?;
    let is_useful = text.len() >= MIN_LITERAL_BYTES && text.is_ascii();
    is_useful.then(|| vec![text.to_ascii_lowercase()])
}

fn needed_by(hir: &Hir) -> Vec<Choice> {
    match hir.kind() {
        HirKind::Literal(text) => literal(&text.0).into_iter().collect(),
        HirKind::Capture(capture) => needed_by(&capture.sub),
        HirKind::Repetition(repeated) if repeated.min > 0 => needed_by(&repeated.sub),
        HirKind::Concat(parts) => parts.iter().flat_map(needed_by).collect(),
        HirKind::Alternation(branches) => {
            // One choice that every branch has a part in.
            let best = |branch: &Hir| {
                let shortest = |choice: &Choice| choice.iter().map(String::len).min();
                let choices = needed_by(branch).into_iter();
                choices.max_by_key(|choice| (shortest(choice), Reverse(choice.len())))
            };
            any_of(branches.iter().map(best)).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// What each match begins with one of.
fn beginning(hir: &Hir) -> Option<Choice> {
    match hir.kind() {
        HirKind::Literal(text) => literal(&text.0),
        HirKind::Capture(capture) => beginning(&capture.sub),
        HirKind::Repetition(repeated) if repeated.min > 0 => beginning(&repeated.sub),
        HirKind::Concat(parts) => {
            // `\b` and its kind take no room.
            let mut parts = parts.iter();
            let first = parts.find(|part| !matches!(part.kind(), HirKind::Look(_)))?;
            beginning(first)
        }
        HirKind::Alternation(branches) => any_of(branches.iter().map(beginning)),
        _ => None,
    }
}

fn any_of(choices: impl Iterator<Item = Option<Choice>>) -> Option<Choice> {
    let all: Option<Vec<Choice>> = choices.collect();
    let choice: Choice = all?.into_iter().flatten().collect();
    (!choice.is_empty() && choice.len() <= MAX_CHOICES).then_some(choice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use regex::bytes::RegexBuilder;

    fn parts(pattern: &str, named: &[&str], lines: &[&str]) -> Parts {
        let named: Vec<String> = named.iter().map(|text| (*text).to_owned()).collect();
        let shown = [Shown::by(pattern, &named)];
        let common = Common::of(&shown, lines).unwrap();
        let [shown] = shown;
        shown.parts(&common)
    }

    fn shown(pattern: &str, lines: &[&str]) -> (String, bool, String) {
        let Parts { key, begins, needs } = parts(pattern, &[], lines);
        let needs: Vec<String> = needs.iter().map(|choice| choice.join("|")).collect();
        (key.join("|"), begins, needs.join(", "))
    }

    #[test]
    fn a_pattern_shows_what_it_needs() {
        let shown = |pattern| shown(pattern, &[]);
        let is = |key: &str, begins, needs: &str| (key.to_owned(), begins, needs.to_owned());
        assert_eq!(
            shown(r"NET/IB: Got (?P<x>completion|event)[^\n]{0,30}?status=(\d+)"),
            is("net/ib: got ", true, "status=, completion|event")
        );
        assert_eq!(
            shown(r"\w+ Got (?:a|the) completion"),
            is(" completion", false, " got ")
        );
        assert_eq!(
            shown("\\b(?:Failed to (?:open|close)|Unable)"),
            is("failed to |unable", true, "")
        );
        assert_eq!(shown("(?:optional)?(?:needed)+"), is("needed", false, ""));
        for bare in ["(?:abc|x)d?e*", "(unclosed", "[a-z]+ caf\u{e9}"] {
            assert_eq!(shown(bare), is("", false, ""), "{bare}");
        }
    }

    #[test]
    fn what_many_lines_hold_is_no_key() {
        let pattern = "failed[^\\n]*(?:ucp_ep|uct_ep)";
        assert_eq!(shown(pattern, &[]).0, "failed");
        let lines = ["it failed", "failed: ucp_ep", "Failed", "failed again"];
        let expected = ("ucp_ep|uct_ep".to_owned(), false, "failed".to_owned());
        assert_eq!(shown(pattern, &lines), expected);
    }

    #[test]
    fn what_a_file_names_is_needed_unless_the_pattern_shows_it() {
        let needs = |pattern: &str, named: &str| parts(pattern, &[named], &[]).needs;
        assert_eq!(needs("Call to connect", "elsewhere"), [["elsewhere"]]);
        assert!(needs("Call to connect", "connect").is_empty());
        assert_eq!(needs("(?:abcd|efgh)", "abc"), [["abc"]]);
    }

    /// Rules of these patterns; where one shows no literal, `named` is its own.
    fn literals(patterns: &[&str]) -> Literals {
        let named = ["named".to_owned()];
        let rules = patterns.iter().map(|pattern| {
            let is_bare = parts(pattern, &[], &[]).key.is_empty();
            (*pattern, &named[..usize::from(is_bare)])
        });
        Literals::of(rules, &[]).unwrap()
    }

    #[test]
    fn only_rules_that_can_match_are_left() {
        let literals = literals(&["failed to (?:open|close)", "failed", "[0-9]+"]);
        let left = |line: &str| -> Vec<u16> {
            let mut held = Line::new(line.as_bytes());
            let hits = literals.hits(line.as_bytes()).flat_map(|(_, rules)| rules);
            let mut left: Vec<u16> = hits
                .copied()
                .filter(|r| literals.are_met(*r, &mut held))
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
            if parts(&pattern, &[], &[]).key.is_empty() {
                return Ok(());
            }
            prop_assert!(literals.are_met(0, &mut Line::new(line)), "{} {:?}", pattern, line);
            let mut hits = literals.hits(line).map(|(hit, _)| hit);
            let is_there = hits.any(|hit| !literals.is_beginning(0) || hit.start == found.start());
            prop_assert!(is_there, "{} {:?}", pattern, line);
        }
    }
}

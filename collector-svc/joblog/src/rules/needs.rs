//! What a pattern cannot match without, read from the pattern itself.
//!
//! Of each pattern one choice of literals is its key: the most telling, which is the
//! one that the fewest example lines of all rules hold. A line that holds no key of a
//! rule is not looked at for it, and one that lacks any other choice neither:
//! `A ... (B|C) ... D` is not run over a line without D.

use std::cmp::Reverse;
use std::collections::HashMap;

use aho_corasick::{AhoCorasick, BuildError};
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

/// Literals of which one stands in whatever matches; lower case, in order.
pub(super) type Choice = Vec<String>;

/// How many example lines hold each literal.
pub(super) struct Common(HashMap<String, Vec<u64>>);

impl Common {
    pub(super) fn of(shown: &[Shown], lines: &[&str]) -> Result<Common, BuildError> {
        let choices = shown
            .iter()
            .flat_map(|shown| shown.choices.iter().chain(&shown.beginning));
        let mut texts: Vec<&String> = choices.flatten().collect();
        texts.sort_unstable();
        texts.dedup();
        let searcher = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .build(&texts)?;
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
pub(super) struct Shown {
    /// What each match begins with one of.
    beginning: Option<Choice>,
    /// What each match holds one of.
    choices: Vec<Choice>,
    /// Those of its file.
    named: Choice,
}

/// What serves a search.
pub(super) struct Parts {
    /// Of which a line must hold one; empty where the pattern shows none.
    pub(super) key: Choice,
    /// Whether every match begins with a key.
    pub(super) begins: bool,
    /// Further choices that the line must hold one of each.
    pub(super) needs: Vec<Choice>,
}

impl Shown {
    pub(super) fn by(pattern: &str, named: &[String]) -> Shown {
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

    pub(super) fn parts(self, common: &Common) -> Parts {
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
}

//! Which rules match where in a line: literals first, patterns last. A pattern is run
//! only where it can match something that no earlier rule has taken.

use regex_automata::util::captures::Captures;
use regex_automata::{Anchored, Input};

use crate::classify::MAX_MESSAGES;
use crate::rules::{Hit, Line, Rule, RuleSet};

/// Matches of one rule in one line that are looked at.
const MAX_MATCHES_PER_RULE: usize = 64;

/// A rule is run over the piece of a long line from so many bytes before its
/// first key to as many behind its last: no rule reaches further.
const REACH_BYTES: usize = 4_096;

/// Places of keys that are kept for one line. Where there are more (a megabyte of
/// one word) patterns look for their beginnings themselves.
const MAX_HITS: usize = 65_536;

/// Marks a rule without any key in the line.
const NOWHERE: u16 = u16::MAX;

/// Rules with a key in the line, and where the keys stand.
pub(crate) struct Reaches {
    rules: Vec<Reach>,
    hits: Vec<Hit>,
}

/// Where the keys of a rule stand in a line.
#[derive(Clone, Copy, Debug)]
struct Reach {
    rule: u16,
    first: usize,
    last: usize,
}

/// A match of a rule, with what it captured, if it captures anything.
pub(crate) struct Candidate {
    pub(crate) rule: u16,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) captures: Option<Captures>,
}

impl Reaches {
    /// In the order in which rules are tried: fall-backs last.
    pub(crate) fn of(rules: &RuleSet, line: &[u8]) -> Reaches {
        let mut reaches: Vec<Reach> = Vec::new();
        let (mut hits, mut places) = (Vec::new(), Vec::new());
        // Which turns have a rule: a bit for each.
        let mut turns: Vec<u64> = Vec::new();
        for (hit, of_key) in rules.literals.hits(line) {
            if places.is_empty() {
                places = vec![NOWHERE; rules.rules.len()];
                turns = vec![0; rules.rules.len().div_ceil(64)];
            }
            if hits.len() < MAX_HITS {
                hits.push(hit);
            }
            for rule in of_key {
                let turn = usize::from(rules.turns[usize::from(*rule)]);
                let place = &mut places[turn];
                match reaches.get_mut(usize::from(*place)) {
                    Some(reach) => {
                        reach.first = reach.first.min(hit.start);
                        reach.last = hit.end;
                    }
                    None => {
                        // At most MAX_RULES, which a u16 holds.
                        *place = u16::try_from(reaches.len()).unwrap_or(NOWHERE);
                        turns[turn / 64] |= 1 << (turn % 64);
                        reaches.push(Reach {
                            rule: *rule,
                            first: hit.start,
                            last: hit.end,
                        });
                    }
                }
            }
        }
        let in_turn = turns.iter().enumerate().flat_map(|(word, bits)| {
            let set = (0..64).filter(move |bit| (bits >> bit) & 1 == 1);
            set.map(move |bit| 64 * word + bit)
        });
        let in_turn = in_turn.map(|turn| reaches[usize::from(places[turn])]);
        Reaches {
            rules: in_turn.collect(),
            hits,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Of overlapping matches the one of the earlier rule; fallbacks only where their
    /// message has no other. In the order of the line. `heads`: where messages begin.
    pub(crate) fn matches(&self, rules: &RuleSet, line: &[u8], heads: &[usize]) -> Vec<Candidate> {
        let mut held = Line::new(line);
        let mut taken = Taken {
            matches: Vec::new(),
            heads,
        };
        for reach in &self.rules {
            let rule = &rules.rules[usize::from(reach.rule)];
            if taken.matches.len() >= MAX_MESSAGES {
                break;
            }
            if taken.has_all_of(reach, rule.fallback)
                || !rules.literals.are_met(reach.rule, &mut held)
            {
                continue;
            }
            let is_complete = self.hits.len() < MAX_HITS;
            if is_complete && rules.literals.is_beginning(reach.rule) {
                self.at_keys(rules, reach, line, &mut taken);
            } else {
                anywhere(rule, reach, line, &mut taken);
            }
        }
        taken.matches.sort_unstable_by_key(|one| one.start);
        taken.matches
    }

    /// Matches of a rule whose matches begin with its keys.
    fn at_keys(&self, rules: &RuleSet, reach: &Reach, line: &[u8], taken: &mut Taken<'_>) {
        let rule = &rules.rules[usize::from(reach.rule)];
        let own = self
            .hits
            .iter()
            .filter(|hit| rules.literals.begins_at(reach.rule, hit));
        let mut starts: Vec<usize> = own.map(|hit| hit.start).collect();
        // A long key is found after a short one that begins later.
        starts.sort_unstable();
        let to = reach.last.saturating_add(REACH_BYTES).min(line.len());
        let (mut resume, mut count) = (0, 0);
        for start in starts {
            if start < resume || taken.has(start, rule.fallback) {
                continue;
            }
            let input = Input::new(&line[..to])
                .range(start..)
                .anchored(Anchored::Yes);
            if let Some(found) = run(rule, reach.rule, &input) {
                resume = found.end;
                taken.take(found, rule.fallback);
                count += 1;
                if count >= MAX_MATCHES_PER_RULE {
                    return;
                }
            }
        }
    }
}

/// Matches of a rule that can begin before its keys.
fn anywhere(rule: &Rule, reach: &Reach, line: &[u8], taken: &mut Taken<'_>) {
    let mut from = reach.first.saturating_sub(REACH_BYTES);
    let to = reach.last.saturating_add(REACH_BYTES).min(line.len());
    for _ in 0..MAX_MATCHES_PER_RULE {
        let Some(found) = run(rule, reach.rule, &Input::new(&line[..to]).range(from..)) else {
            return;
        };
        // A match without any text would be found for ever.
        from = found.end.max(found.start + 1);
        if found.end > found.start {
            taken.take(found, rule.fallback);
        }
        if from >= to {
            return;
        }
    }
}

/// The first match of the rule.
fn run(rule: &Rule, number: u16, input: &Input<'_>) -> Option<Candidate> {
    let of = |start, end, captures| Candidate {
        rule: number,
        start,
        end,
        captures,
    };
    if !rule.captures() {
        let found = rule.pattern.search(input)?;
        return Some(of(found.start(), found.end(), None));
    }
    let mut captures = rule.pattern.create_captures();
    rule.pattern.search_captures(input, &mut captures);
    let found = captures.get_match()?;
    Some(of(found.start(), found.end(), Some(captures)))
}

/// What rules have taken of a line.
struct Taken<'a> {
    matches: Vec<Candidate>,
    heads: &'a [usize],
}

impl Taken<'_> {
    fn message(&self, at: usize) -> usize {
        self.heads.partition_point(|head| *head <= at)
    }

    fn has_message(&self, message: usize) -> bool {
        let mut matches = self.matches.iter();
        matches.any(|other| self.message(other.start) == message)
    }

    /// Whether nothing can begin there.
    fn has(&self, at: usize, fallback: bool) -> bool {
        let mut matches = self.matches.iter();
        matches.any(|other| other.start <= at && at < other.end)
            || (fallback && self.has_message(self.message(at)))
    }

    fn take(&mut self, candidate: Candidate, fallback: bool) {
        let mut matches = self.matches.iter();
        let overlaps =
            matches.any(|other| candidate.start < other.end && other.start < candidate.end);
        let is_taken = overlaps || (fallback && self.has_message(self.message(candidate.start)));
        if !is_taken && self.matches.len() < MAX_MESSAGES {
            self.matches.push(candidate);
        }
    }

    /// Whether nothing is left for a rule with its keys there: a match holds one.
    fn has_all_of(&self, reach: &Reach, fallback: bool) -> bool {
        let covered = |other: &Candidate| other.start <= reach.first && reach.last <= other.end;
        if self.matches.iter().any(covered) {
            return true;
        }
        let (first, last) = (self.message(reach.first), self.message(reach.last - 1));
        // Seldom more than one: the keys of a rule stand close together.
        fallback && (first..=last).all(|message| self.has_message(message))
    }
}

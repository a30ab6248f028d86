//! Which rules match where in a line: literals first, patterns last. A pattern is run
//! only where it can match something that no earlier rule has taken.

use regex_automata::meta::Cache;
use regex_automata::util::primitives::NonMaxUsize;
use regex_automata::{Anchored, Input};

use crate::classify::MAX_MESSAGES;
use crate::errno::WordsAt;
use crate::rules::{Held, Hit, Rule, RuleSet};

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

/// What a thread keeps from one line to the next, so that most lines cost no memory of
/// their own.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Where messages begin in the line.
    pub(crate) heads: Vec<usize>,
    /// Of each turn: the place of its rule in `reaches`.
    places: Vec<u16>,
    /// Which turns have a rule: a bit for each.
    turns: Vec<u64>,
    /// Rules with a key in the line, and where the keys stand.
    reaches: Vec<Reach>,
    hits: Vec<Hit>,
    held: Held,
    /// Places where a rule's matches can begin.
    starts: Vec<usize>,
    runner: Runner,
    matches: Vec<Candidate>,
}

/// Where the keys of a rule stand in a line.
#[derive(Clone, Copy, Debug)]
struct Reach {
    rule: u16,
    turn: u16,
    first: usize,
    last: usize,
}

/// A match of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) rule: u16,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// First slot of what it captured, if it captures anything.
    slots: Option<usize>,
}

/// Where a group of a pattern begins or ends.
pub(crate) type Slot = Option<NonMaxUsize>;

impl Scratch {
    /// Finds which rules have a key in the line, and gives whether there are any. Must
    /// stand before [`Scratch::find_matches`] of the same line.
    pub(crate) fn find_keys(&mut self, rules: &RuleSet, line: &[u8]) -> bool {
        self.forget(rules);
        let Scratch {
            places,
            turns,
            reaches,
            hits,
            held,
            ..
        } = self;
        rules.literals.each_hit(line, held, |hit, of_key| {
            if hits.len() < MAX_HITS {
                hits.push(hit);
            }
            for rule in of_key {
                let turn = rules.turns[usize::from(*rule)];
                let place = &mut places[usize::from(turn)];
                if let Some(reach) = reaches.get_mut(usize::from(*place)) {
                    reach.first = reach.first.min(hit.start);
                    reach.last = reach.last.max(hit.end);
                    continue;
                }
                // At most MAX_RULES, which a u16 holds.
                *place = u16::try_from(reaches.len()).unwrap_or(NOWHERE);
                turns[usize::from(turn / 64)] |= 1 << (turn % 64);
                reaches.push(Reach {
                    rule: *rule,
                    turn,
                    first: hit.start,
                    last: hit.end,
                });
            }
        });
        !self.reaches.is_empty()
    }

    /// Of another line nothing is known.
    fn forget(&mut self, rules: &RuleSet) {
        self.places.resize(rules.rules.len(), NOWHERE);
        self.turns.resize(rules.rules.len().div_ceil(64), 0);
        for reach in self.reaches.drain(..) {
            self.places[usize::from(reach.turn)] = NOWHERE;
            self.turns[usize::from(reach.turn / 64)] = 0;
        }
        self.hits.clear();
        self.runner.slots.clear();
        self.matches.clear();
    }

    /// Of overlapping matches finds the one of the earlier rule; fallbacks only where
    /// their message has no other.
    pub(crate) fn find_matches(&mut self, rules: &RuleSet, line: &[u8]) {
        let mut taken = Taken {
            matches: &mut self.matches,
            heads: &self.heads,
        };
        for (word, bits) in self.turns.iter().enumerate() {
            let mut bits = *bits;
            while bits != 0 {
                let turn = 64 * word + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let reach = &self.reaches[usize::from(self.places[turn])];
                let rule = &rules.rules[usize::from(reach.rule)];
                if taken.matches.len() >= MAX_MESSAGES {
                    break;
                }
                if taken.has_all_of(reach, rule.fallback)
                    || !rules.literals.are_met(reach.rule, &mut self.held)
                {
                    continue;
                }
                let runner = &mut self.runner;
                if self.hits.len() < MAX_HITS && rules.literals.is_beginning(reach.rule) {
                    let hits = self.hits.iter();
                    let own = hits.filter(|hit| rules.literals.begins_at(reach.rule, hit));
                    self.starts.clear();
                    self.starts.extend(own.map(|hit| hit.start));
                    // Keys are found in the order of their ends.
                    self.starts.sort_unstable();
                    runner.at_starts(rule, reach, line, &self.starts, &mut taken);
                } else {
                    runner.anywhere(rule, reach, line, &mut taken);
                }
            }
        }
        self.matches.sort_unstable_by_key(|one| one.start);
    }

    /// What was found, in the order of the line.
    pub(crate) fn matches(&self) -> &[Candidate] {
        &self.matches
    }

    /// Words for errnos in the line.
    pub(crate) fn errnos(&self) -> &[WordsAt] {
        self.held.errnos()
    }

    /// What a match captured; none of a rule that captures nothing.
    pub(crate) fn slots(&self, one: &Candidate) -> &[Slot] {
        one.slots.map_or(&[], |from| &self.runner.slots[from..])
    }
}

/// Runs patterns. What their matchers build while they run is of one thread.
#[derive(Debug, Default)]
struct Runner {
    caches: Vec<Option<Cache>>,
    slots: Vec<Slot>,
}

impl Runner {
    /// Matches of a rule whose matches begin with its keys, which stand at `starts`.
    fn at_starts(
        &mut self,
        rule: &Rule,
        reach: &Reach,
        line: &[u8],
        starts: &[usize],
        taken: &mut Taken<'_>,
    ) {
        let to = reach.last.saturating_add(REACH_BYTES).min(line.len());
        let (mut resume, mut count) = (0, 0);
        for start in starts {
            if *start < resume || taken.has(*start, rule.fallback) {
                continue;
            }
            let input = Input::new(&line[..to])
                .range(*start..)
                .anchored(Anchored::Yes);
            if let Some(found) = self.run(rule, reach.rule, &input) {
                resume = found.end;
                taken.take(found, rule.fallback);
                count += 1;
                if count >= MAX_MATCHES_PER_RULE {
                    return;
                }
            }
        }
    }

    /// Matches of a rule that can begin before its keys.
    fn anywhere(&mut self, rule: &Rule, reach: &Reach, line: &[u8], taken: &mut Taken<'_>) {
        let mut from = reach.first.saturating_sub(REACH_BYTES);
        let to = reach.last.saturating_add(REACH_BYTES).min(line.len());
        for _ in 0..MAX_MATCHES_PER_RULE {
            let input = Input::new(&line[..to]).range(from..);
            let Some(found) = self.run(rule, reach.rule, &input) else {
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
    fn run(&mut self, rule: &Rule, number: u16, input: &Input<'_>) -> Option<Candidate> {
        let at = usize::from(number);
        if self.caches.len() <= at {
            self.caches.resize_with(at + 1, || None);
        }
        let cache = self.caches[at].get_or_insert_with(|| rule.pattern.create_cache());
        if rule.slots == 0 {
            let found = rule.pattern.search_with(cache, input)?;
            return Some(Candidate {
                rule: number,
                start: found.start(),
                end: found.end(),
                slots: None,
            });
        }
        let from = self.slots.len();
        self.slots.resize(from + rule.slots, None);
        let slots = &mut self.slots[from..];
        let found = rule.pattern.search_slots_with(cache, input, slots);
        // The first two slots are of the whole match.
        if let (Some(_), Some(start), Some(end)) = (found, slots[0], slots[1]) {
            return Some(Candidate {
                rule: number,
                start: start.get(),
                end: end.get(),
                slots: Some(from),
            });
        }
        self.slots.truncate(from);
        None
    }
}

/// What rules have taken of a line.
struct Taken<'a> {
    matches: &'a mut Vec<Candidate>,
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

//! Joins the records of each thread.

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;

use super::place::{Place, Places};
use super::stack::{self, Agreement};
use super::{Chain, Marks};
use crate::catalogue::{ExpectedRules, Layer, Verb};
use crate::record::Record;

/// Longest time between two records of one chain, where the entry and the object
/// alone speak for it. Between two failing returns lie only the error paths of a
/// few functions: microseconds; 10 ms forgives a thread that lost its processor.
pub const GAP_NS: u64 = 10_000_000;

/// The same where more speaks for one call: stacks that prove that the inner call was
/// made below the outer function, or a missing stack (a kretprobe takes none) and a
/// thread that has not slept in between, while whoever tries again pauses by sleeping.
/// A driver that writes its error to a slow console in between takes 5 ms a line at
/// 115,200 baud, and a thread of a busy host or guest can lose its processor for longer.
pub const PROVEN_GAP_NS: u64 = 1_000_000_000;

/// The same where `modify_qp` waited for a neighbour: the kernel gives up after
/// one second (ib_core: `ib_resolve_eth_dmac`), and a busy host adds to it.
pub const NEIGHBOUR_GAP_NS: u64 = 3_000_000_000;

/// Times in which hooks came or went that are remembered: a record is read within
/// moments, and hooks change when a driver comes or somebody asks.
const CHANGES: usize = 8;

/// Chains that may be open at a time. A thread has at most one, and a host has
/// far fewer threads inside the RDMA control path; a chain of five records takes
/// 2 KB, so that a flood costs 8 MB.
pub const OPEN_CHAINS: usize = 4096;

const ETIMEDOUT: u16 = 110;

/// A thread for good: a tid that is used again belongs to another process or is
/// told apart by its entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Thread {
    tgid: u32,
    tid: u32,
    start_boot_ns: u64,
}

/// The joining of records into chains.
#[derive(Debug)]
pub struct Assembler {
    rules: ExpectedRules,
    open: HashMap<Thread, Open>,
    limit: usize,
    /// Drop count of the latest record, and when it was first seen.
    drops: u64,
    drops_changed_boot_ns: Option<u64>,
    /// Times in which some hooks stood and others did not, the latest last.
    changes: VecDeque<RangeInclusive<u64>>,
}

#[derive(Debug)]
struct Open {
    records: Vec<Record>,
    verb: Verb,
    depth: u8,
    deepest: Layer,
    incomplete: bool,
    /// It began while hooks came or went: whoever is missing may not have been hooked.
    unsettled: bool,
}

impl std::fmt::Debug for Thread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}@{}", self.tgid, self.tid, self.start_boot_ns)
    }
}

impl Assembler {
    /// Nothing open. `rules` mark what is part of normal work.
    #[must_use]
    pub fn new(rules: ExpectedRules) -> Self {
        Self::with_limit(rules, OPEN_CHAINS)
    }

    /// As [`Assembler::new`] with another bound of open chains, at least 1.
    #[must_use]
    pub fn with_limit(rules: ExpectedRules, limit: usize) -> Self {
        Self {
            rules,
            open: HashMap::new(),
            limit: limit.max(1),
            drops: 0,
            drops_changed_boot_ns: None,
            changes: VecDeque::new(),
        }
    }

    /// Between these times of the boot clock hooks came or went one after the other. What
    /// fails meanwhile is incomplete: the functions further in, or out, may not have been
    /// hooked yet, or no more. Tell it before the records of that time are given.
    pub fn hooks_changed(&mut self, times: RangeInclusive<u64>) {
        if self.changes.len() == CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(times);
    }

    /// Chains that wait for their next record.
    #[must_use]
    pub fn open_chains(&self) -> usize {
        self.open.len()
    }

    /// Takes the next record in ring order; `done` receives the chains that it
    /// closes, each record in exactly one of them. Events (see
    /// [`Place::is_event`]) are no failures and must not be given.
    pub fn take(&mut self, record: Record, places: &Places, mut done: impl FnMut(Chain)) {
        if record.drops_so_far > self.drops {
            self.drops = record.drops_so_far;
            self.drops_changed_boot_ns = Some(record.boot_ns);
        }
        let thread = Thread {
            tgid: record.tgid,
            tid: record.tid,
            start_boot_ns: record.start_boot_ns,
        };
        let before = self.open.remove(&thread);
        let drops = record.drops_so_far;
        let Some(place) = places.get(record.probe) else {
            // A record of a probe that the plan does not have cannot be placed.
            if let Some(before) = before {
                done(before.close(drops, false, &self.rules));
            }
            done(Open::begin(record, unplaced(), true, false).close(drops, false, &self.rules));
            return;
        };
        let chain = match before {
            Some(mut open) if open.accepts(&record, place) => {
                open.push(record, place);
                open
            }
            other => {
                if let Some(other) = other {
                    done(other.close(drops, false, &self.rules));
                }
                let after_a_drop = self.drops_near(record.boot_ns);
                let unsettled = self.unsettled(record.boot_ns);
                Open::begin(record, place, after_a_drop, unsettled)
            }
        };
        if place.depth == 0 {
            done(chain.close(drops, true, &self.rules));
            return;
        }
        if self.open.len() >= self.limit {
            self.make_room(&mut done);
        }
        self.open.insert(thread, chain);
    }

    /// Closes the chains whose last record is older than their gap allows:
    /// nothing can join them any more. `drops_now` is the count of lost records
    /// at `now_boot_ns`.
    pub fn close_stale(&mut self, now_boot_ns: u64, drops_now: u64, mut done: impl FnMut(Chain)) {
        let stale = |open: &Open| {
            let gap = if open.verb == Verb::ModifyQp {
                NEIGHBOUR_GAP_NS
            } else {
                PROVEN_GAP_NS
            };
            open.last_boot_ns().saturating_add(gap) < now_boot_ns
        };
        let rules = &self.rules;
        let mut closed: Vec<Open> = self
            .open
            .extract_if(|_, open| stale(open))
            .map(|(_, o)| o)
            .collect();
        closed.sort_by_key(Open::last_boot_ns);
        for open in closed {
            done(open.close(drops_now, false, rules));
        }
        if self.open.is_empty() {
            // A storm's table would otherwise stay for the life of the tracer.
            self.open.shrink_to(64);
        }
    }

    /// Closes everything, at the end of the run.
    pub fn close_all(&mut self, drops_now: u64, done: impl FnMut(Chain)) {
        self.close_stale(u64::MAX, drops_now, done);
    }

    /// Whether records were lost shortly before: the inner part of a chain that
    /// begins now may be among them.
    fn drops_near(&self, boot_ns: u64) -> bool {
        self.drops_changed_boot_ns
            .is_some_and(|changed| boot_ns < changed.saturating_add(GAP_NS))
    }

    /// Whether a call that failed then began when not all hooks stood: it entered before
    /// it failed, and a hook that comes in between does not see it return.
    fn unsettled(&self, boot_ns: u64) -> bool {
        let near = |times: &RangeInclusive<u64>| {
            *times.start() <= boot_ns && boot_ns <= times.end().saturating_add(GAP_NS)
        };
        self.changes.iter().any(near)
    }

    fn make_room(&mut self, done: &mut impl FnMut(Chain)) {
        let oldest = self
            .open
            .iter()
            .min_by_key(|(thread, open)| (open.last_boot_ns(), thread.tgid, thread.tid))
            .map(|(thread, _)| *thread);
        if let Some(mut open) = oldest.and_then(|thread| self.open.remove(&thread)) {
            open.incomplete = true;
            let drops = self.drops;
            done(open.close(drops, false, &self.rules));
        }
    }
}

fn unplaced() -> Place {
    Place {
        depth: u8::MAX,
        verb: Verb::Any,
        layer: Layer::Uverbs,
        is_event: false,
    }
}

impl Open {
    fn begin(record: Record, place: Place, incomplete: bool, unsettled: bool) -> Self {
        Self {
            records: vec![record],
            verb: place.verb,
            depth: place.depth,
            deepest: place.layer,
            incomplete,
            unsettled,
        }
    }

    fn last_boot_ns(&self) -> u64 {
        self.records.last().map_or(0, |r| r.boot_ns)
    }

    /// Whether a record belongs to the same call: further out, of the same verb,
    /// soon enough, and of the same entry, object and stack.
    fn accepts(&self, record: &Record, place: Place) -> bool {
        let Some(last) = self.records.last() else {
            return false;
        };
        let same_verb =
            self.verb == place.verb || self.verb == Verb::Any || place.verb == Verb::Any;
        let agreement = stack::compare(&last.stack, &record.stack);
        let waited_for_neighbour = place.verb == Verb::ModifyQp && record.errno == ETIMEDOUT;
        let gap = match agreement {
            _ if waited_for_neighbour => NEIGHBOUR_GAP_NS,
            Agreement::Proven => PROVEN_GAP_NS,
            Agreement::Unknown if record.sleeps == last.sleeps => PROVEN_GAP_NS,
            Agreement::Unknown | Agreement::Refuted => GAP_NS,
        };
        place.depth < self.depth
            && same_verb
            && record.boot_ns >= last.boot_ns
            && record.boot_ns - last.boot_ns <= gap
            && record.entry == last.entry
            && self.same_object(record)
            && agreement != Agreement::Refuted
    }

    /// Calls that change an object have it in hand in each function that has any.
    /// Calls that make one have the new object in one function and its parent in
    /// another, so that nothing follows from a difference.
    fn same_object(&self, record: &Record) -> bool {
        if record.object == 0 || !matches!(self.verb, Verb::ModifyQp | Verb::DevxModify) {
            return true;
        }
        let in_hand = self.records.iter().rev().map(|r| r.object);
        let mut known = in_hand.filter(|object| *object != 0);
        known.next().is_none_or(|object| object == record.object)
    }

    fn push(&mut self, record: Record, place: Place) {
        if let Some(last) = self.records.last() {
            self.incomplete |= last.drops_so_far != record.drops_so_far;
        }
        if place.verb != Verb::Any {
            self.verb = place.verb;
        }
        self.depth = place.depth;
        self.deepest = self.deepest.max(place.layer);
        self.records.push(record);
    }

    fn close(self, drops_now: u64, reached_user: bool, rules: &ExpectedRules) -> Chain {
        let last = self.records.last();
        // Without an outer record, a drop since then may be that very record.
        let lost_since = last.is_some_and(|r| drops_now > r.drops_so_far);
        let errno = last.map_or(0, |r| r.errno);
        Chain {
            verb: self.verb,
            deepest: self.deepest,
            marks: Marks {
                expected: rules.find(self.verb, errno, self.deepest).is_some(),
                swallowed: !reached_user && !self.unsettled,
                incomplete: self.incomplete || self.unsettled || (!reached_user && lost_since),
            },
            records: self.records,
        }
    }
}

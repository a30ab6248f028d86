//! What to ask the collector for, and when.
//!
//! Pure: times are those since the tracer began, and are given.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::offers::Failing;

/// Kinds of failing calls that are remembered. A host that has more has a fuzzer, and what
/// it makes is new each time.
const MAX_KINDS: usize = 256;
/// Verbs that good calls are recorded of unasked: those of every job.
const VERBS: [&str; 4] = ["reg_mr", "create_cq", "create_qp", "modify_qp"];
/// A kind that was captured: the collector has it. It is asked again, since the collector
/// may have forgotten it by then.
const CAPTURED: Duration = Duration::from_secs(24 * 3600);
/// After a window that saw nothing: jobs begin and end within minutes.
const NOTHING: Duration = Duration::from_secs(600);

/// What to ask for.
#[derive(Clone, Debug, PartialEq)]
pub enum Wish {
    /// A window that records good calls.
    Record {
        /// Of which driver.
        driver: String,
        /// Of which verbs.
        verbs: Vec<String>,
    },
    /// A window that waits for a failing call.
    Capture(Failing),
}

impl Wish {
    /// The driver whose functions are watched.
    #[must_use]
    pub fn driver(&self) -> &String {
        match self {
            Self::Record { driver, .. } => driver,
            Self::Capture(failing) => &failing.driver,
        }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The window had its result.
    Done,
    /// It had none.
    Nothing,
    /// Not this; again after so long.
    Later(Duration),
    /// Not this before there is a baseline of it; again after so long.
    NoBaseline(Duration),
    /// Nothing at all for so long.
    Quiet(Duration),
}

/// A kind of failing call.
#[derive(Debug)]
struct Kind {
    failing: Failing,
    /// It was seen since the last answer.
    is_due: bool,
    not_before: Duration,
}

/// What is known and waited for.
#[derive(Debug, Default)]
pub struct Plan {
    /// In the order in which they were first seen.
    kinds: Vec<Kind>,
    /// By driver: verbs beside [`VERBS`] that a failing call lacked.
    wanted: BTreeMap<String, BTreeSet<String>>,
    /// By driver: when a recording is asked for next.
    recordings: BTreeMap<String, Duration>,
    quiet_until: Duration,
    left_out: u64,
}

impl Plan {
    /// A failing call was seen. One that has to wait does not count: when its time comes it
    /// may be over, and a window waits for the next one.
    pub fn saw(&mut self, failing: Failing, now: Duration) {
        if let Some(known) = self.kinds.iter_mut().find(|kind| kind.failing == failing) {
            known.is_due |= now >= known.not_before.max(self.quiet_until);
            return;
        }
        if self.kinds.len() >= MAX_KINDS {
            let idle = |kind: &Kind| !kind.is_due && kind.not_before <= now;
            let Some(place) = self.kinds.iter().position(idle) else {
                self.left_out = self.left_out.saturating_add(1);
                return;
            };
            self.kinds.remove(place);
        }
        self.kinds.push(Kind {
            failing,
            is_due: now >= self.quiet_until,
            not_before: Duration::ZERO,
        });
    }

    /// Kinds that found no room.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Whether a recording may be asked for: whether it is worth a look at what is missing.
    #[must_use]
    pub fn may_record(&self, drivers: &[String], now: Duration) -> bool {
        let is_due = |driver: &String| self.recordings.get(driver).is_none_or(|at| now >= *at);
        now >= self.quiet_until && drivers.iter().any(is_due)
    }

    /// Verbs of a driver that a recording is worth for.
    #[must_use]
    pub fn worth(&self, driver: &str) -> Vec<String> {
        let wanted = self.wanted.get(driver).into_iter().flatten().cloned();
        let mut verbs: Vec<String> = VERBS.map(str::to_owned).into_iter().chain(wanted).collect();
        verbs.sort();
        verbs.dedup();
        verbs
    }

    /// What to ask for now: failing calls first, since they go away. `missing` are the
    /// verbs of each driver that the host has no baseline of.
    pub fn next(&mut self, missing: &[(String, Vec<String>)], now: Duration) -> Option<Wish> {
        if now < self.quiet_until {
            return None;
        }
        if let Some(kind) = self.kinds.iter_mut().find(|kind| kind.is_due) {
            kind.is_due = false;
            return Some(Wish::Capture(kind.failing.clone()));
        }
        let is_due = |(driver, verbs): &&(String, Vec<String>)| {
            !verbs.is_empty() && self.recordings.get(driver).is_none_or(|at| now >= *at)
        };
        let (driver, verbs) = missing.iter().find(is_due)?.clone();
        Some(Wish::Record { driver, verbs })
    }

    /// What came of a wish.
    pub fn answered(&mut self, wish: &Wish, answer: Answer, now: Duration) {
        let after = match answer {
            Answer::Done => CAPTURED,
            Answer::Nothing => NOTHING,
            Answer::Later(after) | Answer::NoBaseline(after) => after,
            Answer::Quiet(after) => {
                self.quiet_until = now.saturating_add(after);
                after
            }
        };
        let at = now.saturating_add(after);
        match wish {
            Wish::Capture(failing) => {
                if answer == (Answer::NoBaseline(after)) {
                    self.want(failing, now);
                }
                if let Some(kind) = self.kinds.iter_mut().find(|k| k.failing == *failing) {
                    kind.not_before = at;
                }
            }
            Wish::Record { driver, .. } => {
                if answer == Answer::Nothing {
                    // A verb without a good call must not keep the others from a window.
                    self.wanted.remove(driver);
                }
                // Some verbs had no good call, and are still missing.
                let at = match answer {
                    Answer::Done => now.saturating_add(NOTHING),
                    _ => at,
                };
                self.recordings.insert(driver.clone(), at);
            }
        }
    }

    /// Good calls of its verb are to be recorded, and soon.
    fn want(&mut self, failing: &Failing, now: Duration) {
        let verbs = self.wanted.entry(failing.driver.clone()).or_default();
        if verbs.insert(failing.verb.clone()) {
            self.recordings.insert(failing.driver.clone(), now);
        }
    }
}

//! One line in, what it says out.

use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::class::{Class, Kind, RuleId, Turn, Weight};
use crate::clean::{clean, text};
use crate::extract;
use crate::moment::{self, LineMoment};
use crate::reading::{Reading, Segment};
use crate::rules::{ClassSource, RuleSet};
use crate::search::{Candidate, Scratch};

/// Messages that are read from one physical line. Interleaved ranks seldom put
/// more than a dozen on one; the bound keeps a hostile line cheap.
pub const MAX_MESSAGES: usize = 256;

/// What is shown of a line: a message with its prefix, not a page.
const EXCERPT_BYTES: usize = 400;

/// What is shown before the message: launcher tag, time, host, source file.
const EXCERPT_BEFORE_BYTES: usize = 160;

/// One message in a line, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the rule that answered.
    pub rule: RuleId,
    /// What it is evidence of.
    pub class: Class,
    /// How much it weighs.
    pub weight: Weight,
    /// Verb or event, canonical (`ibv_reg_mr` for `ibv_reg_mr_iova2`).
    pub verb: Option<String>,
    /// What the verb does.
    pub kind: Option<Kind>,
    /// Name of the errno.
    pub errno: Option<String>,
    /// Name of the completion status, event or firmware status.
    pub status: Option<String>,
    /// Number of the completion status (`enum ibv_wc_status`).
    pub status_code: Option<u32>,
    /// The vendor's error syndrome, hexadecimal (`0x81`) in whatever base it was written.
    pub vendor_err: Option<String>,
    /// RDMA device.
    pub device: Option<String>,
    /// The other end.
    pub peer: Option<String>,
    /// Rank of the process that wrote the message.
    pub rank: Option<u32>,
    /// First byte in the cleaned line.
    pub start: usize,
    /// Byte behind the last one.
    pub end: usize,
}

/// What one line says. The names are those of the JSON output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LineReport {
    /// Number of the line, from 1.
    pub line: u64,
    /// Class of the message that counts most; `cannot_tell` for a line without any.
    pub class: Class,
    /// Verb or event.
    pub verb: Option<String>,
    /// Name of the errno.
    pub errno: Option<String>,
    /// Name of the completion status or event.
    pub status: Option<String>,
    /// RDMA device.
    pub device: Option<String>,
    /// The rule; none when no rule answered.
    pub rule: Option<RuleId>,
    /// Number of the completion status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_code: Option<u32>,
    /// The vendor's error syndrome, hexadecimal (`0x81`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor_err: Option<String>,
    /// The other end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Rank of the process that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Host of the process that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// What the verb does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Messages of other rules on the same physical line.
    #[serde(skip_serializing_if = "is_zero")]
    pub further_messages: usize,
    /// How much it weighs in a summary.
    #[serde(skip)]
    pub weight: Weight,
    /// When it was written.
    #[serde(skip)]
    pub moment: Option<LineMoment>,
    /// The text around the message; empty for a line without any.
    #[serde(skip)]
    pub excerpt: String,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde asks for"
)]
const fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl LineReport {
    /// Of a line in which nothing was found.
    pub const fn nothing(line: u64) -> LineReport {
        LineReport {
            line,
            class: Class::CannotTell,
            verb: None,
            errno: None,
            status: None,
            device: None,
            rule: None,
            status_code: None,
            vendor_err: None,
            peer: None,
            rank: None,
            host: None,
            kind: None,
            further_messages: 0,
            weight: Weight::Never,
            moment: None,
            excerpt: String::new(),
        }
    }
}

/// Applies a rule set to lines.
#[derive(Debug)]
pub struct Classifier {
    rules: RuleSet,
    /// Of threads that use it no more.
    spare: Mutex<Vec<Scratch>>,
}

impl Classifier {
    /// A classifier by these rules.
    pub const fn new(rules: RuleSet) -> Classifier {
        Classifier {
            rules,
            spare: Mutex::new(Vec::new()),
        }
    }

    /// The rules in force.
    pub const fn rules(&self) -> &RuleSet {
        &self.rules
    }

    pub(crate) fn into_rules(self) -> RuleSet {
        self.rules
    }

    /// Lends what a thread keeps from one line to the next.
    pub(crate) fn with_scratch<T>(&self, work: impl FnOnce(&mut Scratch) -> T) -> T {
        // A scratch is whole whatever happened to its last user: each line begins anew.
        let spare = || self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let mut scratch = spare().pop().unwrap_or_default();
        let result = work(&mut scratch);
        spare().push(scratch);
        result
    }

    /// What the line says: of its messages the one that counts most. What carriage
    /// returns part (progress bars write over themselves) is read as lines are, and
    /// answered once.
    pub fn classify(&self, number: u64, line: &[u8]) -> LineReport {
        self.with_scratch(|scratch| self.classify_with(scratch, number, line))
    }

    pub(crate) fn classify_with(
        &self,
        scratch: &mut Scratch,
        number: u64,
        line: &[u8],
    ) -> LineReport {
        let cleaned = clean(line);
        let mut best: Option<(LineReport, Key)> = None;
        let mut messages = 0;
        for part in cleaned.split(|byte| *byte == b'\r') {
            let findings = self.findings_in(scratch, part);
            messages += findings.len();
            let Some(counts_most) = counts_most(&findings) else {
                continue;
            };
            let key = Key::of(&findings[counts_most]);
            if best.as_ref().is_none_or(|(_, earlier)| key > *earlier) {
                let finding = findings.into_iter().nth(counts_most);
                best = finding.map(|finding| (report(number, part, finding), key));
            }
        }
        let Some((mut report, _)) = best else {
            return LineReport::nothing(number);
        };
        report.further_messages = messages - 1;
        report
    }

    /// Every message of the line, in order.
    pub fn findings(&self, line: &[u8]) -> Vec<Finding> {
        let cleaned = clean(line);
        let parts = cleaned.split(|byte| *byte == b'\r');
        self.with_scratch(|scratch| {
            parts
                .flat_map(|part| self.findings_in(scratch, part))
                .collect()
        })
    }

    fn findings_in(&self, scratch: &mut Scratch, line: &[u8]) -> Vec<Finding> {
        if !scratch.find_keys(&self.rules, line) {
            return Vec::new();
        }
        extract::heads(line, MAX_MESSAGES, &mut scratch.heads);
        scratch.find_matches(&self.rules, line);
        let matches = scratch.matches();
        let understood = matches.iter().enumerate().filter_map(|(at, one)| {
            let rule = &self.rules.rules[usize::from(one.rule)];
            if rule.class == ClassSource::None {
                return None;
            }
            let next = matches.get(at + 1).map_or(line.len(), |next| next.start);
            let previous = at.checked_sub(1).map(|before| matches[before].end);
            let reading = Reading {
                line,
                rule,
                words: &self.rules.words,
                slots: scratch.slots(one),
                errnos: scratch.errnos(),
                segment: segment(one, &scratch.heads, previous, next),
                start: one.start,
                end: one.end,
            };
            Some(reading.finding())
        });
        understood.collect()
    }
}

/// What the line says by its message that counts most.
fn report(number: u64, line: &[u8], finding: Finding) -> LineReport {
    let Finding {
        rule,
        class,
        weight,
        verb,
        kind,
        errno,
        status,
        status_code,
        vendor_err,
        device,
        peer,
        rank,
        start,
        end,
    } = finding;
    LineReport {
        line: number,
        class,
        verb,
        errno,
        status,
        device,
        rule: Some(rule),
        status_code,
        vendor_err,
        peer,
        rank,
        host: extract::host(line, start),
        kind,
        further_messages: 0,
        weight,
        moment: moment::find(line),
        excerpt: excerpt(line, start, end),
    }
}

fn segment(one: &Candidate, heads: &[usize], previous: Option<usize>, next: usize) -> Segment {
    let behind = heads.partition_point(|head| *head <= one.start);
    let head_from = behind.checked_sub(2).map_or(0, |at| heads[at]);
    let head_to = heads
        .iter()
        .copied()
        .find(|head| *head >= one.end)
        .unwrap_or(usize::MAX);
    Segment {
        from: head_from.max(previous.unwrap_or(0)),
        to: head_to.min(next).max(one.end),
    }
}

/// The text around a message.
fn excerpt(line: &[u8], start: usize, end: usize) -> String {
    let from = start.saturating_sub(EXCERPT_BEFORE_BYTES);
    let to = line
        .len()
        .min(end.max(from + EXCERPT_BYTES))
        .min(from + 2 * EXCERPT_BYTES);
    text(line[from..to].trim_ascii())
}

/// How much a message counts among those of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key(Weight, u8, std::cmp::Reverse<Turn>);

impl Key {
    fn of(finding: &Finding) -> Key {
        let turn = Turn::of(finding.class, finding.verb.as_deref());
        Key(finding.weight, telling(finding), std::cmp::Reverse(turn))
    }
}

/// The message that counts most: the heaviest, a cause before what follows from it,
/// then the first.
fn counts_most(findings: &[Finding]) -> Option<usize> {
    let key = |at: &usize| (Key::of(&findings[*at]), std::cmp::Reverse(*at));
    (0..findings.len()).max_by_key(key)
}

/// Among lines that never decide, how much one says.
const fn telling(finding: &Finding) -> u8 {
    match (finding.weight, finding.class) {
        (Weight::Never, Class::CannotTell) => 0,
        (Weight::Never, Class::Cleanup) => 1,
        (Weight::Never, Class::FollowOn) => 2,
        _ => 3,
    }
}

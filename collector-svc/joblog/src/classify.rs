//! One line in, what it says out.

use serde::Serialize;

use crate::class::{Class, Kind, RuleId, Weight};
use crate::clean::{clean, text};
use crate::extract;
use crate::moment::{self, LineMoment};
use crate::reading::{Reading, Segment};
use crate::rules::{ClassSource, RuleSet};

/// Messages that are read from one physical line. Interleaved ranks seldom put
/// more than a dozen on one; the bound keeps a hostile line cheap.
pub const MAX_MESSAGES: usize = 256;

/// Matches of one rule in one line that are looked at.
const MAX_MATCHES_PER_RULE: usize = 64;

/// A rule is run over the piece of a long line from so many bytes before its
/// first literal to as many behind its last: no rule reaches further.
const REACH_BYTES: usize = 4_096;

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
}

/// Where the literals of a rule stand in a line.
#[derive(Clone, Copy)]
struct Reach {
    rule: u16,
    first: usize,
    last: usize,
}

struct Candidate {
    rule: u16,
    start: usize,
    end: usize,
}

impl Classifier {
    /// A classifier by these rules.
    pub const fn new(rules: RuleSet) -> Classifier {
        Classifier { rules }
    }

    /// The rules in force.
    pub const fn rules(&self) -> &RuleSet {
        &self.rules
    }

    pub(crate) fn into_rules(self) -> RuleSet {
        self.rules
    }

    /// What the line says: of its messages the one that counts most.
    pub fn classify(&self, number: u64, line: &[u8]) -> LineReport {
        if !self.could_match(line) {
            return LineReport::nothing(number);
        }
        let cleaned = clean(line);
        let mut findings = self.findings_in(&cleaned);
        let Some(best) = best(&findings) else {
            return LineReport::nothing(number);
        };
        let further_messages = findings.len() - 1;
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
        } = findings.swap_remove(best);
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
            host: extract::host(&cleaned, start),
            kind,
            further_messages,
            weight,
            moment: moment::find(&cleaned),
            excerpt: excerpt(&cleaned, start, end),
        }
    }

    /// Every message of the line, in order.
    pub fn findings(&self, line: &[u8]) -> Vec<Finding> {
        self.findings_in(&clean(line))
    }

    /// Whether a literal of any rule stands in the line. A line with escapes or
    /// NUL in it is always looked at: they may stand inside a literal.
    fn could_match(&self, line: &[u8]) -> bool {
        memchr::memchr2(0x1b, 0, line).is_some() || self.rules.prefilter.is_match(line)
    }

    fn findings_in(&self, line: &[u8]) -> Vec<Finding> {
        let candidates = self.candidates(line);
        if candidates.is_empty() {
            return Vec::new();
        }
        let heads = extract::heads(line, MAX_MESSAGES);
        let accepted = self.accept(candidates, &heads);
        let starts: Vec<usize> = accepted.iter().map(|one| one.start).collect();
        accepted
            .iter()
            .enumerate()
            .filter_map(|(at, one)| {
                let next = starts.get(at + 1).copied().unwrap_or(line.len());
                let segment = segment(
                    one,
                    &heads,
                    at.checked_sub(1).map(|p| accepted[p].end),
                    next,
                );
                self.understand(line, one, segment)
            })
            .collect()
    }

    /// Matches of every rule whose literals stand in the line.
    fn candidates(&self, line: &[u8]) -> Vec<Candidate> {
        let mut out = Vec::new();
        for reach in self.reaches(line) {
            let from = reach.first.saturating_sub(REACH_BYTES);
            let to = reach.last.saturating_add(REACH_BYTES).min(line.len());
            let pattern = &self.rules.rules[usize::from(reach.rule)].pattern;
            out.extend(
                pattern
                    .find_iter(&line[from..to])
                    .take(MAX_MATCHES_PER_RULE)
                    .map(|found| Candidate {
                        rule: reach.rule,
                        start: from + found.start(),
                        end: from + found.end(),
                    }),
            );
        }
        out
    }

    /// Rules with a literal in the line, in the order in which they are tried:
    /// fall-backs last.
    fn reaches(&self, line: &[u8]) -> Vec<Reach> {
        let mut reaches: Vec<Reach> = Vec::new();
        for hit in self.rules.prefilter.find_overlapping_iter(line) {
            for rule in &self.rules.literal_rules[hit.pattern().as_usize()] {
                match reaches.iter_mut().find(|reach| reach.rule == *rule) {
                    Some(reach) => reach.last = hit.end(),
                    None => reaches.push(Reach {
                        rule: *rule,
                        first: hit.start(),
                        last: hit.end(),
                    }),
                }
            }
        }
        let fallback = |rule: u16| self.rules.rules[usize::from(rule)].fallback;
        reaches.sort_unstable_by_key(|reach| (fallback(reach.rule), reach.rule));
        reaches
    }

    /// Of overlapping matches the one of the earlier rule; fallbacks only where
    /// their message has no other. In the order of the line.
    fn accept(&self, candidates: Vec<Candidate>, heads: &[usize]) -> Vec<Candidate> {
        let message = |at: usize| heads.partition_point(|head| *head <= at);
        let mut accepted: Vec<Candidate> = Vec::new();
        for candidate in candidates {
            if accepted.len() >= MAX_MESSAGES {
                break;
            }
            let rule = &self.rules.rules[usize::from(candidate.rule)];
            let taken = accepted.iter().any(|other| {
                let overlaps = candidate.start < other.end && other.start < candidate.end;
                overlaps || (rule.fallback && message(other.start) == message(candidate.start))
            });
            if !taken {
                accepted.push(candidate);
            }
        }
        accepted.sort_unstable_by_key(|one| one.start);
        accepted
    }

    fn understand(&self, line: &[u8], one: &Candidate, segment: Segment) -> Option<Finding> {
        let rule = &self.rules.rules[usize::from(one.rule)];
        if rule.class == ClassSource::None {
            return None;
        }
        let found = rule.pattern.captures_at(line, one.start)?;
        Some(
            Reading {
                line,
                rule,
                words: &self.rules.words,
                found,
                segment,
                start: one.start,
                end: one.end,
            }
            .finding(),
        )
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
    text(&line[from..to]).trim().to_owned()
}

/// The message that counts most: the heaviest, then the first.
fn best(findings: &[Finding]) -> Option<usize> {
    (0..findings.len()).max_by_key(|at| {
        let finding = &findings[*at];
        (finding.weight, rank_of(finding), std::cmp::Reverse(*at))
    })
}

/// Among lines that never decide, the one that says most.
const fn rank_of(finding: &Finding) -> u8 {
    match (finding.weight, finding.class) {
        (Weight::Never, Class::CannotTell) => 0,
        (Weight::Never, Class::Cleanup) => 1,
        (Weight::Never, Class::FollowOn) => 2,
        _ => 3,
    }
}

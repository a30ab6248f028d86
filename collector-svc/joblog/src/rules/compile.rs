//! From rule files to something that matches.

use std::collections::HashSet;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use regex::bytes::{Regex, RegexBuilder};
use toml::Spanned;

use super::file::{RuleEntry, RuleFile};
use super::words::{self, Words};
use super::{RuleSet, RulesError};
use crate::class::{Class, RuleId};
use crate::classify::Classifier;
use crate::errno;

/// Most rules of a set: each can cost a pass over a line that holds its literal.
pub const MAX_RULES: usize = 4_096;

/// Largest compiled pattern, bytes. The largest built-in one is a tenth of it;
/// a repeated repetition would otherwise take gigabytes.
pub(crate) const PATTERN_SIZE_LIMIT: usize = 2 << 20;

/// Memory that the matcher of one pattern may fill, bytes. With the library's
/// 2 MiB the widest patterns forget their states within a line and crawl.
const MATCHER_SIZE_LIMIT: usize = 16 << 20;

/// Shortest literal: two letters stand in every line and filter nothing.
const MIN_LITERAL_BYTES: usize = 3;

/// Up to so many bytes of literals the prefilter is a full DFA (some megabytes);
/// beyond, one that is smaller and slower.
const DFA_LITERAL_BYTES: usize = 32 << 10;

/// What a pattern may capture.
const CAPTURES: [&str; 13] = [
    "verb",
    "action",
    "object",
    "errno",
    "code",
    "status",
    "syndrome",
    "event",
    "device",
    "peer",
    "rank",
    "vendor",
    "vendor_hex",
];

/// Where a rule's class comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClassSource {
    Fixed(Class),
    Verb,
    Status,
    Event,
    /// An ordinary line that looks like an error: it takes its piece of the line
    /// and says nothing.
    None,
}

/// Where a rule's errno comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ErrnoSource {
    Find,
    Off,
    Fixed(String),
}

/// A rule that can match.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) id: RuleId,
    pub(crate) pattern: Regex,
    pub(crate) class: ClassSource,
    pub(crate) verb: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) errno: ErrnoSource,
    pub(crate) by_errno: Vec<(String, Class)>,
    pub(crate) weak: bool,
    pub(crate) fallback: bool,
    pub(crate) examples: Vec<String>,
}

/// Compiles the files, earlier ones first, and runs every rule's examples.
pub(crate) fn compile(files: &[RuleFile], revision: String) -> Result<RuleSet, RulesError> {
    let words = Words::compile(files)?;
    let mut rules = Vec::new();
    let mut seen = HashSet::new();
    let mut literals = Literals::default();
    for file in files {
        for entry in &file.rules {
            let number = u16::try_from(rules.len())
                .ok()
                .filter(|_| rules.len() < MAX_RULES);
            let Some(number) = number else {
                return Err(file.refuse(&entry.id, format!("more than {MAX_RULES} rules")));
            };
            if !seen.insert(entry.id.get_ref().as_str()) {
                let reason = format!(
                    "the rule {} stands here twice; rename one",
                    entry.id.get_ref()
                );
                return Err(file.refuse(&entry.id, reason));
            }
            literals.add(file, entry, number)?;
            rules.push(rule(file, entry)?);
        }
    }
    let prefilter = literals.automaton().map_err(|reason| RulesError {
        file: files
            .first()
            .map_or_else(String::new, |file| file.name.clone()),
        line: 1,
        reason,
    })?;
    let set = RuleSet {
        rules,
        words,
        prefilter,
        literal_rules: literals.rules,
        revision,
    };
    check_examples(files, set)
}

#[derive(Default)]
struct Literals {
    texts: Vec<String>,
    rules: Vec<Vec<u16>>,
}

impl Literals {
    fn add(&mut self, file: &RuleFile, entry: &RuleEntry, number: u16) -> Result<(), RulesError> {
        if entry.any.get_ref().is_empty() {
            return Err(file.refuse(&entry.any, "at least one literal must stand in `any`"));
        }
        for literal in entry.any.get_ref() {
            if literal.len() < MIN_LITERAL_BYTES {
                let reason = format!(
                    "the literal {literal:?} is shorter than {MIN_LITERAL_BYTES} bytes: it would stand in \
                     every line; take a longer piece of what the pattern matches"
                );
                return Err(file.refuse(&entry.any, reason));
            }
            let lower = literal.to_ascii_lowercase();
            match self.texts.iter().position(|text| *text == lower) {
                Some(at) => self.rules[at].push(number),
                None => {
                    self.texts.push(lower);
                    self.rules.push(vec![number]);
                }
            }
        }
        Ok(())
    }

    fn automaton(&self) -> Result<AhoCorasick, String> {
        let bytes: usize = self.texts.iter().map(String::len).sum();
        AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .kind((bytes <= DFA_LITERAL_BYTES).then_some(AhoCorasickKind::DFA))
            .build(&self.texts)
            .map_err(|error| error.to_string())
    }
}

fn rule(file: &RuleFile, entry: &RuleEntry) -> Result<Rule, RulesError> {
    let pattern = RegexBuilder::new(entry.pattern.get_ref())
        .case_insensitive(true)
        .unicode(false)
        .size_limit(PATTERN_SIZE_LIMIT)
        .dfa_size_limit(MATCHER_SIZE_LIMIT)
        .build()
        .map_err(|error| {
            let reason = error.to_string().replace('\n', " ");
            file.refuse(&entry.pattern, reason)
        })?;
    if let Some(name) = pattern
        .capture_names()
        .flatten()
        .find(|name| !CAPTURES.contains(name))
    {
        let reason = format!(
            "nothing is done with the capture {name:?}; known: {}",
            CAPTURES.join(", ")
        );
        return Err(file.refuse(&entry.pattern, reason));
    }
    let class = match entry.class.get_ref().as_str() {
        "by_verb" => ClassSource::Verb,
        "by_status" => ClassSource::Status,
        "by_event" => ClassSource::Event,
        "none" => ClassSource::None,
        _ => ClassSource::Fixed(words::class(file, &entry.class)?),
    };
    let mut by_errno = Vec::new();
    for (name, text) in &entry.by_errno {
        if !errno::is_name(name) {
            return Err(file.refuse(
                text,
                format!("{name:?} is no errno; write a name such as ETIMEDOUT"),
            ));
        }
        by_errno.push((name.clone(), words::class(file, text)?));
    }
    Ok(Rule {
        id: RuleId::new(entry.id.get_ref()),
        pattern,
        class,
        verb: entry.verb.clone(),
        status: entry.status.clone(),
        errno: errno_source(file, entry, class)?,
        by_errno,
        weak: entry.weak,
        fallback: entry.fallback,
        examples: entry
            .examples
            .iter()
            .map(|text| text.get_ref().clone())
            .collect(),
    })
}

/// Completions and events carry a status: a number in them is no errno.
fn errno_source(
    file: &RuleFile,
    entry: &RuleEntry,
    class: ClassSource,
) -> Result<ErrnoSource, RulesError> {
    let told: Option<&Spanned<String>> = entry.errno.as_ref();
    match told.map(|text| text.get_ref().as_str()) {
        None if matches!(class, ClassSource::Status | ClassSource::Event) => Ok(ErrnoSource::Off),
        None | Some("find") => Ok(ErrnoSource::Find),
        Some("off") => Ok(ErrnoSource::Off),
        Some(name) if errno::is_name(name) => Ok(ErrnoSource::Fixed(name.to_owned())),
        Some(name) => Err(told.map_or_else(
            || file.refuse(&entry.id, "no errno"),
            |at| {
                file.refuse(
                    at,
                    format!("{name:?} is no errno; write find, off, or a name such as EINVAL"),
                )
            },
        )),
    }
}

/// A rule that does not answer to its own example is wrong, or stands behind
/// another that takes its lines.
fn check_examples(files: &[RuleFile], set: RuleSet) -> Result<RuleSet, RulesError> {
    let classifier = Classifier::new(set);
    for file in files {
        for entry in &file.rules {
            for example in &entry.examples {
                check_example(&classifier, file, entry, example)?;
            }
        }
    }
    Ok(classifier.into_rules())
}

fn check_example(
    classifier: &Classifier,
    file: &RuleFile,
    entry: &RuleEntry,
    example: &Spanned<String>,
) -> Result<(), RulesError> {
    let id = entry.id.get_ref();
    let findings = classifier.findings(example.get_ref().as_bytes());
    if entry.class.get_ref() == "none" {
        return match findings.first() {
            None => Ok(()),
            Some(other) => Err(file.refuse(
                example,
                format!(
                    "the example of {id} answers to {}, which should let it pass",
                    other.rule
                ),
            )),
        };
    }
    if findings.iter().any(|finding| *finding.rule == **id) {
        return Ok(());
    }
    let reason = findings.first().map_or_else(
        || format!("the pattern of {id}, or its literals, does not match this example"),
        |other| {
            format!(
                "this example of {id} answers to {}, which stands before it",
                other.rule
            )
        },
    );
    Err(file.refuse(example, reason))
}

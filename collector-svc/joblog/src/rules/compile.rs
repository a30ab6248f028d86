//! From rule files to something that matches.

use std::collections::HashSet;

use regex_automata::PatternID;
use regex_automata::meta::{self, BuildError, Regex};
use regex_automata::util::syntax;
use toml::Spanned;

use super::file::{RuleEntry, RuleFile};
use super::literals::{Literals, LiteralsError};
use super::needs::MIN_LITERAL_BYTES;
use super::words::{self, Verb, Words};
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

/// How many names a pattern may give to what it captures.
const CAPTURES_COUNT: usize = 13;

/// What a pattern may capture.
const CAPTURES: [&str; CAPTURES_COUNT] = [
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
    /// Groups of the pattern, in the order of [`CAPTURES`].
    groups: [Option<usize>; CAPTURES_COUNT],
    /// Begins and ends of groups that a search is asked for: of all up to the last one
    /// that is used; 0 where none is. A rule for ordinary lines says nothing.
    pub(crate) slots: usize,
    pub(crate) class: ClassSource,
    pub(crate) verb: Option<Verb>,
    pub(crate) status: Option<String>,
    pub(crate) errno: ErrnoSource,
    pub(crate) by_errno: Vec<(String, Class)>,
    pub(crate) weak: bool,
    pub(crate) decides: bool,
    pub(crate) fallback: bool,
    pub(crate) examples: Vec<String>,
}

impl Rule {
    /// The group of that name.
    pub(crate) fn group(&self, name: &str) -> Option<usize> {
        let at = CAPTURES.iter().position(|known| *known == name)?;
        self.groups[at]
    }
}

/// Compiles the files, earlier ones first, and runs every rule's examples.
pub(crate) fn compile(files: &[RuleFile], revision: String) -> Result<RuleSet, RulesError> {
    let words = Words::compile(files)?;
    let mut rules = Vec::new();
    let mut seen = HashSet::new();
    let entries = || {
        let files = files.iter();
        files.flat_map(|file| file.rules.iter().map(move |entry| (file, entry)))
    };
    for (file, entry) in entries() {
        if rules.len() >= MAX_RULES {
            return Err(file.refuse(&entry.id, format!("more than {MAX_RULES} rules")));
        }
        if !seen.insert(entry.id.get_ref().as_str()) {
            let reason = format!(
                "the rule {} stands here twice; rename one",
                entry.id.get_ref()
            );
            return Err(file.refuse(&entry.id, reason));
        }
        check_literals(file, entry)?;
        rules.push(rule(file, entry, &words)?);
    }
    let named = entries().map(|(_, entry)| {
        (
            entry.pattern.get_ref().as_str(),
            entry.any.get_ref().as_slice(),
        )
    });
    let examples = entries().flat_map(|(_, entry)| &entry.examples);
    let examples: Vec<&str> = examples.map(|text| text.get_ref().as_str()).collect();
    let literals = Literals::of(named, &examples).map_err(|error| match error {
        LiteralsError::Nothing(at) => match entries().nth(at) {
            Some((file, entry)) => file.refuse(
                &entry.pattern,
                "the pattern shows no literal that each match holds: name some in `any`",
            ),
            None => in_first(files, "a rule has no literal".to_owned()),
        },
        LiteralsError::Searcher(reason) => in_first(files, reason),
    })?;
    let set = RuleSet {
        turns: turns(&rules),
        rules,
        words,
        literals,
        revision,
    };
    check_examples(files, set)
}

/// When each rule is tried: in the order of the files, fall-backs last.
fn turns(rules: &[Rule]) -> Vec<u16> {
    // At most MAX_RULES, which a u16 holds.
    let mut in_turn: Vec<u16> = (0..=u16::MAX).take(rules.len()).collect();
    in_turn.sort_by_key(|rule| rules[usize::from(*rule)].fallback);
    let mut turns = vec![0; rules.len()];
    for (turn, rule) in (0..=u16::MAX).zip(in_turn) {
        turns[usize::from(rule)] = turn;
    }
    turns
}

fn in_first(files: &[RuleFile], reason: String) -> RulesError {
    RulesError {
        file: files
            .first()
            .map_or_else(String::new, |file| file.name.clone()),
        line: 1,
        reason,
    }
}

/// Literals that a file names must tell something.
fn check_literals(file: &RuleFile, entry: &RuleEntry) -> Result<(), RulesError> {
    let short = entry
        .any
        .get_ref()
        .iter()
        .find(|literal| literal.len() < MIN_LITERAL_BYTES);
    let Some(literal) = short else {
        return Ok(());
    };
    let reason = format!(
        "the literal {literal:?} is shorter than {MIN_LITERAL_BYTES} bytes: it would stand in \
         every line; take a longer piece of what the pattern matches"
    );
    Err(file.refuse(&entry.any, reason))
}

/// The pattern as rules have it: letters of either case, bytes, within bounds. The
/// error is what is wrong with it.
fn pattern(text: &str) -> Result<Regex, String> {
    Regex::builder()
        .syntax(
            syntax::Config::new()
                .case_insensitive(true)
                .unicode(false)
                .utf8(false),
        )
        .configure(
            meta::Config::new()
                .utf8_empty(false)
                .nfa_size_limit(Some(PATTERN_SIZE_LIMIT))
                .hybrid_cache_capacity(MATCHER_SIZE_LIMIT),
        )
        .build(text)
        .map_err(|error| reason(&error))
}

/// What is wrong with a pattern.
fn reason(error: &BuildError) -> String {
    let told = match (error.syntax_error(), error.size_limit()) {
        (Some(syntax), _) => syntax.to_string(),
        (None, Some(limit)) => format!("it exceeds the size limit of {limit} bytes"),
        (None, None) => error.to_string(),
    };
    told.replace('\n', " ")
}

fn rule(file: &RuleFile, entry: &RuleEntry, words: &Words) -> Result<Rule, RulesError> {
    let pattern =
        pattern(entry.pattern.get_ref()).map_err(|reason| file.refuse(&entry.pattern, reason))?;
    let mut groups = [None; CAPTURES_COUNT];
    for (group, name) in pattern
        .group_info()
        .pattern_names(PatternID::ZERO)
        .enumerate()
    {
        let Some(name) = name else { continue };
        let Some(known) = CAPTURES.iter().position(|known| *known == name) else {
            let reason = format!(
                "nothing is done with the capture {name:?}; known: {}",
                CAPTURES.join(", ")
            );
            return Err(file.refuse(&entry.pattern, reason));
        };
        groups[known] = Some(group);
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
    let last = groups.iter().flatten().max();
    Ok(Rule {
        id: RuleId::new(entry.id.get_ref()),
        pattern,
        groups,
        slots: match (class, last) {
            (ClassSource::None, _) | (_, None) => 0,
            (_, Some(last)) => 2 * (last + 1),
        },
        class,
        verb: entry.verb.as_deref().map(|name| words.verb(name)),
        status: entry.status.clone(),
        errno: errno_source(file, entry, class)?,
        by_errno,
        weak: entry.weak,
        decides: entry.decides,
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

//! The words that rules refer to: verbs, objects, completion statuses, events.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, MatchKind};
use regex::bytes::{RegexBuilder, RegexSet, RegexSetBuilder};
use toml::Spanned;

use super::RulesError;
use super::compile::PATTERN_SIZE_LIMIT;
use super::file::{ObjectEntry, RuleFile};
use crate::class::{Class, Kind};

/// A completion status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) name: String,
    pub(crate) number: Option<u32>,
    pub(crate) class: Class,
}

/// An asynchronous event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) class: Class,
    pub(crate) weak: bool,
}

/// A verb under its canonical name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verb {
    pub(crate) name: String,
    pub(crate) kind: Option<Kind>,
}

/// Entries found by a text.
#[derive(Debug)]
struct TextIndex {
    automaton: AhoCorasick,
    entries: Vec<usize>,
}

impl TextIndex {
    fn new(texts: Vec<(String, usize)>) -> Result<TextIndex, String> {
        let (patterns, entries): (Vec<String>, Vec<usize>) = texts.into_iter().unzip();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .ascii_case_insensitive(true)
            .build(patterns)
            .map_err(|error| error.to_string())?;
        Ok(TextIndex { automaton, entries })
    }

    fn find(&self, text: &[u8]) -> Option<usize> {
        let found = self.automaton.find(text)?;
        Some(self.entries[found.pattern().as_usize()])
    }
}

/// All words of a rule set.
#[derive(Debug)]
pub(crate) struct Words {
    verbs: HashMap<String, (String, Kind)>,
    /// What verbs of no entry do, by their names.
    kind_patterns: RegexSet,
    /// Of each of those patterns.
    kinds: Vec<Kind>,
    objects: HashMap<String, [Option<String>; 4]>,
    statuses: Vec<Status>,
    status_by_number: HashMap<u32, usize>,
    status_by_syndrome: HashMap<u32, usize>,
    status_by_text: TextIndex,
    events: Vec<Event>,
    event_by_number: HashMap<u32, usize>,
    event_by_text: TextIndex,
}

/// What is done to an object in words, by the beginning of the word. English is
/// finite here: these are the verbs that RDMA software uses in its messages.
const ACTIONS: [(&str, &[&str]); 4] = [
    (
        "cleanup",
        &[
            "destr", "dereg", "unreg", "dealloc", "free", "clos", "releas", "unmap", "delet",
            "remov", "tear", "detach",
        ],
    ),
    (
        "create",
        &[
            "creat", "alloc", "open", "regist", "reg", "mak", "init", "pin", "map", "setup",
            "bind", "add", "new",
        ],
    ),
    (
        "modify",
        &[
            "modif", "transit", "chang", "mov", "set", "bring", "updat", "resiz", "switch",
            "reset", "adjust",
        ],
    ),
    ("query", &["query", "quer", "get", "read", "find", "obtain"]),
];

impl Words {
    /// Words of the files; an earlier file's stand.
    pub(crate) fn compile(files: &[RuleFile]) -> Result<Words, RulesError> {
        let mut words = Words {
            verbs: HashMap::new(),
            kind_patterns: RegexSet::empty(),
            kinds: Vec::new(),
            objects: HashMap::new(),
            statuses: Vec::new(),
            status_by_number: HashMap::new(),
            status_by_syndrome: HashMap::new(),
            status_by_text: TextIndex::new(Vec::new()).map_err(too_many)?,
            events: Vec::new(),
            event_by_number: HashMap::new(),
            event_by_text: TextIndex::new(Vec::new()).map_err(too_many)?,
        };
        let (mut status_texts, mut event_texts) = (Vec::new(), Vec::new());
        for file in files {
            words.add_verbs(file)?;
            for object in &file.objects {
                words.add_object(object);
            }
            words.add_statuses(file, &mut status_texts)?;
            words.add_events(file, &mut event_texts)?;
        }
        words.add_verb_kinds(files)?;
        words.status_by_text = TextIndex::new(status_texts).map_err(too_many)?;
        words.event_by_text = TextIndex::new(event_texts).map_err(too_many)?;
        Ok(words)
    }

    fn add_verbs(&mut self, file: &RuleFile) -> Result<(), RulesError> {
        for verb in &file.verbs {
            let kind = kind(file, &verb.kind)?;
            for name in verb.aliases.iter().chain([&verb.name]) {
                self.verbs
                    .entry(name.to_ascii_lowercase())
                    .or_insert_with(|| (verb.name.clone(), kind));
            }
        }
        Ok(())
    }

    fn add_verb_kinds(&mut self, files: &[RuleFile]) -> Result<(), RulesError> {
        let mut patterns = Vec::new();
        let entries = files.iter().flat_map(|file| {
            let entries = file.verb_kinds.iter();
            entries.map(move |entry| (file, entry))
        });
        for (file, entry) in entries {
            // By itself first, so that the error is of its line.
            RegexBuilder::new(entry.pattern.get_ref())
                .unicode(false)
                .size_limit(PATTERN_SIZE_LIMIT)
                .build()
                .map_err(|error| file.refuse(&entry.pattern, error.to_string()))?;
            patterns.push(entry.pattern.get_ref());
            self.kinds.push(kind(file, &entry.kind)?);
        }
        self.kind_patterns = RegexSetBuilder::new(patterns)
            .unicode(false)
            .size_limit(PATTERN_SIZE_LIMIT)
            .build()
            .map_err(|error| too_many(error.to_string()))?;
        Ok(())
    }

    fn add_object(&mut self, entry: &ObjectEntry) {
        let verbs = [
            entry.cleanup.clone(),
            entry.create.clone(),
            entry.modify.clone(),
            entry.query.clone(),
        ];
        for text in &entry.texts {
            self.objects
                .entry(squeeze(text.as_bytes()))
                .or_insert_with(|| verbs.clone());
        }
    }

    fn add_statuses(
        &mut self,
        file: &RuleFile,
        texts: &mut Vec<(String, usize)>,
    ) -> Result<(), RulesError> {
        for entry in &file.statuses {
            let at = self.statuses.len();
            self.statuses.push(Status {
                name: entry.name.clone(),
                number: entry.number,
                class: class(file, &entry.class)?,
            });
            if let Some(number) = entry.number {
                self.status_by_number.entry(number).or_insert(at);
            }
            if let Some(syndrome) = entry.syndrome {
                self.status_by_syndrome.entry(syndrome).or_insert(at);
            }
            texts.push((entry.name.clone(), at));
            texts.extend(entry.texts.iter().map(|text| (text.clone(), at)));
        }
        Ok(())
    }

    fn add_events(
        &mut self,
        file: &RuleFile,
        texts: &mut Vec<(String, usize)>,
    ) -> Result<(), RulesError> {
        for entry in &file.events {
            let at = self.events.len();
            self.events.push(Event {
                name: entry.name.clone(),
                class: class(file, &entry.class)?,
                weak: entry.weak,
            });
            if let Some(number) = entry.number {
                self.event_by_number.entry(number).or_insert(at);
            }
            texts.push((entry.name.clone(), at));
            texts.extend(entry.texts.iter().map(|text| (text.clone(), at)));
        }
        Ok(())
    }

    /// The verb of a name in any spelling that a library uses.
    pub(crate) fn verb(&self, name: &str) -> Verb {
        let name = name
            .trim_end_matches("()")
            .trim_start_matches("wrap_")
            .to_ascii_lowercase();
        if let Some((canonical, kind)) = self.verbs.get(&name) {
            return Verb {
                name: canonical.clone(),
                kind: Some(*kind),
            };
        }
        let first = self.kind_patterns.matches(name.as_bytes()).iter().next();
        let kind = first.map(|first| self.kinds[first]);
        Verb { name, kind }
    }

    /// The verb that does `action` to `object`, both in words.
    pub(crate) fn verb_in_words(&self, action: &[u8], object: &[u8]) -> Option<Verb> {
        let verbs = self.objects.get(&squeeze(object))?;
        let action = squeeze(action);
        let column = ACTIONS
            .iter()
            .position(|(_, starts)| starts.iter().any(|start| action.starts_with(start)))?;
        verbs[column].as_deref().map(|name| self.verb(name))
    }

    pub(crate) fn status_by_number(&self, number: u32) -> Option<&Status> {
        Some(&self.statuses[*self.status_by_number.get(&number)?])
    }

    pub(crate) fn status_by_syndrome(&self, syndrome: u32) -> Option<&Status> {
        Some(&self.statuses[*self.status_by_syndrome.get(&syndrome)?])
    }

    /// The status whose name or words stand first in the text.
    pub(crate) fn status_by_text(&self, text: &[u8]) -> Option<&Status> {
        Some(&self.statuses[self.status_by_text.find(text)?])
    }

    /// The event whose name or words stand first in the text, or of that number.
    pub(crate) fn event(&self, text: &[u8]) -> Option<&Event> {
        let by_number = || {
            let number = std::str::from_utf8(text).ok()?.trim().parse().ok()?;
            self.event_by_number.get(&number)
        };
        let at = self
            .event_by_text
            .find(text)
            .or_else(|| by_number().copied())?;
        Some(&self.events[at])
    }
}

/// Lower case without spaces, hyphens and underscores: `Queue Pair`, `queue_pair`.
fn squeeze(text: &[u8]) -> String {
    text.iter()
        .filter(|byte| !matches!(byte, b' ' | b'\t' | b'-' | b'_'))
        .map(|byte| char::from(byte.to_ascii_lowercase()))
        .collect()
}

fn too_many(reason: String) -> RulesError {
    RulesError {
        file: "words".to_owned(),
        line: 1,
        reason,
    }
}

pub(crate) fn class(file: &RuleFile, text: &Spanned<String>) -> Result<Class, RulesError> {
    text.get_ref()
        .parse()
        .map_err(|error: crate::class::ClassError| file.refuse(text, error.to_string()))
}

fn kind(file: &RuleFile, text: &Spanned<String>) -> Result<Kind, RulesError> {
    Kind::from_name(text.get_ref()).ok_or_else(|| {
        file.refuse(
            text,
            format!(
                "{:?} is no kind of verb; write create, register, modify, data, cleanup or read_only",
                text.get_ref()
            ),
        )
    })
}

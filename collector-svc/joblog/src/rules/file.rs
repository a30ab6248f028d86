//! A rule file as it is written.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::RulesError;

/// Longest rule file. The built-in ones together are a tenth of it.
pub(crate) const MAX_FILE_BYTES: usize = 1 << 20;

/// One file. What stands in spans can be named in errors by its line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleFile {
    #[serde(skip)]
    pub(crate) name: String,
    /// Offsets of line starts, to turn spans into lines.
    #[serde(skip)]
    line_starts: Vec<usize>,
    pub(crate) revision: Option<String>,
    /// Of a site file: whether the built-in rules stay behind it.
    pub(crate) builtin: Option<bool>,
    #[serde(default, rename = "rule")]
    pub(crate) rules: Vec<RuleEntry>,
    #[serde(default, rename = "verb")]
    pub(crate) verbs: Vec<VerbEntry>,
    #[serde(default, rename = "verb_kind")]
    pub(crate) verb_kinds: Vec<VerbKindEntry>,
    #[serde(default, rename = "object")]
    pub(crate) objects: Vec<ObjectEntry>,
    #[serde(default, rename = "status")]
    pub(crate) statuses: Vec<StatusEntry>,
    #[serde(default, rename = "event")]
    pub(crate) events: Vec<EventEntry>,
}

/// One rule.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleEntry {
    pub(crate) id: Spanned<String>,
    /// Literals of which a line must hold one, beside those that the pattern shows.
    #[serde(default = "no_literals")]
    pub(crate) any: Spanned<Vec<String>>,
    pub(crate) pattern: Spanned<String>,
    /// A class, `by_verb`, `by_status`, `by_event` or `none` (an ordinary line).
    pub(crate) class: Spanned<String>,
    /// The verb, where the pattern captures none.
    pub(crate) verb: Option<String>,
    /// `find` (the default), `off`, or the name of an errno.
    pub(crate) errno: Option<Spanned<String>>,
    /// Name of the status, where the pattern captures none.
    pub(crate) status: Option<String>,
    /// Other classes for certain errnos.
    #[serde(default)]
    pub(crate) by_errno: BTreeMap<String, Spanned<String>>,
    /// Decides only where nothing else does.
    #[serde(default)]
    pub(crate) weak: bool,
    /// Whether it may decide at all: a notice that stands in healthy logs too does not.
    #[serde(default = "yes")]
    pub(crate) decides: bool,
    /// Tried only where no other rule answered to the message.
    #[serde(default)]
    pub(crate) fallback: bool,
    #[serde(default)]
    pub(crate) examples: Vec<Spanned<String>>,
}

fn no_literals() -> Spanned<Vec<String>> {
    Spanned::new(0..0, Vec::new())
}

const fn yes() -> bool {
    true
}

/// A verb and its other names.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VerbEntry {
    pub(crate) name: String,
    pub(crate) kind: Spanned<String>,
    #[serde(default)]
    pub(crate) aliases: Vec<String>,
}

/// The kind of verbs that no entry names.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VerbKindEntry {
    pub(crate) pattern: Spanned<String>,
    pub(crate) kind: Spanned<String>,
}

/// An object in words, with the verb of each action on it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ObjectEntry {
    pub(crate) texts: Vec<String>,
    pub(crate) create: Option<String>,
    pub(crate) modify: Option<String>,
    pub(crate) cleanup: Option<String>,
    pub(crate) query: Option<String>,
}

/// A completion status.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatusEntry {
    pub(crate) number: Option<u32>,
    /// Syndrome of an mlx5 error CQE.
    pub(crate) syndrome: Option<u32>,
    pub(crate) name: String,
    pub(crate) class: Spanned<String>,
    #[serde(default)]
    pub(crate) texts: Vec<String>,
}

/// An asynchronous event.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventEntry {
    pub(crate) number: Option<u32>,
    pub(crate) name: String,
    pub(crate) class: Spanned<String>,
    #[serde(default)]
    pub(crate) weak: bool,
    #[serde(default)]
    pub(crate) texts: Vec<String>,
}

impl RuleFile {
    /// Reads one file; what its texts mean is checked when it is compiled.
    pub(crate) fn parse(name: &str, text: &str) -> Result<RuleFile, RulesError> {
        let refused = |line: usize, reason: String| RulesError {
            file: name.to_owned(),
            line,
            reason,
        };
        if text.len() > MAX_FILE_BYTES {
            return Err(refused(
                1,
                format!("{} bytes; at most {MAX_FILE_BYTES} are read", text.len()),
            ));
        }
        let line_starts: Vec<usize> = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        match toml::from_str::<RuleFile>(text) {
            Ok(mut file) => {
                name.clone_into(&mut file.name);
                file.line_starts = line_starts;
                Ok(file)
            }
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                let reason = error.message().trim_end().replace('\n', "; ");
                Err(refused(line_of(&line_starts, at), reason))
            }
        }
    }

    /// An error about what stands at the span.
    pub(crate) fn refuse<T>(&self, at: &Spanned<T>, reason: impl Into<String>) -> RulesError {
        RulesError {
            file: self.name.clone(),
            line: line_of(&self.line_starts, at.span().start),
            reason: reason.into(),
        }
    }
}

fn line_of(line_starts: &[usize], at: usize) -> usize {
    line_starts.partition_point(|start| *start <= at).max(1)
}

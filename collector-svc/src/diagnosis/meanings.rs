//! What an errno at a layer means to a person, and what to check next: data.

use std::sync::OnceLock;

use rdmesh_proto::collector::v1::VerdictClass;
use rdmesh_proto::common::v1::{Layer, Verb};
use rdmesh_store::errno::ERRNOS;
use serde::Deserialize;

use crate::diagnosis::Mapping;
use crate::diagnosis::rules::TABLE;
use crate::names;

/// The table that is built in. A test reads it whole.
const BUILT_IN: &str = include_str!("meanings.toml");

/// Why a table of meanings is refused.
#[derive(Debug, thiserror::Error)]
pub enum MeaningsError {
    /// It is no TOML of this form.
    #[error("meanings: {0}")]
    Form(#[from] toml::de::Error),
    /// An entry names something that does not exist.
    #[error("meanings: entry {entry} ({means:?}) has {field} {value:?}, which does not exist")]
    Unknown {
        /// Place in the file, from 1.
        entry: usize,
        /// How its text begins.
        means: String,
        /// Which field.
        field: &'static str,
        /// What it says.
        value: String,
    },
}

/// One text. Empty lists match anything.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meaning {
    /// Layers of the deepest failing function.
    #[serde(default)]
    pub layers: Vec<String>,
    /// Verbs, or families of them: `memory`, `create`, `connect`.
    #[serde(default)]
    pub verbs: Vec<String>,
    /// Names of errno values.
    #[serde(default)]
    pub errnos: Vec<String>,
    /// Classes that the rules found.
    #[serde(default)]
    pub classes: Vec<String>,
    /// What the address maps.
    #[serde(default)]
    pub mapping: Option<Mapping>,
    /// Whether the state machine of queue pairs has the step that was asked for.
    #[serde(default)]
    pub step_allowed: Option<bool>,
    /// Rules that decided.
    #[serde(default)]
    pub rules: Vec<String>,
    /// Half a sentence for the summary.
    pub short: String,
    /// What it means, in plain words.
    pub means: String,
    /// What to check next, with commands.
    pub next: Vec<String>,
}

/// All texts, and whom to call.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meanings {
    routes: std::collections::BTreeMap<String, String>,
    meaning: Vec<Meaning>,
}

/// What a text is looked up by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key<'a> {
    pub(crate) class: VerdictClass,
    pub(crate) layer: Layer,
    pub(crate) verb: Verb,
    pub(crate) errno_name: &'a str,
    pub(crate) mapping: Option<Mapping>,
    pub(crate) rule: &'a str,
    pub(crate) step_allowed: Option<bool>,
}

/// Families of verbs.
fn family(verb: Verb) -> &'static str {
    match verb {
        Verb::RegMr | Verb::RegDmabufMr | Verb::DevxUmemReg => "memory",
        Verb::AllocPd | Verb::CreateCq | Verb::CreateQp | Verb::DevxObjCreate => "create",
        Verb::ModifyQp | Verb::CreateAh | Verb::DevxObjModify => "connect",
        Verb::FirmwareCommand | Verb::AsyncEvent | Verb::Unspecified => "",
    }
}

/// The name of a class, as JSON and SQL have it.
pub(crate) fn class_name(class: VerdictClass) -> String {
    names::without(class.as_str_name(), "VERDICT_CLASS_")
}

impl Meanings {
    /// Reads a table.
    ///
    /// # Errors
    /// [`MeaningsError`] with the entry.
    pub fn read(text: &str) -> Result<Self, MeaningsError> {
        let meanings: Self = toml::from_str(text)?;
        for (index, meaning) in meanings.meaning.iter().enumerate() {
            meaning.check(index + 1)?;
        }
        Ok(meanings)
    }

    /// The table that is built in. An empty one where it does not read, which a test
    /// rules out.
    pub(crate) fn built_in() -> &'static Self {
        static TABLE: OnceLock<Meanings> = OnceLock::new();
        TABLE.get_or_init(|| {
            Self::read(BUILT_IN).unwrap_or(Self {
                routes: std::collections::BTreeMap::new(),
                meaning: Vec::new(),
            })
        })
    }

    /// Whom to call about a class.
    pub(crate) fn route(&self, class: VerdictClass) -> String {
        self.routes
            .get(&class_name(class))
            .cloned()
            .unwrap_or_default()
    }

    /// The text that fits best: the one with the most conditions that all hold; of
    /// several the first.
    pub(crate) fn find(&self, key: Key<'_>) -> Option<&Meaning> {
        let mut best: Option<(u32, &Meaning)> = None;
        for meaning in &self.meaning {
            if let Some(score) = meaning.score(key)
                && best.is_none_or(|(most, _)| score > most)
            {
                best = Some((score, meaning));
            }
        }
        best.map(|(_, meaning)| meaning)
    }
}

impl Meaning {
    /// How well it fits; `None`: a condition does not hold. An errno says more than a
    /// layer, a mapping more than both, and the rule that decided more than all.
    fn score(&self, key: Key<'_>) -> Option<u32> {
        let mut score = 0;
        let verb = names::verb(key.verb);
        let family = family(key.verb);
        let class = class_name(key.class);
        let layer = names::layer(key.layer);
        for (allowed, holds, weight) in [
            (&self.layers, self.layers.contains(&layer), 4),
            (
                &self.errnos,
                self.errnos.iter().any(|e| e == key.errno_name),
                8,
            ),
            (&self.classes, self.classes.contains(&class), 2),
            (&self.rules, self.rules.iter().any(|r| r == key.rule), 32),
        ] {
            if !allowed.is_empty() {
                if !holds {
                    return None;
                }
                score += weight;
            }
        }
        if !self.verbs.is_empty() {
            if self.verbs.contains(&verb) {
                score += 3;
            } else if self.verbs.iter().any(|v| v == family) {
                score += 2;
            } else {
                return None;
            }
        }
        match self.mapping {
            None => {}
            Some(mapping) if key.mapping == Some(mapping) => score += 16,
            Some(_) => return None,
        }
        match self.step_allowed {
            None => {}
            Some(allowed) if key.step_allowed == Some(allowed) => score += 16,
            Some(_) => return None,
        }
        Some(score)
    }

    fn check(&self, entry: usize) -> Result<(), MeaningsError> {
        let classes: Vec<String> = (1..=15)
            .filter_map(|n| VerdictClass::try_from(n).ok())
            .map(class_name)
            .collect();
        let layers: Vec<String> = (1..=5)
            .filter_map(|n| Layer::try_from(n).ok())
            .map(names::layer)
            .collect();
        let mut verbs: Vec<String> = (1..=12)
            .filter_map(|n| Verb::try_from(n).ok())
            .map(names::verb)
            .collect();
        verbs.extend(["memory", "create", "connect"].map(str::to_owned));
        let errnos: Vec<String> = ERRNOS
            .iter()
            .map(|(_, name, _)| (*name).to_owned())
            .collect();
        let rules: Vec<String> = TABLE.iter().map(|rule| rule.name.to_owned()).collect();
        for (field, values, known) in [
            ("rules", &self.rules, &rules),
            ("layers", &self.layers, &layers),
            ("verbs", &self.verbs, &verbs),
            ("errnos", &self.errnos, &errnos),
            ("classes", &self.classes, &classes),
        ] {
            if let Some(value) = values.iter().find(|value| !known.contains(value)) {
                return Err(MeaningsError::Unknown {
                    entry,
                    means: self.means.chars().take(40).collect(),
                    field,
                    value: value.clone(),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Meanings {
        Meanings::read(BUILT_IN).unwrap()
    }

    #[test]
    fn the_built_in_table_reads_and_routes_every_class() {
        let table = table();
        for number in 1..=15 {
            let class = VerdictClass::try_from(number).unwrap();
            assert!(!table.route(class).is_empty(), "{class:?} has no route");
        }
        assert!(!Meanings::built_in().meaning.is_empty());
    }

    #[test]
    fn every_errno_at_every_layer_and_verb_has_a_text() {
        let table = table();
        for layer in (1..=5).map(|n| Layer::try_from(n).unwrap()) {
            for verb in (1..=12).map(|n| Verb::try_from(n).unwrap()) {
                for (_, errno_name, _) in ERRNOS {
                    let class = VerdictClass::Driver;
                    let key = Key {
                        class,
                        layer,
                        verb,
                        errno_name,
                        mapping: None,
                        rule: "",
                        step_allowed: None,
                    };
                    let found = table.find(key).unwrap();
                    assert!(!found.means.is_empty() && !found.next.is_empty());
                }
            }
        }
    }

    #[test]
    fn the_text_with_the_most_conditions_wins() {
        let key = |mapping| Key {
            class: VerdictClass::ApplicationArguments,
            layer: Layer::Memory,
            verb: Verb::RegMr,
            errno_name: "EFAULT",
            mapping,
            rule: "",
            step_allowed: None,
        };
        let table = table();
        let unmapped = table.find(key(Some(Mapping::None))).unwrap();
        assert_eq!(unmapped.mapping, Some(Mapping::None));
        assert_eq!(table.find(key(None)).unwrap().mapping, None);
    }

    #[test]
    fn a_table_with_an_error_is_refused_with_its_place() {
        let text =
            "[routes]\n[[meaning]]\nerrnos = [\"EFOO\"]\nshort = \"s\"\nmeans = \"m\"\nnext = []\n";
        let refused = Meanings::read(text).unwrap_err().to_string();
        assert!(
            refused.contains("entry 1") && refused.contains("EFOO"),
            "{refused}"
        );
        let refused = Meanings::read("[routes]\nmeaning = 3")
            .unwrap_err()
            .to_string();
        assert!(refused.contains("line 2"), "{refused}");
    }
}

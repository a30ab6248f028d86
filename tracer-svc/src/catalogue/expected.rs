//! Failures that are part of normal work.

use serde::Deserialize;

use super::{CatalogueError, Layer, Verb};

/// One kind of normal failure.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedRule {
    /// Short name, stored with each failure that the rule marks.
    pub name: String,
    /// Verb of the outermost record.
    pub verb: Verb,
    /// Errno of the outermost record, positive.
    pub errno: u16,
    /// Only when no layer below this one failed.
    #[serde(default)]
    pub deepest: Option<Layer>,
    /// What the rule relies on.
    pub because: String,
}

/// All rules, tried in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpectedRules {
    /// In the order of the file; the first that fits wins.
    pub rules: Vec<ExpectedRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rule: Vec<ExpectedRule>,
}

impl ExpectedRules {
    /// The rules that are compiled in.
    ///
    /// # Errors
    /// Never for a released binary: a test parses them.
    pub fn built_in() -> Result<Self, CatalogueError> {
        Self::parse(include_str!("expected.toml"))
    }

    /// Reads rules.
    ///
    /// # Errors
    /// The text is not TOML of this shape.
    pub fn parse(text: &str) -> Result<Self, CatalogueError> {
        let file: File = toml::from_str(text)?;
        Ok(Self { rules: file.rule })
    }

    /// The rule that marks a chain as normal: `verb` and `errno` are those of
    /// its outermost record, `deepest` is the layer of its innermost one.
    #[must_use]
    pub fn find(&self, verb: Verb, errno: u16, deepest: Layer) -> Option<&ExpectedRule> {
        self.rules.iter().find(|rule| {
            rule.verb == verb
                && rule.errno == errno
                && rule.deepest.is_none_or(|layer| deepest <= layer)
        })
    }
}

//! Which counters and lines of the kernel's log are co-signals: data.

use rdmesh_proto::tracer::v1::CoSignalKind;
use serde::Deserialize;

/// Why a table of rules is refused.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// It is no TOML of this form.
    #[error("rules of co-signals: {0}")]
    Form(#[from] toml::de::Error),
    /// A rule that would fit every line.
    #[error("rules of co-signals: {0:?} names no text that a line must have")]
    Empty(String),
}

/// What a rule tells about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A link, or the way to a peer.
    Network,
    /// A card.
    Device,
    /// The host.
    Host,
    /// A process.
    Process,
}

impl From<Kind> for CoSignalKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Network => Self::Network,
            Kind::Device => Self::Device,
            Kind::Host => Self::Host,
            Kind::Process => Self::Process,
        }
    }
}

/// Counters of one meaning.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CounterRule {
    /// As the kernel names them.
    pub names: Vec<String>,
    /// What they tell about.
    pub kind: Kind,
    /// Whether they can tell of a cause.
    pub independent: bool,
    /// What the rule relies on.
    pub because: String,
}

/// Lines of one meaning.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogRule {
    /// Name of the co-signal.
    pub name: String,
    /// All of these stand in the line.
    #[serde(default)]
    pub all: Vec<String>,
    /// One of these does; empty: none has to.
    #[serde(default)]
    pub any: Vec<String>,
    /// Only lines of this level and graver ones (4: warning, 3: error); none: any.
    #[serde(default)]
    pub max_level: Option<u8>,
    /// What it tells about.
    pub kind: Kind,
    /// Whether it can be a cause.
    pub independent: bool,
    /// What the rule relies on.
    pub because: String,
}

/// All rules, tried in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Of counters.
    pub counter: Vec<CounterRule>,
    /// Of lines.
    pub log: Vec<LogRule>,
}

impl Rules {
    /// The rules that are compiled in.
    ///
    /// # Errors
    /// Never for a released binary: a test parses them.
    pub fn built_in() -> Result<Self, RulesError> {
        Self::parse(include_str!("rules.toml"))
    }

    /// Reads rules.
    ///
    /// # Errors
    /// [`RulesError`].
    pub fn parse(text: &str) -> Result<Self, RulesError> {
        let rules: Self = toml::from_str(text)?;
        let texts = |rule: &LogRule| {
            rule.all
                .iter()
                .chain(&rule.any)
                .any(|text| !text.is_empty())
        };
        match rules.log.iter().find(|rule| !texts(rule)) {
            Some(rule) => Err(RulesError::Empty(rule.name.clone())),
            None => Ok(rules),
        }
    }

    /// The rule of a counter.
    #[must_use]
    pub fn of_counter(&self, name: &str) -> Option<&CounterRule> {
        let named = |rule: &&CounterRule| rule.names.iter().any(|n| n == name);
        self.counter.iter().find(named)
    }

    /// The rule of a line; `level` as syslog numbers it, 0 the gravest.
    #[must_use]
    pub fn of_line(&self, level: u8, text: &str) -> Option<&LogRule> {
        self.log.iter().find(|rule| {
            rule.max_level.is_none_or(|most| level <= most)
                && rule.all.iter().all(|part| text.contains(part.as_str()))
                && (rule.any.is_empty() || rule.any.iter().any(|part| text.contains(part.as_str())))
        })
    }
}

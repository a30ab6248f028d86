//! What good calls do.

use std::collections::BTreeMap;

use rdmesh_proto::errno;
use serde::{Deserialize, Serialize};

use super::trace::{MAX_DEPTH, Outcome, Step, Trace, Watched, function_name};

/// Version of the JSON; another one is refused.
pub const SCHEMA: u32 = 1;

/// Longest good call: one that waited for the network or for firmware shows what happens
/// meanwhile, and that is not what a call does. The figure, as in the reference
/// system.
pub const GOOD_WITHIN_NS: u64 = 50_000_000;

/// Places of one tree: soft-RoCE has below 200 for a verb, mlx5 below 1,000. A call that
/// would make more is not kept.
const MAX_NODES: usize = 20_000;
/// Longest name of a function that is read back; the kernel's own limit is 511.
const MAX_NAME_BYTES: usize = 512;

/// How a good return is called among the outcomes.
pub(super) const GOOD: &str = "good";

/// What a tree is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// `uname -r`.
    pub kernel: String,
    /// The driver whose functions are watched.
    pub driver: String,
    /// The verb whose entry points are.
    pub verb: String,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Key {
            kernel,
            driver,
            verb,
        } = self;
        write!(f, "{verb} with {driver} on {kernel}")
    }
}

/// One function, at one place of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its name.
    pub function: String,
    /// Traces that came here.
    pub traces: u64,
    /// Returns by name: `good`, or that of the errno.
    pub outcomes: BTreeMap<String, u64>,
    /// What it calls, in the order in which it was first seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Node>,
}

/// All good calls of a verb, on one kernel with one driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tree {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `uname -r`.
    pub kernel: String,
    /// The driver whose functions are watched.
    pub driver: String,
    /// The verb whose entry points are.
    pub verb: String,
    /// When the last window ended, seconds since 1970.
    pub recorded_at: u64,
    /// Functions that were watched.
    pub functions: u64,
    /// Good calls in it.
    pub traces: u64,
    /// Entry points.
    pub entries: Vec<Node>,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is in the tree.
    Yes,
    /// It failed.
    Failed,
    /// It took longer than [`GOOD_WITHIN_NS`].
    Slow,
    /// The tree has no room for what it does.
    NoRoom,
}

/// Why JSON is no tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// It is none, or is cut.
    #[error("it cannot be read: {0}")]
    Json(String),
    /// Another version wrote it.
    #[error("it is of schema {0}, and this tracer reads schema {SCHEMA}")]
    Schema(u64),
    /// It says what no recording can have.
    #[error("{0}")]
    Content(String),
}

/// The name of an outcome.
pub(super) fn name(outcome: Outcome) -> String {
    match outcome {
        Outcome::Good => GOOD.to_owned(),
        Outcome::Error(errno) => errno::name(i32::from(errno)),
    }
}

impl Tree {
    /// Without a call.
    #[must_use]
    pub fn new(key: &Key) -> Self {
        Self {
            schema: SCHEMA,
            kernel: key.kernel.clone(),
            driver: key.driver.clone(),
            verb: key.verb.clone(),
            recorded_at: 0,
            functions: 0,
            traces: 0,
            entries: Vec::new(),
        }
    }

    /// What it is of.
    #[must_use]
    pub fn key(&self) -> Key {
        Key {
            kernel: self.kernel.clone(),
            driver: self.driver.clone(),
            verb: self.verb.clone(),
        }
    }

    /// Adds a call, if it is a good one: without an error at its end, and quick.
    pub fn add(&mut self, trace: &Trace, watched: &[Watched]) -> Added {
        if trace.outcome != Outcome::Good {
            return Added::Failed;
        }
        if trace.took_ns > GOOD_WITHIN_NS {
            return Added::Slow;
        }
        // What it adds at most: checked before, so that no half of it comes in.
        let calls = trace.steps.len() / 2;
        if count(&self.entries).saturating_add(calls) > MAX_NODES {
            return Added::NoRoom;
        }
        self.traces = self.traces.saturating_add(1);
        let mut steps = trace.steps.iter();
        add(&mut self.entries, &mut steps, watched);
        Added::Yes
    }

    /// The place at the end of a way from an entry point; none where good calls do not
    /// come.
    #[must_use]
    pub fn at(&self, path: &[&str]) -> Option<&Node> {
        let (first, rest) = path.split_first()?;
        let mut node = child(&self.entries, first)?;
        for function in rest {
            node = child(&node.calls, function)?;
        }
        Some(node)
    }

    /// Reads what was written as JSON.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn read(bytes: &[u8]) -> Result<Self, TreeError> {
        #[derive(Deserialize)]
        struct Version {
            schema: u64,
        }
        let json = |error: serde_json::Error| TreeError::Json(error.to_string());
        // The version first: a later one may have other fields.
        let version: Version = serde_json::from_slice(bytes).map_err(json)?;
        if version.schema != u64::from(SCHEMA) {
            return Err(TreeError::Schema(version.schema));
        }
        let tree: Self = serde_json::from_slice(bytes).map_err(json)?;
        tree.checked()
    }

    /// The same, when it says what a recording can have.
    ///
    /// # Errors
    /// [`TreeError::Content`].
    pub fn checked(self) -> Result<Self, TreeError> {
        self.check()?;
        Ok(self)
    }

    fn check(&self) -> Result<(), TreeError> {
        let wrong = |what: &str| Err(TreeError::Content(what.to_owned()));
        if [&self.kernel, &self.driver, &self.verb]
            .iter()
            .any(|name| name.is_empty() || name.len() > MAX_NAME_BYTES)
        {
            return wrong("it does not say which kernel, driver and verb it is of");
        }
        if self.traces == 0 || self.entries.is_empty() {
            return wrong("it holds no call");
        }
        if count(&self.entries) > MAX_NODES {
            return wrong("it has more places than a tree can have");
        }
        check(&self.entries, 1)
    }
}

fn check(calls: &[Node], depth: usize) -> Result<(), TreeError> {
    if depth > MAX_DEPTH && !calls.is_empty() {
        return Err(TreeError::Content("its calls go too deep".to_owned()));
    }
    for node in calls {
        if node.function.is_empty() || node.function.len() > MAX_NAME_BYTES {
            return Err(TreeError::Content("a function has no name".to_owned()));
        }
        check(&node.calls, depth + 1)?;
    }
    Ok(())
}

/// Places in all; as deep as the tree, which is bounded.
fn count(calls: &[Node]) -> usize {
    calls
        .iter()
        .map(|node| count(&node.calls).saturating_add(1))
        .sum()
}

pub(super) fn child<'n>(calls: &'n [Node], function: &str) -> Option<&'n Node> {
    calls.iter().find(|node| node.function == function)
}

/// Adds all calls up to the return of the function around them, and gives that return.
/// As deep as the trace, which is bounded.
fn add<'s>(
    calls: &mut Vec<Node>,
    steps: &mut impl Iterator<Item = &'s Step>,
    watched: &[Watched],
) -> Outcome {
    let mut here: Vec<usize> = Vec::new();
    while let Some(step) = steps.next() {
        let function = match step {
            Step::Returns(outcome) => return *outcome,
            Step::Enters(function) => function_name(watched, *function),
        };
        let at = match calls.iter().position(|node| node.function == function) {
            Some(at) => at,
            None => {
                calls.push(Node {
                    function: function.to_owned(),
                    ..Node::default()
                });
                calls.len() - 1
            }
        };
        let node = &mut calls[at];
        // A loop calls a function often; it is one place all the same.
        if !here.contains(&at) {
            here.push(at);
            node.traces = node.traces.saturating_add(1);
        }
        let outcome = add(&mut node.calls, steps, watched);
        let returns = node.outcomes.entry(name(outcome)).or_default();
        *returns = returns.saturating_add(1);
    }
    Outcome::Good
}

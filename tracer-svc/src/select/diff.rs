//! What changed between two kernels: kept functions that moved, vanished or
//! appeared, and whether hooks were lost.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::SelectError;
use super::attach::How;
use super::files::read_whole;
use super::selection::{FunctionRow, HookRow, SCHEMA, Selection, Verdict};

/// Largest JSON of a selection that is read; a real one has half a megabyte.
const MAX_JSON_BYTES: u64 = 64 << 20;

/// One change of a kept function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "change")]
pub enum Change {
    /// In another module, or at another depth.
    Moved {
        /// Function name.
        function: String,
        /// `module at depth`, before.
        from: String,
        /// `module at depth`, now.
        to: String,
    },
    /// Not kept any more.
    Vanished {
        /// `module:function`.
        function: String,
        /// What became of it.
        because: String,
    },
    /// Kept now and not before.
    Appeared {
        /// `module:function`.
        function: String,
        /// Why it is kept.
        because: String,
    },
    /// Attached in another way.
    Attach {
        /// `module:function`.
        function: String,
        /// The way before.
        from: String,
        /// The way now.
        to: String,
    },
}

impl Change {
    /// The kind, for tables.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Moved { .. } => "moved",
            Self::Vanished { .. } => "vanished",
            Self::Appeared { .. } => "appeared",
            Self::Attach { .. } => "attach",
        }
    }

    /// The rest, for tables.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Moved { function, from, to } | Self::Attach { function, from, to } => {
                format!("{function}: {from} -> {to}")
            }
            Self::Vanished { function, because } | Self::Appeared { function, because } => {
                format!("{function}: {because}")
            }
        }
    }
}

/// All changes between two kernels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// `release arch driver` of the old selection.
    pub old: String,
    /// The same of the new one.
    pub new: String,
    /// Changes of kept functions.
    pub changes: Vec<Change>,
    /// Logical hooks that were served and are not, or only by a kretprobe that
    /// was a fexit before. Empty when coverage did not get worse.
    pub worse: Vec<String>,
}

/// Reads the JSON of an earlier selection.
///
/// # Errors
/// The file cannot be read, is no selection, or is one of another version.
pub fn read_old(path: &Path) -> Result<Selection, SelectError> {
    let bytes = read_whole(path, MAX_JSON_BYTES)?;
    let broken = |reason: String| SelectError::Old {
        path: path.to_owned(),
        reason,
    };
    let old: Selection = serde_json::from_slice(&bytes)
        .map_err(|e| broken(format!("not the JSON of a selection: {e}")))?;
    if old.schema != SCHEMA {
        return Err(broken(format!(
            "version {} of the format, not {SCHEMA}",
            old.schema
        )));
    }
    Ok(old)
}

/// Compares two selections.
#[must_use]
pub fn compare(old: &Selection, new: &Selection) -> Difference {
    let name = |s: &Selection| format!("{} {} {}", s.release, s.arch, s.driver);
    let mut changes = Vec::new();
    let (before, after) = (kept(old), kept(new));
    for (function, row) in &before {
        match after.get(function) {
            Some(other) => changes.extend(between(row, other)),
            None => changes.push(Change::Vanished {
                function: full(row),
                because: vanished(row, function.1, new),
            }),
        }
    }
    for (function, row) in &after {
        if !before.contains_key(function) {
            changes.push(Change::Appeared {
                function: full(row),
                because: row.why.clone(),
            });
        }
    }
    changes.sort();
    Difference {
        old: name(old),
        new: name(new),
        changes,
        worse: worse(&old.hooks, &new.hooks),
    }
}

/// A function without the mark of a copy that the compiler made.
fn plain(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// Kept functions. Where a module has several of one name the first is taken;
/// drivers share names, so that the layer is part of the key.
fn kept(selection: &Selection) -> BTreeMap<(String, bool), &FunctionRow> {
    let mut out = BTreeMap::new();
    for row in &selection.functions {
        if row.verdict != Verdict::Removed {
            let driver = row.module == selection.driver;
            out.entry((plain(&row.function).to_owned(), driver))
                .or_insert(row);
        }
    }
    out
}

fn full(row: &FunctionRow) -> String {
    format!("{}:{}", row.module, row.function)
}

fn between(old: &FunctionRow, new: &FunctionRow) -> Vec<Change> {
    let mut out = Vec::new();
    let place = |r: &FunctionRow| format!("{} at depth {}", r.module, r.depth);
    if place(old) != place(new) {
        out.push(Change::Moved {
            function: old.function.clone(),
            from: place(old),
            to: place(new),
        });
    }
    let how = |r: &FunctionRow| format!("{} as {}", r.attach.how.name(), r.function);
    if old.attach.how != new.attach.how || old.function != new.function {
        out.push(Change::Attach {
            function: full(new),
            from: how(old),
            to: how(new),
        });
    }
    out
}

/// Why a kept function is not kept any more.
fn vanished(old: &FunctionRow, of_driver: bool, new: &Selection) -> String {
    let still = new.functions.iter().find(|r| {
        // Drivers and the layers above them share names.
        plain(&r.function) == plain(&old.function) && (r.module == new.driver) == of_driver
    });
    match still {
        Some(row) => format!("removed by rule {}: {}", row.rule.name(), row.why),
        None => "not there, inlined, or reached by no entry point".to_owned(),
    }
}

fn worse(old: &[HookRow], new: &[HookRow]) -> Vec<String> {
    let mut out = Vec::new();
    for before in old.iter().filter(|h| h.how != How::Not) {
        let Some(after) = new.iter().find(|h| h.hook == before.hook) else {
            out.push(format!("{}: no such hook any more", before.hook));
            continue;
        };
        if after.how > before.how {
            let why = if after.missing.is_empty() {
                format!("only by {}", after.how.name())
            } else {
                after.missing.clone()
            };
            out.push(format!("{}: {why}", before.hook));
        }
    }
    out
}

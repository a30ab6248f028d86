//! The options of a service: those that a commented file shows, and those that the program
//! knows.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use toml::{Table, Value};

use crate::{ask, said};

/// A key that no service has.
const UNKNOWN: &str = "no_such_option";

/// The file with every option in force: an option is commented out as `#key = value`, prose
/// has a space after the `#`.
#[must_use]
pub fn uncommented(text: &str) -> String {
    text.lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if rest.starts_with(|c: char| c != ' ') => rest,
            _ => line,
        })
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Dotted names of all that a table holds. Of a list of tables those of its first one.
#[must_use]
pub fn names(table: &Table) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (name, value) in table {
        let inner = match value {
            Value::Table(inner) => Some(inner),
            Value::Array(list) => list.first().and_then(Value::as_table),
            _ => None,
        };
        match inner {
            Some(inner) => found.extend(names(inner).iter().map(|n| format!("{name}.{n}"))),
            None => {
                found.insert(name.clone());
            }
        }
    }
    found
}

/// The sections of a table, dotted, the root as an empty name.
#[must_use]
pub fn sections(table: &Table) -> Vec<String> {
    let mut found = vec![String::new()];
    for (name, value) in table {
        if let Value::Table(inner) = value {
            for section in sections(inner) {
                let dot = if section.is_empty() { "" } else { "." };
                found.push(format!("{name}{dot}{section}"));
            }
        }
    }
    found
}

/// What `--print-config` shows, with flags laid over the defaults.
///
/// # Errors
/// The program refuses, or writes no TOML.
pub fn printed(service: &str, flags: &[&str]) -> Result<Table> {
    let mut words = vec!["--config", "/dev/null", "--print-config"];
    words.extend(flags);
    let text = said(&ask(service, &words)?)?;
    text.parse().context("--print-config is no TOML")
}

/// Every key that the program knows in a section, also those that `--print-config` leaves out
/// because they have no value: it names them when it refuses one that it does not know.
///
/// # Errors
/// The unknown key was taken, or the refusal names no keys.
pub fn known(service: &str, section: &str) -> Result<BTreeSet<String>> {
    let setting = match section {
        "" => format!("{UNKNOWN}=1"),
        "wires" => format!("wires=[{{{UNKNOWN}=1}}]"),
        "wires.marking" => format!("wires=[{{marking={{{UNKNOWN}=1}}}}]"),
        section => format!("{section}.{UNKNOWN}=1"),
    };
    let words = ["--config", "/dev/null", "--check-config", "--set", &setting];
    let output = ask(service, &words)?;
    ensure!(!output.status.success(), "{service} took {setting}");
    let refusal = String::from_utf8_lossy(&output.stderr).into_owned();
    let (_, expected) = refusal
        .split_once("expected")
        .with_context(|| format!("no names in: {refusal}"))?;
    let expected = expected.split(';').next().unwrap_or_default();
    let names = expected.split('`').skip(1).step_by(2);
    Ok(names.map(str::to_owned).collect())
}

//! Layers laid over one another, each checked as it is laid, so that an error
//! names the layer that it comes from.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::nearest::nearest;
use super::{Flag, Invalid, ServiceConfig};

/// The variable that sets the log filter of every service.
const LOG_VARIABLE: &str = "RDMESH_LOG";

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read configuration file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is no configuration.
    #[error(
        "configuration file {} has more than {} bytes, which is the limit (1 MiB); is it the \
         right file?",
        path.display(),
        super::MAX_FILE_BYTES
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The file says something that is not understood.
    #[error("{}:{line}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong, with the nearest allowed name.
        problem: String,
    },
    /// An environment variable or a flag says something that is not understood.
    #[error("{origin}: {problem}")]
    Override {
        /// The variable or the flag with its key.
        origin: String,
        /// What is wrong, with the nearest allowed name.
        problem: String,
    },
    /// A value is out of its range.
    #[error("configuration: {0}")]
    Invalid(Invalid),
    /// The configuration cannot be printed.
    #[error("cannot print the configuration: {0}")]
    Print(String),
}

/// The layers so far, and the structure that they must fit.
pub(crate) struct Layers<T> {
    merged: Table,
    fits: PhantomData<T>,
}

impl<T: ServiceConfig> Layers<T> {
    /// Begins with the service's own defaults: a section that sets one option must not
    /// fall back to the section type's defaults for the others.
    pub(crate) fn new() -> Self {
        Self {
            merged: default_table::<T>(),
            fits: PhantomData,
        }
    }

    /// Lays the file.
    pub(crate) fn file(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let refuse = |error: &toml::de::Error| ConfigError::File {
            path: path.to_owned(),
            line: line_of(text, error.span().map_or(0, |span| span.start)),
            problem: describe(error.message()),
        };
        toml::from_str::<T>(text).map_err(|e| refuse(&e))?;
        let table: Table = toml::from_str(text).map_err(|e| refuse(&e))?;
        lay(&mut self.merged, table);
        Ok(())
    }

    /// Lays the variables of this service, in the order of their names.
    pub(crate) fn environment(
        &mut self,
        service: &str,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), ConfigError> {
        let prefix = prefix(service);
        let mut found: Vec<(String, String, String)> = Vec::new();
        for (name, value) in variables {
            if let Some(rest) = name.strip_prefix(&prefix) {
                let key = rest.to_lowercase().replace("__", ".");
                found.push((name, key, value));
            } else if name == LOG_VARIABLE && has_log_filter::<T>() {
                found.push((name, "telemetry.log".to_owned(), value));
            }
        }
        // "RDMESH_LOG" sorts before every "RDMESH_<SERVICE>__…TELEMETRY__LOG" only by
        // chance of names; put it first, so that the narrower variable wins.
        found.sort_by(|a, b| (a.0 != LOG_VARIABLE, &a.0).cmp(&(b.0 != LOG_VARIABLE, &b.0)));
        for (name, key, value) in found {
            self.set(&key, &value, &name)?;
        }
        Ok(())
    }

    /// Lays one flag.
    pub(crate) fn flag(&mut self, flag: &Flag) -> Result<(), ConfigError> {
        let origin = if flag.name == "--set" {
            format!("--set {}", flag.key)
        } else {
            flag.name.clone()
        };
        self.set(&flag.key, &flag.value, &origin)
    }

    /// The structure.
    pub(crate) fn finish(self) -> Result<T, ConfigError> {
        fit::<T>(&self.merged).map_err(|e| ConfigError::Override {
            origin: "configuration".to_owned(),
            problem: describe(e.message()),
        })
    }

    /// Sets one key from text: as TOML when that fits, else as plain text.
    fn set(&mut self, key: &str, text: &str, origin: &str) -> Result<(), ConfigError> {
        let refuse = |problem: String| ConfigError::Override {
            origin: origin.to_owned(),
            problem,
        };
        let mut first_problem = None;
        let readings = parse_value(text)
            .into_iter()
            .chain([Value::String(text.to_owned())]);
        for value in readings {
            let mut attempt = self.merged.clone();
            put(&mut attempt, key, value).map_err(refuse)?;
            match fit::<T>(&attempt) {
                Ok(_) => {
                    self.merged = attempt;
                    return Ok(());
                }
                Err(error) => {
                    first_problem.get_or_insert_with(|| describe(error.message()));
                }
            }
        }
        Err(refuse(first_problem.unwrap_or_default()))
    }
}

/// What the names of a service's variables begin with.
pub(super) fn prefix(service: &str) -> String {
    format!("RDMESH_{}__", service.to_uppercase().replace('-', "_"))
}

fn fit<T: ServiceConfig>(table: &Table) -> Result<T, toml::de::Error> {
    T::deserialize(Value::Table(table.clone()))
}

fn default_table<T: ServiceConfig>() -> Table {
    Table::try_from(T::default()).unwrap_or_default()
}

fn has_log_filter<T: ServiceConfig>() -> bool {
    let table = default_table::<T>();
    table
        .get("telemetry")
        .and_then(Value::as_table)
        .is_some_and(|t| t.contains_key("log"))
}

/// Reads a value as TOML would, on one line.
fn parse_value(text: &str) -> Option<Value> {
    if text.contains('\n') {
        return None;
    }
    let mut table: Table = toml::from_str(&format!("value = {text}")).ok()?;
    table.remove("value")
}

/// Lays one table over another, section by section.
fn lay(under: &mut Table, over: Table) {
    for (name, value) in over {
        match (under.get_mut(&name), value) {
            (Some(Value::Table(under)), Value::Table(over)) => lay(under, over),
            (_, value) => {
                under.insert(name, value);
            }
        }
    }
}

/// Puts a value at a dotted key, with the sections on the way.
fn put(table: &mut Table, key: &str, value: Value) -> Result<(), String> {
    let (section, rest) = match key.split_once('.') {
        None if key.is_empty() => return Err("the key has an empty part".to_owned()),
        None => {
            table.insert(key.to_owned(), value);
            return Ok(());
        }
        Some(parts) => parts,
    };
    let inner = table
        .entry(section)
        .or_insert_with(|| Value::Table(Table::new()));
    match inner {
        Value::Table(inner) => put(inner, rest, value),
        _ => Err(format!(
            "`{section}` is a single option and has no `{rest}` in it"
        )),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())]
        .iter()
        .filter(|b| **b == b'\n')
        .count()
        + 1
}

/// What serde said, with the nearest allowed name for an unknown one.
fn describe(message: &str) -> String {
    let message = message.trim();
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = message.starts_with("unknown field") || message.starts_with("unknown variant");
    let (true, Some(name)) = (unknown, quoted.next()) else {
        return message.to_owned();
    };
    match nearest(name, quoted) {
        Some(near) => format!("{message}; did you mean `{near}`?"),
        None => message.to_owned(),
    }
}

/// See [`super::check_strict`].
pub(crate) fn check_strict<T: ServiceConfig>() -> Result<(), String> {
    let default = Table::try_from(T::default()).map_err(|e| e.to_string())?;
    T::default().validate().map_err(|e| e.to_string())?;
    if default.to_string().contains(super::secret::STARS) {
        return Err("a default holds a secret: it would be starred out when layers merge".into());
    }
    let mut sections = vec![String::new()];
    find_sections(&default, "", &mut sections);
    for section in sections {
        let mut table = Table::new();
        let key = if section.is_empty() {
            "no_such_option".to_owned()
        } else {
            format!("{section}.no_such_option")
        };
        put(&mut table, &key, Value::Boolean(true))?;
        if fit::<T>(&table).is_ok() {
            return Err(format!(
                "`{key}` was taken: add #[serde(default, deny_unknown_fields)]"
            ));
        }
    }
    Ok(())
}

fn find_sections(table: &Table, prefix: &str, found: &mut Vec<String>) {
    for (name, value) in table {
        if let Value::Table(inner) = value {
            let path = if prefix.is_empty() {
                name.clone()
            } else {
                format!("{prefix}.{name}")
            };
            find_sections(inner, &path, found);
            found.push(path);
        }
    }
}

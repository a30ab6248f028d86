//! What a site says for itself: whom to call about which class, and rules for its logs.
//!
//! Both are files. The table of teams is read again when it changes; one with an error is
//! refused with its line, and the one before stays in force.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::SystemTime;

use rdmesh_joblog::{RuleSet, RulesError};
use rdmesh_proto::collector::v1::VerdictClass;
use serde::Deserialize;

use crate::config::DiagnosisConfig;
use crate::diagnosis::class_name;

/// Bytes of the name of a team.
const TEAM_MAX_BYTES: usize = 256;

/// Why a site's file is refused.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// It cannot be read.
    #[error("{} cannot be read: {reason}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        reason: std::io::Error,
    },
    /// The table of teams has an error.
    #[error("{file}, line {line}: {reason}")]
    Routes {
        /// Which file.
        file: String,
        /// Line in it, from 1.
        line: usize,
        /// What is wrong and how it would be right.
        reason: String,
    },
    /// The rules for logs have an error.
    #[error(transparent)]
    Rules(#[from] RulesError),
}

/// Whom to call, by class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes(BTreeMap<String, String>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RoutesFile {
    #[serde(default)]
    routes: BTreeMap<String, String>,
}

impl Routes {
    /// Reads `[routes]` with a line `CLASS = "TEAM"` for each class that the site names;
    /// the others stay as they are built in.
    ///
    /// # Errors
    /// [`SiteError::Routes`] with line and reason.
    pub fn read(name: &str, text: &str) -> Result<Self, SiteError> {
        let refused = |line, reason| SiteError::Routes {
            file: name.to_owned(),
            line,
            reason,
        };
        let file: RoutesFile = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let before = text.get(..at).unwrap_or_default();
            refused(before.matches('\n').count() + 1, error.message().to_owned())
        })?;
        for (class, team) in &file.routes {
            let line = || line_of(text, class);
            if !classes().any(|known| known == *class) {
                let known: Vec<String> = classes().collect();
                let reason = format!("{class:?} is no class; write one of {}", known.join(", "));
                return Err(refused(line(), reason));
            }
            if team.is_empty() || team.len() > TEAM_MAX_BYTES || team.contains(char::is_control) {
                let reason = format!(
                    "the team of {class} has 1 to {TEAM_MAX_BYTES} bytes without control characters"
                );
                return Err(refused(line(), reason));
            }
        }
        Ok(Self(file.routes))
    }

    /// Whom to call about `class`, where the site says so.
    #[must_use]
    pub fn team(&self, class: VerdictClass) -> Option<&str> {
        self.0.get(&class_name(class)).map(String::as_str)
    }
}

/// Every class that a verdict can have.
fn classes() -> impl Iterator<Item = String> {
    (1..)
        .map_while(|number| VerdictClass::try_from(number).ok())
        .map(class_name)
}

/// The line that sets `key`, from 1.
fn line_of(text: &str, key: &str) -> usize {
    let sets = |line: &str| {
        let rest = line.trim_start().trim_start_matches('"').strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start_matches('"').trim_start().starts_with('='))
    };
    text.lines().position(sets).map_or(1, |index| index + 1)
}

/// The site's files as they are in force.
#[derive(Debug, Default)]
pub struct Site {
    path: Option<PathBuf>,
    loaded: RwLock<Loaded>,
}

#[derive(Debug, Default)]
struct Loaded {
    routes: Arc<Routes>,
    changed_at: Option<SystemTime>,
}

impl Site {
    /// Reads the files that the configuration names.
    ///
    /// # Errors
    /// [`SiteError`] with the file, the line and the reason.
    pub fn open(config: &DiagnosisConfig) -> Result<Self, SiteError> {
        let Some(path) = named(&config.routes) else {
            return Ok(Self::default());
        };
        let loaded = Loaded {
            changed_at: changed_at(&path),
            routes: Arc::new(read_routes(&path)?),
        };
        Ok(Self {
            path: Some(path),
            loaded: RwLock::new(loaded),
        })
    }

    /// Whom to call, as it is in force.
    #[must_use]
    pub fn routes(&self) -> Arc<Routes> {
        self.read().routes.clone()
    }

    /// Reads the table of teams again where it changed. What is wrong with it is logged
    /// once, and the table before stays.
    pub fn refresh(&self) {
        let Some(path) = &self.path else { return };
        let changed_at = changed_at(path);
        if changed_at == self.read().changed_at {
            return;
        }
        let read = read_routes(path);
        let mut loaded = self
            .loaded
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        loaded.changed_at = changed_at;
        match read {
            Ok(routes) => {
                loaded.routes = Arc::new(routes);
                tracing::info!(path = %path.display(), "table of teams read again");
            }
            Err(error) => {
                tracing::error!(%error, "table of teams refused; the one before stays in force");
            }
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Loaded> {
        self.loaded
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The rules for logs: the built-in ones, with the site's before them.
///
/// # Errors
/// [`SiteError`] with the file, the line and the reason.
pub fn log_rules(config: &DiagnosisConfig) -> Result<RuleSet, SiteError> {
    match named(&config.log_rules) {
        None => Ok(RuleSet::builtin()?),
        Some(path) => Ok(RuleSet::with_site(
            &path.display().to_string(),
            &text_of(&path)?,
        )?),
    }
}

/// An empty text names no file.
fn named(path: &str) -> Option<PathBuf> {
    (!path.is_empty()).then(|| PathBuf::from(path))
}

fn changed_at(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path)
        .and_then(|meta| meta.modified())
        .ok()
}

fn read_routes(path: &Path) -> Result<Routes, SiteError> {
    Routes::read(&path.display().to_string(), &text_of(path)?)
}

fn text_of(path: &Path) -> Result<String, SiteError> {
    std::fs::read_to_string(path).map_err(|reason| SiteError::Unreadable {
        path: path.to_owned(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const TABLE: &str = "[routes]\ndriver = \"fabric on call\"\nnetwork = \"noc@example.org\"\n";

    #[test]
    fn a_site_names_its_own_teams() {
        let routes = Routes::read("routes.toml", TABLE).unwrap();
        assert_eq!(routes.team(VerdictClass::Driver), Some("fabric on call"));
        assert_eq!(routes.team(VerdictClass::Firmware), None);
    }

    #[test]
    fn a_table_with_an_error_names_line_and_reason() {
        for (text, line, reason) in [
            (TABLE.replace("network", "netwrok"), 3, "is no class"),
            (
                TABLE.replace("\"fabric on call\"", "\"\""),
                2,
                "has 1 to 256 bytes",
            ),
            (TABLE.replace("\"fabric on call\"", "7"), 2, "invalid type"),
            (TABLE.replace("[routes]", "[teams]"), 1, "unknown field"),
            (TABLE.replace("on call\"", "on call"), 2, ""),
        ] {
            let refused = Routes::read("routes.toml", &text).unwrap_err().to_string();
            let place = format!("routes.toml, line {line}: ");
            assert!(
                refused.starts_with(&place) && refused.contains(reason),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_table_that_turns_bad_leaves_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes.toml");
        std::fs::write(&path, TABLE).unwrap();
        let config = DiagnosisConfig {
            routes: path.display().to_string(),
            ..DiagnosisConfig::default()
        };
        let site = Site::open(&config).unwrap();
        let write = |text: &str, seconds: u64| {
            std::fs::write(&path, text).unwrap();
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(at).unwrap();
            site.refresh();
        };
        write("[routes]\ndriver = 7\n", 1);
        assert_eq!(
            site.routes().team(VerdictClass::Driver),
            Some("fabric on call")
        );
        write("[routes]\ndriver = \"others\"\n", 2);
        assert_eq!(site.routes().team(VerdictClass::Driver), Some("others"));
        std::fs::remove_file(&path).unwrap();
        site.refresh();
        assert_eq!(site.routes().team(VerdictClass::Driver), Some("others"));
        assert!(Site::open(&config).is_err());
    }

    #[test]
    fn nothing_named_is_nothing_read() {
        let config = DiagnosisConfig::default();
        assert_eq!(*Site::open(&config).unwrap().routes(), Routes::default());
        assert!(log_rules(&config).is_ok());
    }
}

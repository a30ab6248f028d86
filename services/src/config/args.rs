//! The flags that every service has for its configuration.

use std::path::PathBuf;
use std::str::FromStr;

/// Flags about configuration; flatten it into the service's own with
/// `#[command(flatten)]`, and into each subcommand that reads a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Configuration")]
pub struct ConfigArgs {
    /// Read this file in place of /etc/rdmesh/<service>.toml
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,
    /// Set one option, over file and environment; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<Flag>,
    /// Print the configuration that would be in force (secrets starred out) and exit
    #[arg(long)]
    pub print_config: bool,
    /// Check the configuration and exit
    #[arg(long)]
    pub check_config: bool,
}

impl ConfigArgs {
    /// Whether none of them was given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Those that stood before a subcommand with those `behind` it, which win.
    #[must_use]
    pub fn followed_by(self, behind: Self) -> Self {
        Self {
            config: behind.config.or(self.config),
            // Of two that set the same, the later one is in force.
            set: [self.set, behind.set].concat(),
            print_config: self.print_config || behind.print_config,
            check_config: self.check_config || behind.check_config,
        }
    }
}

/// One option set on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// How the user wrote it, for messages: `--set` or the service's own flag.
    pub name: String,
    /// Dotted key: `uplink.collector`.
    pub key: String,
    /// The value: TOML (`5`, `true`, `["a"]`), or any other text as it is.
    pub value: String,
}

impl Flag {
    /// A named flag of the service (`--listen`) that sets `key`.
    #[must_use]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "numbers and paths are given as they are"
    )]
    pub fn named(name: &str, key: &str, value: impl ToString) -> Self {
        Self {
            name: name.to_owned(),
            key: key.to_owned(),
            value: value.to_string(),
        }
    }

    /// [`Flag::named`] for a flag that may not have been given.
    #[must_use]
    pub fn optional<V: ToString>(name: &str, key: &str, value: Option<&V>) -> Option<Self> {
        value.map(|value| Self::named(name, key, value.to_string()))
    }
}

impl FromStr for Flag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok(Self::named("--set", key.trim(), value))
            }
            _ => Err("write it as section.key=value".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_may_hold_an_equals_sign() {
        let flag: Flag = "database.url=postgres://h/db?a=b".parse().unwrap();
        assert_eq!(
            (flag.key.as_str(), flag.value.as_str()),
            ("database.url", "postgres://h/db?a=b")
        );
    }

    #[test]
    fn text_without_a_key_is_refused() {
        assert!("novalue".parse::<Flag>().is_err());
        assert!("=5".parse::<Flag>().is_err());
    }
}

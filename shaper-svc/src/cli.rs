//! The command line of `shaper-svc`.

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use rdmesh_services::config::{self, ConfigArgs};

use crate::config::ShaperConfig;
use crate::tools;

/// What `--help` says about exit codes.
pub const EXIT_CODES: &str = "\
Exit codes:
  0   ended as asked
  1   failed while running, or `check` found that the service would not start; the message
      says why
  2   wrong usage or configuration";

/// Moves every transmitted frame through a virtual wire of a given rate.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "shaper-svc",
    version,
    after_help = config::help::<ShaperConfig>(EXIT_CODES)
)]
pub struct Cli {
    /// Options of the configuration, before a command.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// What to do; `run` when nothing is said.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Shape, and serve rdmesh.shaper.v1.ShaperService (the default)
    Run(ConfigArgs),
    /// Look at configuration and machine, and touch nothing: would the service start, and
    /// would its windows mean something?
    Check(ConfigArgs),
    /// Move a captured stream through a wire, in virtual time
    Replay(tools::ReplayArgs),
    /// Tell how far a captured stream runs ahead of an ideal wire
    Inspect(tools::InspectArgs),
    /// Measure what the shaper costs on this machine; one line of JSON per figure
    Bench {
        /// Only figures whose name contains this
        #[arg(long, default_value = "")]
        only: String,
    },
}

impl Cli {
    /// The command, with options from before it and behind it: what stands behind wins.
    ///
    /// # Errors
    /// Options of the configuration for a command that reads none.
    pub fn command(self) -> Result<Command, clap::Error> {
        let before = self.config;
        let name = match self.command {
            None => return Ok(Command::Run(before)),
            Some(Command::Run(behind)) => return Ok(Command::Run(before.followed_by(behind))),
            Some(Command::Check(behind)) => return Ok(Command::Check(before.followed_by(behind))),
            Some(tool) if before.is_empty() => return Ok(tool),
            Some(Command::Replay(_)) => "replay",
            Some(Command::Inspect(_)) => "inspect",
            Some(Command::Bench { .. }) => "bench",
        };
        let message = format!(
            "`{name}` reads no configuration: leave out --config, --set, --print-config and \
             --check-config"
        );
        Err(Self::command_factory().error(ErrorKind::ArgumentConflict, message))
    }

    fn command_factory() -> clap::Command {
        <Self as CommandFactory>::command()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Command, clap::Error> {
        Cli::try_parse_from([&["shaper-svc"], args].concat())?.command()
    }

    fn config_of(args: &[&str]) -> ConfigArgs {
        match parse(args).unwrap() {
            Command::Run(config) | Command::Check(config) => config,
            other => panic!("{args:?} is {other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command_factory().debug_assert();
    }

    #[test]
    fn options_stand_before_a_command_or_behind_it() {
        let check = parse(&["--config", "f", "check"]).unwrap();
        assert!(matches!(check, Command::Check(_)), "{check:?}");
        assert!(matches!(parse(&[]).unwrap(), Command::Run(_)));
        for args in [
            &["--config", "f", "--set", "host=a", "check"][..],
            &["--config", "f", "check", "--set", "host=a"],
            &["--config", "g", "check", "--config", "f", "--set", "host=a"],
            &["--config", "f", "--set", "host=a"],
            &["--set", "host=a", "run", "--config", "f"],
        ] {
            let config = config_of(args);
            assert_eq!(config.config.unwrap().to_str(), Some("f"), "{args:?}");
            assert_eq!((config.set.len(), config.set[0].value.as_str()), (1, "a"));
        }
        let config = config_of(&[
            "--set",
            "host=a",
            "--print-config",
            "check",
            "--set",
            "host=b",
        ]);
        assert_eq!(config.set[1].value, "b", "the later one is laid over");
        assert!(config.print_config);
    }

    #[test]
    fn a_tool_that_reads_no_configuration_says_so() {
        let replay = ["replay", "in.pcap", "--rate", "1gbit", "--out", "o.pcap"];
        assert!(matches!(parse(&replay).unwrap(), Command::Replay(_)));
        let refused = parse(&[&["--config", "f"], &replay[..]].concat()).unwrap_err();
        assert_eq!(refused.exit_code(), 2);
        assert!(
            refused
                .to_string()
                .contains("`replay` reads no configuration")
        );
        assert!(parse(&["--set", "a=b", "bench"]).is_err());
    }
}

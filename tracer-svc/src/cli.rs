//! The command line of `tracer-svc`.

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use rdmesh_services::config::{self, ConfigArgs, Flag};

use crate::config::TracerConfig;
use crate::loader::price::Peer;
use crate::select::SelectArgs;

/// What `--help` says about exit codes; the README's table is the same.
pub const EXIT_CODES: &str = "\
Exit codes:
  0   ended as asked
  1   failed while running; the message says why
  2   wrong usage or configuration
  3   select --diff: fewer hooks are served than before
  69  the kernel has no BTF (CONFIG_DEBUG_INFO_BTF), or is older than 5.17
  70  the kernel's types or the embedded program cannot be used: report this
  71  the kernel refuses tracing programs: sandbox, security module or lockdown
  75  the kernel refuses memory for the ring or the counters
  77  not root, or a capability is missing

Without RDMA modules the tracer waits for them and attaches when they appear.
As a service without root it needs, in its systemd unit:
  AmbientCapabilities=CAP_SYS_ADMIN CAP_SYSLOG CAP_SYS_PTRACE";

/// A module as the kernel writes it. An empty name is refused: it is what a script without
/// its variable gives, and none at all means every module.
fn module_name(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("no name; name a module, or leave it out for all".to_owned()),
        name => Ok(name.replace('-', "_")),
    }
}

/// Records failing returns of the kernel's RDMA control path and reports them to
/// the collector.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "tracer-svc",
    version,
    after_help = config::help::<TracerConfig>(EXIT_CODES)
)]
pub struct Cli {
    /// Where snapshots go, HOST:PORT
    #[arg(long, global = true, value_name = "HOST:PORT")]
    pub collector: Option<String>,
    /// Where the tracer's own service listens, IP:PORT or unix:/path
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// The host's name as the scheduler knows it
    #[arg(long, global = true, value_name = "NAME")]
    pub host: Option<String>,
    /// Configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// What to do; `run` when nothing is said.
    #[command(subcommand)]
    pub command: Option<Command>,
}

impl Cli {
    /// Whether the options go together.
    ///
    /// # Errors
    /// A configuration is given to a command that reads none.
    pub fn check(&self) -> Result<(), clap::Error> {
        if !self.config.is_empty() && matches!(self.command, Some(Command::Select { .. })) {
            let message = "`select` reads no configuration: leave out --config, --set, \
                           --print-config and --check-config";
            return Err(Self::command().error(ErrorKind::ArgumentConflict, message));
        }
        Ok(())
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Trace and report to the collector (the default)
    Run(ConfigArgs),
    /// Attach to the running kernel, print which probes serve, and let go
    Probes {
        /// How to print
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
        /// Configuration.
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// Attach to the running kernel and print each failure until interrupted
    Watch {
        /// How to print
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
        /// Also failures that a rule marks as part of normal work
        #[arg(long)]
        expected: bool,
        /// Each record as the kernel gives it, before records become failures
        #[arg(long, conflicts_with_all = ["output", "expected"])]
        records: bool,
        /// Configuration.
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// Have the tracer of this host take its probes off a module, or off all, so
    /// that a driver can be reloaded
    Detach {
        /// Kernel module, such as mlx5_ib; all when none is named, or `all`
        #[arg(value_parser = module_name)]
        module: Option<String>,
        /// Configuration.
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// Have the tracer of this host put its probes on again, also after its budget
    /// was passed
    Attach {
        /// Kernel module; all when none is named, or `all`
        #[arg(value_parser = module_name)]
        module: Option<String>,
        /// Configuration.
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// For the bench: put one program on one function and hold it until a signal
    /// ends this program
    #[command(hide = true)]
    Price {
        /// MODULE:FUNCTION
        function: String,
        /// Which program
        #[arg(value_enum)]
        peer: Peer,
    },
    /// From module files: which functions are worth a hook, and why the others
    /// are not. Needs no right and no running kernel
    Select {
        /// From what.
        #[command(flatten)]
        from: SelectArgs,
        /// How to print
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Text,
    /// For programs; a line each where there are many
    Json,
}

impl Cli {
    /// Options of the configuration, from before the command and behind it.
    #[must_use]
    pub fn configuration(&self) -> ConfigArgs {
        let before = self.config.clone();
        match &self.command {
            Some(
                Command::Run(behind)
                | Command::Probes { config: behind, .. }
                | Command::Watch { config: behind, .. }
                | Command::Detach { config: behind, .. }
                | Command::Attach { config: behind, .. },
            ) => before.followed_by(behind.clone()),
            Some(Command::Select { .. } | Command::Price { .. }) | None => before,
        }
    }

    /// The named flags as options of the configuration.
    #[must_use]
    pub fn flags(&self) -> Vec<Flag> {
        let named = [
            Flag::optional("--collector", "uplink.collector", self.collector.as_ref()),
            Flag::optional("--listen", "server.listen", self.listen.as_ref()),
            Flag::optional("--host", "host", self.host.as_ref()),
        ];
        named.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_is_as_written() {
        insta::assert_snapshot!(Cli::command().render_long_help());
    }

    #[test]
    fn no_name_of_a_module_is_every_module_and_an_empty_one_is_a_mistake() {
        let module = |args: &[&str]| Cli::try_parse_from(args).map(|cli| cli.command);
        let detach = |module| {
            let config = ConfigArgs::default();
            Some(Command::Detach { module, config })
        };
        let all = detach(None);
        assert_eq!(module(&["tracer-svc", "detach"]).unwrap(), all);
        let named = detach(Some("mlx5_ib".to_owned()));
        assert_eq!(module(&["tracer-svc", "detach", "mlx5-ib"]).unwrap(), named);
        for order in ["detach", "attach"] {
            let error = module(&["tracer-svc", order, ""]).unwrap_err();
            assert!(
                error.to_string().contains("leave it out for all"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_configuration_is_not_given_to_what_reads_none() {
        let check = |args: &[&str]| Cli::try_parse_from(args).unwrap().check();
        let error = check(&["tracer-svc", "--set", "host=a", "select", "d"]).unwrap_err();
        assert!(
            error.to_string().contains("reads no configuration"),
            "{error}"
        );
        assert_eq!(error.exit_code(), 2);
        assert!(Cli::try_parse_from(["tracer-svc", "select", "d", "--config", "/c"]).is_err());
        assert!(check(&["tracer-svc", "select", "d"]).is_ok());
        assert!(check(&["tracer-svc", "--set", "host=a", "probes"]).is_ok());
    }

    #[test]
    fn options_of_the_configuration_may_stand_behind_the_command() {
        for command in ["run", "probes", "watch", "detach", "attach"] {
            let args = ["tracer-svc", "--set", "host=a", command, "--set", "host=b"];
            let config = Cli::parse_from(args).configuration();
            // The later one is in force.
            let both = ["host=a", "host=b"].map(|flag| flag.parse().unwrap());
            assert_eq!(config.set, both, "{command}");
        }
    }

    #[test]
    fn run_is_the_default_and_flags_reach_the_configuration() {
        let cli = Cli::parse_from(["tracer-svc", "--collector", "c:7400", "--host", "gpu-1"]);
        assert_eq!(cli.command, None);
        let keys: Vec<(String, String)> =
            cli.flags().into_iter().map(|f| (f.key, f.value)).collect();
        assert_eq!(
            keys,
            [
                ("uplink.collector".into(), "c:7400".into()),
                ("host".into(), "gpu-1".into())
            ]
        );
    }
}

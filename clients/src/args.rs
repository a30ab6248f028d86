//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, TypedValueParser};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint};
use rdmesh_client::links::TlsSettings;
use rdmesh_client::moment::{Moment, MomentError, parse_timeout};

use crate::command;
use crate::exit::CommandError;

const AFTER_HELP: &str = "\
Where the collector is, first that says so: --collector, RDMESH_COLLECTOR,
~/.config/rdmesh/cli.toml, /etc/rdmesh/cli.toml (collector = \"HOST:PORT\"),
127.0.0.1:7400. Your certificate: --tls-ca, --tls-certificate, --tls-key, or RDMESH_TLS_CA,
RDMESH_TLS_CERTIFICATE, RDMESH_TLS_KEY, or ca, certificate, key in [tls] of those files.

JSON: snake_case names as in the gRPC contract, enums in lower snake case, times
in RFC 3339 UTC; errors are an object on stderr.

Exit codes:
  0  the answer stands on stdout
  1  the collector failed or refused, a file could not be read, or the answer not written
  2  wrong usage, or the collector refuses a value
  3  the collector cannot tell what broke the job (diagnose), or has no advice
  4  the job, host, wire or baseline is not known
  5  no collector answers (with --shaper: no shaper; baseline: no tracer), or not in time
  6  the machine has a problem (doctor)

Example:
  rdmesh diagnose 4711";

/// Ask why jobs failed: which RDMA call, at which layer of the kernel, and whom
/// to call.
#[derive(Debug, Parser)]
#[command(name = "rdmesh", version, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Where the collector is: HOST:PORT or unix:/PATH
    #[arg(
        long,
        global = true,
        value_name = "ADDRESS",
        value_hint = ValueHint::Hostname,
        help_heading = "Global options"
    )]
    pub(crate) collector: Option<String>,
    /// Authorities that are believed (PEM); with the two below every link has TLS
    #[arg(long, global = true, value_name = "FILE", env = "RDMESH_TLS_CA", hide_env = true,
          value_hint = ValueHint::FilePath, help_heading = "Global options")]
    tls_ca: Option<PathBuf>,
    /// Your certificate (PEM), which says who you are
    #[arg(long, global = true, value_name = "FILE", env = "RDMESH_TLS_CERTIFICATE",
          hide_env = true, value_hint = ValueHint::FilePath, help_heading = "Global options")]
    tls_certificate: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, global = true, value_name = "FILE", env = "RDMESH_TLS_KEY", hide_env = true,
          value_hint = ValueHint::FilePath, help_heading = "Global options")]
    tls_key: Option<PathBuf>,
    /// Without a certificate, dial other machines all the same: whoever is on the way can read
    /// and change what passes
    #[arg(long, global = true, help_heading = "Global options")]
    insecure: bool,
    /// How the answer is written: for people, or as one document for programs; diagnose also
    /// writes a report for a ticket (md) or a page (html)
    #[arg(short, long, global = true, value_enum, default_value_t = Form::Text,
          help_heading = "Global options")]
    output: Form,
    /// When text is coloured; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN",
          help_heading = "Global options")]
    pub(crate) color: Color,
    /// How long one answer may take; 0.5, 500ms and 2m are read as well
    #[arg(long, global = true, value_name = "SECONDS", default_value = "15",
          value_parser = parse_timeout, help_heading = "Global options")]
    timeout: Duration,
}

impl Global {
    /// Who reads the answer; reports are for people.
    pub(crate) fn format(&self) -> Format {
        match self.output {
            Form::Json => Format::Json,
            Form::Text | Form::Md | Form::Html => Format::Text,
        }
    }

    /// The report that was asked for, if any.
    pub(crate) fn report(&self) -> Option<ReportForm> {
        match self.output {
            Form::Md => Some(ReportForm::Markdown),
            Form::Html => Some(ReportForm::Page),
            Form::Text | Form::Json => None,
        }
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// What flags and environment say of TLS.
    pub(crate) fn tls(&self) -> TlsSettings {
        TlsSettings {
            ca: self.tls_ca.clone(),
            certificate: self.tls_certificate.clone(),
            key: self.tls_key.clone(),
            insecure: self.insecure,
        }
    }
}

/// What -o takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Text,
    Json,
    Md,
    Html,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportForm {
    Markdown,
    Page,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say that jobs start, run somewhere and end; hand in their logs; list and show them
    #[command(subcommand)]
    Job(command::job::JobCommand),
    /// List the failures that hosts saw, newest first
    Failures(command::failures::FailuresArgs),
    /// Say what broke a job, at which layer, and whom to call
    Diagnose(command::diagnose::DiagnoseArgs),
    /// Say whether another attempt is worth it, and without which hosts
    AdviseRetry(command::advise_retry::AdviseRetryArgs),
    /// Show how often logs file under the network what the kernel shows to be another's
    Misattribution(command::statistics::MisattributionArgs),
    /// Show how many failing calls that logs tell a probe could show
    Coverage(command::statistics::CoverageArgs),
    /// Show how many failing calls have no other signal near them
    Silent(command::statistics::SilentArgs),
    /// Show the GPU hours of attempts that ended badly, by class
    LostHours(command::statistics::LostHoursArgs),
    /// Show each class's share over time, and which rises
    Classes(command::incidents::ClassesArgs),
    /// Show failures that many hosts have, and what those hosts share
    Incidents(command::incidents::IncidentsArgs),
    /// Show failures that had risen on a host before an attempt failed of them
    Precursors(command::incidents::PrecursorsArgs),
    /// Show which kernel functions a host watches, and why others not
    Probes(command::probes::ProbesArgs),
    /// Record what good calls do on a host, and say where failing ones leave them
    #[command(subcommand)]
    Baseline(command::baseline::BaselineCommand),
    /// Show every agent, the unhealthy first
    Fleet(command::fleet::FleetArgs),
    /// Look at this machine: is it fit for rdmesh, and what to do
    Doctor(command::doctor::DoctorArgs),
    /// List, watch, compare and change shaped wires
    #[command(subcommand)]
    Wire(command::wire::WireCommand),
    /// Say what a job's own log tells: each line's class, and which line decides
    ClassifyLog(command::classify_log::ClassifyLogArgs),
    /// Make a private authority, issue certificates for a site, and show them
    #[command(subcommand)]
    Certs(command::certs::CertsCommand),
    /// Write a completion script for a shell
    Completions(command::completions::CompletionsArgs),
}

/// The command as clap knows it, for completions.
pub(crate) fn grammar() -> clap::Command {
    Cli::command()
}

pub(crate) fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let matches = grammar().try_get_matches_from(arguments)?;
    Cli::from_arg_matches(&matches)
}

/// A text that a list is narrowed down by. An empty one comes from a script whose
/// variable is not set; everything is then not what it asked for.
pub(crate) fn filter() -> impl TypedValueParser<Value = String> {
    NonEmptyStringValueParser::new()
}

/// A time relative to this machine's clock.
pub(crate) fn moment(text: &str) -> Result<Moment, MomentError> {
    Moment::parse(text, Moment::now())
}

/// Refuses a stretch of time that ends before it begins.
pub(crate) fn check_order(
    since: Option<Moment>,
    until: Option<Moment>,
) -> Result<(), CommandError> {
    match (since, until) {
        (Some(since), Some(until)) if since > until => Err(CommandError::Usage(format!(
            "--since ({}) is later than --until ({}): nothing lies between; an age counts back from \
             now, so that 2h is earlier than 1h",
            since.to_seconds_text(),
            until.to_seconds_text()
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_of_time_begins_before_it_ends() {
        let at = |text| Some(moment(text).unwrap());
        assert!(check_order(at("2h"), at("1h")).is_ok());
        assert!(check_order(None, at("1h")).is_ok() && check_order(at("1h"), None).is_ok());
        let error = check_order(at("@7200"), at("@3600")).unwrap_err();
        assert_eq!(error.report().exit_code, 2);
        assert!(
            error
                .to_string()
                .starts_with("--since (1970-01-01 02:00:00Z) is later than --until"),
            "{error}"
        );
    }

    #[test]
    fn the_grammar_holds_together() {
        grammar().debug_assert();
    }

    /// Shells read some characters of a value's name as their own.
    #[test]
    fn value_names_are_plain_words() {
        fn check(command: &clap::Command) {
            for name in command.get_arguments().filter_map(|a| a.get_value_names()) {
                for name in name {
                    let plain = |c: char| c.is_ascii_alphanumeric() || "_=-/[]".contains(c);
                    assert!(name.chars().all(plain), "{}: {name}", command.get_name());
                }
            }
            command.get_subcommands().for_each(check);
        }
        check(&grammar());
    }

    #[test]
    fn an_empty_filter_is_refused() {
        let refused = [
            "failures --host=",
            "failures --device=",
            "failures --function=",
            "job list --user=",
            "job list --host=",
        ];
        for line in refused {
            let arguments = ["rdmesh"].into_iter().chain(line.split(' '));
            let arguments: Vec<OsString> = arguments.map(OsString::from).collect();
            assert!(parse(&arguments).is_err(), "{line}");
        }
        assert!(parse(&["rdmesh", "probes", ""].map(OsString::from)).is_err());
    }

    #[test]
    fn every_command_shows_an_example() {
        fn check(command: &clap::Command) {
            if command.get_subcommands().next().is_none() {
                let help = command
                    .get_after_help()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                assert!(
                    help.contains("rdmesh "),
                    "{} has no example",
                    command.get_name()
                );
            }
            command.get_subcommands().for_each(check);
        }
        check(&grammar());
    }
}

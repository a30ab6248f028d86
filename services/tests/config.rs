//! Configuration as an operator meets it: layers, precedence, messages.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;

use rdmesh_services::config::{
    Check, ConfigArgs, ConfigError, Flag, Invalid, SecretUrl, ServiceConfig, Validate,
    check_strict, load_from, to_toml,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
struct Example {
    host: String,
    snapshot: Snapshot,
    database: Database,
    telemetry: Telemetry,
}

#[derive(Debug, Serialize, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
struct Snapshot {
    interval_seconds: u32,
    probes: Vec<String>,
}

#[derive(Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
struct Database {
    url: SecretUrl,
}

#[derive(Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
struct Telemetry {
    log: String,
}

impl Default for Snapshot {
    fn default() -> Self {
        Self {
            interval_seconds: 5,
            probes: Vec::new(),
        }
    }
}

impl Validate for Example {
    fn validate(&self) -> Result<(), Invalid> {
        Check::section("snapshot", &self.snapshot)
    }
}

impl Validate for Snapshot {
    fn validate(&self) -> Result<(), Invalid> {
        Check::range("interval_seconds", self.interval_seconds, 1..=3600)
    }
}

impl ServiceConfig for Example {
    // No such file in /etc/rdmesh, so that the machine's own does not matter.
    const SERVICE: &'static str = "example-of-a-test";
}

/// A file in a directory of its own.
struct File {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

fn file(text: &str) -> File {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("example.toml");
    fs::write(&path, text).unwrap();
    File {
        _directory: directory,
        path,
    }
}

fn args(file: Option<&File>, set: &[&str]) -> ConfigArgs {
    ConfigArgs {
        config: file.map(|f| f.path.clone()),
        set: set.iter().map(|s| s.parse().unwrap()).collect(),
        ..ConfigArgs::default()
    }
}

fn environment(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn refused(file: Option<&File>, set: &[&str], env: &[(&str, &str)]) -> String {
    load_from::<Example>(&args(file, set), &[], environment(env))
        .unwrap_err()
        .to_string()
}

#[test]
fn without_anything_the_default_stands() {
    let config: Example = load_from(&args(None, &[]), &[], []).unwrap();
    assert_eq!(config, Example::default());
}

#[test]
fn flags_win_over_environment_over_file() {
    let file = file("host = \"file\"\n[snapshot]\ninterval_seconds = 10\nprobes = [\"a\"]\n");
    let env = environment(&[
        ("RDMESH_EXAMPLE_OF_A_TEST__HOST", "environment"),
        ("RDMESH_EXAMPLE_OF_A_TEST__SNAPSHOT__INTERVAL_SECONDS", "20"),
        ("RDMESH_OTHER__HOST", "not for us"),
        ("RDMESH_EXAMPLE_OF_A_TEST_PORT", "tcp://10.0.0.1:7400"),
    ]);
    let flags = [Flag::named("--interval", "snapshot.interval_seconds", 30)];
    let config: Example = load_from(&args(Some(&file), &[]), &flags, env).unwrap();
    assert_eq!(config.host, "environment");
    assert_eq!(config.snapshot.interval_seconds, 30);
    assert_eq!(config.snapshot.probes, ["a"]);
}

#[test]
fn a_section_keeps_the_defaults_of_its_service_for_what_it_does_not_set() {
    use rdmesh_services::server::ServerConfig;

    #[derive(Debug, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Service {
        server: ServerConfig,
    }
    impl Default for Service {
        fn default() -> Self {
            Self {
                server: ServerConfig::at(7401),
            }
        }
    }
    impl Validate for Service {
        fn validate(&self) -> Result<(), Invalid> {
            Check::section("server", &self.server)
        }
    }
    impl ServiceConfig for Service {
        const SERVICE: &'static str = "example-of-a-test";
    }
    assert_eq!(check_strict::<Service>(), Ok(()));
    let file = file("[server]\ngrace_seconds = 3\n");
    let config: Service = load_from(&args(Some(&file), &[]), &[], []).unwrap();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:7401");
    assert_eq!(config.server.grace_seconds, 3);
    let open = ["server.listen=0.0.0.0:7401"];
    let config: Service = load_from(&args(None, &open), &[], []).unwrap();
    assert!(config.server.allows_listen(true).is_ok(), "over TLS");
    let refused = config.server.allows_listen(false).unwrap_err();
    let message = refused.within("server").to_string();
    assert!(
        message.contains("`server.listen` is 0.0.0.0:7401"),
        "{message}"
    );
    assert!(message.contains("insecure_listen = true"), "{message}");
}

#[test]
fn a_text_option_takes_a_value_that_looks_like_a_number() {
    let config: Example = load_from(&args(None, &["host=17"]), &[], []).unwrap();
    assert_eq!(config.host, "17");
    let config: Example =
        load_from(&args(None, &["snapshot.probes=[\"x\", \"y\"]"]), &[], []).unwrap();
    assert_eq!(config.snapshot.probes, ["x", "y"]);
}

#[test]
fn the_log_variable_of_all_services_gives_way_to_the_narrower_one() {
    let env = environment(&[
        ("RDMESH_EXAMPLE_OF_A_TEST__TELEMETRY__LOG", "debug"),
        ("RDMESH_LOG", "warn"),
    ]);
    let config: Example = load_from(&args(None, &[]), &[], env).unwrap();
    assert_eq!(config.telemetry.log, "debug");
    let config: Example = load_from(
        &args(None, &[]),
        &[],
        environment(&[("RDMESH_LOG", "warn")]),
    )
    .unwrap();
    assert_eq!(config.telemetry.log, "warn");
}

#[test]
fn an_unknown_key_in_the_file_has_line_and_suggestion() {
    let file = file("host = \"a\"\n\n[snapshot]\ninterval_second = 5\n");
    let message = refused(Some(&file), &[], &[]);
    assert!(
        message.contains("example.toml:4: unknown field `interval_second`"),
        "{message}"
    );
    assert!(
        message.ends_with("did you mean `interval_seconds`?"),
        "{message}"
    );
}

#[test]
fn a_wrong_type_in_the_file_has_its_line() {
    let file = file("[snapshot]\ninterval_seconds = \"often\"\n");
    let message = refused(Some(&file), &[], &[]);
    assert!(
        message.contains("example.toml:2: invalid type"),
        "{message}"
    );
}

#[test]
fn a_file_that_is_not_toml_has_its_line() {
    let file = file("host = \"a\"\nsnapshot = = 3\n");
    let message = refused(Some(&file), &[], &[]);
    assert!(message.contains("example.toml:2: "), "{message}");
}

#[test]
fn unknown_variables_and_flags_name_themselves() {
    let message = refused(None, &[], &[("RDMESH_EXAMPLE_OF_A_TEST__HOSTS", "x")]);
    assert!(
        message.starts_with("RDMESH_EXAMPLE_OF_A_TEST__HOSTS: unknown field"),
        "{message}"
    );
    assert!(message.ends_with("did you mean `host`?"), "{message}");
    let message = refused(None, &["snapshot.probe=[]"], &[]);
    assert!(
        message.starts_with("--set snapshot.probe: unknown field"),
        "{message}"
    );
    let message = refused(None, &["host.name=x", "host=y"], &[]);
    assert!(message.starts_with("--set host.name: "), "{message}");
}

#[test]
fn a_value_out_of_range_is_refused() {
    let message = refused(None, &["snapshot.interval_seconds=0"], &[]);
    assert_eq!(
        message,
        "configuration: `snapshot.interval_seconds` is 0, which is not allowed: 1 to 3600"
    );
}

#[test]
fn a_named_file_must_exist() {
    let absent = ConfigArgs {
        config: Some("/nonexistent/x.toml".into()),
        ..Default::default()
    };
    let error = load_from::<Example>(&absent, &[], []).unwrap_err();
    assert!(matches!(error, ConfigError::Read { .. }));
    assert!(error.to_string().contains("/nonexistent/x.toml"));
}

#[test]
fn a_huge_file_is_refused() {
    let whole = file(&"#".repeat(1 << 20));
    load_from::<Example>(&args(Some(&whole), &[]), &[], []).unwrap();
    let huge = file(&"#".repeat((1 << 20) + 1));
    let error = load_from::<Example>(&args(Some(&huge), &[]), &[], []).unwrap_err();
    assert!(matches!(error, ConfigError::TooLarge { .. }), "{error}");
}

#[test]
fn regression_a_file_without_an_end_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let endless = directory.path().join("endless.toml");
    std::os::unix::fs::symlink("/dev/zero", &endless).unwrap();
    let named = ConfigArgs {
        config: Some(endless),
        ..Default::default()
    };
    let error = load_from::<Example>(&named, &[], []).unwrap_err();
    assert!(matches!(error, ConfigError::TooLarge { .. }), "{error}");
    let message = error.to_string();
    assert!(
        message.contains("endless.toml") && message.contains("1 MiB"),
        "{message}"
    );
}

#[test]
fn the_printed_configuration_can_be_read_again_and_shows_no_password() {
    let config: Example = load_from(
        &args(None, &["database.url=postgres://u:hunter2@h/db"]),
        &[],
        [],
    )
    .unwrap();
    let text = to_toml(&config).unwrap();
    assert!(text.contains("postgres://u:***@h/db"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    let again = file(&text);
    load_from::<Example>(&args(Some(&again), &[]), &[], []).unwrap();
}

#[test]
fn a_wrong_type_does_not_repeat_a_secret() {
    let file = file("[database]\nurl = 12345\n");
    let message = refused(Some(&file), &[], &[]);
    assert!(!message.contains("12345"), "{message}");
}

#[test]
fn strictness_is_proved_for_each_section() {
    #[derive(Debug, Default, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Loose {
        inner: Inner,
    }
    #[derive(Debug, Default, Serialize, Deserialize)]
    #[serde(default)]
    struct Inner {
        a: u32,
    }
    impl Validate for Loose {
        fn validate(&self) -> Result<(), Invalid> {
            Ok(())
        }
    }
    impl ServiceConfig for Loose {
        const SERVICE: &'static str = "loose";
    }
    assert_eq!(check_strict::<Example>(), Ok(()));
    assert!(
        check_strict::<Loose>()
            .unwrap_err()
            .contains("inner.no_such_option")
    );
}

#[test]
fn help_names_the_file_the_environment_and_the_exit_codes() {
    let help = rdmesh_services::config::help::<Example>("Exit codes:\n  0   ended as asked");
    for part in [
        "/etc/rdmesh/example-of-a-test.toml",
        "RDMESH_EXAMPLE_OF_A_TEST__SERVER__LISTEN",
        "-authority localhost",
        "Exit codes:\n  0",
    ] {
        assert!(help.contains(part), "{part} is not in:\n{help}");
    }
}

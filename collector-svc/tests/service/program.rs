//! The program itself: what it prints and how it exits.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_collector-svc"))
        .args(arguments)
        .env("RUST_BACKTRACE", "1")
        .output()
        .unwrap()
}

#[test]
fn bad_configuration_exits_with_2_and_one_line() {
    for arguments in [
        ["--set", "server.listne=127.0.0.1:7400"],
        ["--database-url", "mysql://h/db"],
        ["--listen", "0.0.0.0:7400"],
    ] {
        let output = run(&arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.starts_with("collector-svc: "), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn an_address_that_cannot_be_had_exits_with_1_and_says_what_to_do() {
    let output = run(&["--listen", "unix:/nonexistent/collector.sock"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("make the directory first"), "{text}");
}

#[test]
fn help_names_file_environment_and_exit_codes() {
    let output = run(&["--help"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "/etc/rdmesh/collector.toml",
        "RDMESH_COLLECTOR__SERVER__LISTEN",
        "Exit codes:",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
}

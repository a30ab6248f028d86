//! Runs the program and reads what it said.

use std::net::TcpListener;
use std::process::{Command, Output};

use crate::fake::Fake;

pub(crate) fn rdmesh(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdmesh"));
    // Nothing of the machine's own settings may decide.
    for name in [
        "RDMESH_COLLECTOR",
        "RDMESH_TLS_CA",
        "RDMESH_TLS_CERTIFICATE",
        "RDMESH_TLS_KEY",
        "NO_COLOR",
        "COLUMNS",
        "XDG_CONFIG_HOME",
    ] {
        command.env_remove(name);
    }
    command.env("HOME", "/nonexistent").args(arguments);
    command
}

pub(crate) fn ask(fake: &Fake, arguments: &[&str]) -> Output {
    let address = fake.address.clone();
    rdmesh(arguments)
        .env("RDMESH_COLLECTOR", address)
        .output()
        .unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// What was said on stderr, as one line.
pub(crate) fn words(output: &Output) -> String {
    let said = stderr(output);
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub(crate) fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// An address at which nothing listens.
pub(crate) fn closed_address() -> String {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string()
}

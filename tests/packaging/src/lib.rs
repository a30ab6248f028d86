//! Reads what a site installs (configuration files, systemd units, manifests) and asks the
//! built programs about it as an operator would, from outside. It never links a service: what
//! these tests hold is what the programs say, not what their sources mean.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

pub mod options;
pub mod unit;

/// The services, by their short names.
pub const SERVICES: [&str; 3] = ["collector", "shaper", "tracer"];

/// The repository's top folder.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// A file of the repository as text.
///
/// # Errors
/// The file cannot be read as UTF-8.
pub fn text(path: &str) -> Result<String> {
    let path = root().join(path);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// A program of the workspace: beside the running one, as cargo lays them.
///
/// # Errors
/// It is not built.
pub fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    // A test runs from `deps/` below the directory of the programs.
    for directory in own.ancestors().skip(1).take(2) {
        let path = directory.join(name);
        if path.is_file() {
            return Ok(path);
        }
    }
    bail!(
        "no {name} beside {}: build it first, by `make build`",
        own.display()
    )
}

/// Runs a service's program to its end, without variables that would set options.
///
/// # Errors
/// It is not built or cannot be started.
pub fn ask(service: &str, words: &[&str]) -> Result<Output> {
    let mut command = Command::new(program(&format!("{service}-svc"))?);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RDMESH_") {
            command.env_remove(name);
        }
    }
    Ok(command.args(words).output()?)
}

/// What a program wrote, when it ended well.
///
/// # Errors
/// It did not: with what it said.
pub fn said(output: &Output) -> Result<String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    bail!(
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    )
}

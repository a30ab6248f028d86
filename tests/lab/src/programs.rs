//! Where the programs under test are: beside the running one, as cargo lays them.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// The path of one of the workspace's programs, e.g. `tracer-svc`.
pub fn find(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    // A test runs from `deps/` below the directory of the programs.
    for directory in own.ancestors().skip(1).take(2) {
        let path = directory.join(name);
        if path.is_file() {
            return Ok(path);
        }
    }
    bail!(
        "no {name} beside {}: build it first, e.g. by `make build`",
        own.display()
    )
}

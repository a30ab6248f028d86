//! `tracer-svc select` run on a kernel of the matrix.

use anyhow::{Context, Result, ensure};
use rdmesh_lab::kernels::Image;
use rdmesh_lab::programs;
use serde::de::DeserializeOwned;
use std::process::Command;

/// Drivers of the matrix. Not every kernel has every driver.
pub(crate) const DRIVERS: [&str; 4] = ["mlx5_ib", "rdma_rxe", "irdma", "bnxt_re"];

/// What a test reads of the selection for a driver; none where the kernel lacks it.
pub(crate) fn select<T: DeserializeOwned>(image: &Image, driver: &str) -> Result<Option<T>> {
    let output = Command::new(programs::find("tracer-svc")?)
        .arg("select")
        .arg(&image.modules)
        .args(["--driver", driver, "--output", "json", "--kernel"])
        .arg(&image.vmlinuz)
        .output()
        .context("cannot start tracer-svc")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains(&format!("no module {driver};")) {
        return Ok(None);
    }
    ensure!(output.status.success(), "{driver}: {said}");
    Ok(Some(serde_json::from_slice(&output.stdout)?))
}

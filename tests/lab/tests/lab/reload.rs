//! A driver is reloaded by somebody who sits elsewhere: `rdmesh probes HOST --detach`
//! finds the tracer by the collector.

use anyhow::{Context, Result, ensure};
use rdmesh_guest::Command;
use rdmesh_lab::lab::{Lab, TracedHost};
use rdmesh_lab::until;
use rdmesh_proto::tracer::v1::ProbeState;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// What the command said, once it has ended well.
async fn ordered(lab: &Lab, arguments: &[&str]) -> Result<serde_json::Value> {
    let output = lab.rdmesh(arguments).await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {said}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

async fn attached(host: &TracedHost, module: &str) -> Result<usize> {
    let report = host.probe_report().await?;
    let of_module = report.probes.iter().filter(|p| p.module == module);
    Ok(of_module
        .filter(|p| p.state() == ProbeState::Attached)
        .count())
}

/// With mlx5_ib loaded and watched.
pub(crate) async fn from_afar(lab: &Lab, host: &TracedHost) -> Result<()> {
    let module = "mlx5_ib";
    // It was loaded a moment ago.
    until::holds("its probes", LIMIT, || async {
        Ok(attached(host, module).await? > 0)
    })
    .await?;
    let before = attached(host, module).await?;
    let order = ["probes", host.name(), "--detach", module, "-o", "json"];
    let done = ordered(lab, &order).await.context("detach")?;
    ensure!(
        done["detached"].as_u64() == Some(before as u64) && before > 0,
        "{before} probes were attached: {done}"
    );
    ensure!(attached(host, module).await? == 0);
    let name = || module.to_owned();
    host.done(Command::UnloadModule { name: name() }).await?;
    host.done(Command::LoadModule { name: name() }).await?;
    until::holds("probes of the reloaded module", LIMIT, || async {
        Ok(attached(host, module).await? == before)
    })
    .await?;
    // One that is not unloaded after all.
    ordered(lab, &order).await.context("detach again")?;
    let order = ["probes", host.name(), "--attach", module, "-o", "json"];
    let done = ordered(lab, &order).await.context("attach")?;
    ensure!(
        done["attached"].as_u64() == Some(before as u64),
        "{before} probes were to come back: {done}"
    );
    Ok(())
}

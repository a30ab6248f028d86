//! The shaper's figures, each beside its peer in the same run on the same machine.

use super::report::Figure;
use anyhow::{Context, Result, ensure};
use rdmesh_lab::programs;
use rdmesh_lab::progress::Progress;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use tokio::process::Command;

/// Where cargo runs the benches that are no part of a binary.
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Runs of each program, in turn, so that a slow minute of the machine meets all.
const RUNS: usize = 3;

/// A figure, the line that its peer writes, and what the peer is.
struct Reported {
    name: &'static str,
    peer: Option<(&'static str, &'static str)>,
}

const fn reported(name: &'static str) -> Reported {
    Reported { name, peer: None }
}

const fn beside(name: &'static str, line: &'static str, peer: &'static str) -> Reported {
    Reported {
        name,
        peer: Some((line, peer)),
    }
}

const RTE_SCHED: &str = "rte_sched";
const DEVICES: &str = "net_null devices alone";

/// What the report holds. One queue of `rte_sched` holds 32,768 frames at the most, so
/// it cannot do the job of `deep.k1`: 200,000 frames of one key.
const REPORTED: [Reported; 15] = [
    beside(
        "shaper.engine.k1.ns",
        "shaper.engine.k1.rte_sched.ns",
        RTE_SCHED,
    ),
    beside(
        "shaper.engine.k64.ns",
        "shaper.engine.k64.rte_sched.ns",
        RTE_SCHED,
    ),
    beside(
        "shaper.engine.k200.ns",
        "shaper.engine.k200.rte_sched.ns",
        RTE_SCHED,
    ),
    reported("shaper.engine.deep.k1.ns"),
    beside(
        "shaper.engine.deep.k64.ns",
        "shaper.engine.deep.k64.rte_sched.ns",
        RTE_SCHED,
    ),
    beside("shaper.null.mpps", "shaper.null.devices.mpps", DEVICES),
    beside(
        "shaper.null.roce64.mpps",
        "shaper.null.devices.mpps",
        DEVICES,
    ),
    reported("shaper.null.devices.mpps"),
    beside(
        "shaper.frames_ahead.median",
        "shaper.frames_ahead.htb.median",
        "tc htb",
    ),
    beside(
        "shaper.frames_ahead.any_stretch.median",
        "shaper.frames_ahead.htb.any_stretch.median",
        "tc htb",
    ),
    reported("shaper.frames_ahead.htb.median"),
    reported("shaper.frames_ahead.tbf.median"),
    reported("shaper.frames_ahead.tbf.any_stretch.median"),
    reported("shaper.tcp_goodput.fraction"),
    reported("shaper.rate_change.ms"),
];

/// One line of a bench.
#[derive(Debug, Deserialize)]
struct Line {
    name: String,
    value: f64,
    unit: String,
}

/// All values of a name, and its unit.
type Lines = BTreeMap<String, (Vec<f64>, String)>;

pub(super) async fn figures() -> Result<Vec<Figure>> {
    let shaper = programs::find("shaper-svc")?;
    let mut lines = Lines::new();
    let step = Progress::Lines.step("measuring the shaper's engine beside rte_sched");
    for _ in 0..RUNS {
        for only in ["shaper.engine.", "shaper.null."] {
            let mut bench = Command::new(&shaper);
            collect(bench.args(["bench", "--only", only]), &mut lines).await?;
        }
        let sched = [
            "-p",
            "rdmesh-dpdk-sys",
            "--features",
            "bench-sched",
            "--bench",
            "sched",
        ];
        collect(&mut cargo_bench(&shaper, &sched), &mut lines).await?;
    }
    step.done();
    let step = Progress::Lines.step("measuring real traffic between namespaces (needs root)");
    let veth = ["-p", "rdmesh-shaper", "--bench", "veth"];
    collect(&mut cargo_bench(&shaper, &veth), &mut lines).await?;
    step.done();
    REPORTED
        .iter()
        .map(|reported| figure(reported, &lines))
        .collect()
}

fn cargo_bench(shaper: &Path, args: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["bench", "--quiet", "--locked"])
        .args(args)
        .current_dir(WORKSPACE);
    // The directory that this program was built into.
    if let Some(target) = shaper.ancestors().nth(2) {
        cargo.env("CARGO_TARGET_DIR", target);
    }
    cargo
}

/// Runs a bench and adds its lines.
async fn collect(bench: &mut Command, lines: &mut Lines) -> Result<()> {
    let output = bench
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("cannot run {:?}", bench.as_std()))?;
    ensure!(
        output.status.success(),
        "{:?} failed: {}",
        bench.as_std(),
        String::from_utf8_lossy(&output.stderr)
    );
    let said = String::from_utf8(output.stdout).context("a bench writes text")?;
    for line in said.lines().filter(|line| line.starts_with('{')) {
        let line: Line = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let entry = lines.entry(line.name);
        entry
            .or_insert_with(|| (Vec::new(), line.unit))
            .0
            .push(line.value);
    }
    Ok(())
}

fn figure(reported: &Reported, lines: &Lines) -> Result<Figure> {
    let (value, unit) = median(reported.name, lines)?;
    let figure = Figure::new(reported.name, value, unit);
    Ok(match reported.peer {
        Some((line, peer)) => figure.beside(peer, median(line, lines)?.0),
        None => figure,
    })
}

fn median<'a>(name: &str, lines: &'a Lines) -> Result<(f64, &'a str)> {
    let (values, unit) = lines
        .get(name)
        .with_context(|| format!("nothing measured {name}"))?;
    let mut values = values.clone();
    values.sort_by(f64::total_cmp);
    let middle = values.get(values.len() / 2).context("no value")?;
    Ok((*middle, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_median_beside_that_of_its_peer() {
        let mut lines = Lines::new();
        for (name, values) in [("a", [3.0, 1.0, 2.0]), ("b", [40.0, 20.0, 30.0])] {
            lines.insert(name.to_owned(), (values.to_vec(), "ns".to_owned()));
        }
        let found = figure(&beside("a", "b", "B"), &lines).expect("both are there");
        assert_eq!((found.value, found.unit.as_str()), (2.0, "ns"));
        assert_eq!(
            (found.peer.as_deref(), found.peer_value),
            (Some("B"), Some(30.0))
        );
        let missing = figure(&beside("a", "c", "C"), &lines).expect_err("no c");
        assert!(missing.to_string().contains("measured c"), "{missing}");
    }
}

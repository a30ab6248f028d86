//! Which hooks are attached, how and to what, with every driver that the kernel has
//! loaded: no hardware is needed for that. A hook that is missing says why.

use anyhow::{Context, Result, ensure};
use rdmesh_guest::{Command, Exec};
use rdmesh_lab::host::Host;
use rdmesh_lab::kernels::{self, Kernel};
use rdmesh_lab::progress::Progress;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use crate::selection::{DRIVERS, select};

const LIMIT: Duration = Duration::from_secs(120);

/// Drivers of Debian's kernels beside soft-RoCE. bnxt_re and mana_ib came to its
/// configuration with 6.12.
pub(crate) fn vendors(kernel: Kernel) -> &'static [&'static str] {
    match kernel {
        Kernel::V6_1 => &["mlx5_ib", "irdma"],
        Kernel::V6_12 | Kernel::V7_3 => &["mlx5_ib", "irdma", "bnxt_re", "mana_ib"],
    }
}

/// Of `tracer-svc probes --output json`.
#[derive(Debug, Deserialize)]
struct Told {
    probes: Vec<Row>,
    logical_attached: u32,
    logical_total: u32,
}

#[derive(Debug, Deserialize)]
struct Row {
    hook: String,
    function: String,
    module: String,
    layer: String,
    logical: bool,
    state: String,
    attached_by: String,
    reason: String,
}

/// As on a kernel that the catalogue was not checked on.
pub(crate) async fn by_rules(host: &Host) -> Result<()> {
    let always = "probes.by_rules=always";
    let argv = ["--set", always, "probes", "--output", "json"];
    let argv = [&["/usr/bin/tracer-svc"][..], &argv].concat();
    let told = host.exec(&argv).await?.stdout.to_lossy();
    let told: serde_json::Value = serde_json::from_str(&told)?;
    let resolution = told["resolution"].as_str().context("no resolution")?;
    println!("{resolution}");
    ensure!(
        resolution.contains("; with rdma_rxe the rules ") && !resolution.contains("could not"),
        "{resolution}"
    );
    Ok(())
}

async fn probes(host: &Host) -> Result<Told> {
    let argv = ["/usr/bin/tracer-svc", "probes", "--output", "json"];
    let exec = Exec {
        argv: argv.map(str::to_owned).to_vec(),
        ..Exec::default()
    };
    let exit = host.run(exec, LIMIT).await?;
    ensure!(exit.code == Some(0), "{}", exit.stderr.to_lossy());
    Ok(serde_json::from_str(&exit.stdout.to_lossy())?)
}

/// The logical hooks that one driver and the modules above it serve.
fn served(told: &Told, driver: &str) -> BTreeSet<String> {
    let counts = |row: &&Row| {
        let of_driver = ["ib_core", "ib_uverbs", driver].contains(&row.module.as_str());
        row.logical && row.state == "attached" && of_driver
    };
    let rows = told.probes.iter().filter(counts);
    rows.map(|row| row.hook.clone()).collect()
}

/// Soft-RoCE has no dmabuf operation: one hook fewer, and the report says why.
pub(crate) async fn to_rxe_alone(host: &Host) -> Result<()> {
    let told = probes(host).await?;
    ensure!(
        (told.logical_attached, told.logical_total) == (12, 13),
        "{}",
        table(&told)
    );
    let served = served(&told, "rdma_rxe");
    let unserved = |row: &&Row| row.logical && !served.contains(&row.hook);
    for row in told.probes.iter().filter(unserved) {
        ensure!(
            row.hook == "driver.reg_dmabuf_mr"
                && row.reason == "driver rdma_rxe has no operation reg_user_mr_dmabuf",
            "{} is not served: {}",
            row.hook,
            row.reason
        );
    }
    Ok(())
}

/// Loads every driver and looks what is attached.
pub(crate) async fn to_every_driver(host: &Host, kernel: Kernel) -> Result<()> {
    let drivers = vendors(kernel);
    for driver in drivers {
        let name = (*driver).to_owned();
        host.done(Command::LoadModule { name }).await?;
    }
    let told = probes(host).await?;
    let table = table(&told);
    println!("{table}");
    ensure!(
        (told.logical_attached, told.logical_total) == (13, 13),
        "{} of {} logical hooks",
        told.logical_attached,
        told.logical_total
    );
    let of_mlx5 = served(&told, "mlx5_ib");
    ensure!(of_mlx5.len() == 13, "with mlx5_ib alone: {of_mlx5:?}");
    for driver in drivers.iter().copied().chain(["rdma_rxe"]) {
        no_silence(&told, driver)?;
    }
    what_is_chosen(&told, kernel, drivers)?;
    insta::assert_snapshot!(format!("attached_{}", kernel.series()), table);
    Ok(())
}

/// Of `tracer-svc select --output json`.
#[derive(Debug, Deserialize)]
struct Chosen {
    modules: Vec<Module>,
    hooks: Vec<ChosenHook>,
}

#[derive(Debug, Deserialize)]
struct Module {
    module: String,
}

#[derive(Debug, Deserialize)]
struct ChosenHook {
    hook: String,
    functions: Vec<String>,
}

/// The catalogue is what the rules choose on this kernel: each chosen function is
/// attached to, under the same name of a hook, and no other is. Asynchronous events are
/// no failing calls, and nothing that the rules look for.
fn what_is_chosen(told: &Told, kernel: Kernel, drivers: &[&str]) -> Result<()> {
    let image = kernels::fetch(kernel, Progress::Lines)?;
    let mut modules = BTreeSet::new();
    let mut chosen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for driver in DRIVERS {
        if driver != "rdma_rxe" && !drivers.contains(&driver) {
            continue;
        }
        let selection: Chosen = select(&image, driver)?.context(driver)?;
        modules.extend(selection.modules.into_iter().map(|m| m.module));
        for hook in selection.hooks {
            for function in hook.functions {
                chosen
                    .entry(function)
                    .or_default()
                    .insert(hook.hook.clone());
            }
        }
    }
    ensure!(chosen.len() > 50, "{chosen:?}");
    let counts = |row: &&Row| {
        row.state == "attached" && row.hook != "async.event" && modules.contains(&row.module)
    };
    let mut unhooked = chosen.clone();
    for row in told.probes.iter().filter(counts) {
        let function = format!("{}:{}", row.module, row.function);
        // A method that serves two verbs has one hook of them.
        let hooks = chosen.get(&function);
        ensure!(
            hooks.is_some_and(|hooks| hooks.contains(&row.hook)),
            "{} is attached to {function}, which is chosen as {hooks:?}",
            row.hook
        );
        unhooked.remove(&function);
    }
    ensure!(
        unhooked.is_empty(),
        "chosen and not attached to: {unhooked:#?}"
    );
    Ok(())
}

/// Each logical hook of the driver's layer is attached in it or says why it is not.
fn no_silence(told: &Told, driver: &str) -> Result<()> {
    let of_layer = |r: &&Row| r.logical && r.layer == "driver";
    for hook in told.probes.iter().filter(of_layer).map(|r| &r.hook) {
        let told = told.probes.iter().any(|row| {
            let attached = row.state == "attached" && row.module == driver;
            row.hook == *hook && (attached || row.reason.contains(driver))
        });
        ensure!(told, "{hook} of {driver} is missing and nothing says why");
    }
    Ok(())
}

fn table(told: &Told) -> String {
    let mut out = format!(
        "{} of {} logical hooks\n",
        told.logical_attached, told.logical_total
    );
    for row in &told.probes {
        let line = format!(
            "{}{} {} {} {}:{} {}",
            row.hook,
            if row.logical { "" } else { " +" },
            row.state,
            row.attached_by,
            row.module,
            row.function,
            row.reason
        );
        let words: Vec<&str> = line.split_whitespace().collect();
        let _ = writeln!(out, "{}", words.join(" "));
    }
    out
}

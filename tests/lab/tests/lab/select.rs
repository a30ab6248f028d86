//! `tracer-svc select` on stock Debian kernels of both processors: the funnel and
//! the chosen hooks are held, and what the shipped catalogue hooks is what the
//! rules choose. docs/probe-selection.md explains the figures.

use anyhow::{Context, Result, ensure};
use rdmesh_lab::kernels::{self, Image, Kernel, Machine};
use rdmesh_lab::programs;
use rdmesh_lab::progress::Progress;
use serde::Deserialize;
use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::selection::{DRIVERS, select};

/// Longest time of a selection. It takes one to three seconds, most of it for
/// unpacking the kernel; the machine may have other work.
const LIMIT: Duration = Duration::from_secs(60);

/// How far counts may move with a kernel of the same series, in percent: a stable
/// update changes a few functions.
const COUNT_TOLERANCE_PERCENT: usize = 5;

#[derive(Debug, Deserialize)]
struct Selection {
    release: String,
    arch: String,
    driver: String,
    funnel: Funnel,
    verbs: Vec<Verb>,
    hooks: Vec<Hook>,
    functions: Vec<Function>,
}

#[derive(Debug, Deserialize)]
struct Funnel {
    all: usize,
    traceable: usize,
    reachable: usize,
    after_read_only: usize,
    after_generic: usize,
    after_clean_up: usize,
    kept: usize,
    chosen: usize,
}

#[derive(Debug, Deserialize)]
struct Verb {
    verb: String,
    near: usize,
    kept: usize,
}

#[derive(Debug, Deserialize)]
struct Hook {
    hook: String,
    group: String,
    functions: Vec<String>,
    how: String,
    #[serde(default)]
    missing: String,
}

#[derive(Debug, Deserialize)]
struct Function {
    function: String,
    module: String,
    verdict: String,
    why: String,
}

/// What a golden holds: hooks exactly, counts rounded to what an update of the
/// same series leaves alone.
fn golden(selection: &Selection) -> Result<String> {
    let mut out = String::new();
    for hook in &selection.hooks {
        let served = if hook.functions.is_empty() {
            &hook.missing
        } else {
            &hook.functions.join(" ")
        };
        writeln!(
            out,
            "{:<21} {:<14} {:<9} {served}",
            hook.hook, hook.group, hook.how
        )?;
    }
    Ok(out)
}

/// Counts of one selection: all, traceable, reached, after each rule, chosen, and
/// of modify_qp those near the entry point and those kept.
fn counts(selection: &Selection) -> Vec<usize> {
    let f = &selection.funnel;
    let modify = selection.verbs.iter().find(|v| v.verb == "modify_qp");
    vec![
        f.all,
        f.traceable,
        f.reachable,
        f.after_read_only,
        f.after_generic,
        f.after_clean_up,
        f.kept,
        f.chosen,
        modify.map_or(0, |v| v.near),
        modify.map_or(0, |v| v.kept),
    ]
}

/// The counts that docs/probe-selection.md tells, from its table.
fn documented(selection: &Selection, series: &str) -> Result<Vec<usize>> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/probe-selection.md");
    let text = std::fs::read_to_string(page).context(page)?;
    let start = format!("| {series} | {} | {} |", selection.arch, selection.driver);
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
    let line = line.with_context(|| format!("docs/probe-selection.md has no row `{start}`"))?;
    let cells = line
        .split('|')
        .map(str::trim)
        .filter(|cell| !cell.is_empty());
    cells
        .map(|cell| cell.parse().with_context(|| format!("{start} {cell}")))
        .collect()
}

fn check_counts(selection: &Selection, series: &str) -> Result<()> {
    let (found, wanted) = (counts(selection), documented(selection, series)?);
    ensure!(
        found.len() == wanted.len(),
        "{found:?}, documented {wanted:?}"
    );
    for (found_one, wanted_one) in found.iter().zip(&wanted) {
        // At least three: five percent of a small count is nothing.
        let slack = (wanted_one * COUNT_TOLERANCE_PERCENT / 100).max(3);
        ensure!(
            found_one.abs_diff(*wanted_one) <= slack,
            "{} {}: {found:?}, documented {wanted:?}",
            selection.release,
            selection.driver
        );
    }
    let falling = found[..8].windows(2).all(|pair| pair[0] >= pair[1]);
    ensure!(falling, "the funnel widens: {found:?}");
    Ok(())
}

fn check(selection: &Selection) -> Result<()> {
    let served = |hook: &&Hook| hook.missing.is_empty();
    let layer = |name: &str| {
        let mut hooks = selection.hooks.iter().filter(served);
        hooks.any(|hook| hook.hook.starts_with(name))
    };
    ensure!(
        layer("uverbs.") && layer("driver."),
        "no hook in one of the two layers"
    );
    let thirteen = selection.hooks.iter().filter(|h| h.group == "thirteen");
    let (served, missing): (Vec<_>, Vec<_>) = thirteen.partition(served);
    ensure!(served.len() + missing.len() == 13);
    let wanted = if selection.driver == "mlx5_ib" {
        13
    } else {
        11
    };
    ensure!(
        served.len() >= wanted,
        "{}: missing {missing:?}",
        selection.driver
    );
    for function in &selection.functions {
        ensure!(
            !function.why.is_empty(),
            "{} has no reason",
            function.function
        );
        let known = ["chosen", "kept", "removed"].contains(&function.verdict.as_str());
        ensure!(known, "{}:{}", function.module, function.function);
    }
    Ok(())
}

/// `tracer-svc/src/catalogue/hooks.toml`, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Catalogue {
    hook: Vec<CatalogueHook>,
}

#[derive(Debug, Deserialize)]
struct CatalogueHook {
    group: String,
    #[serde(default)]
    places: Vec<Place>,
    operation: Option<String>,
    user_operation: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Place {
    module: String,
    function: String,
}

fn catalogue() -> Result<Catalogue> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tracer-svc/src/catalogue/hooks.toml"
    );
    Ok(toml::from_str(
        &std::fs::read_to_string(path).context(path)?,
    )?)
}

#[test]
fn the_shipped_catalogue_is_what_the_rules_choose() -> Result<()> {
    let catalogue = catalogue()?;
    let hooks = || {
        catalogue
            .hook
            .iter()
            .filter(|hook| hook.group != "async_event")
    };
    let operations: Vec<&String> = hooks()
        .flat_map(|hook| [&hook.operation, &hook.user_operation])
        .flatten()
        .collect();
    for kernel in Kernel::ALL {
        let image = kernels::fetch(kernel, Progress::Lines)?;
        let selection = selected(&image, "mlx5_ib")?.context("mlx5_ib is everywhere")?;
        for place in hooks().flat_map(|hook| &hook.places) {
            let found = selection
                .functions
                .iter()
                .find(|f| f.module == place.module && f.function == place.function);
            ensure!(
                found.is_none_or(|f| f.verdict != "removed"),
                "{}: the catalogue hooks {found:?}",
                selection.release
            );
        }
        let thirteen = selection.hooks.iter().filter(|h| h.group == "thirteen");
        for hook in thirteen {
            let served = hook.functions.iter().any(|function| {
                let by_name = hooks()
                    .flat_map(|h| &h.places)
                    .any(|p| *function == format!("{}:{}", p.module, p.function));
                // `mlx5_ib:mlx5_ib_create_qp` is `create_qp` of the driver.
                let by_operation = operations
                    .iter()
                    .any(|o| *function == format!("mlx5_ib:mlx5_ib_{o}"));
                by_name || by_operation
            });
            ensure!(
                served,
                "{}: {hook:?} is not in the catalogue",
                selection.release
            );
        }
    }
    Ok(())
}

/// The selection, within its time.
fn selected(image: &Image, driver: &str) -> Result<Option<Selection>> {
    let started = Instant::now();
    let selection = select(image, driver)?;
    ensure!(
        started.elapsed() < LIMIT,
        "{driver}: {:?}",
        started.elapsed()
    );
    Ok(selection)
}

fn on(machine: Machine) -> Result<()> {
    let mut seen = 0;
    for kernel in Kernel::ALL {
        let image = kernels::fetch_for(kernel, machine, Progress::Lines)?;
        for driver in DRIVERS {
            let Some(selection) = selected(&image, driver)? else {
                continue;
            };
            check(&selection).with_context(|| selection.release.clone())?;
            check_counts(&selection, kernel.series())?;
            let name = format!("{}_{}_{driver}", machine.debian(), kernel.series());
            insta::assert_snapshot!(name, golden(&selection)?);
            seen += 1;
        }
    }
    // bnxt_re came to Debian's configuration with 6.12.
    ensure!(seen >= 11, "{seen} selections");
    Ok(())
}

#[test]
fn hooks_are_chosen_on_each_kernel_for_x86() -> Result<()> {
    on(Machine::Amd64)
}

#[test]
fn hooks_are_chosen_on_each_kernel_for_arm64() -> Result<()> {
    on(Machine::Arm64)
}

/// `tracer-svc select … | head -1` is no failure.
#[test]
fn a_reader_that_has_read_enough_is_no_failure() -> Result<()> {
    let image = kernels::fetch(Kernel::V6_12, Progress::Quiet)?;
    let (reader, writer) = std::io::pipe()?;
    let tracer = Command::new(programs::find("tracer-svc")?)
        .arg("select")
        .arg(&image.modules)
        .args(["--all", "--kernel"])
        .arg(&image.vmlinuz)
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()?;
    drop(reader);
    let ended = tracer.wait_with_output()?;
    let said = String::from_utf8_lossy(&ended.stderr);
    ensure!(
        ended.status.success() && said.is_empty(),
        "{}: {said}",
        ended.status
    );
    Ok(())
}

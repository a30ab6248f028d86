//! A storm of failing calls for twenty seconds and more, as many as the machine makes: every
//! total is exact, the tracer's memory does not grow, and what the ring lost is counted
//! for each probe.
//!
//! "100,000 failures a second", which a GPU host can make, are scaled to the emulated
//! processor: the same storm without a probe says what that one can make.

use super::report::Figure;
use anyhow::{Context, Result, ensure};
use rdmesh_lab::chains;
use rdmesh_lab::lab::{Lab, Task, TracedHost};
use rdmesh_lab::progress::Progress;
use rdmesh_lab::until;
use rdmesh_lab::verbs::{Report, Verbs};
use serde::Deserialize;
use std::time::{Duration, Instant};

/// "Sustained for 10 s", behind 10 s in which two snapshots leave, so that everything has
/// its size.
const STORM: Duration = Duration::from_secs(20);
/// Calls that tell how many make up so long a storm.
const TRIAL: u64 = 20_000;
/// The emulated host has two processors.
const THREADS: u32 = 2;
/// How often the tracer's memory is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Growth from the first half on that is none: pages of an allocator.
const FLAT_KIB: u64 = 1024;
const LIMIT: Duration = Duration::from_secs(300);

const JOB: &str = "bench-storm";

/// How long a storm of so many calls took, by the guest's clock.
async fn storm(host: &TracedHost, job: &str, calls: u64) -> Result<Duration> {
    let exec = Verbs::new("storm").count(calls).threads(THREADS).exec();
    let report = Report::parse(&host.run_task(&Task::of(job), exec, LIMIT).await?)?;
    ensure!(report.failed() == calls, "{report:?}");
    let (first, last) = (report.first_failure_ns, report.last_failure_ns);
    let took = last.context("no failure")? - first.context("no failure")?;
    Ok(Duration::from_nanos(took))
}

fn per_second(calls: u64, took: Duration) -> f64 {
    calls as f64 / took.as_secs_f64()
}

#[derive(Debug, Deserialize)]
struct Count {
    count: u64,
}

/// Of one function, since its tracer began.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    failures: u64,
    drops: u64,
    unseen: u64,
}

async fn told(host: &TracedHost, function: &str) -> Result<Told> {
    let report = host.probe_report().await?;
    let probe = report.probes.into_iter().find(|p| p.function == function);
    let probe = probe.with_context(|| format!("no probe on {function}"))?;
    Ok(Told {
        failures: probe.failures,
        drops: probe.drops,
        unseen: probe.unseen,
    })
}

/// Once the counters were read after the storm: every call is counted, or was hidden by
/// the kernel and is counted as that.
async fn whole(host: &TracedHost, function: &str, before: Told, calls: u64) -> Result<Told> {
    until::some(&format!("the whole storm at {function}"), LIMIT, || async {
        let after = told(host, function).await?;
        let (failures, unseen) = (
            after.failures - before.failures,
            after.unseen - before.unseen,
        );
        ensure!(
            failures + unseen <= calls,
            "{function}: {failures} counted and {unseen} hidden of {calls}"
        );
        Ok((failures + unseen == calls).then_some(after))
    })
    .await
}

/// Resident set while `work` runs: the largest of the first half, and the largest, KiB.
async fn watching<T>(
    host: &TracedHost,
    work: impl Future<Output = Result<T>>,
) -> Result<(T, u64, u64)> {
    let mut seen = vec![host.tracer_stat().await?.rss_kb];
    tokio::pin!(work);
    let done = loop {
        tokio::select! {
            done = &mut work => break done?,
            () = tokio::time::sleep(LOOK_EVERY) => seen.push(host.tracer_stat().await?.rss_kb),
        }
    };
    let most = |part: &[u64]| part.iter().copied().max().unwrap_or_default();
    Ok((done, most(&seen[..seen.len().div_ceil(2)]), most(&seen)))
}

pub(super) async fn figures(lab: &Lab, host: &TracedHost) -> Result<Vec<Figure>> {
    let step = Progress::Lines.step("making a storm without probes, and one with them");
    // Tables and buffers reach their size.
    let trial = storm(host, "bench-trial", TRIAL).await?;
    // Letting go reads all counters, which are kept.
    host.exec(&["/usr/bin/tracer-svc", "detach"]).await?;
    let bare = per_second(TRIAL, storm(host, "bench-bare", TRIAL).await?);
    let functions = [
        chains::umem(super::KERNEL),
        "rxe_reg_user_mr",
        "ib_uverbs_reg_mr",
    ];
    let mut before = Vec::new();
    for function in functions {
        before.push(told(host, function).await?);
    }
    host.exec(&["/usr/bin/tracer-svc", "attach"]).await?;
    // A quarter more than the trial's pace says.
    let calls = u128::from(TRIAL) * STORM.as_millis() * 5 / 4 / trial.as_millis().max(1);
    let calls = u64::try_from(calls)?;
    let started = Instant::now();
    let (took, rss_before, rss_most) = watching(host, storm(host, JOB, calls)).await?;
    ensure!(
        took >= STORM,
        "the storm ended after {:.1} s",
        took.as_secs_f64()
    );
    let mut dropped = 0;
    for (function, before) in functions.into_iter().zip(before) {
        let after = whole(host, function, before, calls).await?;
        dropped += after.drops - before.drops;
        in_sql(lab, function, after.failures - before.failures).await?;
    }
    ensure!(
        rss_most <= rss_before + FLAT_KIB,
        "the tracer grew from {rss_before} to {rss_most} KiB within {} s",
        started.elapsed().as_secs()
    );
    step.done();
    let records = calls as f64 * functions.len() as f64;
    let growth = rss_most.saturating_sub(rss_before) as f64 * 1024.0 / 1e6;
    Ok(vec![
        Figure::new("tracer.storm.calls_per_s", per_second(calls, took), "1/s")
            .beside("without a probe", bare),
        Figure::new("tracer.storm.seconds", took.as_secs_f64(), "s"),
        Figure::new(
            "tracer.storm.dropped_percent",
            100.0 * dropped as f64 / records,
            "%",
        ),
        Figure::new("tracer.storm.rss_growth_mb", growth, "MB"),
    ])
}

/// The job's total of a function is what the probe counted.
async fn in_sql(lab: &Lab, function: &str, failures: u64) -> Result<()> {
    let query = format!(
        "SELECT coalesce(sum(count), 0)::bigint AS count FROM rdmesh.failure_totals \
         WHERE job_id = '{JOB}' AND function = '{function}'"
    );
    until::holds("the storm's total in SQL", LIMIT, || async {
        let Count { count } = lab.sql().row(&query).await?;
        ensure!(count <= failures, "{function}: {count} of {failures}");
        Ok(count == failures)
    })
    .await
}

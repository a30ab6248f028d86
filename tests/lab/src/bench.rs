//! `rdmesh-lab bench`: figures from a real run, written to `target/bench/report.json`.

mod insns;
mod report;
mod shaper;
mod store;
mod storm;

use anyhow::{Result, ensure};
use rdmesh_lab::kernels::Kernel;
use rdmesh_lab::lab::{Lab, TracedHost};
use rdmesh_lab::latency;
use rdmesh_lab::programs;
use rdmesh_lab::progress::Progress;
use report::Figure;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};
use tokio::process::Command;

const KERNEL: Kernel = Kernel::V6_12;

/// "Resident memory under 20 MB sixty seconds after attach."
const RSS_AFTER: Duration = Duration::from_secs(60);

/// How long the idle tracer's context switches are counted: four snapshots.
const IDLE_WINDOW: Duration = Duration::from_secs(20);

/// A hundred failures give a 99th percentile that is not the largest value; the pace
/// spreads them over all phases of the five-second interval.
const TIMED: usize = 100;
const PACE: Duration = Duration::from_millis(330);

/// The tracer's default: a failure right after a snapshot waits so long, whatever the
/// rest costs.
const INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only the figures of one area.
    #[arg(long, value_enum, value_name = "AREA")]
    only: Option<Area>,

    /// Failing returns in the store that is asked.
    #[arg(long, value_name = "N", default_value_t = store::RECORDS)]
    records: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Area {
    Lab,
    Tracer,
    Shaper,
    Store,
}

pub(crate) async fn run(args: &Args) -> Result<ExitCode> {
    let wanted = |area| args.only.is_none_or(|only| only == area);
    let mut figures = Vec::new();
    let demo_took = match wanted(Area::Lab) {
        true => Some(demo().await?),
        false => None,
    };
    if wanted(Area::Lab) || wanted(Area::Tracer) {
        let started = Instant::now();
        let lab = Lab::start(Progress::Lines).await?;
        let host = lab.host("gpu-01", KERNEL).await?;
        let attached = Instant::now();
        if let Some(took) = demo_took {
            let figure = Figure::new("lab.demo_s", took.as_secs_f64(), "s");
            let bound = started.elapsed().as_secs_f64();
            figures.push(figure.beside("lab and one host started, nothing done", bound));
        }
        if wanted(Area::Tracer) {
            figures.extend(tracer_at_rest(&host, attached).await?);
        }
        if wanted(Area::Lab) {
            figures.push(failure_to_sql(&lab, &host).await?);
        }
        if wanted(Area::Tracer) {
            figures.extend(storm::figures(&lab, &host).await?);
        }
    }
    if wanted(Area::Tracer) {
        figures.extend(insns::figures().await?);
    }
    if wanted(Area::Shaper) {
        figures.extend(shaper::figures().await?);
    }
    if wanted(Area::Store) {
        figures.extend(store::figures(args.records).await?);
    }
    figures.sort_by(|a, b| a.name.cmp(&b.name));
    let path = report::write(&figures)?;
    for figure in &figures {
        println!("{}", line(figure));
    }
    println!("written to {}", path.display());
    Ok(ExitCode::SUCCESS)
}

fn line(figure: &Figure) -> String {
    let Figure {
        name, value, unit, ..
    } = figure;
    let mut line = format!("{name:<32}{value:>12.2} {unit:<10}");
    if let (Some(peer), Some(peer_value)) = (&figure.peer, figure.peer_value) {
        line += &format!("{peer_value:>12.2} {peer}");
    }
    line.trim_end().to_owned()
}

/// The demo as a person starts it, the build left out.
async fn demo() -> Result<Duration> {
    let step = Progress::Lines.step("running the demo");
    let started = Instant::now();
    let status = Command::new(programs::find("rdmesh-lab")?)
        .arg("demo")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await?;
    ensure!(
        status.success(),
        "the demo failed; run it by itself: rdmesh-lab demo"
    );
    let took = started.elapsed();
    step.done();
    Ok(took)
}

async fn tracer_at_rest(host: &TracedHost, attached: Instant) -> Result<Vec<Figure>> {
    let step = Progress::Lines.step("leaving the tracer at rest");
    tokio::time::sleep(RSS_AFTER.saturating_sub(attached.elapsed() + IDLE_WINDOW)).await;
    let before = host.tracer_stat().await?;
    tokio::time::sleep(IDLE_WINDOW).await;
    let after = host.tracer_stat().await?;
    step.done();
    let switches = after
        .voluntary_switches
        .saturating_sub(before.voluntary_switches);
    let megabytes = |kib: u64| kib as f64 * 1024.0 / 1e6;
    Ok(vec![
        Figure::new("tracer.rss_mb", megabytes(after.rss_kb), "MB"),
        Figure::new("tracer.rss_peak_mb", megabytes(after.peak_rss_kb), "MB"),
        Figure::new(
            "tracer.idle_wakeups_per_s",
            switches as f64 / IDLE_WINDOW.as_secs_f64(),
            "1/s",
        ),
    ])
}

async fn failure_to_sql(lab: &Lab, host: &TracedHost) -> Result<Figure> {
    let step = Progress::Lines.step(format!("timing {TIMED} failures on their way to SQL"));
    let latencies = latency::failure_to_sql(lab, host, "bench-", TIMED, PACE).await?;
    step.done();
    let p99 = latency::p99(&latencies);
    let figure = Figure::new("lab.failure_to_sql.p99_ms", p99.as_secs_f64() * 1e3, "ms");
    Ok(figure.beside("the snapshot interval alone", INTERVAL.as_secs_f64() * 1e3))
}

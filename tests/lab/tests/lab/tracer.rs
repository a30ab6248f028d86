//! The tracer alone on real kernels: each failure leaves the chain that the kernel's
//! own functions form, and a job's task is named although it exits at once.

use crate::attached;
use anyhow::{Context, Result, bail, ensure};
use rdmesh_guest::Exec;
use rdmesh_lab::chains::{self, Expected};
use rdmesh_lab::host::{Host, HostPlan};
use rdmesh_lab::kernels::Kernel;
use rdmesh_lab::lab::Task;
use rdmesh_lab::progress::Progress;
use rdmesh_lab::until;
use rdmesh_lab::verbs::{Report, Verbs};
use serde::Deserialize;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const SIGINT: i32 = 2;

/// A line of `tracer-svc watch --output json`, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Seen {
    steps: Vec<Step>,
    tgid: u32,
    comm: String,
    cgroup_path: String,
    device: String,
    attempt: Option<Attempt>,
    source: String,
}

#[derive(Debug, Deserialize)]
struct Step {
    function: String,
    layer: String,
    errno: i32,
    errno_name: String,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Attempt {
    job_id: String,
    requeue: u32,
    restart: u32,
}

/// `tracer-svc watch` in a host.
struct Watch {
    pid: i32,
}

impl Watch {
    async fn start(host: &Host) -> Result<Self> {
        let argv = ["/usr/bin/tracer-svc", "watch", "--output", "json"]
            .map(str::to_owned)
            .to_vec();
        let pid = host
            .spawn(Exec {
                argv,
                ..Exec::default()
            })
            .await?;
        let watch = Self { pid };
        // It does not say when it is ready: a failure of ours that it reports does.
        until::holds("tracer-svc watch", LIMIT * 2, || async {
            host.run(Verbs::new("reg-mr-efault").exec(), LIMIT).await?;
            Ok(!watch.seen(host).await?.is_empty())
        })
        .await
        .with_context(|| host.serial_tail())?;
        Ok(watch)
    }

    async fn seen(&self, host: &Host) -> Result<Vec<Seen>> {
        let running = host.process_stat(self.pid).await.is_ok();
        let output = host.read_output(self.pid).await?.to_lossy();
        ensure!(running, "tracer-svc ended: {output}");
        let whole = output
            .lines()
            .filter(|line| line.starts_with('{') && line.ends_with('}'));
        let parsed = whole.map(|line| serde_json::from_str(line).with_context(|| line.to_owned()));
        parsed.collect()
    }

    /// What the watcher printed of a process, once it printed something.
    async fn of_process(&self, host: &Host, tgid: u32) -> Result<Seen> {
        until::some(&format!("a failure of process {tgid}"), LIMIT, || async {
            let seen = self.seen(host).await?;
            Ok(seen.into_iter().find(|seen| seen.tgid == tgid))
        })
        .await
    }
}

/// Runs of a scenario until its chain is whole. By design a record that comes 10 ms
/// after the one before begins a new chain, and an emulated processor on a busy
/// machine stands still for longer now and then.
const RUNS: usize = 5;

async fn check(host: &Host, watch: &Watch, expected: &Expected) -> Result<()> {
    let name = expected.scenario;
    let mut functions = Vec::new();
    for _ in 0..RUNS {
        let report = Report::parse(&host.run(limited(expected), LIMIT).await?)?;
        assert_eq!(report.failures, [(expected.errno, 1)].into(), "{name}");
        let seen = watch.of_process(host, report.pid).await?;
        for step in &seen.steps {
            let errno = (step.errno, step.errno_name.as_str());
            assert_eq!(
                errno,
                (expected.errno, expected.errno_name),
                "{name}: {step:?}"
            );
        }
        assert_eq!(
            (seen.comm.as_str(), seen.device.as_str()),
            ("rdmesh-verbs", "rxe0"),
            "{name}"
        );
        functions = seen
            .steps
            .iter()
            .map(|step| step.function.clone())
            .collect();
        if functions == expected.functions {
            let layers: Vec<&str> = seen.steps.iter().map(|step| step.layer.as_str()).collect();
            assert_eq!(layers, expected.layers, "{name}");
            return Ok(());
        }
    }
    bail!(
        "{name}: want the chain {:?}, not {functions:?}",
        expected.functions
    )
}

async fn every_chain(kernel: Kernel) -> Result<()> {
    let plan = HostPlan {
        own_programs: vec!["tracer-svc".into()],
        modules: attached::vendors(kernel)
            .iter()
            .map(|&driver| driver.to_owned())
            .collect(),
        ..HostPlan::default()
    };
    let host = Host::boot("gpu-01", kernel, &plan, Progress::Quiet).await?;
    println!(
        "kernel {} ({})",
        host.kernel_version(),
        host.ready().release
    );
    let watch = Watch::start(&host).await?;
    for expected in chains::all(kernel) {
        check(&host, &watch, &expected).await?;
    }

    let exit = host
        .run(
            Task::of("4711").exec(Verbs::new("fail-and-exit").exec()),
            LIMIT,
        )
        .await?;
    let seen = watch.of_process(&host, u32::try_from(exit.pid)?).await?;
    let attempt = Attempt {
        job_id: "4711".into(),
        requeue: 0,
        restart: 0,
    };
    assert_eq!(
        (seen.attempt, seen.source.as_str()),
        (Some(attempt), "environment")
    );
    assert_eq!(seen.cgroup_path, "/jobs/4711");

    host.kill(watch.pid, SIGINT).await?;
    assert_eq!(host.wait(watch.pid, LIMIT).await?.code, Some(0));
    attached::to_rxe_alone(&host).await.context("rxe alone")?;
    attached::by_rules(&host).await.context("by rules")?;
    attached::to_every_driver(&host, kernel)
        .await
        .context("every driver")?;
    host.power_off().await
}

/// The memory limit holds for an unprivileged user alone.
fn limited(expected: &Expected) -> Exec {
    let exec = Verbs::new(expected.scenario).exec();
    if expected.scenario != "reg-mr-memlock" {
        return exec;
    }
    Exec {
        uid: Some(1000),
        gid: Some(1000),
        memlock_bytes: Some(64 * 1024),
        ..exec
    }
}

#[tokio::test]
async fn chains_on_6_1() -> Result<()> {
    every_chain(Kernel::V6_1).await
}

#[tokio::test]
async fn chains_on_6_12() -> Result<()> {
    every_chain(Kernel::V6_12).await
}

#[tokio::test]
async fn chains_on_7_3() -> Result<()> {
    every_chain(Kernel::V7_3).await
}

//! Good calls are recorded, something is broken, and the place where the failing calls
//! leave the good ones is named, in every scenario and on every kernel; and what a window
//! leaves behind it, however it ends: nothing.

use anyhow::{Context, Result, bail, ensure};
use rdmesh_client::baselines::Recorded;
use rdmesh_client::model::baseline::WindowPhase;
use rdmesh_client::tracer::{TracerClient, TracerError};
use rdmesh_guest::Exec;
use rdmesh_lab::forks::{BROKEN, Broken, check, diff, line, long_window, record, short_window};
use rdmesh_lab::host::{Host, HostPlan, TRACER_PORT};
use rdmesh_lab::kernels::Kernel;
use rdmesh_lab::programs;
use rdmesh_lab::progress::Progress;
use rdmesh_lab::until;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);
const VERBS: [&str; 4] = ["reg_mr", "create_cq", "create_qp", "modify_qp"];
const SIGKILL: i32 = 9;
/// Where the guest keeps baselines.
const KEPT: &str = "/var/lib/rdmesh/tracer/baselines";

/// A host with a tracer whose collector never answers.
struct Traced {
    host: Host,
    tracer: i32,
    client: TracerClient,
}

impl Traced {
    async fn boot(kernel: Kernel, files: u64) -> Result<Self> {
        let plan = HostPlan {
            own_programs: vec!["tracer-svc".into()],
            ..HostPlan::default()
        };
        let host = Host::boot("gpu-01", kernel, &plan, Progress::Quiet).await?;
        println!(
            "kernel {} ({})",
            host.kernel_version(),
            host.ready().release
        );
        let config = format!(
            "[uplink]\ncollector = \"127.0.0.1:1\"\n\n[server]\nlisten = \"0.0.0.0:{TRACER_PORT}\"\n\
             insecure_listen = true\n\n[cost]\nbudget_percent = 0\n"
        );
        host.write_file("/etc/rdmesh/tracer.toml", config, 0o644)
            .await?;
        let (tracer, client) = start(&host, files).await?;
        Ok(Self {
            host,
            tracer,
            client,
        })
    }

    async fn programs(&self) -> Result<usize> {
        Ok(self.host.bpf_programs().await?.len())
    }

    /// What hangs in the kernel: programs, and the places of ftrace and of kprobes that
    /// something is attached to.
    async fn hooks(&self) -> Result<Hooks> {
        let lines = async |path: &str| {
            let text = self.host.read_file(path).await?.to_lossy();
            anyhow::Ok(text.lines().count())
        };
        Ok(Hooks {
            programs: self.programs().await?,
            functions: lines("/sys/kernel/tracing/enabled_functions").await?,
            kprobes: lines("/sys/kernel/debug/kprobes/list").await?,
        })
    }

    /// Waits until it holds no more than before.
    async fn holds(&self, before: Hooks) -> Result<()> {
        until::holds("a window's hooks are gone", LIMIT, || async {
            Ok(self.hooks().await? == before)
        })
        .await
        .with_context(|| format!("there were {before:?}"))
    }
}

/// See [`Traced::hooks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hooks {
    programs: usize,
    functions: usize,
    kprobes: usize,
}

/// Starts a tracer that may open so many files, and waits for its service.
async fn start(host: &Host, files: u64) -> Result<(i32, TracerClient)> {
    let tracer = host
        .spawn(Exec {
            argv: vec!["/usr/bin/tracer-svc".to_owned()],
            open_files: Some(files),
            ..Exec::default()
        })
        .await?;
    let address = host.tracer_address();
    let client = until::some("the tracer answers", LIMIT, || async {
        if host.process_stat(tracer).await.is_err() {
            bail!("tracer-svc ended: {:?}", host.read_output(tracer).await?);
        }
        let Ok(client) = TracerClient::connect(&address, LIMIT).await else {
            return Ok(None);
        };
        Ok(client.list_baselines(None).await.is_ok().then_some(client))
    })
    .await?;
    Ok((tracer, client))
}

async fn on(kernel: Kernel) -> Result<()> {
    let traced = Traced::boot(kernel, 1024).await?;
    let before = traced.hooks().await?;
    let (window, verbs) = record(&traced.host, &traced.client, &VERBS).await?;
    ensure!(window.phase == WindowPhase::Ended, "{window:?}");
    let mut wanted = VERBS.map(str::to_owned);
    wanted.sort();
    ensure!(verbs == wanted, "{verbs:?}");
    let one_by_one = kernel == Kernel::V6_1;
    ensure!((window.beyond_bound > 0) == one_by_one, "{window:?}");
    traced.holds(before).await.context("after a recording")?;
    shows(&traced).await?;
    closes_with_its_client(&traced, before).await?;
    let (traced, before) = survives_a_kill(traced).await?;
    let all: Vec<&Broken> = BROKEN.iter().collect();
    let forks = diff(&traced.host, &traced.client, &all).await?;
    traced.holds(before).await.context("after a comparison")?;
    let text: Vec<String> = BROKEN
        .iter()
        .map(|broken| format!("{}\n{}", broken.scenario, line(&forks[broken.scenario])))
        .collect();
    insta::assert_snapshot!(format!("forks_{}", kernel.series()), text.concat());
    check(kernel, &forks)?;
    damaged(&traced).await?;
    traced.host.power_off().await
}

/// What people see of a baseline.
async fn shows(traced: &Traced) -> Result<()> {
    let address = traced.host.tracer_address();
    let shown = tokio::process::Command::new(programs::find("rdmesh")?)
        .args(["baseline", "show", &address, "reg_mr"])
        .output()
        .await?;
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    println!("{text}");
    let release = &traced.host.ready().release;
    let head = format!("reg_mr with rdma_rxe on {release}: 3 good calls\nib_uverbs_reg_mr  in 3\n");
    let has = |line: &str| text.lines().any(|l| l == line);
    ensure!(
        text.starts_with(&head)
            && has("  rxe_reg_user_mr  in 3")
            && has("    rxe_mr_init_user  in 3"),
        "{text}"
    );
    Ok(())
}

/// One window at a time; it ends when nobody listens, and leaves nothing.
async fn closes_with_its_client(traced: &Traced, before: Hooks) -> Result<()> {
    let mut recording = traced.client.record_baseline(long_window(&VERBS)).await?;
    loop {
        match recording.next().await?.context("the window ended")? {
            Recorded::Progress(p) if p.phase == WindowPhase::Watching => break,
            Recorded::Progress(_) => {}
            Recorded::Baseline(baseline) => bail!("{baseline:?}"),
        }
    }
    let during = traced.hooks().await?;
    println!("{before:?}, while a window is open {during:?}");
    ensure!(
        during.programs == before.programs + 2 && during.functions > before.functions,
        "{during:?}"
    );
    let busy = traced.client.record_baseline(short_window(&VERBS)).await;
    let Err(TracerError::Refused { reason, .. }) = busy else {
        bail!("two windows: {busy:?}");
    };
    ensure!(reason.contains("window open"), "{reason}");
    drop(recording);
    traced.holds(before).await.context("after its client went")
}

/// A tracer that is killed inside of a window leaves nothing in the kernel, and what was
/// recorded is there for the next one.
async fn survives_a_kill(traced: Traced) -> Result<(Traced, Hooks)> {
    let mut recording = traced.client.record_baseline(long_window(&VERBS)).await?;
    while let Some(word) = recording.next().await? {
        if matches!(&word, Recorded::Progress(p) if p.phase == WindowPhase::Watching) {
            break;
        }
    }
    traced.host.kill(traced.tracer, SIGKILL).await?;
    traced.host.wait(traced.tracer, LIMIT).await?;
    until::holds("no program is left", LIMIT, || async {
        Ok(traced.programs().await? == 0)
    })
    .await?;
    let (tracer, client) = start(&traced.host, 1024).await?;
    let traced = Traced {
        tracer,
        client,
        host: traced.host,
    };
    let before = traced.hooks().await?;
    Ok((traced, before))
}

/// A damaged file is told and set aside.
async fn damaged(traced: &Traced) -> Result<()> {
    let release = &traced.host.ready().release;
    let file = format!("{KEPT}/reg_mr.rdma_rxe.{release}.json");
    traced.host.write_file(&file, "{\"schema\":", 0o644).await?;
    let kept = traced.client.list_baselines(None).await?;
    ensure!(
        kept.damaged.len() == 1 && kept.damaged[0].contains(&format!("{file}.damaged")),
        "{kept:?}"
    );
    ensure!(kept.baselines.len() == VERBS.len() - 1, "{kept:?}");
    Ok(())
}

/// Where the kernel takes functions one by one and the tracer may not open that many
/// files, the window does not open, and what it had attached is gone.
#[tokio::test]
async fn an_attachment_that_fails_half_way_leaves_nothing() -> Result<()> {
    let traced = Traced::boot(Kernel::V6_1, 160).await?;
    let before = traced.hooks().await?;
    let mut recording = traced.client.record_baseline(short_window(&VERBS)).await?;
    let refused = loop {
        match recording.next().await {
            Ok(Some(Recorded::Progress(progress))) => {
                ensure!(progress.phase != WindowPhase::Watching, "{progress:?}");
            }
            Ok(other) => bail!("{other:?}"),
            Err(error) => break error.to_string(),
        }
    };
    ensure!(refused.contains("LimitNOFILE"), "{refused}");
    traced.holds(before).await?;
    traced.host.power_off().await
}

#[tokio::test]
async fn forks_on_6_1() -> Result<()> {
    on(Kernel::V6_1).await
}

#[tokio::test]
async fn forks_on_6_12() -> Result<()> {
    on(Kernel::V6_12).await
}

#[tokio::test]
async fn forks_on_7_3() -> Result<()> {
    on(Kernel::V7_3).await
}

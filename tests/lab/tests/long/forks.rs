//! Good calls are recorded, something is broken, and the place where the failing calls
//! leave the good ones is named: a limit, a permission, an address that maps nothing,
//! flags that exclude each other, an empty slot of the GID table, a wrong transition, a
//! link that is down.

use anyhow::{Context, Result, bail, ensure};
use rdmesh_client::baselines::{Compared, Recorded, WindowAsked};
use rdmesh_client::model::baseline::{Fork, ReturnCount, WindowPhase, WindowProgress};
use rdmesh_client::tracer::{TracerClient, TracerError};
use rdmesh_guest::{Command, Exec};
use rdmesh_lab::host::{Host, HostPlan, TRACER_PORT};
use rdmesh_lab::kernels::Kernel;
use rdmesh_lab::programs;
use rdmesh_lab::progress::Progress;
use rdmesh_lab::until;
use rdmesh_lab::verbs::{Report, Verbs};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(180);
const VERBS: [&str; 4] = ["reg_mr", "create_cq", "create_qp", "modify_qp"];
const SIGKILL: i32 = 9;
/// Where the guest keeps baselines.
const KEPT: &str = "/var/lib/rdmesh/tracer/baselines";
/// Longest window that is waited for to its end: an emulated processor makes a call in
/// some hundred milliseconds.
const RECORD_SECONDS: u32 = 8;
/// Of windows that end because all was seen.
const DIFF_SECONDS: u32 = 120;

/// What is broken, and the function that the fork has to name, by kernel.
struct Broken {
    scenario: &'static str,
    verb: &'static str,
    errno_name: &'static str,
    function: fn(Kernel) -> &'static str,
}

const BROKEN: [Broken; 8] = [
    Broken {
        scenario: "reg-mr-efault",
        verb: "reg_mr",
        errno_name: "EFAULT",
        function: umem,
    },
    Broken {
        scenario: "reg-mr-access",
        verb: "reg_mr",
        errno_name: "EINVAL",
        function: |_| "ib_uverbs_reg_mr",
    },
    Broken {
        scenario: "reg-mr-memlock",
        verb: "reg_mr",
        errno_name: "ENOMEM",
        function: umem,
    },
    Broken {
        scenario: "create-cq-over-limits",
        verb: "create_cq",
        errno_name: "EINVAL",
        function: |kernel| match kernel {
            Kernel::V6_1 | Kernel::V6_12 => "rxe_cq_chk_attr",
            // The compiler inlined it.
            Kernel::V7_3 => "rxe_create_cq",
        },
    },
    Broken {
        scenario: "create-qp-over-limits",
        verb: "create_qp",
        errno_name: "EINVAL",
        function: |_| "rxe_qp_chk_cap",
    },
    Broken {
        scenario: "modify-qp-bad-transition",
        verb: "modify_qp",
        errno_name: "EINVAL",
        // Newer drivers look at the states later.
        function: |kernel| match kernel {
            Kernel::V6_1 => "rxe_qp_chk_attr",
            Kernel::V6_12 | Kernel::V7_3 => "rxe_qp_from_attr",
        },
    },
    Broken {
        scenario: "modify-qp-empty-gid",
        verb: "modify_qp",
        errno_name: "ENODATA",
        function: |_| "rdma_get_gid_attr",
    },
    Broken {
        scenario: LINK_DOWN,
        verb: "modify_qp",
        errno_name: "ENETUNREACH",
        function: |_| "addr_resolve",
    },
];

/// The link goes down, and then a queue pair is connected.
const LINK_DOWN: &str = "connect";

fn umem(kernel: Kernel) -> &'static str {
    match kernel {
        Kernel::V6_1 | Kernel::V6_12 => "ib_umem_get",
        Kernel::V7_3 => "__ib_umem_get_va",
    }
}

/// As an unprivileged user with a limit, where that is what is broken.
fn exec(scenario: &str) -> Exec {
    let exec = Verbs::new(scenario).exec();
    match scenario {
        "reg-mr-memlock" => Exec {
            uid: Some(1000),
            gid: Some(1000),
            memlock_bytes: Some(64 * 1024),
            ..exec
        },
        _ => exec,
    }
}

fn asked(seconds: u32) -> WindowAsked {
    WindowAsked {
        verbs: VERBS.map(str::to_owned).to_vec(),
        seconds,
        driver: String::new(),
    }
}

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

/// Records while good calls are made.
async fn record(traced: &Traced) -> Result<(WindowProgress, Vec<String>)> {
    let began = Instant::now();
    let mut recording = traced.client.record_baseline(asked(RECORD_SECONDS)).await?;
    let (mut last, mut verbs) = (None, Vec::new());
    while let Some(word) = recording.next().await? {
        match word {
            Recorded::Progress(progress) => {
                let is_new =
                    last.as_ref().map(|p: &WindowProgress| p.phase) != Some(progress.phase);
                if is_new {
                    println!("{:6.2} s {progress:?}", began.elapsed().as_secs_f64());
                }
                if is_new && progress.phase == WindowPhase::Watching {
                    good_calls(&traced.host).await?;
                }
                last = Some(progress);
            }
            Recorded::Baseline(baseline) => verbs.push(baseline.verb),
        }
    }
    println!("{:6.2} s over", began.elapsed().as_secs_f64());
    Ok((last.context("no progress")?, verbs))
}

async fn good_calls(host: &Host) -> Result<()> {
    for scenario in ["ok", "connect"] {
        let exec = Verbs::new(scenario).count(3).exec();
        let report = Report::parse(&host.run(exec, LIMIT).await?)?;
        ensure!(report.failures.is_empty(), "{report:?}");
    }
    Ok(())
}

/// Breaks one thing after the other and gives what is told of each.
async fn diff(traced: &Traced) -> Result<BTreeMap<&'static str, Fork>> {
    let began = Instant::now();
    let mut comparison = traced
        .client
        .diff_baseline(WindowAsked {
            verbs: Vec::new(),
            ..asked(DIFF_SECONDS)
        })
        .await?;
    let mut left = BROKEN.iter();
    let mut now: Option<&Broken> = None;
    let mut forks = BTreeMap::new();
    loop {
        let word = comparison.next().await?;
        match word.context("the window ended before all was seen")? {
            Compared::Progress(progress) if progress.phase != WindowPhase::Watching => {
                println!("{:6.2} s {progress:?}", began.elapsed().as_secs_f64());
                continue;
            }
            Compared::Progress(_) if now.is_some() => continue,
            Compared::Progress(_) => {}
            Compared::Fork(fork) => {
                // One of the kind that was made last.
                let broken = now.context("a fork before anything was broken")?;
                println!("{}: {}", broken.scenario, line(&fork));
                if broken.scenario == LINK_DOWN {
                    link(&traced.host, true).await?;
                }
                forks.insert(broken.scenario, *fork);
            }
        }
        now = left.next();
        let Some(broken) = now else {
            return Ok(forks);
        };
        if broken.scenario == LINK_DOWN {
            link(&traced.host, false).await?;
        }
        traced.host.run(exec(broken.scenario), LIMIT).await?;
    }
}

async fn link(host: &Host, up: bool) -> Result<()> {
    let name = "dummy0".to_owned();
    host.done(Command::Link { name, up }).await
}

/// Without what differs from run to run.
fn line(fork: &Fork) -> String {
    let names = |of: &[ReturnCount]| {
        let names: Vec<&str> = of.iter().map(|r| r.outcome.as_str()).collect();
        names.join(", ")
    };
    let mut out = format!(
        "{} {}: {} (depth {}) returned {}, usually {}\n  way: {}\n",
        fork.verb,
        fork.call_errno_name,
        fork.function,
        fork.depth,
        fork.errno_name,
        match fork.usual.as_slice() {
            [] => "not called".to_owned(),
            usual => names(usual),
        },
        fork.path.join(" > ")
    );
    if let Some(newly) = &fork.called_newly {
        let _ = writeln!(out, "  newly: {newly}");
    }
    if !fork.not_reached.is_empty() {
        let _ = writeln!(out, "  not reached: {}", fork.not_reached.join(", "));
    }
    out
}

fn check(kernel: Kernel, forks: &BTreeMap<&str, Fork>) -> Result<()> {
    let mut wrong = String::new();
    for broken in &BROKEN {
        let fork = &forks[broken.scenario];
        let told = (
            fork.verb.as_str(),
            fork.errno_name.as_str(),
            fork.function.as_str(),
        );
        let wanted = (broken.verb, broken.errno_name, (broken.function)(kernel));
        if told != wanted {
            let _ = writeln!(wrong, "{}: {told:?}, not {wanted:?}", broken.scenario);
        }
        let trace = fork.trace.first().context("a fork without its call")?;
        ensure!(
            trace.depth == 0 && trace.errno == fork.call_errno,
            "{trace:?}"
        );
    }
    ensure!(wrong.is_empty(), "{wrong}");
    Ok(())
}

async fn on(kernel: Kernel) -> Result<()> {
    let traced = Traced::boot(kernel, 1024).await?;
    let before = traced.hooks().await?;
    let (window, verbs) = record(&traced).await?;
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
    let forks = diff(&traced).await?;
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
    let mut recording = traced.client.record_baseline(asked(DIFF_SECONDS)).await?;
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
    let busy = traced.client.record_baseline(asked(1)).await;
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
    let mut recording = traced.client.record_baseline(asked(DIFF_SECONDS)).await?;
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
    let mut recording = traced.client.record_baseline(asked(RECORD_SECONDS)).await?;
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

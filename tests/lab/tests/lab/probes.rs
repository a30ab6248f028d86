//! The tracer where fexit does not serve, and where it has to let go: modules without
//! types, functions with many arguments, drivers that are reloaded, and its own end
//! by whatever means. After each of these the kernel holds no program of ours.

use anyhow::{Context, Result, bail, ensure};
use rdmesh_guest::Command;
use rdmesh_guest::Exec;
use rdmesh_lab::chains::{self, Expected};
use rdmesh_lab::host::{Host, HostPlan, TRACER_PORT};
use rdmesh_lab::kernels::Kernel;
use rdmesh_lab::progress::Progress;
use rdmesh_lab::until;
use rdmesh_lab::verbs::{Report, Verbs};
use rdmesh_proto::tracer::v1::tracer_service_client::TracerServiceClient;
use rdmesh_proto::tracer::v1::watch_failures_response::Event;
use rdmesh_proto::tracer::v1::{
    AttachKind, GetProbeReportRequest, ObservedFailure, Probe, ProbeReport, ProbeState,
    WatchFailuresRequest,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tonic::transport::Channel;

const LIMIT: Duration = Duration::from_secs(120);
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// Runs of a scenario until its chain is whole: an emulated processor stands still
/// for longer than 10 ms now and then, which cuts a chain by design.
const RUNS: usize = 5;

/// A tracer that runs in a host, and what it sees.
struct Running<'h> {
    host: &'h Host,
    pid: i32,
    client: TracerServiceClient<Channel>,
    seen: Arc<Mutex<Vec<ObservedFailure>>>,
}

impl<'h> Running<'h> {
    async fn start(host: &'h Host) -> Result<Self> {
        let config = format!(
            "[server]\nlisten = \"0.0.0.0:{TRACER_PORT}\"\ninsecure_listen = true\n\
             [cost]\nbudget_percent = 0\n"
        );
        host.write_file("/etc/rdmesh/tracer.toml", config, 0o644)
            .await?;
        let argv = vec!["/usr/bin/tracer-svc".to_owned()];
        let pid = host
            .spawn(Exec {
                argv,
                ..Exec::default()
            })
            .await?;
        let address = format!("http://{}", host.tracer_address());
        let client = until::some("tracer-svc", LIMIT, || async {
            if host.process_stat(pid).await.is_err() {
                bail!("it ended: {}", host.read_output(pid).await?.to_lossy());
            }
            let Ok(mut client) = TracerServiceClient::connect(address.clone()).await else {
                return Ok(None);
            };
            let answer = client.get_probe_report(GetProbeReportRequest {}).await;
            Ok(answer.ok().map(|_| client))
        })
        .await?;
        let seen = Arc::default();
        let running = Self {
            host,
            pid,
            client,
            seen,
        };
        running.watch().await?;
        Ok(running)
    }

    /// Keeps what the tracer sees, as long as it lives.
    async fn watch(&self) -> Result<()> {
        let request = WatchFailuresRequest::default();
        let mut failures = self
            .client
            .clone()
            .watch_failures(request)
            .await?
            .into_inner();
        let seen = Arc::clone(&self.seen);
        tokio::spawn(async move {
            while let Ok(Some(response)) = failures.message().await {
                if let Some(Event::Failure(failure)) = response.event {
                    seen.lock().expect("no panic holds it").push(failure);
                }
            }
        });
        Ok(())
    }

    async fn report(&self) -> Result<ProbeReport> {
        let answer = self
            .client
            .clone()
            .get_probe_report(GetProbeReportRequest {})
            .await?;
        answer.into_inner().report.context("no report")
    }

    async fn attached(&self, module: &str) -> Result<Vec<Probe>> {
        let report = self.report().await?;
        let attached = |p: &Probe| p.module == module && p.state() == ProbeState::Attached;
        Ok(report.probes.into_iter().filter(attached).collect())
    }

    fn of_process(&self, tgid: u32) -> Option<ObservedFailure> {
        let seen = self.seen.lock().expect("no panic holds it");
        seen.iter().find(|failure| failure.tgid == tgid).cloned()
    }

    /// The same chains as with types, in every layer.
    async fn every_chain(&self, kernel: Kernel) -> Result<()> {
        for expected in chains::all(kernel) {
            self.chain(&expected).await?;
        }
        Ok(())
    }

    async fn chain(&self, expected: &Expected) -> Result<()> {
        let mut functions = Vec::new();
        for _ in 0..RUNS {
            let exit = self.host.run(limited(expected), LIMIT).await?;
            let report = Report::parse(&exit)?;
            assert_eq!(report.failures, [(expected.errno, 1)].into());
            let seen = until::some(expected.scenario, LIMIT, || async {
                Ok(self.of_process(report.pid))
            })
            .await?;
            let errno = |step: &rdmesh_proto::tracer::v1::ChainStep| step.errno_name.clone();
            assert!(
                seen.steps.iter().all(|s| errno(s) == expected.errno_name),
                "{seen:?}"
            );
            functions = seen.steps.into_iter().map(|step| step.function).collect();
            if functions == expected.functions {
                return Ok(());
            }
        }
        bail!(
            "{}: want the chain {:?}, not {functions:?}",
            expected.scenario,
            expected.functions
        )
    }

    /// A tool's answer that says what happened.
    async fn order(&self, words: &[&str]) -> Result<String> {
        let argv = [&["/usr/bin/tracer-svc"][..], words].concat();
        Ok(self.host.exec(&argv).await?.stdout.to_lossy())
    }
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

async fn boot(kernel: Kernel, without_btf: &[&str], modules: &[&str]) -> Result<Host> {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let plan = HostPlan {
        own_programs: vec!["tracer-svc".into()],
        modules: owned(modules),
        without_btf: owned(without_btf),
        ..HostPlan::default()
    };
    let host = Host::boot("gpu-01", kernel, &plan, Progress::Quiet).await?;
    println!(
        "kernel {} ({})",
        host.kernel_version(),
        host.ready().release
    );
    Ok(host)
}

/// No program is left, no function is patched, no kprobe is set.
async fn nothing_left(host: &Host) -> Result<()> {
    // Freed when the last processor has left them.
    until::holds("the end of every program", LIMIT, || async {
        Ok(host.bpf_programs().await?.is_empty())
    })
    .await?;
    for list in [
        "/sys/kernel/tracing/enabled_functions",
        "/sys/kernel/debug/kprobes/list",
    ] {
        let left = host.read_file(list).await?.to_lossy();
        ensure!(left.is_empty(), "{list}: {left}");
    }
    Ok(())
}

fn table(report: &ProbeReport) {
    println!("{}", report.resolution);
    for probe in &report.probes {
        println!(
            "{:<22} {:<9} {:<14} {}:{} {}",
            probe.hook,
            probe
                .state()
                .as_str_name()
                .trim_start_matches("PROBE_STATE_"),
            probe
                .attached_by()
                .as_str_name()
                .trim_start_matches("ATTACH_KIND_"),
            probe.module,
            probe.function,
            probe.reason
        );
    }
}

fn is_kretprobe(probe: &Probe) -> bool {
    matches!(
        probe.attached_by(),
        AttachKind::Kretprobe | AttachKind::KretprobeMulti
    )
}

/// As with an out-of-tree driver: its functions are reached by kretprobes, the
/// kernel's own by fexit, and one chain holds both.
#[tokio::test]
async fn a_driver_without_types_is_seen_and_let_go() -> Result<()> {
    let host = boot(Kernel::V6_1, &["rdma_rxe"], &["mlx5_ib"]).await?;
    let tracer = Running::start(&host).await?;
    let report = tracer.report().await?;
    table(&report);
    assert_eq!(report.resolution, "");
    assert_eq!((report.logical_attached, report.logical_total), (12, 13));
    let of_driver = tracer.attached("rdma_rxe").await?;
    assert_eq!(of_driver.len(), 6, "{of_driver:#?}");
    for probe in &of_driver {
        assert!(is_kretprobe(probe), "{probe:?}");
        assert_eq!(probe.reason, "no fexit: module rdma_rxe has no BTF");
        assert_eq!(probe.found_by, "ib_device_ops of rdma_rxe");
    }
    let of_uverbs = tracer.attached("ib_uverbs").await?;
    assert!(
        of_uverbs
            .iter()
            .any(|p| p.attached_by() == AttachKind::Fexit)
    );
    tracer.every_chain(Kernel::V6_1).await?;

    many_arguments(&tracer).await.context("many arguments")?;
    reload(&tracer).await.context("reload")?;
    everything_off(&tracer).await.context("everything off")?;

    host.kill(tracer.pid, SIGKILL).await?;
    host.wait(tracer.pid, LIMIT).await?;
    nothing_left(&host).await.context("after kill -9")?;
    host.power_off().await
}

/// A module that comes later is attached without a restart; 6.1 builds no trampoline
/// for its function with seven arguments.
async fn many_arguments(tracer: &Running<'_>) -> Result<()> {
    let name = "mlx5_ib".to_owned();
    tracer.host.done(Command::LoadModule { name }).await?;
    let probes = until::some("probes of mlx5_ib", LIMIT, || async {
        let probes = tracer.attached("mlx5_ib").await?;
        Ok((!probes.is_empty()).then_some(probes))
    })
    .await?;
    let of = |function: &str| probes.iter().find(|p| p.function == function);
    let many = of("mlx5_ib_reg_user_mr_dmabuf").context("it is missing")?;
    assert!(is_kretprobe(many), "{many:?}");
    assert!(many.reason.contains("7 argument words"), "{}", many.reason);
    let few = of("mlx5_ib_reg_user_mr").context("it is missing")?;
    assert_eq!(few.attached_by(), AttachKind::Fexit);
    let report = tracer.report().await?;
    assert_eq!((report.logical_attached, report.logical_total), (13, 13));
    Ok(())
}

/// The driver is pinned, let go on request, reloaded, and seen again by itself.
async fn reload(tracer: &Running<'_>) -> Result<()> {
    let name = || "mlx5_ib".to_owned();
    let unload = || tracer.host.done(Command::UnloadModule { name: name() });
    let pinned = unload().await.expect_err("it is pinned");
    assert!(
        format!("{pinned:#}").contains("cannot unload"),
        "{pinned:#}"
    );
    let told = tracer.order(&["detach", "mlx5_ib"]).await?;
    assert!(told.contains("can be unloaded now"), "{told}");
    let report = tracer.report().await?;
    let mut of_driver = report.probes.iter().filter(|p| p.module == "mlx5_ib");
    assert!(of_driver.any(|p| p.state() == ProbeState::Detached));
    assert!(tracer.attached("mlx5_ib").await?.is_empty());
    assert_eq!(tracer.attached("rdma_rxe").await?.len(), 6);
    // At once: the tracer may see the module only when it is back.
    unload().await?;
    tracer
        .host
        .done(Command::LoadModule { name: name() })
        .await?;
    until::holds("probes of the reloaded module", LIMIT, || async {
        Ok(!tracer.attached("mlx5_ib").await?.is_empty())
    })
    .await
}

async fn everything_off(tracer: &Running<'_>) -> Result<()> {
    ensure!(tracer.host.bpf_programs().await?.len() > 20);
    let told = tracer.order(&["detach"]).await?;
    assert!(told.contains("off all RDMA modules"), "{told}");
    nothing_left(tracer.host).await?;
    let report = tracer.report().await?;
    assert_eq!(report.logical_attached, 0);
    assert!(
        report.obstacle.contains("by request"),
        "{}",
        report.obstacle
    );
    let told = tracer.order(&["attach"]).await?;
    assert!(told.contains("13 of 13 logical hooks"), "{told}");
    let expected = chains::all(Kernel::V6_1).remove(0);
    tracer.chain(&expected).await
}

/// As with a whole out-of-tree stack: nothing describes even the table of operations.
#[tokio::test]
async fn a_stack_without_types_is_seen() -> Result<()> {
    let all = ["ib_core", "ib_uverbs", "rdma_rxe"];
    let host = boot(Kernel::V7_3, &all, &[]).await?;
    let tracer = Running::start(&host).await?;
    let report = tracer.report().await?;
    table(&report);
    assert_eq!(report.resolution, "");
    assert_eq!((report.logical_attached, report.logical_total), (12, 13));
    for module in all {
        let probes = tracer.attached(module).await?;
        assert!(
            !probes.is_empty() && probes.iter().all(is_kretprobe),
            "{module}"
        );
    }
    tracer.every_chain(Kernel::V7_3).await?;
    storm_by_return(&tracer).await.context("storm")?;
    host.kill(tracer.pid, SIGTERM).await?;
    assert_eq!(host.wait(tracer.pid, LIMIT).await?.code, Some(0));
    nothing_left(&host).await?;
    refusals(&host).await.context("refusals")?;
    nothing_left(&host).await?;
    host.power_off().await
}

/// A preemptible kernel runs kretprobes where nobody is preempted: it hides no call from
/// them, as it does from fexit programs.
async fn storm_by_return(tracer: &Running<'_>) -> Result<()> {
    const CALLS: u64 = 20_000;
    let functions = [
        chains::umem(Kernel::V7_3),
        "rxe_reg_user_mr",
        "ib_uverbs_reg_mr",
    ];
    let of = |report: &ProbeReport, function: &str| {
        let mut probes = report.probes.iter();
        let probe = probes.find(|p| p.function == function);
        probe.map_or((0, 0), |p| (p.failures, p.unseen))
    };
    // Letting go reads all counters; what is counted stays.
    tracer.order(&["detach"]).await?;
    let before = tracer.report().await?;
    tracer.order(&["attach"]).await?;
    let storm = Verbs::new("storm").count(CALLS).threads(4).exec();
    let report = Report::parse(&tracer.host.run(storm, LIMIT).await?)?;
    assert_eq!(report.failures, [(14, CALLS)].into());
    for function in functions {
        let (failures, unseen) = of(&before, function);
        let counted = until::some("the storm's counts", LIMIT, || async {
            let now = of(&tracer.report().await?, function);
            let (counted, hidden) = (now.0 - failures, now.1 - unseen);
            Ok((counted + hidden >= CALLS).then_some((counted, hidden)))
        })
        .await?;
        println!("{function}: {} counted, {} hidden", counted.0, counted.1);
        assert_eq!(counted, (CALLS, 0), "{function}");
    }
    Ok(())
}

/// Where the kernel says no, the tracer says what to do, and ends.
async fn refusals(host: &Host) -> Result<()> {
    let probes = |config: &[&str]| Exec {
        argv: [&["/usr/bin/tracer-svc"][..], config, &["probes"]]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect(),
        ..Exec::default()
    };
    let unprivileged = Exec {
        uid: Some(1000),
        gid: Some(1000),
        ..probes(&[])
    };
    refused(
        host,
        unprivileged,
        77,
        "CAP_SYS_ADMIN, CAP_BPF, CAP_PERFMON",
    )
    .await?;
    // A unit with MemoryMax= that the map does not fit into.
    let groups = "/sys/fs/cgroup";
    let controllers = format!("{groups}/cgroup.subtree_control");
    host.write_file(&controllers, "+memory", 0o644).await?;
    let limit = format!("{groups}/tight/memory.max");
    host.write_file(&limit, "50331648", 0o644).await?;
    let large = Exec {
        cgroup: Some("tight".into()),
        ..probes(&["--set", "ring.cgroup_entries=1048576"])
    };
    refused(host, large, 75, "the kernel refused map cgroup_counts").await?;
    host.write_file("/sys/kernel/security/lockdown", "confidentiality", 0o644)
        .await?;
    refused(host, probes(&[]), 71, "boot with lockdown=integrity").await
}

async fn refused(host: &Host, exec: Exec, code: i32, words: &str) -> Result<()> {
    let exit = host.run(exec, LIMIT).await?;
    let said = exit.stderr.to_lossy();
    println!("{said}");
    ensure!(exit.code == Some(code), "exit {:?}: {said}", exit.code);
    ensure!(said.contains(words), "{said}");
    Ok(())
}

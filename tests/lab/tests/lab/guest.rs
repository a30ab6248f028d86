//! A host boots, answers, refuses what it does not understand, and leaves nothing
//! behind on this machine.

use anyhow::{Context, Result, ensure};
use rdmesh_guest::{Command, Exec, MAX_REQUEST_BYTES, Text};
use rdmesh_lab::host::{Host, HostPlan};
use rdmesh_lab::kernels::Kernel;
use rdmesh_lab::programs;
use rdmesh_lab::progress::Progress;
use rdmesh_lab::verbs::Verbs;
use std::fs;
use std::process::{Child, Command as StdCommand, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// Lingering long enough to be looked at; always killed before.
const LINGER: &str = "600000";

async fn boot(kernel: Kernel, plan: &HostPlan) -> Result<Host> {
    let host = Host::boot("gpu-07", kernel, plan, Progress::Quiet).await?;
    println!(
        "kernel {} ({})",
        host.kernel_version(),
        host.ready().release
    );
    Ok(host)
}

#[tokio::test]
async fn a_host_does_what_it_is_asked() -> Result<()> {
    let plan = HostPlan {
        modules: vec!["mlx5_ib".into()],
        ..HostPlan::default()
    };
    let host = boot(Kernel::V6_12, &plan).await?;
    assert_eq!(
        host.read_file("/proc/sys/kernel/hostname")
            .await?
            .to_lossy(),
        "gpu-07\n"
    );
    processes(&host).await?;
    modules_and_links(&host).await?;
    clocks(&host).await?;
    refusals(&host).await?;
    host.power_off().await
}

async fn processes(host: &Host) -> Result<()> {
    let group = Text::from(b"slurm/job\xff7".to_vec());
    let exec = Exec {
        cgroup: Some(group),
        ..Verbs::new("ok").arg("--linger-ms").arg(LINGER).exec()
    };
    let exec = Exec {
        env: [("RANK".to_owned(), "3".to_owned())].into(),
        ..exec
    };
    let pid = host.spawn(exec).await?;
    // The program has taken over when its environment is the one asked for.
    until(|| async {
        let environment = host
            .read_file(&format!("/proc/{pid}/environ"))
            .await?
            .to_lossy();
        Ok(environment.split('\0').any(|entry| entry == "RANK=3"))
    })
    .await?;
    let placed = host.read_file(&format!("/proc/{pid}/cgroup")).await?;
    assert_eq!(placed.as_bytes(), b"0::/slurm/job\xff7\n");
    until(|| async { Ok(host.process_stat(pid).await?.voluntary_switches > 0) }).await?;
    let stat = host.process_stat(pid).await?;
    assert!(stat.rss_kb > 0 && stat.peak_rss_kb >= stat.rss_kb && stat.threads == 1);
    let early = host.wait(pid, Duration::from_millis(50)).await;
    assert!(
        early
            .expect_err("it lingers")
            .root_cause()
            .to_string()
            .contains("still runs")
    );
    host.kill(pid, 15).await?;
    let exit = host.wait(pid, LIMIT).await?;
    assert_eq!((exit.code, exit.signal), (None, Some(15)));
    assert!(exit.ended.boottime_ns > exit.started.boottime_ns);

    let slow = Verbs::new("ok").arg("--linger-ms").arg(LINGER).exec();
    let exit = host.run(slow, Duration::from_millis(300)).await?;
    assert!(exit.timed_out && exit.signal == Some(9));

    let missing = Exec {
        argv: vec!["/usr/bin/no-such".into()],
        ..Exec::default()
    };
    let exit = host.run(missing, LIMIT).await?;
    assert_eq!(exit.code, Some(127));
    assert!(exit.stderr.to_lossy().contains("cannot start"));

    host.write_file("/tmp/a/file", "text", 0o600).await?;
    assert_eq!(host.read_file("/tmp/a/file").await?.to_lossy(), "text");
    Ok(())
}

async fn modules_and_links(host: &Host) -> Result<()> {
    host.done(Command::LoadModule {
        name: "mlx5_ib".into(),
    })
    .await?;
    assert!(
        host.read_file("/proc/modules")
            .await?
            .to_lossy()
            .contains("mlx5_ib ")
    );
    host.done(Command::UnloadModule {
        name: "mlx5_ib".into(),
    })
    .await?;
    assert!(
        !host
            .read_file("/proc/modules")
            .await?
            .to_lossy()
            .contains("mlx5_ib ")
    );
    let unknown = host
        .done(Command::LoadModule { name: "efa".into() })
        .await
        .expect_err("it is refused");
    assert!(
        unknown
            .root_cause()
            .to_string()
            .contains("not in the initramfs")
    );
    for (up, state) in [(false, "down"), (true, "up")] {
        host.done(Command::Link {
            name: "dummy0".into(),
            up,
        })
        .await?;
        let flags = host
            .exec(&["ip", "-brief", "link", "show", "dummy0"])
            .await?;
        assert_eq!(flags.stdout.to_lossy().contains("UP"), up, "{state}");
    }
    Ok(())
}

async fn clocks(host: &Host) -> Result<()> {
    let before = host.clocks().await?;
    host.done(Command::JumpClock { by_ms: -3_600_000 }).await?;
    let after = host.clocks().await?;
    assert!(after.realtime_ns < before.realtime_ns, "an hour back");
    assert!(
        after.boottime_ns > before.boottime_ns,
        "boottime never goes back"
    );
    host.done(Command::JumpClock { by_ms: 3_600_000 }).await
}

async fn refusals(host: &Host) -> Result<()> {
    let control = host.machine().control();
    let long = vec![b'x'; MAX_REQUEST_BYTES + 1];
    for line in [
        b"not json".as_slice(),
        br#"{"id":5,"command":{"explode":{}}}"#,
        &long,
    ] {
        control.send_line(&[line, b"\n"].concat()).await?;
    }
    until(|| async { Ok(control.complaints().len() == 3) }).await?;
    let complaints = control.complaints();
    assert!(
        complaints[0].starts_with("request not understood"),
        "{complaints:?}"
    );
    assert!(complaints[1].contains("explode"), "{complaints:?}");
    assert!(
        complaints[2].contains("over 1048576 bytes"),
        "{complaints:?}"
    );
    // It still answers.
    let exec = Exec {
        cgroup: Some(Text::from("../up")),
        ..Verbs::new("ok").exec()
    };
    let exit = host.run(exec, LIMIT).await?;
    assert_eq!(exit.code, Some(127));
    assert!(exit.stderr.to_lossy().contains("without '..'"));
    let nobody = host.kill(999_999, 15).await.expect_err("it is refused");
    assert!(format!("{nobody:#}").contains("cannot signal"));
    Ok(())
}

#[tokio::test]
async fn version_1_control_groups_on_request() -> Result<()> {
    let plan = HostPlan {
        cgroup_v1: true,
        ..HostPlan::default()
    };
    let host = boot(Kernel::V6_1, &plan).await?;
    let exec = Exec {
        cgroup: Some(Text::from("slurm/uid_0/job_42")),
        ..Verbs::new("ok").arg("--linger-ms").arg(LINGER).exec()
    };
    let pid = host.spawn(exec).await?;
    until(|| async {
        let placed = host
            .read_file(&format!("/proc/{pid}/cgroup"))
            .await?
            .to_lossy();
        let count = placed
            .lines()
            .filter(|line| line.ends_with(":/slurm/uid_0/job_42"))
            .count();
        Ok(count == 2 && placed.contains(":memory:") && placed.contains(":pids:"))
    })
    .await?;
    host.kill(pid, 9).await?;
    host.wait(pid, LIMIT).await?;
    host.power_off().await
}

/// Asks again until it holds.
async fn until<F: Future<Output = Result<bool>>>(holds: impl Fn() -> F) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    while !holds().await? {
        ensure!(Instant::now() < deadline, "did not come true in {LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// A lab of its own process with a host that lingers.
fn start_lab() -> Result<Child> {
    StdCommand::new(programs::find("rdmesh-lab")?)
        .args([
            "shell-run",
            "--",
            "rdmesh-verbs",
            "ok",
            "--linger-ms",
            LINGER,
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("rdmesh-lab")
}

/// Scratch directories of a QEMU that descends from this process.
fn scratch_of(lab: u32) -> Option<(u32, String)> {
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split(' ').nth(2)?.parse().ok());
        let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments).into_owned();
        if parent == Some(lab) && arguments.starts_with("qemu-system") {
            let serial = arguments
                .split('\0')
                .find_map(|word| word.strip_prefix("file:"))?;
            return Some((pid, serial.trim_end_matches("/serial.log").to_owned()));
        }
    }
    None
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T> {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        ensure!(Instant::now() < deadline, "{what}: not in {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_gone(pid: u32) -> Option<()> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .map(|(_, rest)| rest.starts_with('Z'));
    state.unwrap_or(true).then_some(())
}

#[test]
fn an_interrupted_lab_leaves_nothing() -> Result<()> {
    let mut lab = start_lab()?;
    let (qemu, scratch) = wait_for("QEMU", || scratch_of(lab.id()))?;
    assert!(fs::exists(&scratch)?);
    let pid = rustix::process::Pid::from_raw(i32::try_from(lab.id())?).context("pid")?;
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
    assert_eq!(lab.wait()?.code(), Some(130));
    wait_for("end of QEMU", || is_gone(qemu))?;
    assert!(!fs::exists(&scratch)?);
    Ok(())
}

#[test]
fn a_killed_lab_takes_its_hosts_along() -> Result<()> {
    let mut lab = start_lab()?;
    let (qemu, scratch) = wait_for("QEMU", || scratch_of(lab.id()))?;
    lab.kill()?;
    lab.wait()?;
    wait_for("end of QEMU", || is_gone(qemu))?;
    // Nobody could remove its directory; the next one to start does.
    let next = rdmesh_lab::scratch::Scratch::new()?;
    assert!(!fs::exists(&scratch)? && next.path().exists());
    Ok(())
}

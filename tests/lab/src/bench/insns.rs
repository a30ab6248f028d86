//! What a traced call costs in instructions: a real kernel on an emulated processor
//! whose clock counts them, so that a figure repeats exactly.
//!
//! One call (`modify_qp` of soft-RoCE, from INIT to INIT, and one that fails) is timed
//! some thousand times by the processor's own counter, and the least is taken. Then one
//! program is put on one function of its way, and the same is done again: the
//! difference is what that program costs. The kernel's statistics of programs are off.

use super::report::Figure;
use anyhow::{Context, Result, bail, ensure};
use rdmesh_guest::Exec;
use rdmesh_lab::host::{Host, HostPlan};
use rdmesh_lab::kernels::Kernel;
use rdmesh_lab::progress::Progress;
use rdmesh_lab::until;
use rdmesh_lab::verbs::{Report, Verbs};
use std::path::Path;
use std::time::Duration;

/// The oldest and the newest of the matrix.
const KERNELS: [Kernel; 2] = [Kernel::V6_1, Kernel::V7_3];

/// The function that the programs are put on: a driver's, which the call reaches once.
const MODULE: &str = "rdma_rxe";
const FUNCTION: &str = "rxe_modify_qp";

/// Where the kernel says which functions are patched.
const PATCHED: &str = "/sys/kernel/tracing/enabled_functions";

/// The peer that people would take by hand, and what they would write: errors alone.
const BPFTRACE: &str = "/usr/bin/bpftrace";
const BPFTRACE_PROGRAM: &str =
    "kretfunc:rxe_modify_qp /(int32)retval < 0/ { @errors[retval] = count(); }";

/// Calls of one series. The least is met after a few. The records of two failing series
/// find room in the ring, which nobody reads here: a full one would be another path.
const CALLS: u64 = 1_000;

/// Each series runs so often, and all must agree: a figure that does not repeat is none.
const SERIES: usize = 2;

/// Counting slows the emulator down, and the guest's clock has little to do with ours.
const LIMIT: Duration = Duration::from_secs(300);

/// The kernel takes every program off with its process, and bpftrace ends at nothing less.
const SIGKILL: i32 = 9;

/// bpftrace compiles with LLVM, which takes the emulated processor a minute.
const BPFTRACE_LIMIT: Duration = Duration::from_secs(240);

/// "Ours succeeding: at most an empty fexit program and 4 instructions."
const OVER_EMPTY: u64 = 4;

/// "And at most 35 % of what a kretprobe costs."
const OF_KRETPROBE_PERCENT: u64 = 35;

/// Instructions of one kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counted {
    /// The call itself, without a program on its way.
    none: u64,
    /// What each adds.
    empty_fexit: u64,
    success: u64,
    failure: u64,
    kretprobe: u64,
    /// None where this machine has no bpftrace.
    bpftrace: Option<u64>,
}

impl Counted {
    fn check(self) -> Result<()> {
        ensure!(
            self.success <= self.empty_fexit + OVER_EMPTY,
            "a traced call that succeeds costs {} instructions, an empty fexit {}",
            self.success,
            self.empty_fexit
        );
        ensure!(
            self.success * 100 <= self.kretprobe * OF_KRETPROBE_PERCENT,
            "a traced call that succeeds costs {} instructions, a kretprobe {}",
            self.success,
            self.kretprobe
        );
        Ok(())
    }

    /// Of two kernels the one where we are dearer beside a kretprobe.
    fn worse(self, other: Self) -> Self {
        if self.success * other.kretprobe >= other.success * self.kretprobe {
            self
        } else {
            other
        }
    }

    fn figures(self, of: &str) -> Vec<Figure> {
        let figure = |name: &str, value: u64| {
            let name = format!("tracer.insns.{name}{of}");
            Figure::new(&name, value as f64, "instructions")
        };
        let mut figures = vec![
            figure("none", self.none),
            figure("empty_fexit", self.empty_fexit),
            figure("success", self.success).beside("an empty fexit", self.empty_fexit as f64),
            figure("success_of_kretprobe", self.success)
                .beside("a kretprobe", self.kretprobe as f64),
            figure("failure", self.failure).beside("the call itself", self.none as f64),
            figure("kretprobe", self.kretprobe),
        ];
        if let Some(bpftrace) = self.bpftrace {
            figures.push(figure("bpftrace", bpftrace));
            figures.push(
                figure("success_of_bpftrace", self.success)
                    .beside("bpftrace's kretfunc", bpftrace as f64),
            );
        }
        figures
    }
}

/// The figures of both kernels, and of the worse one under the plain names.
pub(super) async fn figures() -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let mut worst: Option<Counted> = None;
    for kernel in KERNELS {
        let series = kernel.series();
        let step = Progress::Lines.step(format!("counting instructions on {series}"));
        let counted = count(kernel).await?;
        counted
            .check()
            .with_context(|| format!("Debian {series}"))?;
        step.done();
        figures.extend(counted.figures(&format!(".{series}")));
        worst = Some(worst.map_or(counted, |worst| worst.worse(counted)));
    }
    figures.extend(worst.context("no kernel")?.figures(""));
    Ok(figures)
}

async fn count(kernel: Kernel) -> Result<Counted> {
    let plan = HostPlan {
        own_programs: vec!["tracer-svc".into()],
        counts_instructions: true,
        ..HostPlan::default()
    };
    let host = Host::boot("price", kernel, &plan, Progress::Quiet).await?;
    let none = least(&host, "timed-ok").await?;
    let none_failing = least(&host, "timed-failing").await?;
    let over = |with: u64, without: u64| {
        with.checked_sub(without)
            .with_context(|| format!("{with} instructions with a program, {without} without"))
    };
    let empty = with(&host, &priced("empty-fexit"), "timed-ok").await?;
    let kretprobe = with(&host, &priced("kretprobe"), "timed-ok").await?;
    let success = with(&host, &priced("own"), "timed-ok").await?;
    let failure = with(&host, &priced("own"), "timed-failing").await?;
    host.power_off().await?;
    Ok(Counted {
        none,
        empty_fexit: over(empty, none)?,
        success: over(success, none)?,
        failure: over(failure, none_failing)?,
        kretprobe: over(kretprobe, none)?,
        bpftrace: by_bpftrace(kernel).await,
    })
}

/// The same for bpftrace, where its package runs: a note says why there is no figure.
async fn by_bpftrace(kernel: Kernel) -> Option<u64> {
    if !Path::new(BPFTRACE).exists() {
        Progress::Lines.note("no bpftrace here (package bpftrace): it is left out");
        return None;
    }
    let counted = tokio::time::timeout(BPFTRACE_LIMIT, count_bpftrace(kernel)).await;
    let counted = counted
        .context("not within its time")
        .and_then(|counted| counted);
    if let Err(error) = &counted {
        Progress::Lines.note(&format!("bpftrace is left out: {error:#}"));
    }
    counted.ok()
}

async fn count_bpftrace(kernel: Kernel) -> Result<u64> {
    // It starts a shell, and crashes where there is none.
    let files = [BPFTRACE, "/bin/sh"].map(|path| (path.into(), path.to_owned()));
    let plan = HostPlan {
        files: files.to_vec(),
        counts_instructions: true,
        ..HostPlan::default()
    };
    let host = Host::boot("price", kernel, &plan, Progress::Quiet).await?;
    let none = least(&host, "timed-ok").await?;
    let argv = [BPFTRACE, "-e", BPFTRACE_PROGRAM].map(str::to_owned);
    let traced = with(&host, &argv, "timed-ok").await?;
    traced.checked_sub(none).context("nothing was traced")
}

/// What puts one program on the function and holds it.
fn priced(peer: &str) -> [String; 4] {
    let function = format!("{MODULE}:{FUNCTION}");
    ["/usr/bin/tracer-svc", "price", &function, peer].map(str::to_owned)
}

/// The same with a program on the function.
async fn with(host: &Host, argv: &[String], scenario: &str) -> Result<u64> {
    let holder = host
        .spawn(Exec {
            argv: argv.to_vec(),
            ..Exec::default()
        })
        .await?;
    let what = argv.join(" ");
    let attached = until::holds(&what, LIMIT, || async {
        let said = host.read_output(holder).await?.to_lossy();
        if host.process_stat(holder).await.is_err() {
            let exit = host.wait(holder, LIMIT).await?;
            bail!(
                "it ended ({:?}, signal {:?}): {said}",
                exit.code,
                exit.signal
            );
        }
        // bpftrace says so ("Attaching 1 probe") before it is true: the kernel has the
        // last word. All of them patch the function by ftrace.
        let patched = host.read_file(PATCHED).await?.to_lossy();
        let is_patched = patched.lines().any(|line| line.starts_with(FUNCTION));
        Ok(is_patched && said.to_lowercase().contains("attach"))
    });
    attached
        .await
        .with_context(|| format!("{what}\n{}", host.serial_tail()))?;
    let counted = least(host, scenario).await;
    host.kill(holder, SIGKILL).await?;
    host.wait(holder, LIMIT).await?;
    counted
}

/// The least instructions of one call, the same in every series.
async fn least(host: &Host, scenario: &str) -> Result<u64> {
    let mut all = Vec::new();
    for _ in 0..SERIES {
        let exit = host
            .run(Verbs::new(scenario).count(CALLS).exec(), LIMIT)
            .await?;
        let report = Report::parse(&exit)?;
        all.push(report.least_ticks.context("nothing was timed")?);
    }
    let least = all.iter().copied().min().context("no series")?;
    ensure!(
        all.iter().all(|ticks| *ticks == least),
        "{scenario} does not repeat: {all:?}"
    );
    Ok(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Counted = Counted {
        none: 5_000,
        empty_fexit: 180,
        success: 183,
        failure: 4_000,
        kretprobe: 600,
        bpftrace: None,
    };

    #[test]
    fn the_bars_hold() {
        assert!(GOOD.check().is_ok());
        let dear = Counted {
            success: 185,
            ..GOOD
        };
        assert!(dear.check().is_err());
        let cheap_peer = Counted {
            kretprobe: 522,
            ..GOOD
        };
        assert!(cheap_peer.check().is_err());
    }

    #[test]
    fn plain_names_have_the_worse_kernel() {
        let other = Counted {
            success: 180,
            kretprobe: 550,
            bpftrace: Some(300),
            ..GOOD
        };
        let worse = GOOD.worse(other);
        assert_eq!(worse, other);
        assert_eq!(other.worse(GOOD), other);
        let names: Vec<String> = worse.figures("").into_iter().map(|f| f.name).collect();
        for name in ["success", "success_of_kretprobe", "bpftrace"] {
            assert!(names.contains(&format!("tracer.insns.{name}")), "{name}");
        }
    }
}

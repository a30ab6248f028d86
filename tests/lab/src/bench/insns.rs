//! What a traced call costs in instructions: a real kernel on an emulated processor
//! whose clock counts them, so that a figure repeats exactly.
//!
//! One call (`modify_qp` of soft-RoCE, from INIT to INIT, and one that fails) is timed
//! some thousand times by the processor's own counter, and the least is taken. Then one
//! program is put on one function of its way, and the same is done again: the
//! difference is what that program costs. The kernel's statistics of programs are off.

use super::report::Figure;
use anyhow::{Context, Result, ensure};
use rdmesh_guest::Exec;
use rdmesh_lab::host::{Host, HostPlan};
use rdmesh_lab::kernels::Kernel;
use rdmesh_lab::progress::Progress;
use rdmesh_lab::until;
use rdmesh_lab::verbs::{Report, Verbs};
use std::time::Duration;

/// The oldest and the newest of the matrix.
const KERNELS: [Kernel; 2] = [Kernel::V6_1, Kernel::V7_3];

/// The function that the programs are put on: a driver's, which the call reaches once.
const FUNCTION: &str = "rdma_rxe:rxe_modify_qp";

/// Calls of one series. The least is met after a few. The records of two failing series
/// find room in the ring, which nobody reads here: a full one would be another path.
const CALLS: u64 = 1_000;

/// Each series runs so often, and all must agree: a figure that does not repeat is none.
const SERIES: usize = 2;

/// Counting slows the emulator down, and the guest's clock has little to do with ours.
const LIMIT: Duration = Duration::from_secs(300);

const SIGTERM: i32 = 15;

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

    /// The larger of two, figure by figure.
    fn worse(self, other: Self) -> Self {
        Self {
            none: self.none.max(other.none),
            empty_fexit: self.empty_fexit.max(other.empty_fexit),
            success: self.success.max(other.success),
            failure: self.failure.max(other.failure),
            kretprobe: self.kretprobe.max(other.kretprobe),
        }
    }

    fn figures(self, of: &str) -> Vec<Figure> {
        let figure = |name: &str, value: u64| {
            let name = format!("tracer.insns.{name}{of}");
            Figure::new(&name, value as f64, "instructions")
        };
        vec![
            figure("none", self.none),
            figure("empty_fexit", self.empty_fexit),
            figure("success", self.success).beside("an empty fexit", self.empty_fexit as f64),
            figure("success_of_kretprobe", self.success)
                .beside("a kretprobe", self.kretprobe as f64),
            figure("failure", self.failure).beside("the call itself", self.none as f64),
            figure("kretprobe", self.kretprobe),
        ]
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
    let empty = with(&host, "empty-fexit", "timed-ok").await?;
    let kretprobe = with(&host, "kretprobe", "timed-ok").await?;
    let success = with(&host, "own", "timed-ok").await?;
    let failure = with(&host, "own", "timed-failing").await?;
    host.power_off().await?;
    Ok(Counted {
        none,
        empty_fexit: over(empty, none)?,
        success: over(success, none)?,
        failure: over(failure, none_failing)?,
        kretprobe: over(kretprobe, none)?,
    })
}

/// The same with a program on the function.
async fn with(host: &Host, peer: &str, scenario: &str) -> Result<u64> {
    let argv = ["/usr/bin/tracer-svc", "price", FUNCTION, peer];
    let argv = argv.map(str::to_owned).to_vec();
    let holder = host
        .spawn(Exec {
            argv,
            ..Exec::default()
        })
        .await?;
    let what = format!("{peer} attached");
    let attached = until::holds(&what, LIMIT, || async {
        let said = host.read_output(holder).await?.to_lossy();
        ensure!(host.process_stat(holder).await.is_ok(), "{peer}: {said}");
        Ok(said.contains("attached"))
    });
    attached.await.with_context(|| host.serial_tail())?;
    let counted = least(host, scenario).await;
    host.kill(holder, SIGTERM).await?;
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
            success: 190,
            kretprobe: 550,
            ..GOOD
        };
        let worse = GOOD.worse(other);
        assert_eq!((worse.success, worse.kretprobe), (190, 600));
        let names: Vec<String> = worse.figures("").into_iter().map(|f| f.name).collect();
        assert!(names.contains(&"tracer.insns.success".to_owned()));
    }
}

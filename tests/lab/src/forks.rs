//! Good calls are recorded, something is broken, and the place where the failing calls
//! leave the good ones is named.

use crate::chains::umem;
use crate::host::Host;
use crate::kernels::Kernel;
use crate::verbs::{Report, Verbs};
use anyhow::{Context, Result, ensure};
use rdmesh_client::baselines::{Compared, Recorded, WindowAsked};
use rdmesh_client::model::baseline::{Fork, ReturnCount, WindowPhase, WindowProgress};
use rdmesh_client::tracer::TracerClient;
use rdmesh_guest::{Command, Exec};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(180);
/// Longest window that is waited for to its end: an emulated processor makes a call in
/// some hundred milliseconds.
const RECORD_SECONDS: u32 = 8;
/// Of windows that end because all was seen.
const DIFF_SECONDS: u32 = 120;

/// What is broken, and the function that the fork has to name, by kernel.
#[derive(Debug)]
pub struct Broken {
    /// Of the verbs program.
    pub scenario: &'static str,
    /// The verb that fails.
    pub verb: &'static str,
    /// What the function returns.
    pub errno_name: &'static str,
    /// The function.
    pub function: fn(Kernel) -> &'static str,
}

/// A limit, a permission, an address that maps nothing, flags that exclude each other, an
/// empty slot of the GID table, a wrong transition, a link that is down.
pub const BROKEN: [Broken; 8] = [
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

/// As an unprivileged user with a limit, where that is what is broken.
pub fn exec(scenario: &str) -> Exec {
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

/// Some of them, as a seed has it.
pub fn sample(seed: u64, count: usize) -> Vec<&'static Broken> {
    let mut left: Vec<&Broken> = BROKEN.iter().collect();
    let mut state = seed;
    let mut chosen = Vec::new();
    while chosen.len() < count && !left.is_empty() {
        // Knuth's MMIX generator; the low bits repeat soon.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let at = usize::try_from(state >> 33).unwrap_or(0) % left.len();
        chosen.push(left.remove(at));
    }
    chosen
}

/// A window of these verbs that is waited for to its end.
pub fn short_window(verbs: &[&str]) -> WindowAsked {
    asked(verbs, RECORD_SECONDS)
}

/// One that ends because all was seen, or who asked goes.
pub fn long_window(verbs: &[&str]) -> WindowAsked {
    asked(verbs, DIFF_SECONDS)
}

fn asked(verbs: &[&str], seconds: u32) -> WindowAsked {
    WindowAsked {
        verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
        seconds,
        driver: String::new(),
    }
}

/// Records while good calls are made; gives how the window ended, and the verbs that have a
/// baseline.
pub async fn record(
    host: &Host,
    client: &TracerClient,
    verbs: &[&str],
) -> Result<(WindowProgress, Vec<String>)> {
    let began = Instant::now();
    let mut window = client.record_baseline(short_window(verbs)).await?;
    let (mut last, mut recorded) = (None, Vec::new());
    while let Some(word) = window.next().await? {
        match word {
            Recorded::Progress(progress) => {
                let is_new =
                    last.as_ref().map(|p: &WindowProgress| p.phase) != Some(progress.phase);
                if is_new {
                    println!("{:6.2} s {progress:?}", began.elapsed().as_secs_f64());
                }
                if is_new && progress.phase == WindowPhase::Watching {
                    good_calls(host).await?;
                }
                last = Some(progress);
            }
            Recorded::Baseline(baseline) => recorded.push(baseline.verb),
        }
    }
    println!("{:6.2} s over", began.elapsed().as_secs_f64());
    Ok((last.context("no progress")?, recorded))
}

/// Calls of all verbs that succeed.
pub async fn good_calls(host: &Host) -> Result<()> {
    for scenario in ["ok", "connect"] {
        let exec = Verbs::new(scenario).count(3).exec();
        let report = Report::parse(&host.run(exec, LIMIT).await?)?;
        ensure!(report.failures.is_empty(), "{report:?}");
    }
    Ok(())
}

/// Breaks one thing after the other and gives what is told of each.
pub async fn diff(
    host: &Host,
    client: &TracerClient,
    broken: &[&'static Broken],
) -> Result<BTreeMap<&'static str, Fork>> {
    let began = Instant::now();
    let mut comparison = client.diff_baseline(long_window(&[])).await?;
    let mut left = broken.iter();
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
                    link(host, true).await?;
                }
                forks.insert(broken.scenario, *fork);
            }
        }
        now = left.next().copied();
        let Some(broken) = now else {
            return Ok(forks);
        };
        if broken.scenario == LINK_DOWN {
            link(host, false).await?;
        }
        host.run(exec(broken.scenario), LIMIT).await?;
    }
}

async fn link(host: &Host, up: bool) -> Result<()> {
    let name = "dummy0".to_owned();
    host.done(Command::Link { name, up }).await
}

/// Without what differs from run to run.
pub fn line(fork: &Fork) -> String {
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

/// Fails where a fork names another function.
pub fn check(kernel: Kernel, forks: &BTreeMap<&str, Fork>) -> Result<()> {
    let mut wrong = String::new();
    for broken in &BROKEN {
        let Some(fork) = forks.get(broken.scenario) else {
            continue;
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_chooses_the_same_and_all_are_chosen_by_some() {
        let names = |seed| {
            sample(seed, 2)
                .iter()
                .map(|b| b.scenario)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(7), names(7));
        assert_eq!(names(7).len(), 2);
        let seen: std::collections::BTreeSet<&str> = (0..100).flat_map(names).collect();
        assert_eq!(seen.len(), BROKEN.len());
        assert_eq!(sample(7, 99).len(), BROKEN.len());
    }
}

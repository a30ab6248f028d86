//! Limits of processes.

use super::Check;
use crate::doctor::Topic;
use crate::doctor::facts::{Facts, Limit, Looked, Process, Service};

/// Files that a collector may have open at the least: a connection for each agent and some for
/// Postgres. Its unit sets 65,536.
const COLLECTOR_FILES: u64 = 4_096;

/// Capability to lock memory beyond the limit (linux/capability.h).
const CAP_IPC_LOCK: u32 = 14;

pub(super) fn examine(facts: &Facts, checks: &mut Vec<Check>) {
    // Who registers memory is a job on a host with RDMA.
    if facts.devices.found().is_some_and(|all| !all.is_empty()) && facts.traces() {
        checks.push(of_shell(&facts.shell));
        checks.extend(of_launchers(&facts.launchers));
    }
    for here in facts.here() {
        for process in &here.running {
            checks.extend(match here.service {
                Service::Shaper => Some(of_shaper(process)),
                Service::Collector => Some(of_collector(process)),
                // The kernel counts a tracer's maps against its cgroup since 5.11, and it locks
                // no memory.
                Service::Tracer => None,
            });
        }
    }
}

fn told(limit: Limit) -> String {
    match limit {
        Limit::Unlimited => "unlimited".to_owned(),
        Limit::At(count) => super::bytes(count),
    }
}

fn of_shell(shell: &Looked<Process>) -> Check {
    let check = "memlock of this shell";
    let process = match shell {
        Looked::Found(process) => process,
        Looked::Absent => return Check::unknown(Topic::Limits, check, "there is no /proc/self"),
        Looked::Unknown(why) => return Check::unknown(Topic::Limits, check, why),
    };
    judged(check.to_owned(), process, || {
        "`ulimit -l unlimited` here; for every login `* - memlock unlimited` in \
         /etc/security/limits.d/rdma.conf"
            .to_owned()
    })
}

fn of_launchers(launchers: &Looked<Vec<Process>>) -> Vec<Check> {
    let launchers = match launchers {
        Looked::Found(launchers) => launchers,
        Looked::Absent => return Vec::new(),
        Looked::Unknown(why) => {
            return vec![Check::unknown(Topic::Limits, "memlock of jobs", why)];
        }
    };
    let judge = |process: &Process| {
        let unit = match process.unit.as_str() {
            "" => format!("{}.service", process.name),
            unit => unit.to_owned(),
        };
        judged(format!("memlock of {}", process.name), process, || {
            format!(
                "`systemctl edit {unit}` with LimitMEMLOCK=infinity under [Service], then restart \
                 it: what it starts has its limit"
            )
        })
    };
    launchers.iter().map(judge).collect()
}

/// Whether what a process starts can register memory.
fn judged(check: String, process: &Process, next: impl Fn() -> String) -> Check {
    match process.memlock {
        None => {
            let why = format!("/proc/{}/limits does not tell it", process.pid);
            Check::unknown(Topic::Limits, check, why)
        }
        Some(Limit::Unlimited) => Check::ok(Topic::Limits, check, "unlimited"),
        Some(limit) => Check::warning(
            Topic::Limits,
            check,
            format!(
                "{}: what is started from there registers no more with ibv_reg_mr, unless it is \
                 root (ENOMEM)",
                told(limit)
            ),
            next(),
        ),
    }
}

/// DPDK locks what the card writes to.
fn of_shaper(process: &Process) -> Check {
    let check = "memlock of shaper-svc";
    let may_always = process
        .effective
        .is_some_and(|has| has >> CAP_IPC_LOCK & 1 == 1);
    let who = super::named(process);
    match process.memlock {
        Some(Limit::At(count)) if !may_always => Check::problem(
            Topic::Limits,
            check,
            format!("{who}: {}", super::bytes(count)),
            "run it by its unit, rdmesh-shaper, which sets LimitMEMLOCK=infinity",
        ),
        Some(limit) => Check::ok(Topic::Limits, check, format!("{who}: {}", told(limit))),
        None => Check::unknown(
            Topic::Limits,
            check,
            format!("/proc/{}/limits does not tell it", process.pid),
        ),
    }
}

fn of_collector(process: &Process) -> Check {
    let check = "open files of collector-svc";
    let who = super::named(process);
    match process.open_files {
        Some(Limit::At(count)) if count < COLLECTOR_FILES => Check::warning(
            Topic::Limits,
            check,
            format!("{who}: {count}, and each agent takes up to three"),
            "run it by its unit, rdmesh-collector, which sets LimitNOFILE=65536",
        ),
        Some(Limit::At(count)) => Check::ok(Topic::Limits, check, format!("{who}: {count}")),
        Some(Limit::Unlimited) => Check::ok(Topic::Limits, check, format!("{who}: unlimited")),
        None => Check::unknown(
            Topic::Limits,
            check,
            format!("/proc/{}/limits does not tell it", process.pid),
        ),
    }
}

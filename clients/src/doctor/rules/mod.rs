//! What was found, judged. Pure: facts in, checks out.

mod capabilities;
mod certificates;
mod clock;
mod kernel;
mod limits;
mod nccl;
mod ports;
mod rdma;
mod services;
mod spool;

#[cfg(test)]
mod tests;

use super::facts::{Facts, Process};
use super::{Check, Status, Topic};

/// Judges everything that was found; the worst first, then in the order of topics.
#[must_use]
pub fn examine(facts: &Facts) -> Vec<Check> {
    let mut checks = Vec::new();
    kernel::examine(facts, &mut checks);
    capabilities::examine(facts, &mut checks);
    rdma::examine(facts, &mut checks);
    limits::examine(facts, &mut checks);
    nccl::examine(facts, &mut checks);
    services::examine(facts, &mut checks);
    ports::examine(facts, &mut checks);
    certificates::examine(facts, &mut checks);
    clock::examine(facts, &mut checks);
    spool::examine(facts, &mut checks);
    // Stable: within a topic the order of its rules stays.
    checks.sort_by_key(|check| (check.status, check.topic));
    checks
}

impl Check {
    fn ok(topic: Topic, name: impl Into<String>, found: impl Into<String>) -> Check {
        Check {
            topic,
            name: name.into(),
            status: Status::Ok,
            found: found.into(),
            next: None,
        }
    }

    fn warning(
        topic: Topic,
        name: impl Into<String>,
        found: impl Into<String>,
        next: impl Into<String>,
    ) -> Check {
        Check {
            status: Status::Warning,
            next: Some(next.into()),
            ..Check::ok(topic, name, found)
        }
    }

    fn problem(
        topic: Topic,
        name: impl Into<String>,
        found: impl Into<String>,
        next: impl Into<String>,
    ) -> Check {
        Check {
            status: Status::Problem,
            ..Check::warning(topic, name, found, next)
        }
    }

    /// It could not be told; mostly root can.
    fn unknown(topic: Topic, name: impl Into<String>, why: impl Into<String>) -> Check {
        let why = why.into();
        let is_refused = why.contains("Permission denied") || why.contains("not permitted");
        Check {
            status: Status::CouldNotLook,
            next: is_refused.then(|| AS_ROOT.to_owned()),
            ..Check::ok(topic, name, why)
        }
    }
}

/// What to do where rights are missing.
const AS_ROOT: &str = "run `rdmesh doctor` as root";

/// A day and, of certificates, the time before their end in which a warning is given, seconds.
const DAY: i64 = 86_400;

/// `a and b`.
fn listed(items: &[String]) -> String {
    match items.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

/// `pid 812 of rdmesh-tracer.service`.
fn named(process: &Process) -> String {
    match process.unit.as_str() {
        "" => format!("pid {}", process.pid),
        unit => format!("pid {} of {unit}", process.pid),
    }
}

/// Bytes in the largest unit that they fill.
fn bytes(count: u64) -> String {
    match count {
        0..0x400 => format!("{count} bytes"),
        0x400..0x10_0000 => format!("{} KiB", count >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", count >> 20),
        _ => format!("{} GiB", count >> 30),
    }
}

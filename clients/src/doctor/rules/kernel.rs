//! The kernel: its version, its types, and what it forbids.

use super::Check;
use crate::doctor::Topic;
use crate::doctor::facts::{Facts, Kernel, Looked};

/// The first kernel on which the tracer starts: exit code 69 of `tracer-svc` on older ones.
const RUNS_SINCE: (u32, u32) = (5, 17);

/// The first kernel of the test matrix.
const TESTED_SINCE: (u32, u32) = (6, 1);

pub(super) fn examine(facts: &Facts, checks: &mut Vec<Check>) {
    if !facts.traces() {
        return;
    }
    let kernel = match &facts.kernel {
        Looked::Found(kernel) => kernel,
        Looked::Absent => return,
        Looked::Unknown(why) => {
            checks.push(Check::unknown(Topic::Kernel, "kernel", why));
            return;
        }
    };
    checks.push(version(kernel));
    checks.push(types(kernel));
    checks.extend(types_of_modules(kernel));
    checks.push(lockdown(kernel));
    checks.extend(addresses(kernel));
}

fn version(kernel: &Kernel) -> Check {
    let check = "kernel version";
    let Kernel {
        release, machine, ..
    } = kernel;
    let found = format!("{release} ({machine})");
    match version_of(release) {
        None => Check::unknown(
            Topic::Kernel,
            check,
            format!("/proc/sys/kernel/osrelease reads {release:?}"),
        ),
        Some(version) if version < RUNS_SINCE => Check::problem(
            Topic::Kernel,
            check,
            format!("{found}: tracer-svc needs 5.17"),
            "boot a kernel of 6.1 or newer",
        ),
        Some(version) if version < TESTED_SINCE => Check::warning(
            Topic::Kernel,
            check,
            format!("{found}: older than 6.1, the oldest that rdmesh is tested with"),
            "look with `tracer-svc probes` which functions are watched, or boot 6.1 or newer",
        ),
        Some(_) => Check::ok(Topic::Kernel, check, found),
    }
}

/// "6.1.0-41-amd64" → (6, 1).
fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(['.', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn types(kernel: &Kernel) -> Check {
    let check = "types of the kernel (BTF)";
    let problem = |found: &str| {
        Check::problem(
            Topic::Kernel,
            check,
            found,
            "boot a kernel that is built with CONFIG_DEBUG_INFO_BTF=y, as distributions' are: \
             without its types no function can be hooked",
        )
    };
    match &kernel.btf {
        Looked::Found(0) => problem("/sys/kernel/btf/vmlinux is empty"),
        Looked::Found(size) => Check::ok(Topic::Kernel, check, super::bytes(*size)),
        Looked::Absent => problem("there is no /sys/kernel/btf/vmlinux"),
        Looked::Unknown(why) => Check::unknown(Topic::Kernel, check, why),
    }
}

fn types_of_modules(kernel: &Kernel) -> Option<Check> {
    let check = "types of RDMA modules (BTF)";
    let names = |has_btf| -> Vec<String> {
        let modules = kernel.modules.iter().filter(|m| m.has_btf == has_btf);
        modules.map(|module| module.name.clone()).collect()
    };
    let (with, without) = (names(true), names(false));
    if !without.is_empty() {
        let found = format!("{}: none", super::listed(&without));
        return Some(Check::warning(
            Topic::Kernel,
            check,
            found,
            "their functions are hooked by kretprobes: dearer, and records tell no arguments. \
             Build out-of-tree modules with BTF: the headers' package needs `vmlinux` and `pahole` \
             beside it (docs/tracer.md)",
        ));
    }
    (!with.is_empty()).then(|| Check::ok(Topic::Kernel, check, super::listed(&with)))
}

fn lockdown(kernel: &Kernel) -> Check {
    let check = "kernel lockdown";
    match &kernel.lockdown {
        Looked::Found(mode) if mode == "confidentiality" => Check::problem(
            Topic::Kernel,
            check,
            "confidentiality: BPF programs may not read kernel memory",
            "boot with lockdown=integrity or none: until then tracer-svc ends with exit code 71",
        ),
        Looked::Found(mode) => Check::ok(Topic::Kernel, check, mode),
        Looked::Absent => Check::ok(Topic::Kernel, check, "the kernel has none"),
        Looked::Unknown(why) => Check::unknown(Topic::Kernel, check, why),
    }
}

/// Only where it matters: 0 and 1 are fine with CAP_SYSLOG.
fn addresses(kernel: &Kernel) -> Option<Check> {
    let hides = kernel.kptr_restrict.is_some_and(|mode| mode >= 2);
    hides.then(|| {
        Check::warning(
            Topic::Kernel,
            "kernel addresses",
            "kernel.kptr_restrict = 2 hides them from everybody",
            "`sysctl -w kernel.kptr_restrict=1`, and in /etc/sysctl.d: else each function without \
             BTF takes a kretprobe of its own, in place of one link for all",
        )
    })
}

//! Pinning and mapping of user memory failed.

use rdmesh_proto::collector::v1::{Confidence, VerdictClass};
use rdmesh_proto::common::v1::{Layer, Verb};

use super::Finding;
use super::errno::{EAGAIN, EBADF, EFAULT, EINVAL, ENOMEM, EOVERFLOW, EPERM};
use crate::diagnosis::select::Deciding;
use crate::diagnosis::{Case, Chain, HostWorld, Mapping};

fn in_memory(chain: &Chain) -> bool {
    chain.deepest().layer == Layer::Memory
}

/// Names of the out-of-tree peer-memory helpers hold this.
fn is_peer_memory(chain: &Chain) -> bool {
    chain
        .steps
        .iter()
        .any(|s| s.layer == Layer::Memory && s.function.contains("peer"))
}

pub(super) fn world<'a>(case: &'a Case, host: &str) -> Option<&'a HostWorld> {
    case.hosts
        .iter()
        .find(|watch| watch.host == host)?
        .world
        .as_ref()
}

/// Memory that another device exports.
pub(super) fn dmabuf(deciding: &Deciding<'_>, _: &Case) -> Option<Finding> {
    let chain = deciding.chain;
    if !in_memory(chain) || chain.verb != Verb::RegDmabufMr {
        return None;
    }
    let fd = chain.arguments.dmabuf_fd;
    if chain.deepest().errno == EBADF {
        let mut finding = Finding::new(VerdictClass::ApplicationArguments, Confidence::Medium)
            .because("the file descriptor that was passed is no dmabuf");
        if let Some(fd) = fd {
            finding = finding.because(format!("the file descriptor was {fd}"));
        }
        return Some(finding);
    }
    Some(
        Finding::new(VerdictClass::GpuPeerMemory, Confidence::Medium)
            .because("the memory is exported by another device as a dmabuf"),
    )
}

/// EFAULT: what the address maps tells whose fault it is.
pub(super) fn bad_address(deciding: &Deciding<'_>, case: &Case) -> Option<Finding> {
    let chain = deciding.chain;
    if !in_memory(chain) || chain.deepest().errno != EFAULT {
        return None;
    }
    let found = match chain.arguments.mapping {
        Some(Mapping::None) => Finding::new(VerdictClass::ApplicationArguments, Confidence::High)
            .because("the address is in no mapping of the process"),
        Some(Mapping::DevicePfn) => device_pages(world(case, &chain.host)),
        Some(mapping) => Finding::new(VerdictClass::ApplicationArguments, Confidence::Medium)
            .because(format!("the address itself is mapped ({})", named(mapping)))
            .though(
                "a part of the range may be unmapped, or the mapping may be read-only; the \
                     kernel does not tell which",
            ),
        None => unknown_mapping(chain, case),
    };
    Some(with_range(found, chain))
}

/// A GPU's pages, or those of another device that the program mapped.
fn device_pages(world: Option<&HostWorld>) -> Finding {
    let told = "the address maps pages of a device, as a GPU driver maps them";
    match world {
        Some(world) if world.gpu_driver.is_empty() => {
            Finding::new(VerdictClass::GpuPeerMemory, Confidence::Low)
                .because(told)
                .though(
                    "the host has no GPU driver: the pages are another device's, which the \
                     application cannot register",
                )
        }
        Some(_) => Finding::new(VerdictClass::GpuPeerMemory, Confidence::High).because(told),
        None => Finding::new(VerdictClass::GpuPeerMemory, Confidence::Medium)
            .because(told)
            .though("whether the host has a GPU is not known"),
    }
}

/// Nobody looked at the mapping.
fn unknown_mapping(chain: &Chain, case: &Case) -> Finding {
    let world = world(case, &chain.host);
    if is_peer_memory(chain) {
        let found = Finding::new(VerdictClass::GpuPeerMemory, Confidence::Medium)
            .because("no peer-memory client took the address");
        return match world {
            Some(world) if !world.dmabuf => found.because(
                "the host's kernel has no dmabuf for NICs, so that the peer-memory path was taken",
            ),
            _ => found,
        };
    }
    if world.is_some_and(|world| world.gpu_driver.is_empty()) {
        return Finding::new(VerdictClass::ApplicationArguments, Confidence::High)
            .because("the host has no GPU driver, so that the address is no GPU address");
    }
    let found = Finding::new(VerdictClass::ApplicationArguments, Confidence::Medium);
    found.though(
        "what the address maps was not looked at: a GPU address without a peer-memory client \
         fails in the same way",
    )
}

fn named(mapping: Mapping) -> &'static str {
    match mapping {
        Mapping::None => "nothing",
        Mapping::Anonymous => "anonymous memory",
        Mapping::File => "a file",
        Mapping::HugePage => "huge pages",
        Mapping::DevicePfn => "pages of a device",
    }
}

fn with_range(found: Finding, chain: &Chain) -> Finding {
    match (&chain.arguments.address, chain.arguments.length_bytes) {
        (Some(address), Some(length)) => {
            found.because(format!("the range is {address} with {length} bytes"))
        }
        _ => found,
    }
}

/// ENOMEM, EPERM and EAGAIN of a registration are rarely about memory.
pub(super) fn limits(deciding: &Deciding<'_>, case: &Case) -> Option<Finding> {
    let chain = deciding.chain;
    if !in_memory(chain) || !matches!(chain.deepest().errno, ENOMEM | EPERM | EAGAIN) {
        return None;
    }
    let world = world(case, &chain.host);
    let limit = world.and_then(|world| world.memlock_bytes);
    let length = chain.arguments.length_bytes;
    let found = match (limit, length) {
        (Some(limit), Some(length)) if length > limit => {
            Finding::new(VerdictClass::MemoryLimits, Confidence::High).because(format!(
                "{length} bytes were to be pinned where RLIMIT_MEMLOCK of the host's services is \
                 {limit} bytes"
            ))
        }
        (Some(limit), Some(_)) => Finding::new(VerdictClass::MemoryLimits, Confidence::Medium)
            .though(format!(
                "RLIMIT_MEMLOCK of the host's services is {limit} bytes, more than the range; the \
                 process's own may be less, and counts all that it has pinned"
            )),
        (Some(limit), None) => Finding::new(VerdictClass::MemoryLimits, Confidence::Medium)
            .because(format!(
                "RLIMIT_MEMLOCK of the host's services is {limit} bytes, for all that is pinned; \
                 the process's own is not known"
            )),
        (None, _) if world.is_some_and(|world| world.limits_told) => {
            Finding::new(VerdictClass::MemoryLimits, Confidence::Low).though(
                "RLIMIT_MEMLOCK of the host's services is unlimited; the job's own limit is not \
                 known, else pinning itself failed",
            )
        }
        _ => Finding::new(VerdictClass::MemoryLimits, Confidence::Medium)
            .though("the limits of the host are not known"),
    };
    Some(with_range(found, chain))
}

/// Any other errno of the memory helpers.
pub(super) fn other(deciding: &Deciding<'_>, _: &Case) -> Option<Finding> {
    let chain = deciding.chain;
    if !in_memory(chain) {
        return None;
    }
    let found = if is_peer_memory(chain) {
        Finding::new(VerdictClass::GpuPeerMemory, Confidence::Medium)
            .because("a peer-memory helper is the innermost failing call")
    } else if matches!(chain.deepest().errno, EINVAL | EOVERFLOW) {
        Finding::new(VerdictClass::ApplicationArguments, Confidence::Medium)
            .because("the memory helpers refuse a range only for what it is: empty, wrapping, or with access flags that contradict one another")
    } else {
        Finding::new(VerdictClass::MemoryPinning, Confidence::Low)
            .because("pinning the pages is the innermost failing call")
    };
    Some(with_range(found, chain))
}

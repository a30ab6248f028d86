//! Faults whose sign is known from the field: the same errno at the same layer, told apart
//! by what the call was asked for and by what the host is.

use rdmesh_proto::collector::v1::{Confidence, VerdictClass};
use rdmesh_proto::common::v1::{Layer, Verb};
use rdmesh_proto::tracer::v1::CoSignalKind;
use time::Duration;

use super::Finding;
use super::errno::{EACCES, EINTR, ENOMEM, EPERM, ERESTARTNOINTR, ERESTARTSYS};
use super::memory::world;
use crate::diagnosis::select::Deciding;
use crate::diagnosis::words::signal_line;
use crate::diagnosis::{Case, Chain, Mapping, Signal};

/// What fits 32 bits ends here.
const BEYOND_32_BITS: u64 = 1 << 32;

/// A kill is told apart from what it interrupts by the clocks of one host: by the interval
/// in which the kernel's log is read.
const TOGETHER: Duration = Duration::seconds(5);

fn registers(verb: Verb) -> bool {
    matches!(verb, Verb::RegMr | Verb::RegDmabufMr)
}

/// Above the range no limit of the process can be the reason.
fn is_unlimited(chain: &Chain, case: &Case) -> bool {
    world(case, &chain.host).is_some_and(|world| {
        world.limits_told
            && match (world.memlock_bytes, chain.arguments.length_bytes) {
                (None, _) => true,
                (Some(limit), Some(length)) => length <= limit,
                (Some(_), None) => false,
            }
    })
}

/// The driver ran out of nothing: every range that it refused is longer than 32 bits can
/// tell.
fn is_beyond_32_bits(deciding: &Deciding<'_>) -> Option<u64> {
    let lengths = deciding.same.iter();
    let shortest = lengths
        .filter_map(|chain| chain.arguments.length_bytes)
        .min()?;
    (shortest >= BEYOND_32_BITS).then_some(shortest)
}

fn is_of_huge_pages(chain: &Chain, case: &Case) -> bool {
    chain.arguments.mapping == Some(Mapping::HugePage)
        && world(case, &chain.host).is_some_and(|world| !world.gpu_driver.is_empty())
}

/// ENOMEM of a registration that a driver counts in 32 bits.
pub(super) fn length_cut(deciding: &Deciding<'_>, case: &Case) -> Option<Finding> {
    let chain = deciding.chain;
    let deepest = chain.deepest();
    let length = is_beyond_32_bits(deciding)?;
    let fits = registers(chain.verb) && deepest.errno == ENOMEM;
    let by_driver = match deepest.layer {
        Layer::Driver => true,
        Layer::Memory => is_unlimited(chain, case),
        _ => false,
    };
    if !fits || !by_driver {
        return None;
    }
    let found = Finding::new(VerdictClass::Driver, Confidence::Medium).because(format!(
        "every range that was refused is longer than 32 bits can tell: the shortest has {length} \
         bytes, of which 32 bits keep {}",
        length % BEYOND_32_BITS
    ));
    Some(match is_of_huge_pages(chain, case) {
        false => found,
        true => found.though(
            "the range is of huge pages on a host with a GPU driver, which gives the same ENOMEM",
        ),
    })
}

/// The same ENOMEM where huge pages meet a GPU driver.
pub(super) fn huge_pages(deciding: &Deciding<'_>, case: &Case) -> Option<Finding> {
    let chain = deciding.chain;
    let deepest = chain.deepest();
    let fits = registers(chain.verb) && deepest.errno == ENOMEM && is_of_huge_pages(chain, case);
    let by_driver = match deepest.layer {
        Layer::Driver => true,
        Layer::Memory => is_unlimited(chain, case),
        _ => false,
    };
    if !fits || !by_driver {
        return None;
    }
    let gpu = &world(case, &chain.host)?.gpu_driver;
    Some(
        Finding::new(VerdictClass::GpuPeerMemory, Confidence::Medium)
            .because(format!(
                "the range is of huge pages, and the host has a GPU driver ({gpu})"
            ))
            .though("a full table of the driver gives the same errno"),
    )
}

/// A driver that does not allow what the dmabuf path needs.
pub(super) fn dmabuf_not_allowed(deciding: &Deciding<'_>, _: &Case) -> Option<Finding> {
    let chain = deciding.chain;
    let deepest = chain.deepest();
    if chain.verb != Verb::RegDmabufMr
        || deepest.layer != Layer::Driver
        || !matches!(deepest.errno, EPERM | EACCES)
    {
        return None;
    }
    Some(
        Finding::new(VerdictClass::Driver, Confidence::Medium)
            .because(
                "the driver itself refused on the dmabuf path: no helper below it failed, so that \
                 the GPU's side had let the memory go",
            )
            .though("a container without the capability gives the same errno"),
    )
}

/// A signal ended the call: whoever sent it is the cause, and the call a follower.
pub(super) fn interrupted(deciding: &Deciding<'_>, case: &Case) -> Option<Finding> {
    let chain = deciding.chain;
    if !matches!(chain.deepest().errno, EINTR | ERESTARTSYS | ERESTARTNOINTR) {
        return None;
    }
    let ended = |signal: &&Signal| {
        signal.host == chain.host
            && matches!(signal.kind, CoSignalKind::Host | CoSignalKind::Process)
            && signal.at <= chain.first_at + TOGETHER
    };
    let told = "a signal interrupted the call: the process was being ended";
    Some(match case.signals.iter().find(ended) {
        Some(signal) => {
            let class = match signal.kind {
                CoSignalKind::Host => VerdictClass::Host,
                _ => VerdictClass::Process,
            };
            Finding::new(class, Confidence::Medium)
                .because(told)
                .because(signal_line(signal))
        }
        None => Finding::new(VerdictClass::Process, Confidence::Low)
            .because(told)
            .though("who ended it was not seen: the first rank that died tells more"),
    })
}

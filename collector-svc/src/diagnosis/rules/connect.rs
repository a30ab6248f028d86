//! Connecting queue pairs: addresses and neighbours, before any driver is asked.

use std::collections::BTreeSet;

use rdmesh_proto::collector::v1::{Confidence, VerdictClass};
use rdmesh_proto::common::v1::{Layer, Verb};
use rdmesh_proto::tracer::v1::CoSignalKind;
use time::OffsetDateTime;

use super::Finding;
use super::errno::{EHOSTUNREACH, EINVAL, ENETUNREACH, ENODATA, ENOENT, ETIMEDOUT};
use crate::diagnosis::select::Deciding;
use crate::diagnosis::words::signal_line;
use crate::diagnosis::{Case, Signal};

/// The core's function that reads the source GID of a connection.
const FILL_SGID: &str = "rdma_fill_sgid_attr";
/// The core's function that looks up the neighbour's Ethernet address.
const RESOLVE_DMAC: &str = "ib_resolve_eth_dmac";

fn connects(verb: Verb) -> bool {
    matches!(verb, Verb::ModifyQp | Verb::CreateAh)
}

/// The neighbour did not answer, or there is no route: the driver is never reached.
pub(super) fn neighbour(deciding: &Deciding<'_>, case: &Case) -> Option<Finding> {
    let chain = deciding.chain;
    let deepest = chain.deepest();
    let unreachable = matches!(deepest.errno, ETIMEDOUT | EHOSTUNREACH | ENETUNREACH);
    let before_driver = matches!(deepest.layer, Layer::Core | Layer::Uverbs);
    if !connects(chain.verb) || !unreachable || !before_driver || chain.reaches(Layer::Driver) {
        return None;
    }
    let confidence = if chain.passes(RESOLVE_DMAC) {
        Confidence::High
    } else {
        Confidence::Medium
    };
    let mut finding = Finding::new(VerdictClass::Reachability, confidence)
        .because("the driver was never reached: the address of the peer was not resolved");
    let destinations: BTreeSet<&str> = deciding
        .same
        .iter()
        .filter_map(|chain| chain.arguments.destination_gid.as_deref())
        .collect();
    let hosts = deciding.hosts();
    match (destinations.len(), hosts.len()) {
        (1, sources) if sources > 1 => {
            let peer = destinations.first().copied().unwrap_or_default();
            finding = finding.because(format!(
                "{sources} hosts fail to reach one destination, {peer}: look at that host first"
            ));
        }
        (many, 1) if many > 1 => {
            finding = finding.because(format!(
                "{} fails to reach {many} destinations: look at its own port and configuration \
                 first",
                hosts[0]
            ));
        }
        (1, 1) => {
            let peer = destinations.first().copied().unwrap_or_default();
            finding = finding.because(format!("the destination is {peer}"));
        }
        _ => {}
    }
    if let Some(signal) = own_port(case, &hosts, chain.first_at) {
        finding = finding.because(format!(
            "the network of the failing host itself was not well before: {}; look there first",
            signal_line(signal)
        ));
    }
    Some(finding)
}

/// What befell the network of one of these hosts before.
fn own_port<'a>(case: &'a Case, hosts: &[String], before: OffsetDateTime) -> Option<&'a Signal> {
    case.signals.iter().find(|signal| {
        signal.independent
            && signal.kind == CoSignalKind::Network
            && signal.at <= before
            && hosts.contains(&signal.host)
    })
}

/// The slot of the GID table that the application chose is empty.
pub(super) fn gid(deciding: &Deciding<'_>, _: &Case) -> Option<Finding> {
    let chain = deciding.chain;
    let deepest = chain.deepest();
    let empty_slot = deepest.errno == ENODATA
        || (chain.passes(FILL_SGID) && matches!(deepest.errno, EINVAL | ENOENT));
    let before_driver = matches!(deepest.layer, Layer::Core | Layer::Uverbs);
    if !connects(chain.verb) || !empty_slot || !before_driver {
        return None;
    }
    let confidence = if chain.passes(FILL_SGID) || deepest.errno == ENODATA {
        Confidence::High
    } else {
        Confidence::Medium
    };
    let mut finding = Finding::new(VerdictClass::Configuration, confidence)
        .because("the core refused before any driver was asked");
    if let Some(index) = chain.arguments.gid_index {
        finding = finding.because(format!("the application asked for GID index {index}"));
    }
    Some(finding)
}

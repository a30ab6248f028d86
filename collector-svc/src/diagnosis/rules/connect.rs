//! Connecting queue pairs: addresses and neighbours, before any driver is asked.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use rdmesh_proto::collector::v1::{Confidence, VerdictClass};
use rdmesh_proto::common::v1::{Layer, Verb};
use rdmesh_proto::tracer::v1::CoSignalKind;
use time::OffsetDateTime;

use super::Finding;
use super::errno::{EHOSTUNREACH, EINVAL, ENETUNREACH, ENODATA, ENOENT, ETIMEDOUT};
use crate::diagnosis::select::Deciding;
use crate::diagnosis::words::signal_line;
use crate::diagnosis::{Case, Chain, Owner, Signal};

/// The core's function that reads the source GID of a connection.
const FILL_SGID: &str = "rdma_fill_sgid_attr";
/// The core's function that looks up the neighbour's Ethernet address.
const RESOLVE_DMAC: &str = "ib_resolve_eth_dmac";

fn connects(verb: Verb) -> bool {
    matches!(verb, Verb::ModifyQp | Verb::CreateAh)
}

/// Whether the peer's address was not resolved, so that the driver was never reached.
fn is_unresolved(chain: &Chain) -> bool {
    let deepest = chain.deepest();
    let unreachable = matches!(deepest.errno, ETIMEDOUT | EHOSTUNREACH | ENETUNREACH);
    let before_driver = matches!(deepest.layer, Layer::Core | Layer::Uverbs);
    connects(chain.verb) && unreachable && before_driver && !chain.reaches(Layer::Driver)
}

const NOT_RESOLVED: &str = "the driver was never reached: the address of the peer was not resolved";

/// Connections that all lead from one rail to another: the fabric joins the ports of one rail,
/// and often nothing joins the rails. A rail is the devices of one name, as hosts of a cluster
/// are alike.
pub(super) fn across_rails(deciding: &Deciding<'_>, case: &Case) -> Option<Finding> {
    if !is_unresolved(deciding.chain) {
        return None;
    }
    let mut pairs = BTreeSet::new();
    for chain in &deciding.same {
        let peer = peer_of(case, chain.destination()?)?;
        if chain.device.is_empty() || chain.device == peer.device || chain.host == peer.host {
            return None;
        }
        pairs.insert((
            (chain.host.as_str(), chain.device.as_str()),
            (peer.host.as_str(), peer.device.as_str()),
        ));
    }
    if pairs.len() < ACROSS_RAILS_FROM {
        return None;
    }
    let named = pairs.iter().take(PAIRS_NAMED);
    let named: Vec<String> = named
        .map(|((host, device), (peer, other))| format!("{host} {device} to {peer} {other}"))
        .collect();
    let finding = Finding::new(VerdictClass::Configuration, Confidence::Medium)
        .because(NOT_RESOLVED)
        .because(format!(
            "all {} connections that fail lead from one rail to another: {}",
            pairs.len(),
            named.join(", ")
        ));
    Some(
        match own_port(case, &deciding.hosts(), deciding.chain.first_at) {
            Some(signal) => finding.though(format!(
                "the network of the failing host itself was not well before: {}",
                signal_line(signal)
            )),
            None => finding,
        },
    )
}

/// Connections across rails from which on it is no chance: of two hosts with eight rails each,
/// seven in eight pairs lead across.
const ACROSS_RAILS_FROM: usize = 3;
/// Of those, how many the evidence names.
const PAIRS_NAMED: usize = 3;

/// The port with this address, where only one has it.
fn peer_of(case: &Case, gid: Ipv6Addr) -> Option<&Owner> {
    match case.owners.get(&gid).map(Vec::as_slice) {
        Some([owner]) => Some(owner),
        _ => None,
    }
}

/// An address, with who has it.
fn named(case: &Case, gid: Ipv6Addr) -> String {
    match case.owners.get(&gid).map(Vec::as_slice) {
        None | Some([]) => gid.to_string(),
        Some([owner]) => format!("{gid} ({} {})", owner.host, owner.device),
        Some(owners) => {
            let owners = owners.iter().take(PAIRS_NAMED);
            let owners: Vec<String> = owners.map(|o| format!("{} {}", o.host, o.device)).collect();
            format!(
                "{gid} (told by more than one port: {}; an address must be one port's)",
                owners.join(", ")
            )
        }
    }
}

/// The neighbour did not answer, or there is no route: the driver is never reached.
pub(super) fn neighbour(deciding: &Deciding<'_>, case: &Case) -> Option<Finding> {
    let chain = deciding.chain;
    if !is_unresolved(chain) {
        return None;
    }
    let confidence = if chain.passes(RESOLVE_DMAC) {
        Confidence::High
    } else {
        Confidence::Medium
    };
    let mut finding = Finding::new(VerdictClass::Reachability, confidence).because(NOT_RESOLVED);
    let destinations: BTreeSet<Ipv6Addr> = deciding
        .same
        .iter()
        .filter_map(|chain| chain.destination())
        .collect();
    let hosts = deciding.hosts();
    let first = destinations.first().map(|gid| named(case, *gid));
    match (destinations.len(), hosts.len(), first) {
        (1, sources, Some(peer)) if sources > 1 => {
            finding = finding.because(format!(
                "{sources} hosts fail to reach one destination, {peer}: look at that host first"
            ));
        }
        (many, 1, _) if many > 1 => {
            finding = finding.because(format!(
                "{} fails to reach {many} destinations: look at its own port and configuration \
                 first",
                hosts[0]
            ));
        }
        (1, 1, Some(peer)) => {
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

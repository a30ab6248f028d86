//! Whom a connection was to reach, by the addresses that inventories tell.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use rdmesh_collector::diagnosis::{Case, Owner, diagnose};
use rdmesh_proto::collector::v1::{Confidence, VerdictClass as Class};

use crate::made::{case, modify_qp};
use crate::rules::judged;

/// Connections of gpu-01 … that fail, each from its host's device to a host's device.
fn unresolved(pairs: &[(&str, &str, &str, &str)]) -> Case {
    let mut owners = BTreeMap::new();
    let chains = pairs.iter().zip(1..).map(|(pair, number)| {
        let (host, device, peer, other) = *pair;
        let gid = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number);
        let owner = |host: &str| Owner {
            host: host.to_owned(),
            device: other.to_owned(),
        };
        owners.insert(gid, peer.split(',').map(owner).collect());
        let mut chain = modify_qp(110, "ib_resolve_eth_dmac");
        (chain.host, chain.device) = (host.into(), device.into());
        chain.arguments.destination_gid = Some(gid.to_string());
        chain
    });
    let chains = chains.collect();
    Case {
        owners,
        ..case(chains)
    }
}

#[test]
fn connections_that_fail_only_across_rails() {
    let across = [
        ("gpu-01", "mlx5_0", "gpu-02", "mlx5_1"),
        ("gpu-01", "mlx5_1", "gpu-02", "mlx5_0"),
        ("gpu-02", "mlx5_0", "gpu-03", "mlx5_3"),
    ];
    let case = unresolved(&across);
    assert_eq!(
        judged(&case),
        (
            Class::Configuration,
            "only-across-rails",
            Confidence::Medium
        )
    );
    let evidence = diagnose(&case).evidence.join("\n");
    assert!(
        evidence.contains("gpu-01 mlx5_0 to gpu-02 mlx5_1"),
        "{evidence}"
    );
    // One within a rail, two alone, one whose owner is not known or not one: no such thing.
    let mut within = across;
    within[2].3 = "mlx5_0";
    let mut twice = across;
    twice[1].2 = "gpu-02,gpu-03";
    let mut unknown = unresolved(&across);
    unknown.owners.pop_first();
    for other in [
        unresolved(&within),
        unresolved(&across[..2]),
        unresolved(&twice),
        unknown,
    ] {
        assert_eq!(judged(&other).1, "neighbour-not-resolved");
    }
}

#[test]
fn a_destination_is_named_by_its_host_and_by_both_if_two_tell_it() {
    let evidence = |peer| {
        let case = unresolved(&[("gpu-01", "mlx5_0", peer, "mlx5_0")]);
        diagnose(&case).evidence.join("\n")
    };
    let one = evidence("gpu-02");
    assert!(one.contains("fd00::1 (gpu-02 mlx5_0)"), "{one}");
    let two = evidence("gpu-02,gpu-09");
    assert!(
        two.contains("told by more than one port: gpu-02 mlx5_0, gpu-09 mlx5_0"),
        "{two}"
    );
}

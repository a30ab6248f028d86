//! Whole verdicts, as a person reads them. A change of words or rules is deliberate:
//! `cargo insta review`.

use std::fmt::Write;

use rdmesh_collector::diagnosis::{Arguments, Case, HostWorld, Mapping, Verdict, diagnose};
use rdmesh_proto::common::v1::{Layer, Verb};

use crate::made::{after, case, chain, modify_qp, reg_mr};

fn written(verdict: &Verdict) -> String {
    let mut text = String::new();
    let first_at = verdict
        .first_at
        .map(|at| at.to_string())
        .unwrap_or_default();
    writeln!(text, "{}", verdict.summary).unwrap();
    writeln!(
        text,
        "class {:?}, confidence {:?}, rule {}",
        verdict.class, verdict.confidence, verdict.rule
    )
    .unwrap();
    writeln!(
        text,
        "where {:?} {} {} {}",
        verdict.layer, verdict.function, verdict.module, verdict.errno_name
    )
    .unwrap();
    writeln!(
        text,
        "hosts {:?}, devices {:?}, first at {first_at}",
        verdict.hosts, verdict.devices
    )
    .unwrap();
    writeln!(text, "call {}", verdict.route_to).unwrap();
    writeln!(text, "meaning: {}", verdict.meaning).unwrap();
    for (title, lines) in [
        ("next", &verdict.next_steps),
        ("evidence", &verdict.evidence),
        ("against", &verdict.against),
        ("unwatched", &verdict.unwatched),
    ] {
        writeln!(text, "{title}:").unwrap();
        for line in lines {
            writeln!(text, "  - {line}").unwrap();
        }
    }
    text
}

fn golden(name: &str, case: &Case) {
    insta::assert_snapshot!(name, written(&diagnose(case)));
}

#[test]
fn an_unmapped_address() {
    let mut failing = reg_mr(14);
    failing.arguments = Arguments {
        mapping: Some(Mapping::None),
        address: Some("0x7f00dead0000".into()),
        length_bytes: Some(4_096),
        ..Arguments::default()
    };
    golden("unmapped_address", &case(vec![failing]));
}

#[test]
fn a_gpu_address_without_peer_memory() {
    let mut failing = reg_mr(14);
    failing.arguments.mapping = Some(Mapping::DevicePfn);
    let mut case = case(vec![failing]);
    case.hosts[0].world = Some(HostWorld {
        gpu_driver: "nvidia".into(),
        ..HostWorld::default()
    });
    golden("gpu_address", &case);
}

#[test]
fn memlock_exceeded() {
    let mut failing = reg_mr(12);
    failing.arguments.length_bytes = Some(1 << 30);
    let mut limited = case(vec![failing]);
    limited.hosts[0].world = Some(HostWorld {
        memlock_bytes: Some(8 << 20),
        limits_told: true,
        ..HostWorld::default()
    });
    golden("memlock", &limited);
}

#[test]
fn a_neighbour_that_many_hosts_miss() {
    let mut chains = Vec::new();
    for n in 1..=3 {
        let mut silent = modify_qp(110, "ib_resolve_eth_dmac");
        silent.host = format!("gpu-{n:02}");
        silent.first_at = after(n * 10);
        silent.count = 34;
        silent.rank = i32::try_from(n).ok();
        silent.arguments.destination_gid = Some("::ffff:10.0.0.9".into());
        chains.push(silent);
    }
    golden("neighbour", &case(chains));
}

#[test]
fn a_wrong_transition() {
    let mut wrong = modify_qp(22, "mlx5_ib_modify_qp");
    wrong.arguments.current_state = Some("RESET".into());
    wrong.arguments.asked_state = Some("RTS".into());
    golden("wrong_transition", &case(vec![wrong]));
}

#[test]
fn an_empty_gid_slot() {
    let empty = chain(
        Verb::CreateAh,
        61,
        &[
            ("rdma_create_user_ah", "ib_core", Layer::Core),
            ("ib_uverbs_create_ah", "ib_uverbs", Layer::Uverbs),
        ],
    );
    golden("empty_gid", &case(vec![empty]));
}

#[test]
fn nothing_at_all() {
    golden("nothing", &case(vec![]));
}

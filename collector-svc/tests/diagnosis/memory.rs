//! Rules of the memory layer, by cause known by construction.

use rdmesh_collector::diagnosis::{Arguments, HostWorld, Mapping, diagnose};
use rdmesh_proto::collector::v1::{Confidence, VerdictClass as Class};
use rdmesh_proto::common::v1::{Layer, Verb};

use crate::made::{REG_MR, UVERBS_REG_MR, case, chain, reg_mr};
use crate::rules::{judged, mapping, with};

#[test]
fn memory_bad_address() {
    let rule = "memory-bad-address";
    let application = Class::ApplicationArguments;
    for (chain, expected) in [
        (
            with(reg_mr(14), mapping(Mapping::None)),
            (application, rule, Confidence::High),
        ),
        (
            with(reg_mr(14), mapping(Mapping::DevicePfn)),
            (Class::GpuPeerMemory, rule, Confidence::Low),
        ),
        (
            with(reg_mr(14), mapping(Mapping::File)),
            (application, rule, Confidence::Medium),
        ),
        (
            with(reg_mr(14), mapping(Mapping::Anonymous)),
            (application, rule, Confidence::Medium),
        ),
    ] {
        assert_eq!(judged(&case(vec![chain])), expected);
    }
}

#[test]
fn pages_of_a_device_are_a_gpu_s_where_the_host_has_one() {
    let mut pages = case(vec![with(reg_mr(14), mapping(Mapping::DevicePfn))]);
    let verdict = diagnose(&pages);
    assert!(
        verdict.against[0].contains("no GPU driver"),
        "{:?}",
        verdict.against
    );
    pages.hosts[0].world = Some(HostWorld {
        gpu_driver: "nvidia".into(),
        ..HostWorld::default()
    });
    assert_eq!(judged(&pages).2, Confidence::High);
    pages.hosts[0].world = None;
    assert_eq!(judged(&pages).2, Confidence::Medium);
}

#[test]
fn an_unknown_mapping_is_told_apart_by_what_the_host_is() {
    let mut without_gpu = case(vec![reg_mr(14)]);
    assert_eq!(judged(&without_gpu).2, Confidence::High);
    without_gpu.hosts[0].world = Some(HostWorld {
        gpu_driver: "nvidia".into(),
        ..HostWorld::default()
    });
    let verdict = diagnose(&without_gpu);
    assert_eq!(
        (verdict.class, verdict.confidence),
        (Class::ApplicationArguments, Confidence::Medium)
    );
    assert!(
        verdict.against[0].contains("GPU address"),
        "{:?}",
        verdict.against
    );
    let peer = ("ib_umem_get_peer", "ib_uverbs", Layer::Memory);
    let inner = ("ib_peer_umem_get", "ib_uverbs", Layer::Memory);
    let asked = chain(Verb::RegMr, 14, &[inner, peer, REG_MR, UVERBS_REG_MR]);
    assert_eq!(diagnose(&case(vec![asked])).class, Class::GpuPeerMemory);
}

#[test]
fn memory_limits() {
    let sized = |length| Arguments {
        length_bytes: Some(length),
        ..Arguments::default()
    };
    let mut limited = case(vec![with(reg_mr(12), sized(1 << 30))]);
    limited.hosts[0].world = Some(HostWorld {
        memlock_bytes: Some(8 << 20),
        limits_told: true,
        ..HostWorld::default()
    });
    assert_eq!(
        judged(&limited),
        (Class::MemoryLimits, "memory-limits", Confidence::High)
    );
    limited.chains[0].arguments = sized(4_096);
    assert_eq!(judged(&limited).2, Confidence::Medium);
    let against = &diagnose(&limited).against;
    assert!(
        against[0].contains("the process's own may be less"),
        "a limit that was kept speaks for nothing: {against:?}"
    );
    limited.hosts[0].world = Some(HostWorld {
        limits_told: true,
        ..HostWorld::default()
    });
    assert_eq!(
        judged(&limited),
        (Class::MemoryLimits, "memory-limits", Confidence::Low)
    );
    for errno in [1, 11] {
        assert_eq!(
            judged(&case(vec![reg_mr(errno)])).0,
            Class::MemoryLimits,
            "errno {errno}"
        );
    }
}

#[test]
fn memory_dmabuf() {
    let dmabuf = |errno| {
        let inner = ("ib_umem_dmabuf_get", "ib_uverbs", Layer::Memory);
        let driver = ("mlx5_ib_reg_user_mr_dmabuf", "mlx5_ib", Layer::Driver);
        chain(Verb::RegDmabufMr, errno, &[inner, driver])
    };
    assert_eq!(judged(&case(vec![dmabuf(95)])).0, Class::GpuPeerMemory);
    assert_eq!(
        judged(&case(vec![dmabuf(9)])).0,
        Class::ApplicationArguments
    );
    let mut probing = dmabuf(9);
    probing.flags.expected = true;
    assert_eq!(judged(&case(vec![probing])).0, Class::CannotTell);
}

#[test]
fn memory_other() {
    assert_eq!(
        judged(&case(vec![reg_mr(22)])).0,
        Class::ApplicationArguments
    );
    assert_eq!(
        judged(&case(vec![reg_mr(16)])),
        (Class::MemoryPinning, "memory-other", Confidence::Low)
    );
}

//! Cases with one failure, to be changed by each test.

use rdmesh_collector::diagnosis::{
    Arguments, Case, Chain, ChainFlags, HostWatch, HostWorld, ProbeState, Probes, Step,
    WatchedProbe,
};
use rdmesh_proto::collector::v1::JobState;
use rdmesh_proto::common::v1::{Layer, Verb};
use std::time::Duration;
use time::OffsetDateTime;
use time::macros::datetime;

pub(crate) const T0: OffsetDateTime = datetime!(2026-11-25 12:00:00.250 UTC);

pub(crate) fn after(millis: u64) -> OffsetDateTime {
    T0 + Duration::from_millis(millis)
}

pub(crate) fn step(function: &str, module: &str, layer: Layer, errno: i32) -> Step {
    Step {
        function: function.into(),
        module: module.into(),
        layer,
        errno,
    }
}

/// A chain of one errno; `steps` are (function, module, layer), innermost first.
pub(crate) fn chain(verb: Verb, errno: i32, steps: &[(&str, &str, Layer)]) -> Chain {
    let driver = steps
        .iter()
        .find(|s| s.2 == Layer::Driver)
        .map_or("mlx5_ib", |s| s.1);
    Chain {
        host: "gpu-01".into(),
        first_at: T0,
        last_at: T0,
        count: 1,
        verb,
        steps: steps
            .iter()
            .map(|(f, m, layer)| step(f, m, *layer, errno))
            .collect(),
        driver: driver.into(),
        device: "mlx5_0".into(),
        tgid: 100,
        tid: 100,
        comm: "python".into(),
        rank: Some(3),
        flags: ChainFlags::default(),
        doubts: Vec::new(),
        time_doubts: Vec::new(),
        clock_notes: Vec::new(),
        arguments: Arguments::default(),
    }
}

pub(crate) const UMEM: (&str, &str, Layer) = ("ib_umem_get", "ib_uverbs", Layer::Memory);
pub(crate) const REG_MR: (&str, &str, Layer) = ("mlx5_ib_reg_user_mr", "mlx5_ib", Layer::Driver);
pub(crate) const UVERBS_REG_MR: (&str, &str, Layer) =
    ("ib_uverbs_reg_mr", "ib_uverbs", Layer::Uverbs);

/// A failing registration down to the memory helpers.
pub(crate) fn reg_mr(errno: i32) -> Chain {
    chain(Verb::RegMr, errno, &[UMEM, REG_MR, UVERBS_REG_MR])
}

/// A modify_qp that ends at `deepest`, with everything outside of it.
pub(crate) fn modify_qp(errno: i32, deepest: &str) -> Chain {
    let all = [
        ("mlx5_ib_modify_qp", "mlx5_ib", Layer::Driver),
        ("ib_resolve_eth_dmac", "ib_core", Layer::Core),
        ("rdma_fill_sgid_attr", "ib_core", Layer::Core),
        ("_ib_modify_qp", "ib_core", Layer::Core),
        ("ib_modify_qp_with_udata", "ib_core", Layer::Core),
        ("modify_qp", "ib_uverbs", Layer::Uverbs),
        ("ib_uverbs_modify_qp", "ib_uverbs", Layer::Uverbs),
    ];
    let helpers = ["ib_resolve_eth_dmac", "rdma_fill_sgid_attr"];
    let steps: Vec<_> = all
        .into_iter()
        .filter(|(function, _, layer)| {
            *function == deepest || !(helpers.contains(function) || *layer == Layer::Driver)
        })
        .collect();
    chain(Verb::ModifyQp, errno, &steps)
}

pub(crate) fn probe(hook: &str, layer: Layer, verb: Verb, state: ProbeState) -> WatchedProbe {
    WatchedProbe {
        hook: hook.into(),
        layer,
        verb,
        logical: true,
        state,
        missing_because: Vec::new(),
    }
}

/// A host where everything is watched.
pub(crate) fn watched(host: &str) -> HostWatch {
    let attached = |hook, layer, verb| probe(hook, layer, verb, ProbeState::Attached);
    HostWatch {
        host: host.into(),
        known: true,
        probes: Some(Probes {
            obstacle: String::new(),
            probes: vec![
                attached("memory.umem", Layer::Memory, Verb::Unspecified),
                attached("firmware.command", Layer::Firmware, Verb::FirmwareCommand),
                attached("driver.reg_mr", Layer::Driver, Verb::RegMr),
                attached("driver.create_qp", Layer::Driver, Verb::CreateQp),
                attached("driver.create_cq", Layer::Driver, Verb::CreateCq),
                attached("driver.modify_qp", Layer::Driver, Verb::ModifyQp),
                attached("driver.create_ah", Layer::Driver, Verb::CreateAh),
                attached("uverbs.reg_mr", Layer::Uverbs, Verb::RegMr),
            ],
        }),
        world: Some(HostWorld::default()),
        watched_seconds: 60.0,
        attempt_seconds: 60.0,
        settled: true,
        drops: 0,
        counter_overflow: 0,
        unseen: 0,
    }
}

/// An attempt with these failures on watched hosts.
pub(crate) fn case(chains: Vec<Chain>) -> Case {
    let mut hosts: Vec<String> = chains.iter().map(|c| c.host.clone()).collect();
    hosts.push("gpu-01".into());
    hosts.sort();
    hosts.dedup();
    Case {
        attempt: "4711/0".into(),
        state: JobState::Failed,
        told: true,
        started_at: Some(after(0) - Duration::from_secs(30)),
        ended_at: Some(after(30_000)),
        placed_on: hosts.clone(),
        chains,
        hosts: hosts.iter().map(|host| watched(host)).collect(),
        ..Case::default()
    }
}

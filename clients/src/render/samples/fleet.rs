//! Agents and probes.

use rdmesh_client::model::agent::Agent;
use rdmesh_client::model::probe::HostProbes;
use rdmesh_proto::collector::v1 as wire;
use rdmesh_proto::common::v1 as common;
use rdmesh_proto::tracer::v1 as tracer;

use super::{later, texts};

pub(crate) fn agents() -> Vec<Agent> {
    let healthy = wire::Agent {
        host: "gpu-01".into(),
        kind: common::AgentKind::Tracer.into(),
        health: wire::AgentHealth::Healthy.into(),
        version: "0.1.0".into(),
        kernel_release: "6.1.0-31-amd64".into(),
        address: "10.0.0.1:7401".into(),
        last_seen_at: later(242),
        clock_offset_ns: Some(1_240_000),
        logical_attached: 13,
        logical_total: 13,
        failures: 300_000,
        snapshots: 812,
        run_id: "2f1c7c9e-0000-4000-8000-000000000001".into(),
        boot_id: "2f1c7c9e-0000-4000-8000-000000000002".into(),
        certificate_ends_at: later(90 * 86_400),
        lag_seconds: Some(0.23),
        ..wire::Agent::default()
    };
    let degraded = wire::Agent {
        host: "gpu-02".into(),
        health: wire::AgentHealth::Degraded.into(),
        reasons: texts(&[
            "2 of 13 logical hooks are not watched: driver.reg_user_mr_dmabuf, memory.dmabuf",
            "51200 records were dropped in the last interval",
        ]),
        logical_attached: 11,
        drops: 51_200,
        snapshots_missing: 1,
        certificate_ends_at: later(86_400),
        lag_seconds: Some(75.2),
        clock_offset_ns: Some(-61_000_000_000),
        ..healthy.clone()
    };
    let silent = wire::Agent {
        host: "gpu-09".into(),
        health: wire::AgentHealth::Silent.into(),
        reasons: texts(&["nothing came for 2 h"]),
        last_seen_at: later(-7_200),
        clock_offset_ns: None,
        ..healthy.clone()
    };
    [silent, degraded, healthy].map(Agent::from).into()
}

pub(crate) fn probes() -> HostProbes {
    let probe = |hook: &str, function: &str, module: &str, layer: common::Layer| tracer::Probe {
        hook: hook.into(),
        function: function.into(),
        module: module.into(),
        layer: layer.into(),
        verb: common::Verb::RegMr.into(),
        object: common::ObjectType::Mr.into(),
        logical: true,
        state: tracer::ProbeState::Attached.into(),
        attached_by: tracer::AttachKind::Fexit.into(),
        found_by: "by name".into(),
        ..tracer::Probe::default()
    };
    let missing = tracer::Probe {
        state: tracer::ProbeState::Missing.into(),
        attached_by: 0,
        found_by: String::new(),
        reason: "rdma_rxe has no reg_user_mr_dmabuf operation".into(),
        ..probe("driver.reg_user_mr_dmabuf", "", "", common::Layer::Driver)
    };
    let driver = tracer::Probe {
        found_by: "ib_device_ops of rdma_rxe".into(),
        attached_by: tracer::AttachKind::KretprobeMulti.into(),
        reason: "no fexit: module rdma_rxe has no BTF".into(),
        failures: 100_000,
        drops: 51_200,
        runs_timed: 40_000,
        run_time_ns: 11_360_000,
        ..probe(
            "driver.reg_mr",
            "rxe_reg_user_mr",
            "rdma_rxe",
            common::Layer::Driver,
        )
    };
    let extra = tracer::Probe {
        logical: false,
        state: tracer::ProbeState::Replaced.into(),
        attached_by: tracer::AttachKind::Unspecified.into(),
        reason: "served by ib_core:modify_qp_v2; ib_uverbs has no function modify_qp".into(),
        ..probe(
            "core.modify_qp",
            "modify_qp",
            "ib_uverbs",
            common::Layer::Core,
        )
    };
    let report = tracer::ProbeReport {
        resolved_at: later(-600),
        kernel_release: "6.1.0-31-amd64".into(),
        drivers: texts(&["rdma_rxe"]),
        probes: vec![
            probe(
                "memory.umem",
                "ib_umem_get",
                "ib_uverbs",
                common::Layer::Memory,
            ),
            missing,
            driver,
            extra,
            probe(
                "uverbs.reg_mr",
                "ib_uverbs_reg_mr",
                "ib_uverbs",
                common::Layer::Uverbs,
            ),
        ],
        logical_attached: 12,
        logical_total: 13,
        obstacle: String::new(),
        cost: Some(tracer::TracerCost {
            process_cpu_share: 0.0021,
            probes_cpu_share: Some(0.000_04),
        }),
        resolution: String::new(),
    };
    wire::GetHostProbesResponse {
        host: "gpu-01".into(),
        reported_at: later(0),
        report: Some(report),
        ..wire::GetHostProbesResponse::default()
    }
    .try_into()
    .unwrap()
}

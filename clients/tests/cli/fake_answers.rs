//! What the fake knows by heart.

use rdmesh_proto::collector::v1 as wire;
use rdmesh_proto::common::v1 as common;
use rdmesh_proto::tracer::v1 as tracer;

fn chain() -> Vec<tracer::ChainStep> {
    vec![tracer::ChainStep {
        function: "ib_umem_get".into(),
        module: "ib_uverbs".into(),
        layer: common::Layer::Memory.into(),
        errno: 14,
        errno_name: "EFAULT".into(),
    }]
}

/// An attempt that failed.
pub(crate) fn failed_job(job_id: &str) -> wire::Job {
    wire::Job {
        attempt: Some(common::AttemptId {
            job_id: job_id.into(),
            ..common::AttemptId::default()
        }),
        state: wire::JobState::Failed.into(),
        ..wire::Job::default()
    }
}

pub(crate) fn failure(index: usize) -> wire::Failure {
    wire::Failure {
        host: "gpu-01".into(),
        count: 1 + u64::try_from(index).unwrap(),
        steps: chain(),
        comm: "\u{1b}[31mtrain".into(),
        ..wire::Failure::default()
    }
}

pub(crate) fn verdict() -> wire::Verdict {
    wire::Verdict {
        class: wire::VerdictClass::ApplicationArguments.into(),
        layer: common::Layer::Memory.into(),
        function: "ib_umem_get".into(),
        module: "ib_uverbs".into(),
        errno: 14,
        errno_name: "EFAULT".into(),
        hosts: vec!["gpu-01".into()],
        confidence: wire::Confidence::High.into(),
        route_to: "application owner".into(),
        summary: "Memory at an address that is not mapped was registered.".into(),
        chain: chain(),
        ..wire::Verdict::default()
    }
}

//! Answers for goldens, built as the collector sends them.

mod doctor;
mod fleet;
pub(crate) mod incidents;
mod logs;
mod report;
pub(crate) mod statistics;
pub(crate) mod wires;

use rdmesh_client::Moment;
use rdmesh_client::model::failure::Failure;
use rdmesh_client::model::job::Job;
use rdmesh_client::model::verdict::Diagnosis;
use rdmesh_proto::collector::v1 as wire;
use rdmesh_proto::common::v1 as common;
use rdmesh_proto::tracer::v1 as tracer;
use time::macros::datetime;

pub(crate) use doctor::examination;
pub(crate) use fleet::{agents, probes};
pub(crate) use logs::{advice, submitted_log};
pub(crate) use report::{hostile_report, report};

/// 2026-01-31 14:05:00.123456 UTC.
const FAILED_AT: prost_types::Timestamp = prost_types::Timestamp {
    seconds: 1_769_868_300,
    nanos: 123_456_000,
};

/// Four minutes after the failure.
pub(crate) fn now() -> Moment {
    Moment::from_utc(datetime!(2026-01-31 14:09:05 UTC))
}

fn later(seconds: i64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp {
        seconds: FAILED_AT.seconds + seconds,
        nanos: FAILED_AT.nanos,
    })
}

fn attempt(job_id: &str, requeue: u32, restart: u32) -> Option<common::AttemptId> {
    Some(common::AttemptId {
        job_id: job_id.to_owned(),
        requeue,
        restart,
    })
}

fn texts(items: &[&str]) -> Vec<String> {
    items.iter().map(|&item| item.to_owned()).collect()
}

fn wire_job() -> wire::Job {
    wire::Job {
        attempt: attempt("4711", 0, 0),
        name: "llama-70b".into(),
        user: "ada".into(),
        scheduler: "slurm".into(),
        cluster: "west".into(),
        job_class: "training".into(),
        state: wire::JobState::Failed.into(),
        started_at: later(-3_600),
        ended_at: later(2),
        exit_code: Some(1),
        exit_reason: "NonZeroExitCode".into(),
        placements: vec![
            wire::Placement {
                host: "gpu-01".into(),
                ranks: (0..8).collect(),
                devices: texts(&["mlx5_0", "mlx5_1"]),
                ..wire::Placement::default()
            },
            wire::Placement {
                host: "gpu-02".into(),
                ranks: (8..16).collect(),
                ..wire::Placement::default()
            },
        ],
        marks: Vec::new(),
        hosts_total: 2,
        first_hosts: texts(&["gpu-01", "gpu-02"]),
        labels: [("model".to_owned(), "llama".to_owned())].into(),
    }
}

pub(crate) fn job() -> Job {
    wire_job().into()
}

/// An attempt that was told of late and strangely.
pub(crate) fn odd_job() -> Job {
    wire::Job {
        attempt: attempt("4711", 1, 2),
        state: wire::JobState::Unknown.into(),
        ended_at: later(-10),
        started_at: later(0),
        marks: texts(&["ended before it started", "host gpu-09 has never reported"]),
        hosts_total: 4,
        first_hosts: texts(&["gpu-05", "gpu-06", "gpu-07", "gpu-09"]),
        placements: ["gpu-05", "gpu-06", "gpu-07", "gpu-09"]
            .map(|host| wire::Placement {
                host: host.into(),
                ..wire::Placement::default()
            })
            .into(),
        ..wire::Job::default()
    }
    .into()
}

fn step(
    function: &str,
    module: &str,
    layer: common::Layer,
    errno: u32,
    errno_name: &str,
) -> tracer::ChainStep {
    tracer::ChainStep {
        function: function.into(),
        module: module.into(),
        layer: layer.into(),
        errno,
        errno_name: errno_name.into(),
    }
}

fn reg_mr_chain() -> Vec<tracer::ChainStep> {
    vec![
        step(
            "ib_umem_get",
            "ib_uverbs",
            common::Layer::Memory,
            14,
            "EFAULT",
        ),
        step(
            "rxe_reg_user_mr",
            "rdma_rxe",
            common::Layer::Driver,
            14,
            "EFAULT",
        ),
        step(
            "ib_uverbs_reg_mr",
            "ib_uverbs",
            common::Layer::Uverbs,
            14,
            "EFAULT",
        ),
    ]
}

fn wire_failure() -> wire::Failure {
    wire::Failure {
        host: "gpu-01".into(),
        first_at: Some(FAILED_AT),
        last_at: Some(FAILED_AT),
        count: 1,
        verb: common::Verb::RegMr.into(),
        steps: reg_mr_chain(),
        driver: "rdma_rxe".into(),
        device: "rxe0".into(),
        netdev: "eth0".into(),
        tgid: 311,
        tid: 311,
        comm: "train".into(),
        cgroup_path: "/slurm/job_4711".into(),
        rank: Some(3),
        local_rank: Some(3),
        attempt: attempt("4711", 0, 0),
        source: common::IdentitySource::Environment.into(),
        arguments: Some(wire::CallArguments {
            mapping: tracer::Mapping::None.into(),
            address: Some("0x7f0000000000".into()),
            length_bytes: Some(4_096),
            access_flags: Some(1),
            ..wire::CallArguments::default()
        }),
        host_first_at: later(-3_600),
        run_id: "0198f2b4-0000-7000-8000-000000000001".into(),
        sequence: 17,
        ordinal: 2,
        ..wire::Failure::default()
    }
}

pub(crate) fn failures() -> Vec<Failure> {
    let changed = wire::Failure {
        host: "gpu-02".into(),
        first_at: later(-60),
        count: 100_000,
        verb: common::Verb::CreateQp.into(),
        steps: vec![
            step(
                "mlx5_cmd_exec",
                "mlx5_core",
                common::Layer::Firmware,
                12,
                "ENOMEM",
            ),
            step(
                "mlx5_ib_create_qp",
                "mlx5_ib",
                common::Layer::Driver,
                22,
                "",
            ),
            step(
                "ib_create_qp_user",
                "ib_core",
                common::Layer::Core,
                22,
                "EINVAL",
            ),
        ],
        device: "mlx5_0".into(),
        arguments: None,
        comm: String::new(),
        rank: None,
        attempt: None,
        swallowed: true,
        incomplete: true,
        ..wire_failure()
    };
    let hostile = wire::Failure {
        comm: "\u{1b}[2Jtr\u{fffd}in\n".into(),
        expected: true,
        marks: texts(&["comm is not UTF-8"]),
        steps: vec![step("odd", "", common::Layer::Unspecified, 4_000, "")],
        verb: 99,
        ..wire_failure()
    };
    [wire_failure(), changed, hostile].map(Failure::from).into()
}

fn wire_verdict() -> wire::Verdict {
    wire::Verdict {
        class: wire::VerdictClass::ApplicationArguments.into(),
        layer: common::Layer::Memory.into(),
        function: "ib_umem_get".into(),
        module: "ib_uverbs".into(),
        errno: 14,
        errno_name: "EFAULT".into(),
        hosts: texts(&["gpu-01"]),
        devices: texts(&["rxe0"]),
        first_at: Some(FAILED_AT),
        confidence: wire::Confidence::High.into(),
        route_to: "application owner".into(),
        rule: "memory.address_not_mapped".into(),
        evidence: texts(&[
            "ib_umem_get failed first, at the bottom of the chain, and every function above it \
             handed the same errno on",
            "the address 0x7f0000000000 lies in no mapping of the process",
        ]),
        against: texts(&["only one rank of sixteen failed"]),
        unwatched: texts(&["driver.reg_user_mr_dmabuf on gpu-01: rdma_rxe has no such operation"]),
        summary: "Rank 3 on gpu-01 registered memory at an address that is not mapped (EFAULT in \
                  ib_umem_get): a fault of the application."
            .into(),
        meaning: "The kernel could not pin the pages, because the process has no memory at that \
                  address. Usually the buffer was freed or never allocated before it was \
                  registered."
            .into(),
        next_steps: texts(&[
            "Look for the buffer's life time in the application: is it freed before \
             ibv_reg_mr returns?",
            "Run rank 3 again with its allocator's checks.",
        ]),
        verb: common::Verb::RegMr.into(),
        chain: reg_mr_chain(),
        failures_looked_at: 1,
        failures_total: 1,
        same_failure: Vec::new(),
        decided_at: None,
    }
}

fn total(host: &str, step: tracer::ChainStep, count: u64) -> wire::FailureTotal {
    wire::FailureTotal {
        host: host.into(),
        function: step.function,
        module: step.module,
        layer: step.layer,
        errno: step.errno,
        errno_name: step.errno_name,
        count,
    }
}

fn answer(verdict: wire::Verdict, totals: Vec<wire::FailureTotal>) -> wire::DiagnoseResponse {
    wire::DiagnoseResponse {
        job: Some(wire_job()),
        verdict: Some(verdict),
        failures: vec![wire_failure()],
        totals,
        ..wire::DiagnoseResponse::default()
    }
}

/// Where calls like it leave good ones: captured on another host of the fleet.
fn captured(name: &str) -> Option<wire::CapturedFork> {
    let path = ["ib_uverbs_reg_mr", "rxe_reg_user_mr", name];
    Some(wire::CapturedFork {
        fork: Some(tracer::Fork {
            verb: "reg_mr".into(),
            at: later(-600),
            tgid: 99,
            tid: 99,
            call_errno: 14,
            call_errno_name: "EFAULT".into(),
            path: texts(&path),
            errno: 14,
            errno_name: "EFAULT".into(),
            usual: vec![tracer::ReturnCount {
                outcome: "good".into(),
                count: 25,
            }],
            good_calls: 25,
            ..tracer::Fork::default()
        }),
        host: "gpu-05".into(),
        kernel_release: "6.12.118".into(),
        driver: "rdma_rxe".into(),
        baseline_host: "gpu-07".into(),
        baseline_recorded_at: later(-86_400),
    })
}

pub(crate) fn diagnosis() -> Diagnosis {
    let totals = reg_mr_chain()
        .into_iter()
        .map(|step| total("gpu-01", step, 100_000))
        .collect();
    wire::DiagnoseResponse {
        captured: captured("ib_umem_get"),
        ..answer(wire_verdict(), totals)
    }
    .try_into()
    .unwrap()
}

/// The same with a log that files it under the network.
pub(crate) fn misattributed() -> Diagnosis {
    let log = logs::misattributing();
    let mut verdict = wire_verdict();
    verdict.against.push(log.statement.clone());
    wire::DiagnoseResponse {
        job: Some(wire_job()),
        verdict: Some(verdict),
        log: Some(log),
        ..wire::DiagnoseResponse::default()
    }
    .try_into()
    .unwrap()
}

pub(crate) fn cannot_tell() -> Diagnosis {
    let verdict = wire::Verdict {
        class: wire::VerdictClass::CannotTell.into(),
        confidence: wire::Confidence::Low.into(),
        unwatched: texts(&["gpu-09: no agent has reported from there"]),
        ..wire::Verdict::default()
    };
    wire::DiagnoseResponse {
        job: Some(wire::Job {
            marks: texts(&["host gpu-09 has never reported"]),
            ..wire_job()
        }),
        verdict: Some(verdict),
        ..wire::DiagnoseResponse::default()
    }
    .try_into()
    .unwrap()
}

/// Twelve hosts, a chain whose errno changes and never reaches the application.
pub(crate) fn swallowed() -> Diagnosis {
    let hosts: Vec<String> = (1..=12).map(|n| format!("gpu-{n:02}")).collect();
    let chain = vec![
        step(
            "ib_umem_get",
            "ib_uverbs",
            common::Layer::Memory,
            12,
            "ENOMEM",
        ),
        step(
            "mlx5_ib_create_qp",
            "mlx5_ib",
            common::Layer::Driver,
            22,
            "EINVAL",
        ),
    ];
    let totals = hosts
        .iter()
        .flat_map(|h| chain.iter().map(|s| total(h, s.clone(), 1)))
        .collect();
    let verdict = wire::Verdict {
        class: wire::VerdictClass::SwallowedError.into(),
        hosts,
        devices: Vec::new(),
        errno: 12,
        errno_name: "ENOMEM".into(),
        confidence: wire::Confidence::Low.into(),
        summary: String::new(),
        verb: common::Verb::CreateQp.into(),
        chain,
        ..wire_verdict()
    };
    answer(verdict, totals).try_into().unwrap()
}

/// Every text an attack on the terminal.
pub(crate) fn hostile() -> Diagnosis {
    let evil = "\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}evil\n";
    let all = vec![evil.to_owned()];
    let job = wire::Job {
        name: evil.into(),
        user: evil.into(),
        marks: all.clone(),
        ..wire_job()
    };
    let verdict = wire::Verdict {
        function: evil.into(),
        module: evil.into(),
        errno_name: evil.into(),
        hosts: all.clone(),
        devices: all.clone(),
        route_to: evil.into(),
        rule: evil.into(),
        evidence: all.clone(),
        against: all.clone(),
        unwatched: all.clone(),
        summary: evil.into(),
        meaning: evil.into(),
        next_steps: all,
        chain: vec![step(evil, evil, common::Layer::Memory, 14, evil)],
        ..wire_verdict()
    };
    let totals = vec![total(
        evil,
        step(evil, evil, common::Layer::Memory, 14, evil),
        1,
    )];
    wire::DiagnoseResponse {
        job: Some(job),
        verdict: Some(verdict),
        totals,
        captured: captured(evil),
        ..wire::DiagnoseResponse::default()
    }
    .try_into()
    .unwrap()
}

//! What the collector tells of logs, and advice.

use rdmesh_client::model::advice::Advice;
use rdmesh_client::model::log::SubmittedLog;
use rdmesh_proto::collector::v1 as wire;

use super::{FAILED_AT, attempt, texts};

fn line() -> wire::LogLine {
    wire::LogLine {
        line: 7,
        class: wire::LogClass::Syscall.into(),
        verb: "ibv_reg_mr".into(),
        errno_name: "EFAULT".into(),
        rank: Some(3),
        host: "gpu-01".into(),
        rule: "nccl.verb".into(),
        text: "NCCL WARN Call to ibv_reg_mr failed with error Bad address\u{1b}[31m".into(),
        count: 8,
        ..wire::LogLine::default()
    }
}

pub(crate) fn submitted_log() -> SubmittedLog {
    let port = wire::LogLine {
        line: 90,
        class: wire::LogClass::Network.into(),
        verb: "async event".into(),
        status: "IBV_EVENT_PORT_ERR".into(),
        device: "mlx5_1".into(),
        text: "NET/IB : mlx5_1:1 Got async event : port error".into(),
        count: 1,
        ..wire::LogLine::default()
    };
    let count = |class: wire::LogClass, lines| wire::LogCount {
        class: class.into(),
        lines,
    };
    wire::SubmitJobLogResponse {
        log: Some(wire::JobLog {
            attempt: attempt("4711", 1, 0),
            name: "slurm-4711.out".into(),
            received_at: Some(FAILED_AT),
            bytes: 2_147_483_648,
            lines: 9_000_000,
            matched: 9,
            class: wire::LogClass::Syscall.into(),
            decision: Some(line()),
            causes: vec![port],
            causes_left_out: 2,
            counts: vec![
                count(wire::LogClass::Syscall, 8),
                count(wire::LogClass::Network, 1),
            ],
            rules: "2026-11-30".into(),
            digest: "e3b0".into(),
            ..wire::JobLog::default()
        }),
        repeated: false,
    }
    .try_into()
    .unwrap()
}

/// A log that files under the network what the kernel shows to be another's.
pub(super) fn misattributing() -> wire::LogVerdict {
    wire::LogVerdict {
        class: wire::LogClass::Network.into(),
        logs: 16,
        decision: Some(wire::LogLine {
            class: wire::LogClass::Network.into(),
            verb: "poll_cq".into(),
            errno_name: String::new(),
            status: "IBV_WC_RETRY_EXC_ERR".into(),
            text: "NET/IB : Got completion with error 12".into(),
            ..line()
        }),
        log_name: "rank5.err".into(),
        agreement: wire::LogAgreement::Disagrees.into(),
        coverage: 0,
        misattributed: true,
        statement: "misattribution: the job's own log files this under the network, and the \
                    kernel shows ib_umem_get failing with EFAULT, in which no network has a part; \
                    the log: poll_cq: IBV_WC_RETRY_EXC_ERR (line 7 of rank5.err, rank 3)"
            .into(),
    }
}

pub(crate) fn advice() -> Advice {
    wire::AdviseRetryResponse {
        attempt: attempt("4711", 2, 0),
        advice: wire::RetryAdvice::RetryWithoutHosts.into(),
        hosts: texts(&["gpu-07", "gpu-09"]),
        confidence: wire::Confidence::High.into(),
        reason: "the same failure 3 times, each time on gpu-07, gpu-09, and other hosts of the \
                 attempt did not fail so"
            .into(),
        evidence: texts(&[
            "rank 3 on gpu-07 failed in mlx5_cmd_exec with EIO.",
            "odd\u{202e}text",
        ]),
        same_failure: texts(&["4711/0", "4711/1"]),
        class: wire::VerdictClass::Firmware.into(),
        route_to: "NIC vendor".into(),
    }
    .try_into()
    .unwrap()
}

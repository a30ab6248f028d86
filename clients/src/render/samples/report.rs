//! Reports: a diagnosis beside what happened on its hosts.

use rdmesh_client::model::timeline::Timeline;
use rdmesh_proto::collector::v1 as wire;
use rdmesh_proto::shaper::v1 as shaper;
use rdmesh_proto::tracer::v1 as tracer;

use super::{FAILED_AT, diagnosis, hostile, later, wire_failure};
use crate::render::report::Report;

fn timeline(hosts: Vec<wire::HostTimeline>) -> Timeline {
    wire::GetTimelineResponse {
        job: None,
        from: later(-3_600),
        to: later(2),
        hosts,
        hosts_left_out: 0,
        more_failures: false,
    }
    .into()
}

fn busy_host() -> wire::HostTimeline {
    let mut expected = wire_failure();
    expected.first_at = later(-3_500);
    expected.last_at = later(-3_000);
    expected.count = 34;
    expected.expected = true;
    wire::HostTimeline {
        host: "gpu-01".into(),
        failures: vec![expected, wire_failure()],
        failures_left_out: 0,
        signals: vec![
            wire::CoSignal {
                at: later(-1),
                kind: tracer::CoSignalKind::Network.into(),
                independent: true,
                name: "port_down".into(),
                detail: "port 1 went from ACTIVE to DOWN".into(),
                device: "mlx5_0".into(),
            },
            wire::CoSignal {
                at: later(1),
                kind: tracer::CoSignalKind::Process.into(),
                independent: false,
                name: "killed".into(),
                detail: "rank 3 ended by SIGKILL".into(),
                device: String::new(),
            },
        ],
        log_lines: vec![wire::TimedLogLine {
            at: later(0),
            line: Some(wire::LogLine {
                line: 7,
                class: wire::LogClass::Syscall.into(),
                verb: "ibv_reg_mr".into(),
                text: "Call to ibv_reg_mr failed with error Bad address".into(),
                count: 1,
                ..wire::LogLine::default()
            }),
            log_name: "slurm-4711.out".into(),
        }],
        wires: vec![
            wire::WireSpan {
                wire: "w0".into(),
                virtual_function: "vf0".into(),
                from: later(-3_600),
                to: later(-1_800),
                rate_bps: 10_000_000_000,
                windows: 360,
                ..wire::WireSpan::default()
            },
            wire::WireSpan {
                wire: "w0".into(),
                virtual_function: "vf0".into(),
                from: later(-1_800),
                to: later(-1_700),
                rate_bps: 10_000_000_000,
                invalid: vec![shaper::InvalidCause::PortDropped.into()],
                windows: 20,
                ..wire::WireSpan::default()
            },
        ],
    }
}

pub(crate) fn report() -> Report {
    let quiet = wire::HostTimeline {
        host: "gpu-02".into(),
        ..wire::HostTimeline::default()
    };
    Report {
        diagnosis: diagnosis(),
        timeline: timeline(vec![busy_host(), quiet]),
    }
}

/// Texts that try to be more than texts.
pub(crate) fn hostile_report() -> Report {
    let mut failure = wire_failure();
    failure.rank = None;
    failure.comm = "<script>alert(1)</script>".into();
    failure.steps[0].function = "\"><img src=x onerror=y>".into();
    let host = wire::HostTimeline {
        host: "gpu-01' onload='x".into(),
        failures: vec![failure],
        signals: vec![wire::CoSignal {
            at: Some(FAILED_AT),
            kind: tracer::CoSignalKind::Host.into(),
            independent: true,
            name: "[click](http://evil.example) @all".into(),
            detail: "\u{1b}[31m</title></svg></style>".into(),
            device: "| a | b |".into(),
        }],
        ..wire::HostTimeline::default()
    };
    Report {
        diagnosis: hostile(),
        timeline: timeline(vec![host]),
    }
}

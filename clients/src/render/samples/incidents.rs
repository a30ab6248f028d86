//! A fleet's past.

use rdmesh_client::model::incidents::{Classes, Incidents, Precursors};
use rdmesh_proto::collector::v1 as wire;

use super::{FAILED_AT, attempt, later, texts};

pub(crate) fn classes() -> Classes {
    let row = |weeks: i64, class: &str, attempts, of| wire::ClassRow {
        step_at: later(-weeks * 7 * 86_400),
        class: class.into(),
        share: Some(wire::Share {
            attempts,
            gpu_hours: 12.0,
            of_attempts: Some(of),
            of_gpu_hours: Some(of),
            unmeasured: 0,
        }),
    };
    let trend = |class: &str, attempts, earlier, later, trend: wire::Trend| wire::ClassTrend {
        class: class.into(),
        attempts,
        of_attempts: Some((earlier + later) / 2.0),
        earlier: Some(earlier),
        later: Some(later),
        trend: trend.into(),
    };
    wire::GetClassesResponse {
        rows: vec![
            row(2, "firmware", 90, 0.9),
            row(2, "driver", 10, 0.1),
            row(1, "firmware", 60, 0.6),
            row(1, "driver", 40, 0.4),
        ],
        trends: vec![
            trend("firmware", 150, 0.9, 0.6, wire::Trend::Falls),
            trend("driver", 50, 0.1, 0.4, wire::Trend::Rises),
        ],
        undiagnosed: 2,
    }
    .into()
}

pub(crate) fn incidents() -> Incidents {
    let incident = wire::Incident {
        first_at: Some(FAILED_AT),
        last_at: later(7_200),
        verb: "reg_mr".into(),
        function: "ib_peer_umem_get".into(),
        module: "ib_core".into(),
        layer: "memory".into(),
        errno: 14,
        errno_name: "EFAULT".into(),
        driver: "mlx5_ib".into(),
        functions: texts(&[
            "ib_peer_umem_get",
            "ib_umem_get_peer",
            "mlx5_ib_reg_user_mr",
        ]),
        hosts: 2_000,
        attempts: 31,
        calls: 4_711,
        first_hosts: texts(&["gpu-0001", "gpu-0002", "gpu-\u{1b}[31m", "gpu-0004"]),
        shared: texts(&[
            "driver of mlx5_ib is 24.10 since 2026-01-31 13:50Z: 2000 of 2000 failing hosts, 3 of \
             512 others",
        ]),
    };
    wire::GetIncidentsResponse {
        incidents: vec![incident],
    }
    .into()
}

pub(crate) fn precursors() -> Precursors {
    let precursor = wire::Precursor {
        attempt: attempt("4711", 0, 0),
        host: "gpu-01".into(),
        function: "mlx5_cmd_exec".into(),
        errno: 110,
        errno_name: "ETIMEDOUT".into(),
        rose_at: later(-19_000),
        failed_at: Some(FAILED_AT),
        lead_seconds: 19_000.0,
        calls_day_before: 40,
        calls_day_earlier: 3,
    };
    wire::GetPrecursorsResponse {
        precursors: vec![precursor],
    }
    .into()
}

//! Wires and windows.

use rdmesh_client::model::wire::{
    FleetWire, SeenWindow, ShapedWire, ShaperFailure, Wire, WireComparison, WireSummary,
};
use rdmesh_proto::collector::v1 as wire;
use rdmesh_proto::common::v1 as common;
use rdmesh_proto::shaper::v1 as shaper;

use super::{attempt, later, texts};
use crate::command::wire::WireReset;

fn told() -> shaper::Wire {
    shaper::Wire {
        name: "w0".into(),
        host: "gpu-01".into(),
        virtual_function: "vf0".into(),
        rate_bps: 25_000_000_000,
        configured_rate_bps: 25_000_000_000,
        policy_generation: 7,
        ..shaper::Wire::default()
    }
}

fn window() -> shaper::WireWindow {
    shaper::WireWindow {
        wire: "w0".into(),
        host: "gpu-01".into(),
        virtual_function: "vf0".into(),
        from: later(235),
        to: later(240),
        rate_bps: 10_000_000_000,
        configured_rate_bps: 25_000_000_000,
        sent_frames: 3_200_000,
        sent_bits: 49_123_000_000,
        queue_frames_p99: 812,
        waited_ns_p50: 4_100,
        waited_ns_p99: 912_345,
        waited_ns_max: 1_200_000,
        poll_gap_buckets: vec![0, 0, 12, 3],
        engine_version: "0.1.0+engine.1".into(),
        configuration_hash: "90ab".into(),
        ..shaper::WireWindow::default()
    }
}

/// Changed for a while, as configured with a lot that is odd, and bypassed.
pub(crate) fn fleet() -> Vec<FleetWire> {
    let shaped = wire::FleetWire {
        shaper_host: "gpu-01".into(),
        shaper_address: "dpu-01:7402".into(),
        wire: Some(shaper::Wire {
            rate_bps: 10_000_000_000,
            expires_at: later(242 + 540),
            ..told()
        }),
        live: true,
        last_window: Some(window()),
        last_window_age: Some(prost_types::Duration {
            seconds: 2,
            nanos: 500_000_000,
        }),
        attempts: attempt("4711", 0, 0).into_iter().collect(),
        ..wire::FleetWire::default()
    };
    let odd = wire::FleetWire {
        shaper_host: "gpu-02".into(),
        wire: Some(told()),
        live: false,
        last_window: Some(shaper::WireWindow {
            invalid: vec![1, 2, 99],
            ..window()
        }),
        marks: texts(&["no window for 40 s", "\u{1b}[2Jodd"]),
        last_gap: Some(common::TimeRange {
            from: later(-100),
            to: later(-60),
        }),
        windows_given_up: 3,
        ..wire::FleetWire::default()
    };
    let bypassed = wire::FleetWire {
        shaper_host: "gpu-03".into(),
        wire: Some(shaper::Wire {
            bypass: true,
            ..told()
        }),
        live: true,
        ..wire::FleetWire::default()
    };
    [shaped, odd, bypassed].map(FleetWire::from).into()
}

/// A wire in each way that it can be.
pub(crate) fn states() -> Vec<Wire> {
    let set = shaper::Wire {
        rate_bps: 2_500_000_000,
        ..told()
    };
    let expiring = shaper::Wire {
        expires_at: later(242 + 600),
        ..set.clone()
    };
    let around = shaper::Wire {
        bypass: true,
        bypass_in_hardware: true,
        ..told()
    };
    let unshaped = shaper::Wire {
        rate_bps: 0,
        configured_rate_bps: 0,
        ..told()
    };
    [told(), set, expiring, around, unshaped]
        .map(|wire| FleetWire::from(wire).wire.unwrap())
        .into()
}

pub(crate) fn reset() -> WireReset {
    let wire = states().remove(0);
    WireReset {
        wires: vec![ShapedWire {
            shaper_host: Some("gpu-01".into()),
            wire: Some(wire),
        }],
        failures: vec![ShaperFailure {
            shaper_host: "gpu-02".into(),
            code: 14,
            message: "the shaper of gpu-02 does not answer at dpu-02:7402 (refused)".into(),
        }],
        request_id: "7b0b7d8e-9a63-4a0e-8f0e-1d1c6c1d0001".into(),
    }
}

/// Of two wires, one of them twice.
pub(crate) fn windows() -> Vec<SeenWindow> {
    let seen = |host: &str, window: shaper::WireWindow, marks: &[&str]| {
        let answer = wire::FleetWire {
            last_window: Some(window),
            ..wire::FleetWire::default()
        };
        SeenWindow {
            shaper_host: Some(host.into()),
            window: FleetWire::from(answer).last_window.unwrap(),
            marks: texts(marks),
        }
    };
    let other = shaper::WireWindow {
        rate_bps: 0,
        sent_bits: 0,
        ..window()
    };
    let bad = shaper::WireWindow {
        invalid: vec![3],
        ce_marks: 12,
        ..window()
    };
    vec![
        seen("gpu-01", window(), &[]),
        seen("gpu-02", other, &["the host's clock is far off"]),
        seen("gpu-01", bad, &[]),
    ]
}

pub(crate) fn comparison() -> WireComparison {
    let summary = |rate: u64, waited_ns_p99| {
        WireSummary::from(wire::WireSummary {
            from: later(0),
            to: later(60),
            windows: 12,
            valid_windows: 11,
            gaps: Some(prost_types::Duration {
                seconds: 1,
                nanos: 0,
            }),
            lowest_rate_bps: rate,
            highest_rate_bps: 25_000_000_000,
            mean_sent_bps: 9_800_000_000,
            queue_frames_p99: 812,
            queue_frames_max: 1_024,
            waited_ns_p99,
            waited_ns_max: 2_000_000,
            sent_frames: 38_000_000,
            ce_marks: 0,
            lost_ps: 1_500_000,
            repeated_frames: 0,
        })
    };
    WireComparison {
        shaper_host: "gpu-01".into(),
        wire: "w0".into(),
        engine_version: "0.1.0+engine.1".into(),
        configuration_hash: "90ab".into(),
        a: summary(25_000_000_000, 5_000),
        b: summary(10_000_000_000, 912_345),
    }
}

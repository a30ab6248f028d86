//! Metrics as an OTLP endpoint receives them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint, metric, number_data_point};
use prost::Message;
use rdmesh_services::telemetry::{Resource, Telemetry, TelemetryConfig, start_metrics};
use rdmesh_shaper::service::figures::Figures;

use super::*;

const DEADLINE: Duration = Duration::from_secs(20);

/// An endpoint that takes everything: the bodies.
fn endpoint() -> (SocketAddr, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (send, received) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut length = 0;
            let mut line = String::new();
            while stream.read_line(&mut line).unwrap_or(0) > 2 {
                if let Some(told) = line.to_lowercase().strip_prefix("content-length:") {
                    length = told.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\n\
                content-length: 0\r\nconnection: close\r\n\r\n";
            stream.get_mut().write_all(answer).unwrap();
            if send.send(body).is_err() {
                return;
            }
        }
    });
    (address, received)
}

fn exporting(to: SocketAddr) -> Telemetry {
    let config = TelemetryConfig {
        otlp_endpoint: format!("http://{to}/v1/metrics"),
        // An hour, so that what is received was flushed.
        otlp_interval_seconds: 3600,
        ..TelemetryConfig::default()
    };
    let resource = Resource {
        service: "rdmesh-shaper".into(),
        instance: "run-1".into(),
        host: "dpu-1".into(),
    };
    start_metrics(&config, &resource).unwrap()
}

/// `name{attribute=value,…} unit` to its value, of the shaper's own instruments.
fn flushed(telemetry: &Telemetry, received: &Receiver<Vec<u8>>) -> BTreeMap<String, u64> {
    assert!(telemetry.flush(DEADLINE));
    let body = received.recv_timeout(DEADLINE).unwrap();
    let request = ExportMetricsServiceRequest::decode(&body[..]).unwrap();
    let scopes = request
        .resource_metrics
        .iter()
        .flat_map(|r| &r.scope_metrics);
    let metrics = scopes.flat_map(|scope| &scope.metrics);
    let own = metrics.filter(|metric| metric.name.starts_with("rdmesh.shaper."));
    own.flat_map(|metric| {
        let points = points(metric);
        points
            .iter()
            .map(|point| told(metric, point))
            .collect::<Vec<_>>()
    })
    .collect()
}

fn points(metric: &Metric) -> &[NumberDataPoint] {
    match metric.data.as_ref().unwrap() {
        metric::Data::Gauge(gauge) => &gauge.data_points,
        metric::Data::Sum(sum) => {
            assert!(sum.is_monotonic, "{}", metric.name);
            &sum.data_points
        }
        other => panic!("{} is {other:?}", metric.name),
    }
}

fn told(metric: &Metric, point: &NumberDataPoint) -> (String, u64) {
    assert!(!metric.description.is_empty(), "{}", metric.name);
    let mut of: Vec<String> = point
        .attributes
        .iter()
        .map(
            |a| match a.value.as_ref().unwrap().value.as_ref().unwrap() {
                Value::StringValue(text) => format!("{}={text}", a.key),
                other => panic!("{} is {other:?}", a.key),
            },
        )
        .collect();
    of.sort();
    let value = match point.value.unwrap() {
        number_data_point::Value::AsInt(value) => u64::try_from(value).unwrap(),
        number_data_point::Value::AsDouble(value) => panic!("{} is {value}", metric.name),
    };
    let kind = match metric.data.as_ref().unwrap() {
        metric::Data::Gauge(_) => "gauge",
        _ => "sum",
    };
    let name = format!("{}{{{}}} {} {kind}", metric.name, of.join(","), metric.unit);
    (name, value)
}

/// Two windows in which every field differs.
fn windows() -> [proto::WireWindow; 2] {
    let repeated = |frames| proto::RepeatedPsn {
        destination_qp: 7,
        frames,
        bytes: 1,
    };
    let first = proto::WireWindow {
        wire: "vf0".to_owned(),
        rate_bps: 25_000_000_000,
        sent_bits: 1_000,
        sent_frames: 200,
        queue_frames_now: 1,
        queue_frames_p50: 2,
        queue_frames_p99: 3,
        queue_frames_max: 4,
        imissed: 30,
        rx_nombuf: 40,
        tx_not_accepted: 50,
        ce_marks: 60,
        repeated_psns: vec![repeated(70), repeated(7)],
        lost_ps: 80_000,
        longest_poll_gap_ns: 90,
        windows_given_up: 0,
        invalid: vec![
            proto::InvalidCause::PortDropped.into(),
            proto::InvalidCause::PollGap.into(),
            proto::InvalidCause::Retransmits.into(),
        ],
        ..proto::WireWindow::default()
    };
    let second = proto::WireWindow {
        rate_bps: 10_000_000_000,
        queue_frames_now: 11,
        queue_frames_p50: 12,
        queue_frames_p99: 13,
        queue_frames_max: 14,
        longest_poll_gap_ns: 91,
        windows_given_up: 5,
        invalid: vec![proto::InvalidCause::DataPathDown.into()],
        ..first.clone()
    };
    [first, second]
}

#[test]
fn every_instrument_arrives_with_its_value() {
    let (address, received) = endpoint();
    let telemetry = exporting(address);
    let figures = Figures::default();
    figures.register(&opentelemetry::global::meter("rdmesh.shaper"));
    for window in windows() {
        figures.see(0, &window);
    }
    let all = flushed(&telemetry, &received);
    let told: Vec<String> = all
        .iter()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    // Sums over both windows, gauges of the second.
    insta::assert_snapshot!(told.join("\n"), @r"
    rdmesh.shaper.data_path.up{} 1 gauge 1
    rdmesh.shaper.poll.gap{wire=vf0} ns gauge 91
    rdmesh.shaper.state.kept{} 1 gauge 1
    rdmesh.shaper.windows.given_up{} {window} sum 5
    rdmesh.shaper.windows{state=any,wire=vf0} {window} sum 2
    rdmesh.shaper.windows{state=data_path_down,wire=vf0} {window} sum 1
    rdmesh.shaper.windows{state=poll_gap,wire=vf0} {window} sum 1
    rdmesh.shaper.windows{state=port_dropped,wire=vf0} {window} sum 1
    rdmesh.shaper.windows{state=retransmits,wire=vf0} {window} sum 1
    rdmesh.shaper.wire.ce_marks{wire=vf0} {frame} sum 120
    rdmesh.shaper.wire.dropped{counter=imissed,wire=vf0} {frame} sum 60
    rdmesh.shaper.wire.dropped{counter=rx_nombuf,wire=vf0} {frame} sum 80
    rdmesh.shaper.wire.frames{wire=vf0} {frame} sum 400
    rdmesh.shaper.wire.lost_time{wire=vf0} ns sum 160
    rdmesh.shaper.wire.not_accepted{wire=vf0} {frame} sum 100
    rdmesh.shaper.wire.queue{statistic=max,wire=vf0} {frame} gauge 14
    rdmesh.shaper.wire.queue{statistic=now,wire=vf0} {frame} gauge 11
    rdmesh.shaper.wire.queue{statistic=p50,wire=vf0} {frame} gauge 12
    rdmesh.shaper.wire.queue{statistic=p99,wire=vf0} {frame} gauge 13
    rdmesh.shaper.wire.rate{wire=vf0} bit/s gauge 10000000000
    rdmesh.shaper.wire.repeated{wire=vf0} {frame} sum 154
    rdmesh.shaper.wire.sent{wire=vf0} bit sum 2000
    ");
    figures.set_down(true);
    let all = flushed(&telemetry, &received);
    assert_eq!(all["rdmesh.shaper.data_path.up{} 1 gauge"], 0);
}

#[test]
fn a_running_service_exports_what_its_windows_say() {
    let (address, received) = endpoint();
    let telemetry = exporting(address);
    let state = tempfile::tempdir().unwrap();
    block_on(async {
        let ports = MemoryPorts {
            arrived: 100,
            ..MemoryPorts::default()
        };
        let mut service = Running::start_on(config(state.path()), ports).await;
        let ten = 10_000_000_000;
        service.set(rate("vf0", ten)).await.unwrap();
        service.window(|window| window.rate_bps == ten).await;
        let all = flushed(&telemetry, &received);
        let wire = |what: &str, kind| all[&format!("rdmesh.shaper.wire.{what} {kind}")];
        assert_eq!(wire("frames{wire=vf0} {frame}", "sum"), 100);
        assert_eq!(wire("sent{wire=vf0} bit", "sum"), 100 * 1024 * 8);
        assert_eq!(wire("rate{wire=vf0} bit/s", "gauge"), ten);
        assert_eq!(wire("rate{wire=vf1} bit/s", "gauge"), ten);
        assert_eq!(wire("frames{wire=vf1} {frame}", "sum"), 0);
        assert_eq!(all["rdmesh.shaper.data_path.up{} 1 gauge"], 1);
        assert!(all["rdmesh.shaper.windows{state=any,wire=vf0} {window} sum"] >= 2);
        service.stop().await;
    });
}

//! Metrics as an OTLP endpoint receives them. One test each process: the meter provider
//! is the process's.
#![allow(missing_docs, clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, metric, number_data_point};
use prost::Message;
use rdmesh_services::telemetry::{
    FLUSH_WITHIN, Resource, TelemetryConfig, TelemetryError, start_metrics,
};
use rdmesh_services::uplink::{Uplink, UplinkConfig};

const DEADLINE: Duration = Duration::from_secs(20);

/// Path and body of each request.
type Received = Receiver<(String, Vec<u8>)>;

/// An endpoint that takes everything.
fn endpoint() -> (SocketAddr, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (send, received) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut head = Vec::new();
            loop {
                let mut line = String::new();
                if stream.read_line(&mut line).unwrap_or(0) <= 2 {
                    break;
                }
                head.push(line.trim().to_lowercase());
            }
            let Some(path) = head
                .first()
                .map(|l| l.split(' ').nth(1).unwrap().to_owned())
            else {
                continue;
            };
            let length = head
                .iter()
                .find_map(|l| l.strip_prefix("content-length: "))
                .unwrap();
            let mut body = vec![0; length.parse().unwrap()];
            stream.read_exact(&mut body).unwrap();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\n\
                content-length: 0\r\nconnection: close\r\n\r\n";
            stream.get_mut().write_all(answer).unwrap();
            if send.send((path, body)).is_err() {
                return;
            }
        }
    });
    (address, received)
}

fn resource() -> Resource {
    Resource {
        service: "rdmesh-test".into(),
        instance: "run-1".into(),
        host: "gpu-1".into(),
    }
}

fn to(address: SocketAddr, path: &str) -> TelemetryConfig {
    // An hour, so that what is received was flushed.
    TelemetryConfig {
        otlp_endpoint: format!("http://{address}{path}"),
        otlp_interval_seconds: 3600,
        ..TelemetryConfig::default()
    }
}

fn attribute(metrics: &ResourceMetrics, name: &str) -> Option<String> {
    let attributes = &metrics.resource.as_ref()?.attributes;
    let found = attributes.iter().find(|a| a.key == name)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        other => panic!("{name} is {other:?}"),
    }
}

fn find<'a>(metrics: &'a ResourceMetrics, name: &str) -> &'a Metric {
    let mut all = metrics
        .scope_metrics
        .iter()
        .flat_map(|scope| &scope.metrics);
    all.find(|m| m.name == name)
        .unwrap_or_else(|| panic!("no {name}"))
}

/// The sum of a metric's points.
fn value(metric: &Metric) -> f64 {
    let points = match metric.data.as_ref().unwrap() {
        metric::Data::Gauge(gauge) => &gauge.data_points,
        metric::Data::Sum(sum) => &sum.data_points,
        other => panic!("{} is {other:?}", metric.name),
    };
    points
        .iter()
        .map(|p| match p.value.unwrap() {
            number_data_point::Value::AsDouble(v) => v,
            number_data_point::Value::AsInt(v) => v as f64,
        })
        .sum()
}

#[tokio::test]
async fn what_is_measured_arrives_with_who_measured_it() {
    let (address, received) = endpoint();
    let telemetry = start_metrics(&to(address, "/opentelemetry/v1/metrics"), &resource()).unwrap();
    assert!(telemetry.exports());
    let counter = opentelemetry::global::meter("test")
        .u64_counter("rdmesh.test.things")
        .build();
    counter.add(7, &[]);
    let uplink = Uplink::start(&UplinkConfig::default(), Default::default);
    uplink
        .handle()
        .push(rdmesh_proto::tracer::v1::Heartbeat::default())
        .unwrap();

    assert!(telemetry.flush(DEADLINE));
    let (path, body) = received.recv_timeout(DEADLINE).unwrap();
    assert_eq!(path, "/opentelemetry/v1/metrics");
    let request = ExportMetricsServiceRequest::decode(&body[..]).unwrap();
    let metrics = &request.resource_metrics[0];
    for (name, expected) in [
        ("service.name", "rdmesh-test"),
        ("service.version", rdmesh_services::VERSION),
        ("service.instance.id", "run-1"),
        ("host.name", "gpu-1"),
    ] {
        assert_eq!(
            attribute(metrics, name).as_deref(),
            Some(expected),
            "{name}"
        );
    }
    assert_eq!(value(find(metrics, "rdmesh.test.things")), 7.0);
    assert_eq!(value(find(metrics, "rdmesh.uplink.queue.items")), 1.0);
    assert_eq!(value(find(metrics, "rdmesh.uplink.connected")), 0.0);
    assert!(value(find(metrics, "process.memory.usage")) > 1e6);
    assert_eq!(find(metrics, "process.cpu.time").unit, "s");

    // The end sends what came since, from inside a runtime's thread too.
    counter.add(1, &[]);
    drop(telemetry);
    let (_, body) = received.recv_timeout(DEADLINE).unwrap();
    let request = ExportMetricsServiceRequest::decode(&body[..]).unwrap();
    assert_eq!(
        value(find(&request.resource_metrics[0], "rdmesh.test.things")),
        8.0
    );
}

#[test]
fn without_an_endpoint_there_is_no_thread() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    let telemetry = start_metrics(&TelemetryConfig::default(), &resource()).unwrap();
    assert!(!telemetry.exports() && telemetry.flush(Duration::ZERO));
    assert_eq!(threads(), before);
}

#[test]
fn an_endpoint_that_hangs_does_not_hold_the_end() {
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = to(hanging.local_addr().unwrap(), "/v1/metrics");
    let telemetry = start_metrics(&config, &resource()).unwrap();
    let began = Instant::now();
    assert!(!telemetry.flush(Duration::from_millis(100)));
    drop(telemetry);
    let took = began.elapsed();
    assert!(took < FLUSH_WITHIN + Duration::from_secs(2), "{took:?}");
}

#[test]
fn a_url_that_is_none_is_refused_with_what_to_write() {
    let config = TelemetryConfig {
        otlp_endpoint: "not a url".into(),
        ..TelemetryConfig::default()
    };
    let error = start_metrics(&config, &resource()).unwrap_err();
    assert!(matches!(error, TelemetryError::Exporter { .. }));
    assert!(error.to_string().contains("full http:// URL"), "{error}");
}

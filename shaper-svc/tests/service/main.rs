//! The service on ports in memory, asked over gRPC.
#![allow(clippy::unwrap_used)]

mod ports;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use rdmesh_proto::shaper::v1 as proto;
use rdmesh_proto::shaper::v1::shaper_service_client::ShaperServiceClient;
use rdmesh_services::server::{self, ServerConfig};
use rdmesh_services::shutdown;
use rdmesh_services::uplink::Uplink;
use rdmesh_shaper::config::ShaperConfig;
use rdmesh_shaper::datapath::{
    DataPath, DataPathError, MonotonicClock, Pacing, RouteConfig, ThreadLink, WireLink,
};
use rdmesh_shaper::port::memory::{Frames, MemoryPort};
use rdmesh_shaper::service::control::Control;
use rdmesh_shaper::service::handle::{DataPathHandle, Gone, PortState, Ports, SharedClock, spawn};
use rdmesh_shaper::service::{run, shared::Shared, start};
use tonic::Code;
use tonic::transport::Channel;

type Client = ShaperServiceClient<Channel>;

const WIRES: &str = r#"
    host = "gpu-1"
    window_ms = 100
    [[wires]]
    name = "vf0"
    in_port = "a"
    out_port = "b"
    rate = "25gbit"
    queue_frames = 1024
    [[wires]]
    name = "vf1"
    in_port = "b"
    out_port = "a"
    rate = "10gbit"
    port_rate = "50gbit"
    queue_frames = 1024
"#;

fn config(state: &Path) -> ShaperConfig {
    let mut config: ShaperConfig = toml::from_str(WIRES).unwrap();
    config.dpdk.huge_pages = false;
    config.dpdk.rx_descriptors = 64;
    config.state_directory = state.to_owned();
    config.uplink.collector = "127.0.0.1:1".parse().unwrap();
    config
}

/// Two ports; a test says what becomes of the first one.
#[derive(Debug, Default)]
struct MemoryPorts {
    back_pressure_help: AtomicU64,
    gone: Mutex<Option<Gone>>,
}

impl Ports for MemoryPorts {
    fn states(&self) -> Vec<PortState> {
        let named = |name: &str, back_pressure_help| PortState {
            name: name.to_owned(),
            back_pressure_help,
            ..PortState::default()
        };
        let help = self.back_pressure_help.load(Ordering::Relaxed);
        vec![named("a", help), named("b", 0)]
    }

    fn gone(&self) -> Option<Gone> {
        self.gone.lock().unwrap().clone()
    }

    fn bypass_in_hardware(&self, _: usize, _: bool) -> bool {
        false
    }
}

fn data_path(config: &ShaperConfig, control: &Control, ports: Arc<MemoryPorts>) -> DataPathHandle {
    let links: Vec<Arc<WireLink>> = config.wires.iter().map(|_| Arc::default()).collect();
    let mut routes = Vec::new();
    for (index, (section, link)) in config.wires.iter().zip(&links).enumerate() {
        let wire = section.engine(control.wires()[index].speed());
        let route = RouteConfig {
            in_port: index,
            out_port: 1 - index,
            wire,
            marking: None,
            bypass: false,
            key_seed: 1,
        };
        routes.push((route, Arc::clone(link)));
    }
    let thread = Arc::new(ThreadLink::default());
    let clock = MonotonicClock::default();
    let pacing = Pacing {
        window: config.window(),
        yields: true,
        drain: Duration::from_secs(1),
    };
    let join = spawn(&thread, move || {
        let frames = Frames::default();
        let ports = vec![MemoryPort::new(&frames), MemoryPort::new(&frames)];
        DataPath::new(ports, &routes, clock, pacing).map_err(Failed::from)
    });
    DataPathHandle {
        links,
        in_ports: vec![0, 1],
        thread,
        clock: SharedClock::new(move || rdmesh_shaper::datapath::Clock::now_ps(&clock)),
        ports,
        memory_bytes: 1,
        join: Some(join.unwrap()),
    }
}

#[derive(Debug)]
struct Failed(#[allow(dead_code)] String);

impl From<DataPathError> for Failed {
    fn from(error: DataPathError) -> Self {
        Self(error.to_string())
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// A running service.
struct Running {
    client: Client,
    stop: shutdown::Trigger,
    served: tokio::task::JoinHandle<Result<(), run::RunError>>,
    ports: Arc<MemoryPorts>,
}

impl Running {
    async fn start(config: ShaperConfig) -> Self {
        let prepared = start::prepare(&config, SystemTime::now()).unwrap();
        let ports = Arc::<MemoryPorts>::default();
        let path = data_path(&config, &prepared.control, Arc::clone(&ports));
        let (ledger, locks) = start::begin(prepared, &path, SystemTime::now()).unwrap();
        let facts = start::report_facts(&config, "gpu-1", path.memory_bytes);
        let shared = Shared::new(ledger, facts, &path);
        let listener = server::bind(&ServerConfig::at(0)).await.unwrap();
        let address = listener.local_address().unwrap();
        let (stop, stopping) = shutdown::channel();
        let served = tokio::spawn(async move {
            let _locks = locks;
            let uplink = Uplink::start(&config.uplink, Default::default);
            let labels = start::labels(&config, "gpu-1");
            let options = run::RunOptions::of(&config);
            let end = stopping.requested();
            run::serve(shared, path, labels, uplink, listener, options, end).await
        });
        let client = Client::connect(format!("http://{address}")).await.unwrap();
        Self {
            client,
            stop,
            served,
            ports,
        }
    }

    async fn stop(self) {
        self.stop.fire();
        self.served.await.unwrap().unwrap();
    }

    /// Windows of `vf0` until one is as wanted.
    async fn window(&mut self, wanted: impl Fn(&proto::WireWindow) -> bool) -> proto::WireWindow {
        let wires = vec!["vf0".to_owned()];
        let request = proto::WatchWiresRequest { wires };
        let watching = self.client.watch_wires(request).await;
        let mut watching = watching.unwrap().into_inner();
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let window = watching.message().await.unwrap().unwrap().window.unwrap();
            if wanted(&window) {
                return window;
            }
            assert!(Instant::now() < deadline, "last of all: {window:?}");
        }
    }

    async fn report(&mut self) -> proto::GetDataPathReportResponse {
        let request = proto::GetDataPathReportRequest {};
        let report = self.client.get_data_path_report(request).await;
        report.unwrap().into_inner()
    }

    async fn wire(&mut self, name: &str) -> proto::Wire {
        let wires = self
            .client
            .list_wires(proto::ListWiresRequest {})
            .await
            .unwrap();
        wires
            .into_inner()
            .wires
            .into_iter()
            .find(|wire| wire.name == name)
            .unwrap()
    }

    async fn set(&mut self, request: proto::SetRateRequest) -> Result<proto::Wire, tonic::Status> {
        Ok(self
            .client
            .set_rate(request)
            .await?
            .into_inner()
            .wire
            .unwrap())
    }
}

fn rate(wire: &str, rate_bps: u64) -> proto::SetRateRequest {
    proto::SetRateRequest {
        wire: wire.to_owned(),
        rate_bps,
        ..Default::default()
    }
}

fn block_on<F: Future>(test: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(test)
}

#[test]
fn rates_are_set_watched_and_reset() {
    let state = tempfile::tempdir().unwrap();
    block_on(async {
        let mut service = Running::start(config(state.path())).await;
        let wire = service.wire("vf0").await;
        assert_eq!(
            (wire.rate_bps, wire.configured_rate_bps),
            (25_000_000_000, 25_000_000_000)
        );
        assert_eq!(
            (wire.host.as_str(), wire.virtual_function.as_str()),
            ("gpu-1", "vf0")
        );

        let only_vf0 = proto::WatchWiresRequest {
            wires: vec!["vf0".to_owned()],
        };
        let mut watching = service
            .client
            .watch_wires(only_vf0)
            .await
            .unwrap()
            .into_inner();
        let wire = service.set(rate("vf0", 10_000_000_000)).await.unwrap();
        assert_eq!(wire.rate_bps, 10_000_000_000);
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let window = watching.message().await.unwrap().unwrap().window.unwrap();
            assert_eq!(window.wire, "vf0");
            assert!(!window.engine_version.is_empty() && !window.configuration_hash.is_empty());
            if window.rate_bps == 10_000_000_000 {
                break;
            }
            assert!(Instant::now() < deadline, "no window with the new rate");
        }

        let bypass = proto::SetBypassRequest {
            wire: "vf1".to_owned(),
            bypass: true,
            ..Default::default()
        };
        let wire = service
            .client
            .set_bypass(bypass)
            .await
            .unwrap()
            .into_inner()
            .wire
            .unwrap();
        assert!(wire.bypass && !wire.bypass_in_hardware);

        let all = proto::ResetWiresRequest {
            which: Some(proto::reset_wires_request::Which::All(true)),
            ..Default::default()
        };
        let reset = service
            .client
            .reset_wires(all)
            .await
            .unwrap()
            .into_inner()
            .wires;
        assert_eq!(reset.len(), 2);
        assert_eq!(service.wire("vf0").await.rate_bps, 25_000_000_000);

        let report = service.report().await;
        assert_eq!(report.ports.len(), 2);
        assert!(
            report.fault.is_empty() && report.outages.is_empty(),
            "{report:?}"
        );
        // Stops although somebody watches.
        service.stop().await;
    });
    let audit = std::fs::read_to_string(state.path().join("audit.jsonl")).unwrap();
    assert_eq!(audit.lines().count(), 4, "{audit}");
    assert!(
        audit.lines().next().unwrap().contains("127.0.0.1"),
        "{audit}"
    );
}

#[test]
fn wrong_requests_are_refused_with_the_field_and_the_range() {
    let state = tempfile::tempdir().unwrap();
    block_on(async {
        let mut service = Running::start(config(state.path())).await;
        let negative = prost_types::Duration {
            seconds: -1,
            nanos: 0,
        };
        for (request, code, words) in [
            (rate("vf0", 0), Code::InvalidArgument, "rate_bps"),
            (
                rate("vf1", 50_000_000_001),
                Code::InvalidArgument,
                "50000000000",
            ),
            (rate("vf9", 1_000_000_000), Code::NotFound, "vf0, vf1"),
            (
                proto::SetRateRequest {
                    expires_after: Some(negative),
                    ..rate("vf0", 1_000_000_000)
                },
                Code::InvalidArgument,
                "expires_after",
            ),
            (
                proto::SetRateRequest {
                    request_id: "1".into(),
                    ..rate("vf0", 1_000_000_000)
                },
                Code::InvalidArgument,
                "request_id",
            ),
        ] {
            let status = service.set(request).await.unwrap_err();
            assert_eq!(status.code(), code, "{status}");
            assert!(status.message().contains(words), "{status}");
        }
        let nothing = proto::ResetWiresRequest::default();
        let status = service.client.reset_wires(nothing).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let unknown = proto::WatchWiresRequest {
            wires: vec!["vf9".to_owned()],
        };
        let status = service.client.watch_wires(unknown).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound);
        service.stop().await;
    });
}

#[test]
fn a_restart_keeps_rates_requests_and_the_outage() {
    let state = tempfile::tempdir().unwrap();
    let id = "7b0b7d8e-9a63-4a0e-8f0e-1d1c6c1d0001";
    let once = proto::SetRateRequest {
        request_id: id.into(),
        ..rate("vf0", 5_000_000_000)
    };
    block_on(async {
        let mut service = Running::start(config(state.path())).await;
        let first = service.set(once.clone()).await.unwrap();
        let again = service.set(once.clone()).await.unwrap();
        assert_eq!(
            first.policy_generation, again.policy_generation,
            "one change"
        );
        let other = proto::SetRateRequest {
            rate_bps: 6_000_000_000,
            ..once.clone()
        };
        assert_eq!(
            service.set(other).await.unwrap_err().code(),
            Code::AlreadyExists
        );
        // Nobody else may use the state meanwhile.
        let second = start::prepare(&config(state.path()), SystemTime::now()).unwrap_err();
        assert!(second.to_string().contains("in use"), "{second}");
        service.stop().await;

        let mut service = Running::start(config(state.path())).await;
        assert_eq!(service.wire("vf0").await.rate_bps, 5_000_000_000);
        let before = service.wire("vf0").await.policy_generation;
        let repeated = service.set(once).await.unwrap();
        assert_eq!(
            repeated.policy_generation, before,
            "done before the restart"
        );
        let report = service.report().await;
        let outage = &report.outages[0];
        assert!(
            outage.cause.contains("stopped") && outage.to.is_some(),
            "{outage:?}"
        );
        service.stop().await;
    });
}

#[test]
fn a_change_with_an_end_ends_by_itself() {
    let state = tempfile::tempdir().unwrap();
    block_on(async {
        let mut service = Running::start(config(state.path())).await;
        let short = prost_types::Duration {
            seconds: 0,
            nanos: 300_000_000,
        };
        let request = proto::SetRateRequest {
            expires_after: Some(short),
            ..rate("vf0", 1_000_000_000)
        };
        let wire = service.set(request).await.unwrap();
        assert!(wire.expires_at.is_some());
        let mut watching = service
            .client
            .watch_wires(proto::WatchWiresRequest::default())
            .await;
        let watching = watching.as_mut().unwrap().get_mut();
        let deadline = Instant::now() + Duration::from_secs(20);
        // The engine goes back by itself, and the list says so too.
        loop {
            let window = watching.message().await.unwrap().unwrap().window.unwrap();
            if window.wire == "vf0" && window.rate_bps == 25_000_000_000 {
                break;
            }
            assert!(Instant::now() < deadline, "still at {}", window.rate_bps);
        }
        while service.wire("vf0").await.rate_bps != 25_000_000_000 {
            assert!(
                Instant::now() < deadline,
                "the list still shows the old rate"
            );
        }
        assert!(service.wire("vf0").await.expires_at.is_none());
        service.stop().await;
    });
    let audit = std::fs::read_to_string(state.path().join("audit.jsonl")).unwrap();
    assert!(audit.contains("\"expired\""), "{audit}");
}

//! The service on ports in memory, asked over gRPC.
#![allow(clippy::unwrap_used)]

mod metrics;
mod ports;
mod requests;
mod stalls;
mod state;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use rdmesh_proto::shaper::v1 as proto;
use rdmesh_proto::shaper::v1::shaper_service_client::ShaperServiceClient;
use rdmesh_services::server::{self, ServerConfig};
use rdmesh_services::shutdown;
use rdmesh_services::uplink::Uplink;
use rdmesh_shaper::config::ShaperConfig;
use rdmesh_shaper::datapath::{
    Clock, DataPath, DataPathError, MonotonicClock, Pacing, RouteConfig, ThreadLink, WireLink,
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
    // Tests run side by side on one machine.
    let directory = state.file_name().unwrap().to_string_lossy();
    config.name = format!("dpu-{directory}");
    config.uplink.collector = "127.0.0.1:1".parse().unwrap();
    config
}

/// Two ports; a test says what becomes of the first one.
#[derive(Debug, Default)]
struct MemoryPorts {
    back_pressure_help: AtomicU64,
    gone: Mutex<Option<Gone>>,
    without_link: Mutex<Vec<usize>>,
    /// Wires that are around the shaper in hardware.
    around: Mutex<BTreeSet<usize>>,
    /// Frames of 1,000 bytes that wait at `vf0` when the data path starts.
    arrived: usize,
    /// What the poll loop's clock does.
    clock: Arc<AtomicU8>,
}

/// The clock of a poll loop that a test can make stand still or fail, as a driver might.
#[derive(Debug)]
struct TestClock {
    real: MonotonicClock,
    does: Arc<AtomicU8>,
}

const RUNS: u8 = 0;
const STANDS: u8 = 1;
const FAILS: u8 = 2;

impl Clock for TestClock {
    fn now_ps(&self) -> u64 {
        while self.does.load(Ordering::Relaxed) == STANDS {
            std::thread::yield_now();
        }
        assert_ne!(
            self.does.load(Ordering::Relaxed),
            FAILS,
            "the driver failed"
        );
        self.real.now_ps()
    }
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

    fn without_link(&self) -> Vec<usize> {
        self.without_link.lock().unwrap().clone()
    }

    fn bypass_in_hardware(&self, wire: usize, bypass: bool) -> bool {
        let mut around = self.around.lock().unwrap();
        if bypass {
            around.insert(wire);
        } else {
            around.remove(&wire);
        }
        bypass
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
    let arrived = ports.arrived;
    let poll_clock = TestClock {
        real: clock,
        does: Arc::clone(&ports.clock),
    };
    let pacing = Pacing {
        window: config.window(),
        yields: true,
        drain: Duration::from_secs(1),
    };
    let join = spawn(&thread, move || {
        let frames = Frames::default();
        let mut ports = vec![MemoryPort::new(&frames), MemoryPort::new(&frames)];
        (0..arrived).for_each(|_| ports[0].arrive(vec![0; 1000]));
        DataPath::new(ports, &routes, poll_clock, pacing).map_err(Failed::from)
    });
    DataPathHandle {
        links,
        in_ports: vec![0, 1],
        out_ports: vec![1, 0],
        thread,
        clock: SharedClock::new(move || clock.now_ps()),
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
    address: String,
    stop: shutdown::Trigger,
    served: tokio::task::JoinHandle<Result<(), run::RunError>>,
    ports: Arc<MemoryPorts>,
}

impl Running {
    async fn start(config: ShaperConfig) -> Self {
        Self::start_on(config, MemoryPorts::default()).await
    }

    async fn start_on(config: ShaperConfig, ports: MemoryPorts) -> Self {
        let prepared = start::prepare(&config, SystemTime::now()).unwrap();
        let ports = Arc::new(ports);
        let path = data_path(&config, &prepared.control, Arc::clone(&ports));
        let (ledger, locks) = start::begin(prepared, &path, SystemTime::now());
        let facts = start::report_facts(&config, "dpu-1", "gpu-1", path.memory_bytes);
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
            address: address.to_string(),
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

fn seconds(stamp: Option<prost_types::Timestamp>) -> f64 {
    let stamp = stamp.unwrap();
    stamp.seconds as f64 + f64::from(stamp.nanos) / 1e9
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

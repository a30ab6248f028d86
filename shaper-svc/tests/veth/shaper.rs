//! The service as a process between two namespaces.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rdmesh_proto::shaper::v1 as proto;
use rdmesh_proto::shaper::v1::shaper_service_client::ShaperServiceClient;
use tonic::transport::Channel;

use crate::net::{Net, Process, ring_frames};

pub(crate) type Client = ShaperServiceClient<Channel>;

/// Largest time for the service to come up on a busy machine.
const UP_WITHIN: Duration = Duration::from_secs(30);

/// Runs to the end on this thread.
pub(crate) fn block_on<F: Future>(test: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(test)
}

/// A shaper's files.
#[derive(Debug)]
pub(crate) struct Shaper {
    directory: PathBuf,
    /// What starts the service.
    launcher: Vec<String>,
}

impl Shaper {
    /// A configuration of one shaped wire and the way back.
    pub(crate) fn configure(directory: &Path, rate: &str) -> Result<Self> {
        let ring = format!("framecnt={},blocksz=65536", ring_frames());
        let device = |n: u8| format!("\"net_af_packet{n},iface=in{n},qdisc_bypass=0,{ring}\"");
        let text = format!(
            r#"
            name = "dpu-{4}"
            host = "gpu-1"
            state_directory = "{0}/state"
            window_ms = 250
            [server]
            listen = "unix:{0}/shaper.sock"
            [uplink]
            collector = "127.0.0.1:1"
            [dpdk]
            huge_pages = false
            file_prefix = "veth-{1}"
            rx_descriptors = 1024
            devices = [{2}, {3}]
            [[wires]]
            name = "vf0"
            in_port = "net_af_packet0"
            out_port = "net_af_packet1"
            rate = "{rate}"
            queue_frames = 8192
            [[wires]]
            name = "back"
            in_port = "net_af_packet1"
            out_port = "net_af_packet0"
            queue_frames = 8192
            "#,
            directory.display(),
            std::process::id(),
            device(0),
            device(1),
            directory.file_name().unwrap_or_default().to_string_lossy(),
        );
        std::fs::write(directory.join("shaper.toml"), text)?;
        Ok(Self {
            directory: directory.to_owned(),
            launcher: Vec::new(),
        })
    }

    /// Ahead of all ordinary threads, like a service that has its core to itself: the
    /// measurements speak of the shaper, not of what else this machine does.
    #[allow(dead_code, reason = "for the measurements")]
    pub(crate) fn measured(mut self) -> Self {
        self.launcher = ["chrt", "--fifo", "10"].map(str::to_owned).to_vec();
        self
    }

    /// With what `rdmesh-shaper.service` leaves it: its capabilities alone, none to be
    /// gained, and nothing to write to but its state and DPDK's directory.
    #[allow(dead_code, reason = "for the tests")]
    pub(crate) fn run_by_the_unit(mut self) -> Self {
        let unit = include_str!("../../../packaging/systemd/rdmesh-shaper.service");
        let capabilities = unit
            .lines()
            .find_map(|line| line.strip_prefix("CapabilityBoundingSet="))
            .unwrap_or_default();
        let bounds: String = capabilities
            .split_whitespace()
            .map(|name| format!(",+{}", name.trim_start_matches("CAP_").to_lowercase()))
            .collect();
        let script = format!(
            "set -e; mount --make-rprivate /; mkdir -p -m 700 /run/dpdk; \
             for d in '{}' /run/dpdk; do mount --bind \"$d\" \"$d\"; done; \
             mount -o remount,bind,ro /; ! touch /touched 2>/dev/null; \
             exec setpriv --bounding-set=-all{bounds} --inh-caps=-all --no-new-privs \"$@\"",
            self.directory.display()
        );
        self.launcher = ["unshare", "-m", "sh", "-c", &script, "sh"]
            .map(str::to_owned)
            .to_vec();
        self
    }

    /// A run that ends by itself; what it says.
    pub(crate) fn refused(&self, net: &Net, more: &[&str]) -> Result<String> {
        let mut command = net.between(env!("CARGO_BIN_EXE_shaper-svc"));
        command
            .arg("--config")
            .arg(self.directory.join("shaper.toml"))
            .args(more);
        let output = command.output()?;
        if output.status.success() {
            bail!("it was not refused");
        }
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Starts the service and waits until it serves.
    pub(crate) async fn start(&self, net: &Net) -> Result<(Process, Client)> {
        let mut words: Vec<&str> = self.launcher.iter().map(String::as_str).collect();
        words.push(env!("CARGO_BIN_EXE_shaper-svc"));
        let mut command = net.between(words[0]);
        command
            .args(&words[1..])
            .arg("--config")
            .arg(self.directory.join("shaper.toml"))
            .stdout(Stdio::null());
        let mut process = Process::start(&mut command)?;
        let socket = format!("unix://{}/shaper.sock", self.directory.display());
        let deadline = Instant::now() + UP_WITHIN;
        loop {
            if let Ok(mut client) = Client::connect(socket.clone()).await
                && client.list_wires(proto::ListWiresRequest {}).await.is_ok()
            {
                return Ok((process, client));
            }
            if let Some(status) = process.0.try_wait()? {
                bail!("the shaper ended: {status}");
            }
            if Instant::now() > deadline {
                bail!("the shaper does not serve");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Sets the rate of `vf0`.
pub(crate) async fn set_rate(client: &mut Client, rate_bps: u64) -> Result<()> {
    let request = proto::SetRateRequest {
        wire: "vf0".to_owned(),
        rate_bps,
        ..Default::default()
    };
    client.set_rate(request).await?;
    Ok(())
}

/// The data path's report.
pub(crate) async fn report(client: &mut Client) -> Result<proto::GetDataPathReportResponse> {
    let request = proto::GetDataPathReportRequest {};
    Ok(client.get_data_path_report(request).await?.into_inner())
}

/// The mean rate of `vf0` over the next whole windows that last `seconds` together,
/// bit/s, overhead included. The first window is left out: it began before.
pub(crate) async fn mean_rate_bps(client: &mut Client, seconds: f64) -> Result<f64> {
    let request = proto::WatchWiresRequest {
        wires: vec!["vf0".to_owned()],
    };
    let mut windows = client.watch_wires(request).await?.into_inner();
    windows.message().await?.context("a window")?;
    let (mut bits, mut lasted) = (0.0, 0.0);
    while lasted < seconds {
        let window = windows
            .message()
            .await?
            .context("a window")?
            .window
            .context("a window")?;
        let at = |stamp: Option<prost_types::Timestamp>| {
            let stamp = stamp.unwrap_or_default();
            #[expect(clippy::cast_precision_loss, reason = "seconds since 1970")]
            let seconds = stamp.seconds as f64;
            seconds + f64::from(stamp.nanos) / 1e9
        };
        lasted += at(window.to) - at(window.from);
        #[expect(clippy::cast_precision_loss, reason = "bits of a quarter of a second")]
        let sent = window.sent_bits as f64;
        bits += sent;
    }
    Ok(bits / lasted)
}

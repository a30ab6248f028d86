//! The service's configuration: `/etc/rdmesh/shaper.toml`.
//!
//! ```toml
//! name = "gpu-17-dpu"            # this shaper's own
//! host = "gpu-17"                # whose functions these are
//!
//! [dpdk]
//! devices = ["0000:03:00.0,representor=vf[0-1]"]
//! cpu = 2
//!
//! [[wires]]
//! name = "vf0"
//! virtual_function = "vf0"
//! in_port = "0000:03:00.0_representor_vf0"
//! out_port = "0000:03:00.0"
//! rate = "25gbit"
//! ```

mod dpdk;
mod wire;

use std::path::PathBuf;
use std::time::Duration;

use rdmesh_services::config::{Check, Invalid, ServiceConfig, Validate};
use rdmesh_services::host::host_name;
use rdmesh_services::server::ServerConfig;
use rdmesh_services::telemetry::TelemetryConfig;
use rdmesh_services::tls::{TlsConfig, check_links};
use rdmesh_services::uplink::UplinkConfig;
use serde::{Deserialize, Serialize};

use crate::engine::MAX_WIRES;

pub use dpdk::{DpdkConfig, ENVIRONMENT_BYTES};
use wire::DEFAULT_MTU_BYTES;
pub use wire::{MarkingSection, RateText, WireSection};

/// The shaper's port.
pub const PORT: u16 = 7402;

/// Windows that wait for a collector that is away: those of 16 wires every five
/// seconds for an hour and a quarter.
const UPLINK_ITEMS: u32 = 16_384;

/// What the largest payload grows to in a frame: Ethernet header and two tags, bytes.
const HEADER_BYTES: u32 = 14 + 8;

/// Their bytes; a window has about 500.
const UPLINK_BYTES: u64 = 16 << 20;

/// The whole configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShaperConfig {
    /// This shaper's own name, under which it reports; a name of its own for each shaper,
    /// also of the same host. Empty: this machine's name.
    pub name: String,
    /// Host whose functions are shaped, as schedulers know it; empty: this machine.
    pub host: String,
    /// Where the collector can dial this service, `HOST:PORT`. Empty: where it listens,
    /// or, if that is any address, the one from which this machine reaches the collector.
    pub advertise: String,
    /// Where rates, requests and outages are kept over restarts.
    pub state_directory: PathBuf,
    /// Length of a reporting interval, ms.
    pub window_ms: u64,
    /// What the data path was measured to carry in total; empty: not measured. See
    /// `force`.
    pub measured_drain: RateText,
    /// Start although the senders' valves let in more than the measured drain.
    pub force: bool,
    /// Seconds that a poll loop may stand still before the service ends itself, to be
    /// started anew; 0: never.
    pub stalled_exit_seconds: u64,
    /// Where the service listens.
    pub server: ServerConfig,
    /// Certificates, for the service and on the way to the collector.
    pub tls: TlsConfig,
    /// Logs and metrics.
    pub telemetry: TelemetryConfig,
    /// Where windows go.
    pub uplink: UplinkConfig,
    /// Devices and memory.
    pub dpdk: DpdkConfig,
    /// What is shaped.
    pub wires: Vec<WireSection>,
}

impl Default for ShaperConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            host: String::new(),
            advertise: String::new(),
            state_directory: "/var/lib/rdmesh/shaper".into(),
            window_ms: 5000,
            measured_drain: RateText::default(),
            force: false,
            stalled_exit_seconds: 10,
            server: ServerConfig::at(PORT),
            tls: TlsConfig::default(),
            telemetry: TelemetryConfig::default(),
            uplink: UplinkConfig {
                memory_items: UPLINK_ITEMS,
                memory_bytes: UPLINK_BYTES,
                ..UplinkConfig::default()
            },
            dpdk: DpdkConfig::default(),
            wires: Vec::new(),
        }
    }
}

impl ShaperConfig {
    /// Length of a reporting interval.
    #[must_use]
    pub const fn window(&self) -> Duration {
        Duration::from_millis(self.window_ms)
    }

    /// Memory that DPDK is to take, bytes: what is configured, or what the wires need.
    #[must_use]
    pub fn dpdk_memory_bytes(&self) -> u64 {
        match self.dpdk.memory_mb {
            0 => ENVIRONMENT_BYTES + self.pool_bytes(),
            megabytes => megabytes << 20,
        }
    }

    /// Memory of all frame pools at the most, bytes.
    #[must_use]
    pub fn pool_bytes(&self) -> u64 {
        let page_bytes = self.dpdk.page_bytes();
        let ports = self.port_names().into_iter();
        ports
            .map(|name| self.pool_of(&name).memory_bytes(page_bytes))
            .sum()
    }

    /// Memory below which the frame pools cannot be made, bytes.
    #[must_use]
    pub fn least_pool_bytes(&self) -> u64 {
        let page_bytes = self.dpdk.page_bytes();
        let ports = self.port_names().into_iter();
        ports
            .map(|name| self.pool_of(&name).least_bytes(page_bytes))
            .sum()
    }

    /// The pool that a port receives into.
    #[must_use]
    pub fn pool_of(&self, port: &str) -> crate::datapath::PoolPlan {
        let queue_frames = self
            .wires
            .iter()
            .find(|wire| wire.in_port == port)
            .map_or(0, |wire| wire.queue_frames);
        self.dpdk.pool(queue_frames, self.frame_bytes_of(port))
    }

    /// The largest payload of a frame at a port, bytes: that of the wires at it.
    #[must_use]
    pub fn mtu_of(&self, port: &str) -> u16 {
        let wires = self.wires.iter();
        let here = wires.filter(|wire| wire.in_port == port || wire.out_port == port);
        here.map(|wire| wire.mtu).max().unwrap_or(DEFAULT_MTU_BYTES)
    }

    /// The longest frame at a port, bytes.
    #[must_use]
    pub fn frame_bytes_of(&self, port: &str) -> u32 {
        u32::from(self.mtu_of(port)) + HEADER_BYTES
    }

    /// Every port that a wire names, once, in the order of the wires.
    #[must_use]
    pub fn port_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in self
            .wires
            .iter()
            .flat_map(|wire| [&wire.in_port, &wire.out_port])
        {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }

    /// Stands for everything that changes what a rate means: windows with different
    /// ones are not compared. 64-bit FNV-1a, in hexadecimal.
    #[must_use]
    pub fn hash(&self) -> String {
        let mut text = format!(
            "{} {} {} {} {:?}",
            self.dpdk.rx_descriptors,
            self.dpdk.tx_descriptors,
            self.dpdk.buffer_bytes,
            self.dpdk.cpu.is_some(),
            self.dpdk.devices
        );
        for wire in &self.wires {
            text += &format!(
                " {} {} {} {} {} {}",
                wire.name,
                wire.in_port,
                wire.out_port,
                wire.mtu,
                wire.queue_frames,
                wire.sub_queues
            );
            if let Some(marking) = wire.marking() {
                text += &format!(" {marking:?}");
            }
        }
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{hash:016x}")
    }

    fn check_ports(&self) -> Result<(), Invalid> {
        let field = |at: usize, name: &str| format!("wires[{at}].{name}");
        for (at, wire) in self.wires.iter().enumerate() {
            wire.validate()
                .map_err(|invalid| invalid.within(&format!("wires[{at}]")))?;
            for (before, other) in self.wires[..at].iter().enumerate() {
                let clash = |name: &str, value: &str| {
                    Err(Invalid::new(
                        &field(at, name),
                        value,
                        format!(
                            "another value than that of wires[{before}] ({})",
                            other.name
                        ),
                    ))
                };
                if other.name == wire.name {
                    return clash("name", &wire.name);
                }
                if other.in_port == wire.in_port {
                    return clash("in_port", &wire.in_port);
                }
                if other.out_port == wire.out_port {
                    return clash("out_port", &wire.out_port);
                }
            }
        }
        Ok(())
    }

    /// The valves of the senders let in no more than the data path drains: else the
    /// receive ring overflows at the first long burst.
    fn check_drain(&self) -> Result<(), Invalid> {
        let Some(drain) = self.measured_drain.rate("measured_drain")? else {
            return Ok(());
        };
        let mut let_in = 0;
        for (at, wire) in self.wires.iter().enumerate() {
            let field = format!("wires[{at}].valve");
            let_in += wire
                .valve
                .rate(&field)?
                .map_or(0, crate::rate::LineRate::bps);
        }
        if let_in <= drain.bps() || self.force {
            return Ok(());
        }
        Err(Invalid::new(
            "measured_drain",
            drain,
            format!(
                "at least the sum of the senders' valves, {let_in} bit/s: lower the functions' \
                 max_tx_rate and `valve`, or set force = true"
            ),
        ))
    }
}

impl Validate for ShaperConfig {
    fn validate(&self) -> Result<(), Invalid> {
        if !self.name.is_empty() {
            host_name(&self.name).map_err(|_| {
                let allowed = "1 to 253 bytes without space, slash and control characters";
                Invalid::new("name", format!("{:?}", self.name), allowed)
            })?;
        }
        Check::dialled("advertise", &self.advertise)?;
        if self.state_directory.as_os_str().is_empty() {
            let allowed = "the path of a directory";
            return Err(Invalid::new("state_directory", "\"\"", allowed));
        }
        Check::range("window_ms", self.window_ms, 100..=60_000)?;
        Check::range("stalled_exit_seconds", self.stalled_exit_seconds, 0..=3600)?;
        Check::section("server", &self.server)?;
        Check::section("telemetry", &self.telemetry)?;
        Check::section("uplink", &self.uplink)?;
        check_links(&self.tls, &self.server)?;
        let collector = &self.uplink.collector;
        self.tls.allows_dial(
            "uplink.collector",
            &collector.to_string(),
            collector.is_local(),
        )?;
        Check::section("dpdk", &self.dpdk)?;
        Check::range("wires (their number)", self.wires.len(), 0..=MAX_WIRES)?;
        self.check_ports()?;
        self.check_drain()
    }
}

impl ServiceConfig for ShaperConfig {
    const SERVICE: &'static str = "shaper";

    fn complete(&self) -> Result<(), Invalid> {
        if self.wires.is_empty() {
            let allowed = "1 to 16: write a [[wires]] section for each";
            return Err(Invalid::new("wires (their number)", "0", allowed));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmesh_services::config::check_strict;

    fn config(text: &str) -> Result<ShaperConfig, String> {
        let config: ShaperConfig = toml::from_str(text).map_err(|e| e.to_string())?;
        config.validate().map_err(|e| e.to_string())?;
        Ok(config)
    }

    const TWO: &str = r#"
        [[wires]]
        name = "vf0"
        in_port = "a"
        out_port = "b"
        rate = "25gbit"
        valve = "26gbit"
        [[wires]]
        name = "back"
        in_port = "b"
        out_port = "a"
        valve = "26gbit"
    "#;

    #[test]
    fn unknown_keys_are_refused_everywhere() {
        check_strict::<ShaperConfig>().unwrap();
        assert!(
            config("[[wires]]\nnmae = \"x\"")
                .unwrap_err()
                .contains("nmae")
        );
    }

    #[test]
    fn names_that_nobody_can_report_under_are_refused() {
        for (text, field) in [
            ("name = \"a b\"", "`name`"),
            ("name = \"a/b\"", "`name`"),
            ("advertise = \"dpu-1\"", "`advertise`"),
            ("advertise = \"0.0.0.0:7402\"", "`advertise`"),
            ("state_directory = \"\"", "`state_directory`"),
        ] {
            let message = config(text).unwrap_err();
            assert!(message.contains(field), "{message}");
        }
        assert!(config("name = \"dpu-1\"\nadvertise = \"dpu-1:7402\"").is_ok());
    }

    #[test]
    fn two_directions_between_two_ports_are_fine() {
        let config = config(TWO).unwrap();
        assert_eq!(config.port_names(), ["a", "b"]);
        assert!(config.pool_bytes() > 1_400 << 20, "two pools of 0.7 GB");
    }

    #[test]
    fn a_port_is_as_large_as_the_larger_of_its_wires_needs() {
        let long = config(&TWO.replace("rate = ", "mtu = 9000\n rate = ")).unwrap();
        // The other wire sends 1,500 bytes, and its port takes the 9,000 of this one.
        assert_eq!((long.mtu_of("a"), long.mtu_of("b")), (9000, 9000));
        assert_eq!(long.frame_bytes_of("a"), 9022);
        // Five buffers of 2,048 bytes for each frame that waits.
        let short = config(TWO).unwrap();
        for port in ["a", "b"] {
            let (long, short) = (long.pool_of(port), short.pool_of(port));
            assert!(long.mbufs > 4 * short.mbufs, "{long:?} {short:?}");
        }
        let text = format!("[dpdk]\nbuffer_bytes = 9216\n{TWO}");
        let whole = config(&text.replace("rate = ", "mtu = 9000\n rate = ")).unwrap();
        assert_eq!(whole.pool_of("a").mbufs, short.pool_of("a").mbufs);
    }

    #[test]
    fn wires_that_share_a_port_are_named() {
        let ports = |from: &str, to: &str| format!("in_port = \"{from}\"\n out_port = \"{to}\"");
        let second = "in_port = \"b\"\n        out_port = \"a\"";
        for (from, to, field) in [
            ("name = \"back\"", "name = \"vf0\"".to_owned(), "name"),
            (second, ports("a", "c"), "in_port"),
            (second, ports("c", "b"), "out_port"),
        ] {
            let message = config(&TWO.replacen(from, &to, 1)).unwrap_err();
            let field = format!("`wires[1].{field}`");
            assert!(message.contains(&field), "{message}");
            assert!(message.contains("wires[0] (vf0)"), "{message}");
        }
        let to_itself = TWO.replacen(second, &ports("a", "a"), 1);
        let message = config(&to_itself).unwrap_err();
        assert!(message.contains("`wires[1].out_port`"), "{message}");
        assert!(message.contains("another port than in_port"), "{message}");
    }

    #[test]
    fn valves_above_the_drain_need_force() {
        let message = config(&format!("measured_drain = \"40gbit\"\n{TWO}")).unwrap_err();
        assert!(message.contains("force = true"), "{message}");
        assert!(config(&format!("measured_drain = \"40gbit\"\nforce = true\n{TWO}")).is_ok());
        assert!(config(&format!("measured_drain = \"60gbit\"\n{TWO}")).is_ok());
    }

    #[test]
    fn the_hash_follows_what_changes_the_wire() {
        let one = config(TWO).unwrap();
        let rate = config(&TWO.replace("25gbit", "10gbit")).unwrap();
        let mtu = config(&TWO.replace("rate = ", "mtu = 9000\n rate = ")).unwrap();
        assert_eq!(
            one.hash(),
            rate.hash(),
            "windows tell their rates themselves"
        );
        assert_ne!(one.hash(), mtu.hash());
        let marking = "marking = { kmin_bytes = 40000, kmax_bytes = 160000, pmax_permille = 200 }";
        let marked = config(&TWO.replacen("rate = ", &format!("{marking}\n rate = "), 1)).unwrap();
        assert_ne!(one.hash(), marked.hash());
        assert!(
            config(&TWO.replace("rate = ", "marking = { kmin = 4 }\n rate = "))
                .unwrap_err()
                .contains("kmin")
        );
    }
}

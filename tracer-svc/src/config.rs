//! The configuration of `tracer-svc`.

use std::path::PathBuf;
use std::time::Duration;

use rdmesh_services::config::{Check, Invalid, ServiceConfig, Validate};
use rdmesh_services::host::host_name;
use rdmesh_services::server::{ListenAddress, ServerConfig};
use rdmesh_services::telemetry::TelemetryConfig;
use rdmesh_services::tls::{TlsConfig, check_links};
use rdmesh_services::uplink::UplinkConfig;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::cost::{Budget, Statistics};
use crate::loader::{ByRules, Options};

/// The tracer's port on a GPU host.
pub const PORT: u16 = 7401;

/// Smallest and largest ring, KiB. 64 KiB is 190 records; beyond 64 MiB a ring
/// only delays the news that nobody reads it.
const RING_KIB: std::ops::RangeInclusive<u32> = 64..=65_536;

/// Configuration file `/etc/rdmesh/tracer.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TracerConfig {
    /// The host's name as the scheduler knows it; empty: as `uname -n` tells it.
    pub host: String,
    /// Where the collector can dial this tracer, `HOST:PORT`; empty: nowhere.
    pub advertise: String,
    /// Seconds between two snapshots, 1 to 60.
    pub interval_seconds: u32,
    /// The kernel's side.
    pub ring: RingConfig,
    /// What the tracer may cost its host.
    pub cost: CostConfig,
    /// Which functions are hooked.
    pub probes: ProbesConfig,
    /// What good calls do.
    pub baseline: BaselineConfig,
    /// The collector.
    pub uplink: UplinkConfig,
    /// The tracer's own service.
    #[serde(deserialize_with = "server_at_our_port")]
    pub server: ServerConfig,
    /// Certificates, for the service and on the way to the collector.
    pub tls: TlsConfig,
    /// Logs and metrics.
    pub telemetry: TelemetryConfig,
}

/// Section `[ring]`: what the kernel holds for the tracer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RingConfig {
    /// Room for records, KiB; a power of two.
    pub kib: u32,
    /// Rows of the counters by (probe, errno).
    pub errno_entries: u32,
    /// Rows of the counters by (probe, errno, cgroup).
    pub cgroup_entries: u32,
}

/// Section `[probes]`: which functions are hooked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProbesConfig {
    /// When the rules of `tracer-svc select` are asked beside the built-in
    /// catalogue: `unchecked` (on a kernel of a series that the catalogue was not
    /// checked on), `always`, `never`. It reads /lib/modules, for half a second.
    pub by_rules: ByRules,
}

/// Section `[baseline]`: what good calls do; see docs/baseline.md.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BaselineConfig {
    /// Where baselines are kept; made with the first one.
    pub directory: PathBuf,
    /// Whether the tracer opens windows by itself when the collector leases it one: to
    /// record good calls where the fleet has no baseline, and to capture each new kind of
    /// failing call.
    pub automatic: bool,
}

impl Default for BaselineConfig {
    fn default() -> Self {
        Self {
            directory: "/var/lib/rdmesh/tracer/baselines".into(),
            automatic: false,
        }
    }
}

/// Section `[cost]`: what the tracer may cost its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CostConfig {
    /// When the kernel times the probes: `sampled` (one interval in twelve, and
    /// while the cost comes near the budget), `always` (slows every BPF program of
    /// the host a little), `never` (only while kernel.bpf_stats_enabled is set).
    pub statistics: Statistics,
    /// Share of one CPU that probes and process may take together, percent; 0: no
    /// limit. Who takes more is detached from everything and says so, until
    /// `tracer-svc attach` or a restart.
    pub budget_percent: u32,
    /// Seconds over which the share is taken, 5 to 3600.
    pub budget_seconds: u32,
}

impl Default for CostConfig {
    fn default() -> Self {
        Self {
            statistics: Statistics::Sampled,
            // Half of a CPU for a whole minute. A burst of 100,000 failures a second
            // takes about one CPU while it lasts and ends by itself; what lasts for
            // half a minute is no burst.
            budget_percent: 50,
            budget_seconds: 60,
        }
    }
}

impl CostConfig {
    /// The same for the meter.
    #[must_use]
    pub fn budget(&self) -> Budget {
        Budget {
            percent: self.budget_percent,
            window_ns: u64::from(self.budget_seconds) * 1_000_000_000,
        }
    }
}

impl Default for TracerConfig {
    fn default() -> Self {
        Self {
            host: String::new(),
            advertise: String::new(),
            interval_seconds: 5,
            ring: RingConfig::default(),
            cost: CostConfig::default(),
            probes: ProbesConfig::default(),
            baseline: BaselineConfig::default(),
            uplink: UplinkConfig::default(),
            server: ServerConfig::at(PORT),
            tls: TlsConfig::default(),
            telemetry: TelemetryConfig::default(),
        }
    }
}

impl Default for RingConfig {
    fn default() -> Self {
        let options = Options::default();
        Self {
            kib: options.ring_bytes / 1024,
            errno_entries: options.errno_entries,
            cgroup_entries: options.cgroup_entries,
        }
    }
}

impl TracerConfig {
    /// What the loader needs of it.
    #[must_use]
    pub fn options(&self) -> Options {
        Options {
            ring_bytes: self.ring.kib.saturating_mul(1024),
            errno_entries: self.ring.errno_entries,
            cgroup_entries: self.ring.cgroup_entries,
            by_rules: self.probes.by_rules,
        }
    }

    /// Time between two snapshots.
    #[must_use]
    pub fn interval(&self) -> Duration {
        Duration::from_secs(u64::from(self.interval_seconds))
    }
}

impl ServiceConfig for TracerConfig {
    const SERVICE: &'static str = "tracer";
}

impl Validate for TracerConfig {
    fn validate(&self) -> Result<(), Invalid> {
        if !self.host.is_empty()
            && let Err(error) = host_name(&self.host)
        {
            return Err(Invalid::new("host", &self.host, error.to_string()));
        }
        Check::dialled("advertise", &self.advertise)?;
        Check::range("interval_seconds", self.interval_seconds, 1..=60)?;
        self.ring.validate().map_err(|e| e.within("ring"))?;
        self.cost.validate().map_err(|e| e.within("cost"))?;
        self.baseline.validate().map_err(|e| e.within("baseline"))?;
        self.uplink.validate().map_err(|e| e.within("uplink"))?;
        self.server.validate().map_err(|e| e.within("server"))?;
        check_links(&self.tls, &self.server)?;
        let collector = &self.uplink.collector;
        self.tls.allows_dial(
            "uplink.collector",
            &collector.to_string(),
            collector.is_local(),
        )?;
        self.telemetry.validate().map_err(|e| e.within("telemetry"))
    }
}

impl Validate for RingConfig {
    fn validate(&self) -> Result<(), Invalid> {
        Check::range("kib", self.kib, RING_KIB)?;
        if !self.kib.is_power_of_two() {
            return Err(Invalid::new(
                "kib",
                self.kib,
                "a power of two: 64, 128, 256, 512, 1024, …",
            ));
        }
        Check::range("errno_entries", self.errno_entries, 64..=1 << 20)?;
        Check::range("cgroup_entries", self.cgroup_entries, 64..=1 << 20)
    }
}

impl Validate for BaselineConfig {
    fn validate(&self) -> Result<(), Invalid> {
        if self.directory.is_absolute() {
            return Ok(());
        }
        let shown = self.directory.display().to_string();
        Err(Invalid::new("directory", shown, "an absolute path"))
    }
}

impl Validate for CostConfig {
    fn validate(&self) -> Result<(), Invalid> {
        // More than 64 CPUs is no limit, and that has its own value.
        Check::range("budget_percent", self.budget_percent, 0..=6400)?;
        Check::range("budget_seconds", self.budget_seconds, 5..=3600)
    }
}

/// A `[server]` section without `listen` means our port and not any free one.
fn server_at_our_port<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<ServerConfig, D::Error> {
    let mut section = toml::Table::deserialize(deserializer)?;
    if !section.contains_key("listen") {
        let ListenAddress::Tcp(address) = ServerConfig::at(PORT).listen else {
            return Err(D::Error::custom("the default address is no TCP address"));
        };
        section.insert("listen".to_owned(), address.to_string().into());
    }
    ServerConfig::deserialize(toml::Value::Table(section)).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmesh_services::config::{ConfigArgs, Flag, check_strict, load_from};

    fn with(settings: &[&str]) -> Result<TracerConfig, String> {
        let args = ConfigArgs {
            set: settings
                .iter()
                .map(|s| s.parse::<Flag>().unwrap())
                .collect(),
            config: Some("/dev/null".into()),
            ..ConfigArgs::default()
        };
        load_from(&args, &[], []).map_err(|e| e.to_string())
    }

    #[test]
    fn unknown_keys_are_refused_everywhere() {
        check_strict::<TracerConfig>().unwrap();
    }

    #[test]
    fn a_section_without_listen_keeps_our_port() {
        let config = with(&["server.grace_seconds=3"]).unwrap();
        assert_eq!(config.server.listen, ServerConfig::at(PORT).listen);
        assert_eq!(config.server.grace_seconds, 3);
        let config = with(&["server.listen=127.0.0.1:0"]).unwrap();
        assert_eq!(config.server.listen, ServerConfig::at(0).listen);
    }

    #[test]
    fn values_out_of_range_name_their_key_and_what_is_allowed() {
        let message = with(&["ring.kib=1000"]).unwrap_err();
        assert!(
            message.contains("ring.kib") && message.contains("power of two"),
            "{message}"
        );
        let message = with(&["interval_seconds=0"]).unwrap_err();
        assert!(message.contains("interval_seconds"), "{message}");
        let message = with(&["cost.budget_seconds=4"]).unwrap_err();
        assert!(message.contains("cost.budget_seconds"), "{message}");
        let message = with(&["cost.statistics=often"]).unwrap_err();
        assert!(message.contains("sampled"), "{message}");
        let message = with(&["baseline.directory=here"]).unwrap_err();
        assert!(message.contains("baseline.directory"), "{message}");
        let message = with(&["host=a b"]).unwrap_err();
        assert!(message.contains("host"), "{message}");
    }

    #[test]
    fn an_address_that_nobody_can_dial_is_refused() {
        let message = with(&["advertise=xx"]).unwrap_err();
        for part in ["`advertise` is \"xx\"", "HOST:PORT", "gpu-01:7401"] {
            assert!(message.contains(part), "{part} is missing in {message}");
        }
        assert!(with(&["advertise=gpu-01:7401"]).is_ok());
        assert!(with(&["advertise="]).is_ok());
    }

    #[test]
    fn the_ring_is_the_loaders_default() {
        assert_eq!(TracerConfig::default().options(), Options::default());
    }
}

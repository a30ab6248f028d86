//! The collector's configuration.

use std::time::Duration;

use rdmesh_services::config::{Check, Invalid, SecretUrl, ServiceConfig, Validate};
use rdmesh_services::server::ServerConfig;
use rdmesh_services::telemetry::TelemetryConfig;
use rdmesh_services::tls::{TlsConfig, check_links};
use rdmesh_store::{Keep, StoreOptions};
use serde::{Deserialize, Serialize};

/// The port that agents, schedulers and the CLI use by default.
pub const DEFAULT_PORT: u16 = 7400;

/// `/etc/rdmesh/collector.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CollectorConfig {
    /// Where it listens.
    pub server: ServerConfig,
    /// Certificates, for agents and clients, and for dialling shapers.
    pub tls: TlsConfig,
    /// Where it stores.
    pub database: DatabaseConfig,
    /// How it takes what agents report.
    pub ingest: IngestConfig,
    /// What the site says for itself.
    pub diagnosis: DiagnosisConfig,
    /// Windows that tracers may open by themselves.
    pub baseline: BaselineConfig,
    /// How long it keeps what it stored.
    pub retention: RetentionConfig,
    /// Logs and metrics.
    pub telemetry: TelemetryConfig,
}

impl Default for CollectorConfig {
    fn default() -> Self {
        Self {
            server: ServerConfig::at(DEFAULT_PORT),
            tls: TlsConfig::default(),
            database: DatabaseConfig::default(),
            ingest: IngestConfig::default(),
            diagnosis: DiagnosisConfig::default(),
            baseline: BaselineConfig::default(),
            retention: RetentionConfig::default(),
            telemetry: TelemetryConfig::default(),
        }
    }
}

impl ServiceConfig for CollectorConfig {
    const SERVICE: &'static str = "collector";
}

impl Validate for CollectorConfig {
    fn validate(&self) -> Result<(), Invalid> {
        Check::section("server", &self.server)?;
        check_links(&self.tls, &self.server)?;
        Check::section("database", &self.database)?;
        Check::section("ingest", &self.ingest)?;
        Check::section("diagnosis", &self.diagnosis)?;
        Check::section("baseline", &self.baseline)?;
        Check::section("retention", &self.retention)?;
        Check::section("telemetry", &self.telemetry)
    }
}

/// Section `[database]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DatabaseConfig {
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, or
    /// `postgres:///DATABASE?host=/run/postgresql&user=USER` for a Unix socket.
    pub url: SecretUrl,
    /// Connections at most. Writers take `ingest.writers` of them; queries the rest.
    pub connections: u32,
    /// Seconds that a call waits for a connection before it is refused.
    pub wait_seconds: u32,
}

impl Default for DatabaseConfig {
    fn default() -> Self {
        Self {
            url: SecretUrl::new("postgres:///rdmesh?host=/run/postgresql"),
            connections: 10,
            wait_seconds: 5,
        }
    }
}

impl DatabaseConfig {
    /// As the store takes it.
    #[must_use]
    pub fn options(&self) -> StoreOptions {
        StoreOptions {
            url: self.url.expose().to_owned(),
            connections: self.connections,
            acquire_timeout: Duration::from_secs(u64::from(self.wait_seconds)),
        }
    }
}

impl Validate for DatabaseConfig {
    fn validate(&self) -> Result<(), Invalid> {
        if let Err(error) = self.options().check_url() {
            return Err(Invalid::new("url", &self.url, error.to_string()));
        }
        Check::range("connections", self.connections, 3..=200)?;
        Check::range("wait_seconds", self.wait_seconds, 1..=60)
    }
}

/// Section `[ingest]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IngestConfig {
    /// Tasks that write batches, each on a connection of its own.
    pub writers: u32,
    /// Items of one transaction at most.
    pub batch_items: u32,
    /// Milliseconds that a batch waits for more items.
    pub batch_wait_ms: u32,
    /// Mebibytes of items that wait to be written at most; beyond, agents wait. One stream
    /// has at most an eighth of it. Writers hold rows beside it: 32 MiB each, and up to
    /// 64 MiB for a single snapshot, which is the largest that is taken.
    pub queue_mib: u32,
    /// Seconds that a batch is tried again while Postgres is away, before its agents
    /// are sent off to come again later.
    pub retry_seconds: u32,
}

impl Default for IngestConfig {
    fn default() -> Self {
        Self {
            writers: 2,
            batch_items: 512,
            batch_wait_ms: 3,
            queue_mib: 256,
            retry_seconds: 20,
        }
    }
}

impl Validate for IngestConfig {
    fn validate(&self) -> Result<(), Invalid> {
        Check::range("writers", self.writers, 1..=64)?;
        Check::range("batch_items", self.batch_items, 1..=10_000)?;
        Check::range("batch_wait_ms", self.batch_wait_ms, 0..=1_000)?;
        // One item may have 4 MiB.
        Check::range("queue_mib", self.queue_mib, 8..=65_536)?;
        // Agents take a silence of 30 s for a dead collector.
        Check::range("retry_seconds", self.retry_seconds, 1..=25)
    }
}

/// Section `[diagnosis]`. Both files are optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiagnosisConfig {
    /// File with `[routes]`: whom to call about which class, `CLASS = "TEAM"`; read again
    /// when it changes. Empty: the built-in teams.
    pub routes: String,
    /// File with rules for jobs' logs, tried before the built-in ones, in the form that
    /// `rdmesh classify-log --rules` reads. Empty: the built-in rules alone.
    pub log_rules: String,
}

impl Validate for DiagnosisConfig {
    fn validate(&self) -> Result<(), Invalid> {
        for (key, path) in [("routes", &self.routes), ("log_rules", &self.log_rules)] {
            if !path.is_empty() && !path.starts_with('/') {
                return Err(Invalid::new(
                    key,
                    path,
                    "an absolute path, or empty for none",
                ));
            }
        }
        Ok(())
    }
}

/// Section `[baseline]`: automatic mode; see docs/baseline.md.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BaselineConfig {
    /// Hosts that may have a window at a time, of the whole fleet, 0 to 1000; 0: automatic
    /// mode is off.
    pub hosts_at_once: u32,
    /// Seconds of such a window, 5 to 300: it costs the host's RDMA calls some microseconds
    /// for each function.
    pub window_seconds: u32,
}

impl Default for BaselineConfig {
    fn default() -> Self {
        Self {
            hosts_at_once: 0,
            // A job that starts makes its calls within a minute; one that fails is retried
            // within it.
            window_seconds: 60,
        }
    }
}

impl Validate for BaselineConfig {
    fn validate(&self) -> Result<(), Invalid> {
        Check::range("hosts_at_once", self.hosts_at_once, 0..=1_000)?;
        // The longest that a tracer opens.
        Check::range("window_seconds", self.window_seconds, 5..=300)
    }
}

/// Section `[retention]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionConfig {
    /// Days that failures, counters and windows are kept; whole weeks are dropped.
    pub days: u32,
    /// Days that snapshots are kept as they came; no longer than `days`, whatever stands here.
    pub exact_days: u32,
    /// Days that sums by host, hour and signature are kept, which answer questions about the
    /// whole fleet; no shorter than `days`, whatever stands here.
    pub hours_days: u32,
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            days: 180,
            exact_days: 60,
            hours_days: 730,
        }
    }
}

impl RetentionConfig {
    /// How long rows are kept.
    #[must_use]
    pub fn keep(&self) -> Keep {
        let days = |days: u32| Duration::from_secs(u64::from(days) * 24 * 3600);
        Keep {
            exact: days(self.exact_days.min(self.days)),
            detail: days(self.days),
            hours: days(self.hours_days.max(self.days)),
        }
    }
}

impl Validate for RetentionConfig {
    fn validate(&self) -> Result<(), Invalid> {
        // Longer than the oldest row that an agent may still bring (35 days).
        Check::range("days", self.days, 36..=3_650)?;
        Check::range("exact_days", self.exact_days, 36..=3_650)?;
        Check::range("hours_days", self.hours_days, 36..=3_650)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmesh_services::config::check_strict;

    #[test]
    fn unknown_keys_are_refused_and_the_default_is_valid() {
        check_strict::<CollectorConfig>().unwrap();
    }

    #[test]
    fn sums_outlast_details_and_details_outlast_exact_snapshots() {
        let config = |days| RetentionConfig {
            days,
            ..RetentionConfig::default()
        };
        for days in [36, 180, 3_650] {
            config(days).validate().unwrap();
            let keep = config(days).keep();
            assert!(
                keep.exact <= keep.detail && keep.detail <= keep.hours,
                "{keep:?}"
            );
        }
        assert!(config(35).validate().is_err());
    }

    #[test]
    fn a_url_of_another_database_is_refused_without_its_password() {
        let config = DatabaseConfig {
            url: SecretUrl::new("mysql://root:hunter2@h/db"),
            ..DatabaseConfig::default()
        };
        let message = config.validate().unwrap_err().to_string();
        assert!(message.contains("postgres:///DATABASE?host="), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
    }

    #[test]
    fn regression_a_url_that_the_driver_refuses_is_not_valid() {
        for url in [
            "postgres://u:hunter2@h/db?sslmode=foo",
            "postgres://u:hunter2@h:port/db",
            "postgres:///db?host=/run/postgresql&sslmode=foo",
        ] {
            let config = DatabaseConfig {
                url: SecretUrl::new(url),
                ..DatabaseConfig::default()
            };
            let message = config.validate().unwrap_err().to_string();
            assert!(message.contains("cannot be read"), "{url}: {message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
    }
}

//! Logs to standard error, and metrics over OTLP/HTTP.
//!
//! Without an endpoint there is no thread, no timer and no provider: instruments of
//! [`opentelemetry::global::meter`] then cost a branch and their callbacks never run.

mod logs;
mod metrics;
mod process;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::{Check, Invalid, Validate};

/// How long the last export may take when the process ends. A live endpoint answers
/// within milliseconds; a dead one must not hold the end.
pub const FLUSH_WITHIN: Duration = Duration::from_secs(2);

/// How long one export may take. Well below the shortest interval, so that exports
/// never overlap.
pub const EXPORT_WITHIN: Duration = Duration::from_secs(4);

/// Why there is no telemetry.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The log filter cannot be read.
    #[error(
        "log filter {filter:?} is not understood: {why}; write a level (info) or targets with \
         levels (info,rdmesh_services::uplink=debug)"
    )]
    Filter {
        /// The filter.
        filter: String,
        /// What is wrong.
        why: String,
    },
    /// A subscriber is installed already.
    #[error("logs are set up already; call telemetry::start once per process")]
    Twice,
    /// The exporter cannot be built.
    #[error("metrics cannot be exported to {endpoint}: {why}; write a full http:// URL")]
    Exporter {
        /// The endpoint.
        endpoint: String,
        /// What is wrong.
        why: String,
    },
}

/// Section `[telemetry]` of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// Log filter: a level, or targets with levels. `RDMESH_LOG` sets it too.
    pub log: String,
    /// `auto` (text on a terminal, else JSON), `text` or `json`.
    pub log_format: String,
    /// Full URL that takes OTLP metrics over HTTP, for VictoriaMetrics
    /// `http://HOST:8428/opentelemetry/v1/metrics`. Empty: off.
    pub otlp_endpoint: String,
    /// Seconds between two exports.
    pub otlp_interval_seconds: u32,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            log: "info".to_owned(),
            log_format: "auto".to_owned(),
            otlp_endpoint: String::new(),
            otlp_interval_seconds: 15,
        }
    }
}

impl Validate for TelemetryConfig {
    fn validate(&self) -> Result<(), Invalid> {
        Check::one_of("log_format", &self.log_format, &["auto", "text", "json"])?;
        Check::range(
            "otlp_interval_seconds",
            self.otlp_interval_seconds,
            5..=3600,
        )?;
        if let Err(error) = logs::filter(&self.log) {
            return Err(Invalid::new("log", &self.log, error.to_string()));
        }
        let url = &self.otlp_endpoint;
        if !url.is_empty() && !url.starts_with("http://") {
            let allowed = "a full http:// URL with its path, or empty (there is no TLS yet)";
            return Err(Invalid::new("otlp_endpoint", url, allowed));
        }
        Ok(())
    }
}

/// Who speaks, as OpenTelemetry's semantic conventions name it.
#[derive(Clone, Debug)]
pub struct Resource {
    /// `service.name`: `rdmesh-tracer`.
    pub service: String,
    /// `service.instance.id`: the run id.
    pub instance: String,
    /// `host.name`.
    pub host: String,
}

/// Keeps the exporter running. Dropping it sends what was measured and returns within
/// [`FLUSH_WITHIN`].
#[derive(Debug)]
#[must_use = "dropping it ends the export of metrics"]
pub struct Telemetry {
    export: Option<metrics::Export>,
}

impl Telemetry {
    /// Whether metrics are exported.
    #[must_use]
    pub fn exports(&self) -> bool {
        self.export.is_some()
    }

    /// Sends what was measured, now. Blocks, for `within` at most. Returns whether
    /// the endpoint took it (also when there is none).
    pub fn flush(&self, within: Duration) -> bool {
        self.export
            .as_ref()
            .is_none_or(|export| export.flush(within))
    }
}

/// Sets up logs and, when the configuration has an endpoint, metrics. Call it once, at
/// the start of `main`; needs no runtime.
///
/// # Errors
/// [`TelemetryError`].
pub fn start(config: &TelemetryConfig, resource: &Resource) -> Result<Telemetry, TelemetryError> {
    logs::install(config)?;
    let export = metrics::Export::start(config, resource)?;
    Ok(Telemetry { export })
}

/// [`start`] for metrics alone: for a test, or a program whose output is for people.
///
/// # Errors
/// [`TelemetryError::Exporter`].
pub fn start_metrics(
    config: &TelemetryConfig,
    resource: &Resource,
) -> Result<Telemetry, TelemetryError> {
    Ok(Telemetry {
        export: metrics::Export::start(config, resource)?,
    })
}

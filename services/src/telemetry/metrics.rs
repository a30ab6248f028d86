//! The export of metrics: a thread of its own, so that it neither needs nor holds the
//! service's runtime, and so that a flush may block on it from anywhere.

use std::time::Duration;

use opentelemetry::metrics::MeterProvider;
use opentelemetry::{KeyValue, global};
use opentelemetry_otlp::{MetricExporter, Protocol, WithExportConfig};
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider, Temporality};
use tokio::runtime::Runtime;

use super::{EXPORT_WITHIN, FLUSH_WITHIN, Resource, TelemetryConfig, TelemetryError, process};

/// A running export.
#[derive(Debug)]
pub(crate) struct Export {
    provider: SdkMeterProvider,
}

impl Export {
    /// Starts the export and makes it the process's; `None` without an endpoint.
    pub(crate) fn start(
        config: &TelemetryConfig,
        resource: &Resource,
    ) -> Result<Option<Self>, TelemetryError> {
        if config.otlp_endpoint.is_empty() {
            return Ok(None);
        }
        let refuse = |why: String| TelemetryError::Exporter {
            endpoint: config.otlp_endpoint.clone(),
            why,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| refuse(e.to_string()))?;
        let exporter = MetricExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&config.otlp_endpoint)
            .with_timeout(EXPORT_WITHIN)
            .build()
            .map_err(|e| refuse(e.to_string()))?;
        let reader = PeriodicReader::builder(Blocking {
            runtime: Some(runtime),
            exporter,
        })
        .with_interval(Duration::from_secs(u64::from(config.otlp_interval_seconds)))
        .build();
        let provider = SdkMeterProvider::builder()
            .with_reader(reader)
            .with_resource(describe(resource))
            .build();
        process::register(&provider.meter("rdmesh.process"));
        global::set_meter_provider(provider.clone());
        Ok(Some(Self { provider }))
    }

    /// Sends what was measured.
    pub(crate) fn flush(&self, within: Duration) -> bool {
        let provider = self.provider.clone();
        bounded(within, move || provider.force_flush().is_ok())
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        let provider = self.provider.clone();
        if !bounded(FLUSH_WITHIN, move || {
            provider.shutdown_with_timeout(FLUSH_WITHIN).is_ok()
        }) {
            tracing::warn!("the last metrics were not sent");
        }
    }
}

/// Runs a call of the SDK on a thread of its own and waits for it, for `within` at most:
/// its flush has no bound, and its shutdown waits for five seconds whatever it is told.
fn bounded(within: Duration, call: impl FnOnce() -> bool + Send + 'static) -> bool {
    let (done, waiting) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name("otlp-flush".to_owned());
    let spawned = thread.spawn(move || done.send(call()));
    spawned.is_ok() && waiting.recv_timeout(within).unwrap_or(false)
}

/// `service.*` and `host.*` of the semantic conventions.
fn describe(resource: &Resource) -> opentelemetry_sdk::Resource {
    opentelemetry_sdk::Resource::builder_empty()
        .with_attributes([
            KeyValue::new("service.name", resource.service.clone()),
            KeyValue::new("service.version", crate::VERSION),
            KeyValue::new("service.instance.id", resource.instance.clone()),
            KeyValue::new("host.name", resource.host.clone()),
        ])
        .build()
}

/// Runs the exporter's HTTP client on a runtime of its own: the reader's thread is no
/// tokio thread, and the client needs one.
#[derive(Debug)]
struct Blocking {
    runtime: Option<Runtime>,
    exporter: MetricExporter,
}

impl PushMetricExporter for Blocking {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let Some(runtime) = &self.runtime else {
            return Err(OTelSdkError::AlreadyShutdown);
        };
        let exported = runtime.block_on(self.exporter.export(metrics));
        if let Err(error) = &exported {
            tracing::debug!(%error, "metrics not exported");
        }
        exported
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.exporter.temporality()
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        // The last owner may be a thread of the service's runtime, where dropping a
        // runtime that waits for its blocking threads panics.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

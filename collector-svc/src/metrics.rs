//! What the collector measures of itself. Without an exporter an instrument costs a
//! branch.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Histogram, UpDownCounter};

/// Bounds of the commit latency, seconds: a batch takes milliseconds on a healthy disk.
const COMMIT_BOUNDS: [f64; 12] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 20.0,
];

/// Instruments of ingest.
#[derive(Debug, Clone)]
pub(crate) struct IngestMetrics {
    items: Counter<u64>,
    repeated: Counter<u64>,
    rejected: Counter<u64>,
    retries: Counter<u64>,
    sent_off: Counter<u64>,
    commit: Histogram<f64>,
    batch: Histogram<u64>,
    queue_fill: Gauge<f64>,
    streams: UpDownCounter<i64>,
}

impl IngestMetrics {
    pub(crate) fn new() -> Self {
        let meter = opentelemetry::global::meter("rdmesh.collector");
        Self {
            items: meter
                .u64_counter("rdmesh.collector.items")
                .with_description("Items committed, without repeats")
                .build(),
            repeated: meter
                .u64_counter("rdmesh.collector.items.repeated")
                .with_description("Items that had been stored before")
                .build(),
            rejected: meter
                .u64_counter("rdmesh.collector.items.rejected")
                .with_description("Items that will never be stored")
                .build(),
            retries: meter
                .u64_counter("rdmesh.collector.commit.retries")
                .with_description("Batches that were tried again")
                .build(),
            sent_off: meter
                .u64_counter("rdmesh.collector.items.sent_off")
                .with_description("Items given back to their agents, which send them again")
                .build(),
            commit: meter
                .f64_histogram("rdmesh.collector.commit.duration")
                .with_unit("s")
                .with_description("Time of a batch's transaction")
                .with_boundaries(COMMIT_BOUNDS.to_vec())
                .build(),
            batch: meter
                .u64_histogram("rdmesh.collector.batch.items")
                .with_description("Items of a transaction")
                .with_boundaries(vec![1.0, 4.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0])
                .build(),
            queue_fill: meter
                .f64_gauge("rdmesh.collector.queue.fill")
                .with_description("Share of the queue that is taken, 0 to 1")
                .build(),
            streams: meter
                .i64_up_down_counter("rdmesh.collector.streams")
                .with_description("Agents' streams that are open")
                .build(),
        }
    }

    pub(crate) fn committed(&self, items: u64, repeated: u64, took: Duration) {
        self.items.add(items - repeated.min(items), &[]);
        self.repeated.add(repeated, &[]);
        self.batch.record(items, &[]);
        self.commit.record(took.as_secs_f64(), &[]);
    }

    pub(crate) fn rejected(&self, items: u64) {
        self.rejected.add(items, &[]);
    }

    pub(crate) fn retried(&self) {
        self.retries.add(1, &[]);
    }

    pub(crate) fn sent_off(&self, items: u64) {
        self.sent_off.add(items, &[]);
    }

    pub(crate) fn queue_fill(&self, fill: f64) {
        self.queue_fill.record(fill, &[]);
    }

    pub(crate) fn stream(&self, agent: &str, change: i64) {
        self.streams
            .add(change, &[KeyValue::new("agent", agent.to_owned())]);
    }
}

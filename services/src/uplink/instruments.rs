//! [`Status`] as metrics. Without a provider nothing is registered and nothing runs.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use opentelemetry::global;

use super::shared::Shared;
use super::{SpoolStatus, Status};

/// Observes an uplink on each export, as long as it lives.
pub(crate) fn register(shared: &Arc<Shared>) {
    let meter = global::meter("rdmesh.uplink");
    let gauge = |name: &'static str, unit, about, value: fn(&Status) -> u64| {
        let shared = Arc::downgrade(shared);
        meter
            .u64_observable_gauge(name)
            .with_unit(unit)
            .with_description(about)
            .with_callback(move |observer| {
                if let Some(value) = read(&shared, value) {
                    observer.observe(value, &[]);
                }
            })
            .build();
    };
    gauge(
        "rdmesh.uplink.connected",
        "1",
        "1 while connected to the collector",
        |s| u64::from(s.connected_since.is_some()),
    );
    gauge(
        "rdmesh.uplink.queue.items",
        "{item}",
        "Items without acknowledgement",
        |s| s.queued_items as u64,
    );
    gauge(
        "rdmesh.uplink.queue.bytes",
        "By",
        "Memory of items without acknowledgement",
        |s| s.queued_bytes as u64,
    );
    let counter = |name: &'static str, unit, about, value: fn(&Status) -> u64| {
        let shared = Arc::downgrade(shared);
        meter
            .u64_observable_counter(name)
            .with_unit(unit)
            .with_description(about)
            .with_callback(move |observer| {
                if let Some(value) = read(&shared, value) {
                    observer.observe(value, &[]);
                }
            })
            .build();
    };
    counter("rdmesh.uplink.items", "{item}", "Items queued", |s| {
        s.newest
    });
    counter(
        "rdmesh.uplink.connections",
        "{connection}",
        "Connections made",
        |s| s.connections,
    );
    counter(
        "rdmesh.uplink.rejected",
        "{item}",
        "Items that the collector rejected",
        |s| s.rejected,
    );
    counter(
        "rdmesh.uplink.too_large",
        "{item}",
        "Items too large to be queued",
        |s| s.too_large,
    );
    counter(
        "rdmesh.uplink.given_up",
        "{item}",
        "Items that fell out of memory or out of the spool",
        |s| s.items_given_up,
    );
    counter(
        "rdmesh.uplink.snapshots_given_up",
        "{snapshot}",
        "Snapshots that will not be sent",
        |s| s.snapshots_given_up,
    );
}

fn read(shared: &Weak<Shared>, value: fn(&Status) -> u64) -> Option<u64> {
    shared.upgrade().map(|shared| value(&shared.status()))
}

/// Observes a spool on each export, as long as it lives.
pub(crate) fn register_spool(status: &Arc<Mutex<SpoolStatus>>) {
    let meter = global::meter("rdmesh.uplink");
    let gauge = |name: &'static str, unit, about, value: fn(&SpoolStatus) -> f64| {
        let status = Arc::downgrade(status);
        meter
            .f64_observable_gauge(name)
            .with_unit(unit)
            .with_description(about)
            .with_callback(move |observer| {
                if let Some(status) = status.upgrade() {
                    let status = *status.lock().unwrap_or_else(PoisonError::into_inner);
                    observer.observe(value(&status), &[]);
                }
            })
            .build();
    };
    // Counts of less than 2^53 are exact in an f64.
    gauge(
        "rdmesh.uplink.spool.usable",
        "1",
        "1 while the disk takes what comes",
        |s| f64::from(u8::from(s.usable)),
    );
    gauge(
        "rdmesh.uplink.spool.items",
        "{item}",
        "Items without acknowledgement, this run's and those of the earlier run being sent",
        |s| s.items as f64,
    );
    gauge(
        "rdmesh.uplink.spool.bytes",
        "By",
        "Bytes on disk, of all runs",
        |s| s.bytes as f64,
    );
    gauge(
        "rdmesh.uplink.spool.oldest_age",
        "s",
        "Age of the oldest item without acknowledgement",
        |s| s.oldest.as_secs_f64(),
    );
    gauge(
        "rdmesh.uplink.spool.earlier_runs",
        "{run}",
        "Runs of earlier processes that still have something to send",
        |s| s.earlier_runs as f64,
    );
    let counter = |name: &'static str, about, value: fn(&SpoolStatus) -> u64| {
        let status = Arc::downgrade(status);
        meter
            .u64_observable_counter(name)
            .with_unit("{item}")
            .with_description(about)
            .with_callback(move |observer| {
                if let Some(status) = status.upgrade() {
                    let status = *status.lock().unwrap_or_else(PoisonError::into_inner);
                    observer.observe(value(&status), &[]);
                }
            })
            .build();
    };
    counter(
        "rdmesh.uplink.spool.dropped",
        "Items dropped because the spool is bounded",
        |s| s.dropped,
    );
    counter(
        "rdmesh.uplink.spool.damaged",
        "Items that could not be read back, at least",
        |s| s.damaged,
    );
}

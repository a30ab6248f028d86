//! [`Status`] as metrics. Without a provider nothing is registered and nothing runs.

use std::sync::{Arc, Weak};

use opentelemetry::global;

use super::Status;
use super::shared::Shared;

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
        "Items that fell out of memory",
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

//! What waits and what is in flight is bounded, and what falls out is counted.

use rdmesh_proto::tracer::v1::{Heartbeat, Inventory, Snapshot};
use rdmesh_services::uplink::{MAX_ITEM_BYTES, Pace, PushError, UplinkConfig};
use tonic::Status;

use crate::scripted::Collector;
use crate::{config, free_address, push_snapshots, quick, uplink, uplink_with};

#[tokio::test]
async fn no_more_than_a_window_is_in_flight() {
    let mut collector = Collector::start();
    let uplink = uplink_with(
        &config(collector.address),
        Pace {
            window_items: 5,
            ..quick()
        },
    );
    let handle = uplink.handle();
    push_snapshots(&handle, 20);
    let (_, mut stream) = collector.stream().await;
    assert_eq!(stream.sequences(5).await, [1, 2, 3, 4, 5]);
    // What is sent after the acknowledgement proves that nothing was sent before it.
    stream.slow_down(1, 1);
    assert_eq!(stream.request().await.sequence, 6);
    assert!(stream.try_request().is_none());
    stream.ack(6);
    assert_eq!(stream.sequences(5).await, [7, 8, 9, 10, 11]);
}

#[tokio::test]
async fn a_server_that_never_acknowledges_costs_bounded_memory() {
    let mut collector = Collector::start();
    let config = UplinkConfig {
        memory_items: 10,
        ..config(collector.address)
    };
    let uplink = uplink_with(&config, quick());
    let handle = uplink.handle();
    handle.push(Inventory::default()).unwrap();
    push_snapshots(&handle, 6);
    let (_, mut stream) = collector.stream().await;
    stream.sequences(7).await;
    for number in 0..20 {
        handle
            .push(Heartbeat {
                interval_start_boot_ns: number,
                ..Default::default()
            })
            .unwrap();
        assert!(handle.status().queued_items <= 10);
    }
    // All six snapshots and eleven heartbeats made room; the inventory stayed.
    let status = handle.status();
    assert_eq!((status.queued_items, status.items_given_up), (10, 17));
    assert_eq!((status.snapshots_given_up, handle.given_up()), (6, 6));

    stream.end(Status::unavailable("again"));
    let (_, mut stream) = collector.stream().await;
    assert_eq!(
        stream.sequences(10).await,
        [1, 19, 20, 21, 22, 23, 24, 25, 26, 27]
    );
}

#[tokio::test]
async fn bytes_are_bounded_too() {
    let address = free_address();
    let config = UplinkConfig {
        memory_bytes: 100_000,
        ..config(address)
    };
    let uplink = uplink_with(&config, quick());
    let handle = uplink.handle();
    for _ in 0..50 {
        let large = Snapshot {
            strings: vec![vec![b'x'; 9_000]],
            ..Default::default()
        };
        handle.push(large).unwrap();
        assert!(handle.status().queued_bytes <= 100_000);
    }
    assert_eq!(handle.status().queued_items, 10);
    assert_eq!(handle.given_up(), 40);
}

#[tokio::test]
async fn an_item_over_the_limit_is_refused_here() {
    let mut collector = Collector::start();
    let uplink = uplink(collector.address);
    let handle = uplink.handle();
    let huge = Snapshot {
        strings: vec![vec![0; MAX_ITEM_BYTES]],
        ..Default::default()
    };
    let error = handle.push(huge).unwrap_err();
    assert!(
        matches!(error, PushError::TooLarge { bytes, limit: MAX_ITEM_BYTES }
        if bytes > MAX_ITEM_BYTES)
    );
    assert!(error.to_string().contains("2097152"), "{error}");
    // It is counted, has no number, and holds nothing up.
    assert_eq!((handle.given_up(), handle.status().too_large), (1, 1));
    let largest = Snapshot {
        strings: vec![vec![0; MAX_ITEM_BYTES - 64]],
        ..Default::default()
    };
    assert_eq!(handle.push(largest), Ok(1));
    let (_, mut stream) = collector.stream().await;
    assert_eq!(stream.request().await.sequence, 1);
}

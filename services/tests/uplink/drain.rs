//! The end of an agent: what waits is sent within a deadline.

use std::time::Duration;

use rdmesh_proto::tracer::v1::Heartbeat;
use rdmesh_services::uplink::{Pace, PushError};
use tokio::time::Instant;

use crate::scripted::{Collector, DEADLINE, soon, until};
use crate::{config, free_address, push_snapshots, snapshot, uplink, uplink_with};

#[tokio::test]
async fn drain_sends_what_waits_and_ends_the_stream() {
    let mut collector = Collector::start();
    let uplink = uplink(collector.address);
    let handle = uplink.handle();
    push_snapshots(&handle, 3);
    let (_, mut stream) = collector.stream().await;
    let collect = async {
        assert_eq!(stream.sequences(3).await, [1, 2, 3]);
        stream.ack(3);
        assert!(stream.is_ended_by_agent().await);
        drop(stream);
    };
    let (drained, ()) = tokio::join!(uplink.drain(DEADLINE), collect);
    assert!(drained.is_complete(), "{drained:?}");
    assert_eq!(handle.push(snapshot(4)), Err(PushError::Closed));
    assert!(handle.status().connected_since.is_none());
}

#[tokio::test]
async fn drain_does_not_sit_out_a_long_back_off() {
    let address = free_address();
    let pace = Pace {
        backoff_min: Duration::from_secs(600),
        backoff_max: Duration::from_secs(600),
        ..Pace::default()
    };
    let uplink = uplink_with(&config(address), pace);
    let handle = uplink.handle();
    push_snapshots(&handle, 1);
    until("an attempt failed", || handle.status().last_error.is_some()).await;
    let mut collector = Collector::start_at(address);
    let collect = async {
        let (_, mut stream) = collector.stream().await;
        stream.request().await;
        stream.ack(1);
    };
    let (drained, ()) = tokio::join!(uplink.drain(DEADLINE), collect);
    assert!(drained.is_complete());
}

#[tokio::test]
async fn drain_gives_up_at_its_deadline_and_says_what_is_left() {
    let uplink = uplink(free_address());
    let handle = uplink.handle();
    push_snapshots(&handle, 2);
    handle.push(Heartbeat::default()).unwrap();
    let drained = soon("drain", uplink.drain(Duration::from_millis(100))).await;
    assert_eq!((drained.items_left, drained.snapshots_left), (3, 2));
}

#[tokio::test]
async fn drain_of_an_empty_queue_needs_no_collector() {
    let uplink = uplink(free_address());
    let handle = uplink.handle();
    until("an attempt failed", || handle.status().last_error.is_some()).await;
    let began = Instant::now();
    assert!(uplink.drain(DEADLINE).await.is_complete());
    assert!(began.elapsed() < DEADLINE);
}

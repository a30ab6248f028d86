//! The uplink against a real server over a real socket, on a current-thread runtime as
//! the tracer has it.
#![allow(missing_docs, clippy::unwrap_used)]

mod bounds;
mod drain;
mod faults;
mod idle;
mod scripted;
mod spool;

use std::net::SocketAddr;
use std::time::Duration;

use rdmesh_proto::collector::v1::report_request::Item as WireItem;
use rdmesh_proto::common::v1::AgentKind;
use rdmesh_proto::tracer::v1::{Heartbeat, Inventory, Snapshot};
use rdmesh_services::uplink::{
    Dial, DialError, Dialing, Identity, Pace, Surroundings, Uplink, UplinkConfig, UplinkHandle,
};
use scripted::{Collector, until};
use tokio::time::Instant;
use tonic::Status;

/// Quick, so that a test of a time-out takes no half minute.
fn quick() -> Pace {
    Pace {
        backoff_min: Duration::from_millis(5),
        backoff_max: Duration::from_millis(50),
        ..Pace::default()
    }
}

fn config(address: SocketAddr) -> UplinkConfig {
    UplinkConfig {
        collector: address.to_string().parse().unwrap(),
        ..UplinkConfig::default()
    }
}

fn uplink_with(config: &UplinkConfig, pace: Pace) -> Uplink {
    let identity = Identity::new(AgentKind::Tracer, "gpu-1".into(), "boot".into());
    let surroundings = Surroundings {
        seed: 7,
        pace,
        ..Surroundings::real(config)
    };
    Uplink::start_in(surroundings, config, move || identity.hello())
}

fn uplink(address: SocketAddr) -> Uplink {
    uplink_with(&config(address), quick())
}

/// A snapshot that tells its number.
fn snapshot(number: u64) -> Snapshot {
    Snapshot {
        interval_start_boot_ns: number,
        ..Snapshot::default()
    }
}

fn push_snapshots(handle: &UplinkHandle, count: u64) {
    for number in 1..=count {
        handle.push(snapshot(number)).unwrap();
    }
}

/// A port on which nobody listens.
fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

#[tokio::test]
async fn hello_then_items_in_order_then_acknowledged() {
    let mut collector = Collector::start();
    let uplink = uplink(collector.address);
    let handle = uplink.handle();
    assert_eq!(
        handle.push(Inventory {
            id: "i".into(),
            ..Default::default()
        }),
        Ok(1)
    );
    assert_eq!(handle.push(snapshot(17)), Ok(2));
    assert_eq!(handle.push(Heartbeat::default()), Ok(3));

    let (hello, mut stream) = collector.stream().await;
    assert_eq!(
        (hello.agent(), hello.host.as_str()),
        (AgentKind::Tracer, "gpu-1")
    );
    assert_eq!(hello.version, rdmesh_services::VERSION);
    let first = stream.request().await;
    assert!(matches!(first.item, Some(WireItem::Inventory(i)) if i.id == "i"));
    let second = stream.request().await;
    assert_eq!(second.sequence, 2);
    assert_eq!(second.item, Some(WireItem::Snapshot(snapshot(17))));
    assert_eq!(stream.request().await.sequence, 3);

    assert_eq!(handle.status().queued_items, 3);
    stream.ack(2);
    until("two acknowledged", || handle.status().queued_items == 1).await;
    stream.ack(3);
    until("all acknowledged", || handle.status().queued_items == 0).await;
    let status = handle.status();
    assert_eq!(
        (
            status.acknowledged_through,
            status.newest,
            status.queued_bytes
        ),
        (3, 3, 0)
    );
    assert!(status.connected_since.is_some() && status.last_ack_at.is_some());
    assert_eq!(
        (status.connections, status.reconnects(), status.rejected),
        (1, 0, 0)
    );
}

#[tokio::test]
async fn acknowledgements_out_of_order_lose_nothing() {
    let mut collector = Collector::start();
    let uplink = uplink(collector.address);
    let handle = uplink.handle();
    push_snapshots(&handle, 4);
    let (_, mut stream) = collector.stream().await;
    stream.sequences(4).await;
    stream.ack(3);
    stream.ack(1);
    stream.ack(3);
    until("three acknowledged", || handle.status().queued_items == 1).await;
    handle.push(snapshot(5)).unwrap();
    assert_eq!(stream.request().await.sequence, 5);
    assert_eq!(handle.status().acknowledged_through, 3);
}

#[tokio::test]
async fn an_acknowledgement_of_what_was_never_sent_keeps_it() {
    let mut collector = Collector::start();
    let uplink = uplink_with(
        &config(collector.address),
        Pace {
            window_items: 2,
            ..quick()
        },
    );
    let handle = uplink.handle();
    push_snapshots(&handle, 3);
    let (_, mut stream) = collector.stream().await;
    assert_eq!(stream.sequences(2).await, [1, 2]);
    stream.ack(u64::MAX);
    assert_eq!(stream.request().await.sequence, 3);
    assert_eq!(handle.status().acknowledged_through, 2);
    assert_eq!(handle.status().queued_items, 1);
}

#[tokio::test]
async fn a_server_that_dies_gets_everything_unacknowledged_again() {
    let mut collector = Collector::start();
    let uplink = uplink(collector.address);
    let handle = uplink.handle();
    push_snapshots(&handle, 5);
    let (first_hello, mut stream) = collector.stream().await;
    stream.sequences(5).await;
    stream.ack(2);
    until("two acknowledged", || handle.status().queued_items == 3).await;

    let address = collector.kill();
    until("the loss is seen", || {
        handle.status().connected_since.is_none()
    })
    .await;
    handle.push(snapshot(6)).unwrap();
    let mut collector = Collector::start_at(address);
    let (hello, mut stream) = collector.stream().await;
    assert_eq!(hello.run_id, first_hello.run_id);
    assert!(hello.clock.unwrap().boottime_ns > first_hello.clock.unwrap().boottime_ns);
    assert_eq!(stream.sequences(4).await, [3, 4, 5, 6]);
    stream.ack(6);
    until("all acknowledged", || handle.status().queued_items == 0).await;
    let status = handle.status();
    assert_eq!(status.reconnects(), 1);
    assert!(status.last_error.is_some());
}

#[tokio::test]
async fn a_stream_that_the_server_ends_is_opened_again() {
    let mut collector = Collector::start();
    let uplink = uplink(collector.address);
    let handle = uplink.handle();
    push_snapshots(&handle, 1);
    for end in [Status::unavailable("restarting"), Status::internal("oops")] {
        let (_, mut stream) = collector.stream().await;
        assert_eq!(stream.request().await.sequence, 1);
        stream.end(end.clone());
        until("the reason is kept", || {
            handle.status().last_error.as_deref() == Some(end.message())
        })
        .await;
    }
    let (_, mut stream) = collector.stream().await;
    assert_eq!(stream.request().await.sequence, 1);
    stream.ack(1);
    until("acknowledged", || handle.status().queued_items == 0).await;
}

#[tokio::test]
async fn silence_while_items_wait_ends_the_connection() {
    let mut collector = Collector::start();
    let pace = Pace {
        ack_within: Duration::from_millis(150),
        ..quick()
    };
    let uplink = uplink_with(&config(collector.address), pace);
    let handle = uplink.handle();
    handle.push(snapshot(1)).unwrap();
    let (_, mut silent) = collector.stream().await;
    assert_eq!(silent.request().await.sequence, 1);
    let (_, mut again) = collector.stream().await;
    assert_eq!(again.request().await.sequence, 1);
    again.ack(1);
    until("acknowledged", || handle.status().queued_items == 0).await;
    assert!(
        handle
            .status()
            .last_error
            .unwrap()
            .contains("no acknowledgement")
    );
}

#[tokio::test]
async fn any_word_from_the_collector_counts_as_life() {
    let mut collector = Collector::start();
    let pace = Pace {
        ack_within: Duration::from_millis(400),
        ..quick()
    };
    let uplink = uplink_with(&config(collector.address), pace);
    let handle = uplink.handle();
    handle.push(snapshot(1)).unwrap();
    let (_, mut stream) = collector.stream().await;
    stream.request().await;
    // A database that fails over: the old sequence again, for longer than the limit.
    let began = Instant::now();
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    while began.elapsed() < Duration::from_millis(900) {
        tick.tick().await;
        stream.ack(0);
    }
    assert_eq!(handle.status().connections, 1);
    stream.ack(1);
    until("acknowledged", || handle.status().queued_items == 0).await;
}

#[tokio::test]
async fn a_rejection_is_counted_once_and_the_stream_goes_on() {
    let mut collector = Collector::start();
    let uplink = uplink(collector.address);
    let handle = uplink.handle();
    push_snapshots(&handle, 3);
    let (_, mut stream) = collector.stream().await;
    stream.sequences(3).await;
    stream.ack(1);
    stream.reject(
        2,
        &format!("chains.signature[0]: 9 of 3\n{}", "é".repeat(400)),
    );
    stream.reject(2, "again");
    until("rejected", || handle.status().rejected == 1).await;
    stream.reject(77, "never sent");
    stream.ack(3);
    until("all settled", || handle.status().queued_items == 0).await;
    handle.push(snapshot(4)).unwrap();
    assert_eq!(stream.request().await.sequence, 4);
    let status = handle.status();
    assert_eq!(
        (
            status.rejected,
            status.connections,
            status.snapshots_given_up
        ),
        (1, 1, 0)
    );
}

#[tokio::test]
async fn a_rejection_ahead_of_the_sequence_settles_that_item_alone() {
    let mut collector = Collector::start();
    let uplink = uplink(collector.address);
    let handle = uplink.handle();
    push_snapshots(&handle, 3);
    let (_, mut stream) = collector.stream().await;
    stream.sequences(3).await;
    // Rejected before the first two are committed.
    stream.reject_ahead(0, 2, "too old");
    until("settled", || handle.status().rejected == 1).await;
    assert_eq!(handle.status().queued_items, 2);
    stream.end(Status::unavailable("again"));
    let (_, mut stream) = collector.stream().await;
    assert_eq!(stream.sequences(2).await, [1, 3]);
}

#[tokio::test]
async fn slow_down_holds_the_next_item_back() {
    let mut collector = Collector::start();
    let uplink = uplink(collector.address);
    let handle = uplink.handle();
    push_snapshots(&handle, 1);
    let (_, mut stream) = collector.stream().await;
    stream.request().await;
    let began = Instant::now();
    stream.slow_down(1, 300);
    until("heard", || handle.status().queued_items == 0).await;
    handle.push(snapshot(2)).unwrap();
    assert_eq!(stream.request().await.sequence, 2);
    assert!(
        began.elapsed() >= Duration::from_millis(300),
        "{:?}",
        began.elapsed()
    );
    // A later word without it lifts it.
    stream.slow_down(2, 60_000);
    stream.ack(2);
    handle.push(snapshot(3)).unwrap();
    assert_eq!(stream.request().await.sequence, 3);
}

#[tokio::test]
async fn a_lost_connection_does_not_end_a_slow_down() {
    let mut collector = Collector::start();
    let uplink = uplink(collector.address);
    let handle = uplink.handle();
    push_snapshots(&handle, 1);
    let (_, mut stream) = collector.stream().await;
    stream.request().await;
    let began = Instant::now();
    stream.slow_down(1, 400);
    until("heard", || handle.status().queued_items == 0).await;
    handle.push(snapshot(2)).unwrap();
    stream.end(Status::unavailable("busy"));
    let (_, mut stream) = collector.stream().await;
    assert_eq!(stream.request().await.sequence, 2);
    assert!(
        began.elapsed() >= Duration::from_millis(400),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn a_collector_that_settles_nothing_is_asked_ever_more_rarely() {
    let mut collector = Collector::start();
    let pace = Pace {
        backoff_min: Duration::from_millis(20),
        backoff_max: Duration::from_millis(400),
        ..quick()
    };
    let uplink = uplink_with(&config(collector.address), pace);
    let handle = uplink.handle();
    push_snapshots(&handle, 1);
    let began = Instant::now();
    // It answers and ends the stream, as one without a database does.
    for _ in 0..10 {
        let (_, mut stream) = collector.stream().await;
        stream.request().await;
        stream.ack(0);
        stream.end(Status::unavailable("no database"));
    }
    // Nine waits from the upper halves of 20, 40, 80, 160, 320 and then 400 ms. Without
    // growth they would be 180 ms at most.
    assert!(
        began.elapsed() >= Duration::from_millis(1100),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn a_refusal_says_when_to_come_again() {
    let mut collector = Collector::start();
    let uplink = uplink(collector.address);
    let handle = uplink.handle();
    push_snapshots(&handle, 1);
    let (_, mut stream) = collector.stream().await;
    stream.request().await;
    let mut refusal = Status::unavailable("the database is away");
    refusal.metadata_mut().insert("retry-after", 1.into());
    let began = Instant::now();
    stream.end(refusal);
    let (_, mut stream) = collector.stream().await;
    assert!(
        began.elapsed() >= Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    stream.request().await;
    stream.ack(1);
    until("acknowledged", || handle.status().queued_items == 0).await;
}

#[tokio::test]
async fn a_collector_that_fails_is_left_for_the_next() {
    let mut first = Collector::start();
    let mut second = Collector::start();
    let dead = free_address();
    let config = UplinkConfig {
        collector: format!("{dead},{},{}", first.address, second.address)
            .parse()
            .unwrap(),
        ..UplinkConfig::default()
    };
    let uplink = uplink_with(&config, quick());
    let handle = uplink.handle();
    push_snapshots(&handle, 2);
    // Whichever comes first: it accepts, acknowledges one item, and fails.
    let seconds = tokio::select! {
        (_, mut stream) = first.stream() => {
            stream.request().await;
            stream.ack(1);
            until("settled", || handle.status().queued_items == 1).await;
            stream.end(Status::unavailable("no database"));
            second.stream().await
        }
        (_, mut stream) = second.stream() => {
            stream.request().await;
            stream.ack(1);
            until("settled", || handle.status().queued_items == 1).await;
            stream.end(Status::unavailable("no database"));
            first.stream().await
        }
    };
    let (_, mut stream) = seconds;
    assert_eq!(stream.request().await.sequence, 2);
    stream.ack(2);
    until("acknowledged", || handle.status().queued_items == 0).await;
}

#[tokio::test]
async fn a_collector_that_comes_late_gets_what_waited() {
    let address = free_address();
    let uplink = uplink(address);
    let handle = uplink.handle();
    push_snapshots(&handle, 3);
    until("an attempt failed", || handle.status().last_error.is_some()).await;
    let error = handle.status().last_error.unwrap();
    assert!(
        error.contains(&address.to_string()) && error.contains("refused"),
        "{error}"
    );
    assert_eq!(handle.status().connections, 0);

    let mut collector = Collector::start_at(address);
    let (_, mut stream) = collector.stream().await;
    assert_eq!(stream.sequences(3).await, [1, 2, 3]);
    stream.ack(3);
    until("acknowledged", || handle.status().queued_items == 0).await;
    assert_eq!(handle.given_up(), 0);
}

#[tokio::test]
async fn a_connection_that_hangs_is_given_up() {
    #[derive(Debug)]
    struct Hangs;
    impl Dial for Hangs {
        fn dial(&self) -> Dialing<'_> {
            Box::pin(std::future::pending::<Result<_, DialError>>())
        }
    }
    let config = UplinkConfig::default();
    let pace = Pace {
        connect_within: Duration::from_millis(50),
        ..quick()
    };
    let surroundings = Surroundings {
        dialer: Box::new(Hangs),
        pace,
        ..Surroundings::real(&config)
    };
    let uplink = Uplink::start_in(surroundings, &config, Default::default);
    let handle = uplink.handle();
    until("given up", || handle.status().last_error.is_some()).await;
    assert!(
        handle
            .status()
            .last_error
            .unwrap()
            .contains("no stream within 50ms")
    );
}

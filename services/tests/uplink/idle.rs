//! An idle uplink wakes nobody.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::scripted::{Collector, DEADLINE, until};
use rdmesh_proto::common::v1::AgentKind;
use rdmesh_proto::tracer::v1::Heartbeat;
use rdmesh_services::uplink::{Identity, Pace, Surroundings, Uplink, UplinkConfig};

#[test]
fn connected_and_idle_there_is_no_wake_up() {
    let mut collector = Collector::start();
    let address = collector.address;
    let (ready_in, ready) = channel();
    let (end, end_out) = tokio::sync::oneshot::channel::<()>();
    // The agent has a thread and a current-thread runtime of its own, so that its parks
    // are its own.
    let agent = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let collector = address.to_string().parse().unwrap();
            let config = UplinkConfig {
                collector,
                ..UplinkConfig::default()
            };
            let pace = Pace {
                ack_within: Duration::from_millis(100),
                ..Pace::default()
            };
            let surroundings = Surroundings {
                pace,
                ..Surroundings::real(&config)
            };
            let identity = Identity::new(AgentKind::Tracer, "h".into(), "b".into());
            let uplink = Uplink::start_in(surroundings, &config, move || identity.hello());
            uplink.handle().push(Heartbeat::default()).unwrap();
            ready_in
                .send((uplink.handle(), tokio::runtime::Handle::current()))
                .unwrap();
            end_out.await.unwrap();
        });
    });
    let (handle, runtime) = ready.recv_timeout(DEADLINE).unwrap();
    let test = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _stream = test.block_on(async {
        let (_, mut stream) = collector.stream().await;
        stream.request().await;
        stream.ack(1);
        until("acknowledged", || handle.status().queued_items == 0).await;
        stream
    });
    let parks = || runtime.metrics().worker_park_count(0);
    // The acknowledgement's own wake-ups (window updates, the answered HTTP/2 settings)
    // are over when the count stands still.
    let mut before = parks();
    let (_keep, quiet) = channel::<()>();
    for _ in 0..50 {
        assert_eq!(
            quiet.recv_timeout(Duration::from_millis(100)),
            Err(RecvTimeoutError::Timeout)
        );
        let now = parks();
        if now == before {
            break;
        }
        before = now;
    }
    // Twenty times the limit for an acknowledgement: no timer is armed for one.
    assert_eq!(
        quiet.recv_timeout(Duration::from_secs(2)),
        Err(RecvTimeoutError::Timeout)
    );
    assert_eq!(parks(), before, "the agent woke up");
    assert_eq!(handle.status().connections, 1);
    end.send(()).unwrap();
    agent.join().unwrap();
}

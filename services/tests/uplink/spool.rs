//! What is not acknowledged waits on disk, over restarts and beyond what memory holds.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use rdmesh_proto::collector::v1::report_request::Item as WireItem;
use rdmesh_proto::common::v1::AgentKind;
use rdmesh_proto::tracer::v1::{Inventory, Snapshot};
use rdmesh_services::uplink::{
    Identity, Spool, SpoolConfig, SpoolError, SpoolStatus, Surroundings, Uplink, UplinkConfig,
    UplinkHandle,
};
use tempfile::TempDir;

use crate::scripted::{AgentStream, Collector, DEADLINE, until};
use crate::{config, free_address, push_snapshots, quick, snapshot};

/// Long enough to try to connect, and no longer.
const SHORT: Duration = Duration::from_millis(100);

struct Agent {
    uplink: Uplink,
    handle: UplinkHandle,
    run_id: String,
}

fn spool_in(directory: &Path) -> SpoolConfig {
    SpoolConfig {
        directory: directory.join("spool"),
        ..SpoolConfig::default()
    }
}

fn agent_with(config: &UplinkConfig) -> Agent {
    let identity = Identity::new(AgentKind::Tracer, "gpu-1".into(), boot_id());
    let run_id = identity.run_id.clone();
    let surroundings = Surroundings {
        seed: 7,
        pace: quick(),
        spool: Spool::open(&config.spool, Path::new("/nonexistent")).unwrap(),
        ..Surroundings::real(config)
    };
    let uplink = Uplink::start_in(surroundings, config, move || identity.hello());
    Agent {
        handle: uplink.handle(),
        uplink,
        run_id,
    }
}

fn boot_id() -> String {
    rdmesh_services::host::boot_id().unwrap()
}

fn agent(address: SocketAddr, place: &TempDir) -> Agent {
    agent_with(&UplinkConfig {
        spool: spool_in(place.path()),
        ..config(address)
    })
}

impl Agent {
    fn spool(&self) -> SpoolStatus {
        self.handle.spool_status().unwrap()
    }

    async fn written(&self, sequence: u64) {
        until("written", || self.spool().written_through >= sequence).await;
    }
}

/// Directories of runs in a spool.
fn runs(place: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(place.path().join("spool")).unwrap();
    let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut runs: Vec<String> = names.filter(|name| name != "lock").collect();
    runs.sort();
    runs
}

/// Acknowledges everything that a stream brings, until `last` came.
async fn take_all(stream: &mut AgentStream, last: u64) -> Vec<u64> {
    let mut sequences = Vec::new();
    while sequences.last() != Some(&last) {
        let sequence = stream.request().await.sequence;
        sequences.push(sequence);
        stream.ack(sequence);
    }
    sequences
}

#[tokio::test]
async fn what_a_run_leaves_is_sent_by_the_next_under_its_own_name() {
    let place = tempfile::tempdir().unwrap();
    let first = agent(free_address(), &place);
    push_snapshots(&first.handle, 5);
    let drained = first.uplink.drain(SHORT).await;
    assert_eq!((drained.items_left, drained.kept_on_disk), (5, true));
    assert_eq!(runs(&place), [format!("0000000001-{}", first.run_id)]);

    let mut collector = Collector::start();
    let second = agent(collector.address, &place);
    second.handle.push(snapshot(77)).unwrap();
    let (hello, mut live) = collector.stream().await;
    assert_eq!(hello.run_id, second.run_id);
    let (hello, mut earlier) = collector.stream().await;
    assert_eq!(
        (hello.run_id.as_str(), hello.host.as_str()),
        (first.run_id.as_str(), "gpu-1")
    );
    // The same boot: its clock is as of now, or the collector would misplace everything.
    let now = rdmesh_services::host::clock_pair();
    let told = hello.clock.unwrap();
    assert!(now.boottime_ns - told.boottime_ns < 60_000_000_000);
    for number in 1..=5 {
        let request = earlier.request().await;
        assert_eq!(request.sequence, number);
        assert_eq!(request.item, Some(WireItem::Snapshot(snapshot(number))));
    }
    // The live run does not wait for it.
    assert_eq!(live.request().await.sequence, 1);
    live.ack(1);
    until("the live run is settled", || {
        second.handle.status().queued_items == 0
    })
    .await;
    assert_eq!(second.spool().earlier_runs, 1);
    earlier.ack(5);
    assert!(earlier.is_ended_by_agent().await);
    drop(earlier);
    until("the earlier run is gone", || {
        second.spool().earlier_runs == 0
    })
    .await;
    assert_eq!(runs(&place), [format!("0000000002-{}", second.run_id)]);
    drop(live);
    assert!(second.uplink.drain(DEADLINE).await.is_complete());
    assert_eq!(runs(&place), Vec::<String>::new());
}

#[tokio::test]
async fn memory_is_bounded_and_nothing_is_given_up() {
    let place = tempfile::tempdir().unwrap();
    let address = free_address();
    let agent = agent_with(&UplinkConfig {
        memory_items: 40,
        memory_bytes: 2 << 20,
        spool: spool_in(place.path()),
        ..config(address)
    });
    let large = |number| Snapshot {
        strings: vec![vec![b'x'; 200_000]],
        ..snapshot(number)
    };
    for number in 1..=300 {
        let item = if number % 10 == 0 {
            large(number)
        } else {
            snapshot(number)
        };
        agent.handle.push(item).unwrap();
        agent.written(number).await;
        // One segment may be read back beside what is there.
        assert!(agent.handle.status().queued_bytes < 4 << 20);
    }
    assert_eq!(
        (agent.handle.status().queued_items, agent.spool().items),
        (300, 300)
    );
    let mut collector = Collector::start_at(address);
    let (_, mut stream) = collector.stream().await;
    assert_eq!(
        take_all(&mut stream, 300).await,
        (1..=300).collect::<Vec<_>>()
    );
    until("all settled", || agent.handle.status().queued_items == 0).await;
    let status = agent.handle.status();
    assert_eq!((status.items_given_up, status.rejected), (0, 0));
    until("acknowledged segments are gone", || {
        agent.spool().bytes < 1 << 20
    })
    .await;
}

#[tokio::test]
async fn runs_are_sent_oldest_first_and_what_was_acknowledged_is_not_sent_again() {
    let place = tempfile::tempdir().unwrap();
    let mut ids = Vec::new();
    for count in [3, 2] {
        let agent = agent(free_address(), &place);
        push_snapshots(&agent.handle, count);
        agent.uplink.drain(SHORT).await;
        ids.push(agent.run_id);
    }
    let mut collector = Collector::start();
    let third = agent(collector.address, &place);
    let (_, _live) = collector.stream().await;
    let (hello, mut earlier) = collector.stream().await;
    assert_eq!(hello.run_id, ids[0]);
    assert_eq!(earlier.sequences(3).await, [1, 2, 3]);
    earlier.ack(2);
    until("noted", || third.spool().items == 1).await;
    // The agent is stopped before the rest is acknowledged.
    third.uplink.drain(SHORT).await;

    let mut collector = Collector::start();
    let fourth = agent(collector.address, &place);
    let (_, _live) = collector.stream().await;
    for (id, sequences) in [(&ids[0], vec![3]), (&ids[1], vec![1, 2])] {
        let (hello, mut earlier) = collector.stream().await;
        assert_eq!(hello.run_id, *id);
        assert_eq!(
            take_all(&mut earlier, sequences[sequences.len() - 1]).await,
            sequences
        );
        assert!(earlier.is_ended_by_agent().await);
    }
    until("all gone", || fourth.spool().earlier_runs == 0).await;
}

#[tokio::test]
async fn a_spool_has_one_agent() {
    let place = tempfile::tempdir().unwrap();
    let agent = agent(free_address(), &place);
    let refused = Spool::open(&spool_in(place.path()), Path::new("/nonexistent")).unwrap_err();
    assert!(matches!(refused, SpoolError::Taken { .. }), "{refused}");
    agent.uplink.drain(SHORT).await;
    assert!(Spool::open(&spool_in(place.path()), Path::new("/nonexistent")).is_ok());
}

#[tokio::test]
async fn without_a_state_directory_or_by_configuration_there_is_none() {
    let nowhere = Path::new("/nonexistent/rdmesh");
    assert!(
        Spool::open(&SpoolConfig::default(), nowhere)
            .unwrap()
            .is_none()
    );
    let place = tempfile::tempdir().unwrap();
    assert!(
        Spool::open(&SpoolConfig::default(), place.path())
            .unwrap()
            .is_some()
    );
    assert!(place.path().join("spool/lock").exists());
    let off = SpoolConfig {
        max_mib: 0,
        ..spool_in(place.path())
    };
    assert!(Spool::open(&off, place.path()).unwrap().is_none());
}

#[tokio::test]
async fn a_directory_that_cannot_be_had_costs_nothing_but_safety_and_is_tried_again() {
    let place = tempfile::tempdir().unwrap();
    let blocked = place.path().join("state");
    fs::write(&blocked, "a file where the directory should be").unwrap();
    let mut collector = Collector::start();
    let agent = agent_with(&UplinkConfig {
        spool: SpoolConfig {
            directory: blocked.join("spool"),
            ..SpoolConfig::default()
        },
        ..config(collector.address)
    });
    push_snapshots(&agent.handle, 2);
    let (_, mut stream) = collector.stream().await;
    assert_eq!(take_all(&mut stream, 2).await, [1, 2]);
    until("the trouble is told", || !agent.spool().usable).await;
    fs::remove_file(&blocked).unwrap();
    agent.handle.push(snapshot(3)).unwrap();
    until("the disk takes items", || agent.spool().usable).await;
    agent.written(3).await;
    assert!(blocked.join("spool").is_dir());
    assert_eq!(agent.handle.given_up(), 0);
}

#[tokio::test]
async fn the_oldest_goes_when_the_spool_is_full_and_the_loss_is_counted() {
    let place = tempfile::tempdir().unwrap();
    let address = free_address();
    let agent = agent_with(&UplinkConfig {
        memory_items: 16,
        memory_bytes: 2 << 20,
        spool: SpoolConfig {
            max_mib: 8,
            ..spool_in(place.path())
        },
        ..config(address)
    });
    agent
        .handle
        .push(Inventory {
            id: "i".into(),
            ..Default::default()
        })
        .unwrap();
    for number in 2..=60 {
        let large = Snapshot {
            strings: vec![vec![b'x'; 250_000]],
            ..snapshot(number)
        };
        agent.handle.push(large).unwrap();
        agent.written(number).await;
    }
    until("within its bounds", || agent.spool().bytes <= 8 << 20).await;
    let spool = agent.spool();
    assert!(spool.dropped > 20, "{spool:?}");
    assert_eq!(agent.handle.given_up(), spool.dropped);
    assert_eq!(
        agent.handle.status().queued_items as u64,
        60 - spool.dropped
    );
    let mut collector = Collector::start_at(address);
    let (_, mut stream) = collector.stream().await;
    let taken = take_all(&mut stream, 60).await;
    // The inventory, which later items refer to, and the newest snapshots.
    assert_eq!(taken[0], 1);
    let newest: Vec<u64> = (spool.dropped + 2..=60).collect();
    assert_eq!(taken[1..], newest);
}

#[tokio::test]
async fn a_killed_agent_leaves_what_it_handed_over() {
    let place = tempfile::tempdir().unwrap();
    let killed = agent(free_address(), &place);
    push_snapshots(&killed.handle, 4);
    killed.written(4).await;
    // What the next process finds, while this one has not ended in any order.
    let left = tempfile::tempdir().unwrap();
    let run = format!("0000000001-{}", killed.run_id);
    let (from, to) = (
        place.path().join("spool").join(&run),
        left.path().join("spool").join(&run),
    );
    fs::create_dir_all(&to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
    // Its last write was cut, and its hello is gone.
    let segment = to.join("00000000000000000001.seg");
    let bytes = fs::read(&segment).unwrap();
    fs::write(&segment, &bytes[..bytes.len() - 3]).unwrap();
    fs::remove_file(to.join("hello")).unwrap();

    let mut collector = Collector::start();
    let next = agent(collector.address, &left);
    let (_, _live) = collector.stream().await;
    let (hello, mut earlier) = collector.stream().await;
    assert_eq!(
        (hello.run_id.as_str(), hello.host.as_str()),
        (killed.run_id.as_str(), "gpu-1")
    );
    assert_eq!(take_all(&mut earlier, 3).await, [1, 2, 3]);
    until("the earlier run is gone", || next.spool().earlier_runs == 0).await;
    // The one that was cut is reported by the run that goes on.
    assert_eq!((next.handle.given_up(), next.spool().damaged), (1, 1));
}

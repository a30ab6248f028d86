//! Random faults, each round from a printed seed: whatever the connection does, a
//! collector that stores by (run id, sequence) ends with every item exactly once.

use std::collections::BTreeMap;

use rdmesh_proto::collector::v1::ReportRequest;
use rdmesh_proto::collector::v1::report_request::Item;
use rdmesh_services::uplink::Pace;
use tonic::Status;

use crate::scripted::{AgentStream, Collector, until};
use crate::{config, push_snapshots, quick, uplink_with};

/// Rounds, each with its own seed.
const ROUNDS: u64 = 12;

/// Snapshots of one round: several windows of [`WINDOW`].
const SNAPSHOTS: u64 = 60;

const WINDOW: usize = 8;

/// Multiplier and increment of Donald Knuth's MMIX generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// What the collector's database holds: it outlives the collector.
#[derive(Default)]
struct Store {
    numbers: BTreeMap<u64, u64>,
    repeats: u64,
}

impl Store {
    fn take(&mut self, request: ReportRequest) {
        let Some(Item::Snapshot(snapshot)) = request.item else {
            panic!("no snapshot: {request:?}")
        };
        let number = snapshot.interval_start_boot_ns;
        match self.numbers.insert(request.sequence, number) {
            None => {}
            Some(before) => {
                assert_eq!(before, number, "one sequence for two items");
                self.repeats += 1;
            }
        }
    }

    /// The highest sequence below which nothing is missing.
    fn committed(&self) -> u64 {
        (1..).find(|n| !self.numbers.contains_key(n)).unwrap_or(1) - 1
    }
}

enum Fault {
    Killed,
    Ended,
}

/// Serves one stream until a fault, or until everything is stored and acknowledged.
async fn serve(stream: &mut AgentStream, store: &mut Store, random: &mut Random) -> Option<Fault> {
    loop {
        if store.committed() == SNAPSHOTS {
            stream.ack(SNAPSHOTS);
            return None;
        }
        match random.below(12) {
            0 => return Some(Fault::Killed),
            1 => return Some(Fault::Ended),
            // Stored, but the acknowledgement is late or old.
            2 => stream.ack(random.below(store.committed() + 1)),
            _ => {}
        }
        if stream.owed() == 0 {
            stream.ack(store.committed());
        }
        store.take(stream.request().await);
    }
}

#[tokio::test]
async fn every_item_is_stored_once_whatever_fails() {
    let mut repeats = 0;
    for seed in 1..=ROUNDS {
        println!("seed {seed}");
        let mut random = Random(seed);
        let mut store = Store::default();
        let mut collector = Collector::start();
        let pace = Pace {
            window_items: WINDOW,
            ..quick()
        };
        let uplink = uplink_with(&config(collector.address), pace);
        let handle = uplink.handle();
        push_snapshots(&handle, SNAPSHOTS);
        loop {
            let (_, mut stream) = collector.stream().await;
            match serve(&mut stream, &mut store, &mut random).await {
                None => {
                    until("settled", || handle.status().queued_items == 0).await;
                    break;
                }
                Some(Fault::Ended) => stream.end(Status::unavailable("restarting")),
                Some(Fault::Killed) => collector = Collector::start_at(collector.kill()),
            }
        }
        let expected: BTreeMap<u64, u64> = (1..=SNAPSHOTS).map(|n| (n, n)).collect();
        assert_eq!(store.numbers, expected, "seed {seed}");
        assert_eq!(handle.given_up(), 0, "seed {seed}");
        repeats += store.repeats;
    }
    assert!(
        repeats > 0,
        "no round repeated anything: the faults did not bite"
    );
}

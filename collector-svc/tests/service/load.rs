//! Agents that send far more than the others: memory stays bounded, and the others are
//! served.

use rdmesh_proto::collector::v1::ListAgentsRequest;
use rdmesh_proto::collector::v1::report_request::Item;
use rdmesh_proto::tracer::v1::{ChainColumns, CounterColumns, Snapshot};
use tonic::Code;

use crate::made::Host;
use crate::running::{Running, cluster, until};

/// What the queue may hold in these tests.
const QUEUE_MIB: u32 = 8;

/// Beside the queue: rows of two writers' batches (32 MiB each), twice for what their
/// allocator keeps, one message a stream on its way in and out, and Postgres' client.
const BESIDE_MIB: usize = 180;

/// A snapshot of as many chains, each a row.
fn chains(host: &Host, rows: usize) -> Item {
    let mut snapshot = host.snapshot("7");
    let one = snapshot.chains.take().unwrap();
    snapshot.chains = Some(ChainColumns {
        signature: vec![0; rows],
        task: vec![0; rows],
        device_plus_one: vec![1; rows],
        count: vec![1; rows],
        first_after_start_ns: vec![one.first_after_start_ns[0]; rows],
        span_ns: vec![0; rows],
        marks: vec![0; rows],
    });
    Item::Snapshot(snapshot)
}

/// A snapshot of as many counters, each a row.
fn counters(host: &Host, rows: usize) -> Snapshot {
    let mut snapshot = host.snapshot("7");
    snapshot.counters = Some(CounterColumns {
        probe: vec![0; rows],
        errno: vec![14; rows],
        delta: vec![1; rows],
        total: vec![1; rows],
    });
    snapshot
}

/// The most memory that this process ever held, MiB.
fn peak_mib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: usize = peak.unwrap().trim_end_matches("kB").trim().parse().unwrap();
    kib >> 10
}

/// A trigger that lets statements with counters of `host` end as if they had run too long.
fn too_slow_for(collector: &Running, host: &str) {
    let sql = format!(
        "CREATE FUNCTION rdmesh_store.too_slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             RAISE 'canceling statement due to statement timeout' USING ERRCODE = '57014'; \
         END $$; \
         CREATE TRIGGER too_slow BEFORE INSERT ON rdmesh_store.count_groups \
         FOR EACH ROW WHEN (NEW.host = '{host}') EXECUTE FUNCTION rdmesh_store.too_slow()"
    );
    cluster().psql(&collector.database, "rdmesh", &sql).unwrap();
}

#[tokio::test]
async fn rows_of_many_heavy_snapshots_do_not_pile_up_in_memory() {
    let database = cluster().new_database().unwrap();
    let collector = Running::on(database, |config| config.ingest.queue_mib = QUEUE_MIB).await;
    let before = peak_mib();
    let hosts: Vec<Host> = (0..3).map(|n| Host::new(&format!("gpu-{n}"))).collect();
    let mut agents = Vec::new();
    for host in &hosts {
        let agent = collector.agent(host.hello()).await;
        for sequence in 1..=20 {
            agent.send(sequence, chains(host, 4_096)).await;
        }
        agents.push(agent);
    }
    for agent in &mut agents {
        agent.acknowledged(20).await;
        assert_eq!(agent.rejected, []);
    }
    let stored = collector.read("SELECT count(*) FROM rdmesh.failures");
    assert_eq!(stored, (3 * 20 * 4_096).to_string());
    let grown = peak_mib() - before;
    let most = BESIDE_MIB + usize::try_from(QUEUE_MIB).unwrap();
    assert!(grown < most, "{grown} MiB");
}

#[tokio::test]
async fn a_snapshot_of_gigabytes_of_rows_is_refused_in_bounded_memory() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    let before = peak_mib();
    for sequence in 1..=4 {
        let Item::Snapshot(mut snapshot) = chains(&host, 65_536) else {
            unreachable!("it makes snapshots");
        };
        snapshot.strings[1] = vec![b'f'; 4_096];
        agent.send(sequence, Item::Snapshot(snapshot)).await;
    }
    agent.acknowledged(4).await;
    assert_eq!(agent.rejected.len(), 4);
    for (_, reason) in &agent.rejected {
        assert!(reason.contains("report fewer chains"), "{reason}");
    }
    let grown = peak_mib() - before;
    assert!(grown < BESIDE_MIB, "{grown} MiB");
}

#[tokio::test]
async fn an_item_that_is_too_slow_is_refused_alone_and_the_others_are_stored() {
    let database = cluster().new_database().unwrap();
    // One writer, and time for all items to meet in one batch.
    let collector = Running::on(database, |config| {
        config.ingest.writers = 1;
        config.ingest.batch_wait_ms = 500;
    })
    .await;
    too_slow_for(&collector, "noisy");
    let (noisy, quiet) = (Host::new("noisy"), Host::new("quiet"));
    let mut of_noisy = collector.agent(noisy.hello()).await;
    let mut of_quiet = collector.agent(quiet.hello()).await;
    of_noisy.send(1, noisy.heartbeat()).await;
    of_noisy
        .send(2, Item::Snapshot(counters(&noisy, 40_000)))
        .await;
    of_noisy.send(3, noisy.heartbeat()).await;
    for sequence in 1..=5 {
        of_quiet.send(sequence, quiet.failing("7")).await;
    }
    of_quiet.acknowledged(5).await;
    assert_eq!(of_quiet.rejected, []);
    of_noisy.acknowledged(3).await;
    assert_eq!(of_noisy.rejected.len(), 1, "{:?}", of_noisy.rejected);
    let (sequence, reason) = &of_noisy.rejected[0];
    assert_eq!(*sequence, 2);
    assert!(reason.contains("longer than a statement may"), "{reason}");
    assert_eq!(collector.read("SELECT count(*) FROM rdmesh.failures"), "5");
}

#[tokio::test]
async fn a_slow_database_ends_only_the_stream_whose_rows_it_does_not_take() {
    let database = cluster().new_database().unwrap();
    let collector = Running::on(database, |config| {
        config.ingest.writers = 1;
        config.ingest.batch_wait_ms = 500;
    })
    .await;
    too_slow_for(&collector, "gpu-01");
    let (slow, other) = (Host::new("gpu-01"), Host::new("gpu-02"));
    let mut of_slow = collector.agent(slow.hello()).await;
    let mut of_other = collector.agent(other.hello()).await;
    // Light: it is not the item's fault, and it must not be lost.
    of_slow.send(1, slow.failing("7")).await;
    for sequence in 1..=4 {
        of_other.send(sequence, other.failing("7")).await;
    }
    of_other.acknowledged(4).await;
    let status = loop {
        match of_slow.next().await {
            Ok(Some(ack)) => assert_eq!((ack.sequence, ack.rejected.len()), (0, 0)),
            Ok(None) => panic!("the stream ended without a reason"),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("sends it again"), "{status:?}");
    assert!(!status.message().contains("ask for less"), "{status:?}");
    of_other.send(5, other.failing("7")).await;
    of_other.acknowledged(5).await;
}

#[tokio::test]
async fn a_message_over_the_limit_is_seen_in_the_fleet() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    let mut snapshot = host.snapshot("7");
    snapshot.strings.push(vec![b'x'; 5 << 20]);
    agent.send(1, Item::Snapshot(snapshot)).await;
    let status = loop {
        match agent.next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the stream ended without a reason"),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    until("the refusal is counted", || async {
        collector.read("SELECT rejected FROM rdmesh.agents") == "1"
    })
    .await;
    let ask = ListAgentsRequest::default();
    let fleet = collector.queries().list_agents(ask).await.unwrap();
    let reasons = &fleet.get_ref().agents[0].reasons;
    let told = "1 item refused; the last: an item is larger than 4194304 bytes";
    assert!(reasons.iter().any(|r| r.starts_with(told)), "{reasons:?}");
}

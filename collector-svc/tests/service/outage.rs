//! Postgres goes and comes back; the collector ends in order.

use std::time::{Duration, Instant};

use rdmesh_proto::collector::v1::ListAgentsRequest;
use rdmesh_proto::collector::v1::report_request::Item;
use tonic::Code;

use crate::made::{Host, start};
use crate::running::{Running, cluster, until};

#[tokio::test]
async fn nothing_is_acknowledged_while_postgres_is_away_and_nothing_is_lost() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    agent.send(1, host.failing("7")).await;
    agent.acknowledged(1).await;

    cluster().stop().unwrap();
    agent.send(2, host.failing("7")).await;
    agent.send(3, host.failing("7")).await;
    until("health says NOT_SERVING", || async {
        !collector.serves().await
    })
    .await;
    let refused = collector
        .jobs()
        .start_job(start("7", 1, &[]))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    assert!(refused.metadata().contains_key("retry-after"));
    assert_eq!(agent.through, 1);

    cluster().start_again().unwrap();
    agent.acknowledged(3).await;
    until("health says SERVING", || collector.serves()).await;
    assert_eq!(collector.read("SELECT count(*) FROM rdmesh.failures"), "3");
}

#[tokio::test]
async fn a_batch_that_cannot_be_stored_in_time_sends_its_agents_off() {
    let database = cluster().new_database().unwrap();
    let collector = Running::on(database, |config| config.ingest.retry_seconds = 1).await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    cluster().stop().unwrap();
    agent.send(1, host.failing("7")).await;
    let sent_off = loop {
        match agent.next().await {
            Ok(Some(ack)) => assert_eq!(ack.sequence, 0),
            Ok(None) => panic!("the stream ended without a reason"),
            Err(status) => break status,
        }
    };
    assert_eq!(sent_off.code(), Code::Unavailable, "{sent_off:?}");
    assert!(sent_off.metadata().contains_key("retry-after"));
    assert!(
        sent_off.message().contains("cannot be reached"),
        "{sent_off:?}"
    );
    cluster().start_again().unwrap();
    until("health says SERVING", || collector.serves()).await;
    let mut again = collector.agent(host.hello()).await;
    again.send(1, host.failing("7")).await;
    again.acknowledged(1).await;
    assert_eq!(collector.read("SELECT count(*) FROM rdmesh.failures"), "1");
}

#[tokio::test]
async fn a_queue_that_fills_asks_its_agents_for_a_pause() {
    let database = cluster().new_database().unwrap();
    let collector = Running::on(database, |config| config.ingest.queue_mib = 8).await;
    let hosts: Vec<Host> = (0..8).map(|n| Host::new(&format!("gpu-{n}"))).collect();
    let mut agents = Vec::new();
    for host in &hosts {
        agents.push(collector.agent(host.hello()).await);
    }
    cluster().stop().unwrap();
    // Each stream may take an eighth of the queue, and takes most of that.
    for (agent, host) in agents.iter().zip(&hosts) {
        for sequence in 1..=3 {
            let mut snapshot = host.snapshot("7");
            snapshot.strings.extend(vec![vec![b'x'; 4_000]; 75]);
            agent.send(sequence, Item::Snapshot(snapshot)).await;
        }
    }
    let mut asked = 0;
    while asked == 0 {
        asked = agents[0].next().await.unwrap().unwrap().slow_down_ms;
    }
    assert!((1..=2_000).contains(&asked), "{asked} ms");
    cluster().start_again().unwrap();
    for agent in &mut agents {
        agent.acknowledged(3).await;
    }
    assert_eq!(collector.read("SELECT count(*) FROM rdmesh.failures"), "24");
}

#[tokio::test]
async fn a_read_waits_for_a_postgres_that_is_restarted() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    agent.send(1, host.failing("7")).await;
    agent.acknowledged(1).await;
    cluster().stop().unwrap();
    let mut queries = collector.queries();
    let asked = tokio::spawn(async move {
        let ask = ListAgentsRequest::default();
        queries.list_agents(ask).await
    });
    cluster().start_again().unwrap();
    let fleet = asked.await.unwrap().unwrap();
    assert_eq!(fleet.get_ref().agents.len(), 1);

    // One that stays away is told of within a bound, with a reason and when to come again.
    cluster().stop().unwrap();
    let began = Instant::now();
    let ask = ListAgentsRequest::default();
    let refused = collector.queries().list_agents(ask).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    assert!(refused.metadata().contains_key("retry-after"));
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
    cluster().start_again().unwrap();
}

#[tokio::test]
async fn at_the_end_what_came_is_committed_and_acknowledged() {
    let collector = Running::start().await;
    let database = collector.database.clone();
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    for sequence in 1..=20 {
        agent.send(sequence, host.failing("7")).await;
    }
    agent.acknowledged(1).await;
    collector.stop().await;
    while agent.next().await.unwrap().is_some() {}
    let stored = cluster()
        .psql(
            &database,
            "rdmesh_reader",
            "SELECT count(*) FROM rdmesh.failures",
        )
        .unwrap();
    let stored: u64 = stored.trim().parse().unwrap();
    assert!(
        stored >= agent.through,
        "{stored} stored, {} acknowledged",
        agent.through
    );
}

#[tokio::test]
async fn the_collector_waits_for_a_postgres_that_comes_later() {
    let database = cluster().new_database().unwrap();
    cluster().stop().unwrap();
    let starting = tokio::spawn(Running::on(database, |_| {}));
    cluster().start_again().unwrap();
    let collector = starting.await.unwrap();
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    agent.send(1, host.heartbeat()).await;
    agent.acknowledged(1).await;
}

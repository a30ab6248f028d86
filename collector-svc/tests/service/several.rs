//! Several collectors on one database: an agent may report to any, and to another after
//! that.

use crate::made::Host;
use crate::running::{Agent, Running, cluster};

async fn two() -> [Running; 2] {
    let database = cluster().new_database().unwrap();
    let one = Running::on(database.clone(), |_| {}).await;
    [one, Running::on(database, |_| {}).await]
}

async fn send(agent: &Agent, host: &Host, sequences: std::ops::RangeInclusive<u64>) {
    for sequence in sequences {
        agent.send(sequence, host.failing("7")).await;
    }
}

/// Rows, snapshots, and calls that the counters have.
fn stored(collector: &Running) -> [String; 3] {
    [
        "SELECT count(*) FROM rdmesh.failures",
        "SELECT snapshots FROM rdmesh.agents",
        "SELECT sum(count) FROM rdmesh.host_failure_totals WHERE function = 'ib_umem_get'",
    ]
    .map(|sql| collector.read(sql))
}

fn numbers(snapshots: u64) -> [String; 3] {
    // A snapshot has two calls of one chain.
    [snapshots, snapshots, 2 * snapshots].map(|n| n.to_string())
}

#[tokio::test]
async fn what_one_collector_committed_another_recognises() {
    let [one, other] = two().await;
    let host = Host::new("gpu-01");
    let mut agent = one.agent(host.hello()).await;
    send(&agent, &host, 1..=5).await;
    agent.acknowledged(5).await;
    // The acknowledgement of the last two was lost on the way, as far as the agent knows.
    let mut again = other.agent(host.hello()).await;
    send(&again, &host, 4..=9).await;
    again.acknowledged(9).await;
    assert_eq!(again.rejected, []);
    assert_eq!(stored(&one), numbers(9));
}

#[tokio::test]
async fn one_run_at_two_collectors_at_once_is_stored_once() {
    let [one, other] = two().await;
    let host = Host::new("gpu-01");
    let (mut left, mut right) = (
        one.agent(host.hello()).await,
        other.agent(host.hello()).await,
    );
    for sequence in 1..=60 {
        let item = host.failing("7");
        left.send(sequence, item.clone()).await;
        right.send(sequence, item).await;
    }
    left.acknowledged(60).await;
    right.acknowledged(60).await;
    assert_eq!(stored(&one), numbers(60));
}

#[tokio::test]
async fn a_collector_that_ends_hands_its_agents_on() {
    let [one, other] = two().await;
    let host = Host::new("gpu-01");
    let mut agent = one.agent(host.hello()).await;
    send(&agent, &host, 1..=200).await;
    agent.acknowledged(1).await;
    one.stop().await;
    while let Ok(Some(_)) = agent.next().await {}
    let mut again = other.agent(host.hello()).await;
    send(&again, &host, agent.through + 1..=220).await;
    again.acknowledged(220).await;
    assert_eq!(stored(&other), numbers(220));
}

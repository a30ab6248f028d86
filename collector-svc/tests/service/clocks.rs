//! Clocks that are off, jump, or tell nonsense.

use rdmesh_proto::collector::v1::report_request::Item;

use crate::made::Host;
use crate::running::Running;

const HOUR_NS: i64 = 3_600_000_000_000;

#[tokio::test]
async fn a_clock_that_is_hours_off_does_not_move_failures_and_is_shown() {
    let collector = Running::start().await;
    let mut host = Host::new("gpu-01");
    host.offset_ns = -3 * HOUR_NS;
    let mut agent = collector.agent(host.hello()).await;
    agent.send(1, host.failing("7")).await;
    agent.acknowledged(1).await;
    assert_eq!(
        collector.read(
            "SELECT abs(EXTRACT(epoch FROM now() - first_at)) < 60, \
             round(EXTRACT(epoch FROM first_at - host_first_at) / 3600), marks FROM rdmesh.failures"
        ),
        "t|3|{}"
    );
    assert_eq!(
        collector.read("SELECT round(clock_offset_ns / 3.6e12) FROM rdmesh.agents"),
        "-3"
    );
}

#[tokio::test]
async fn a_jump_is_marked_on_the_rows_of_its_interval() {
    let collector = Running::start().await;
    let mut host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    agent.send(1, host.failing("7")).await;
    host.offset_ns = HOUR_NS;
    agent.send(2, host.failing("7")).await;
    agent.send(3, host.failing("7")).await;
    agent.acknowledged(3).await;
    assert_eq!(
        collector.read("SELECT sequence, marks FROM rdmesh.failures ORDER BY sequence"),
        "1|{}\n2|{\"the host's clock jumped by +3600.000 s\"}\n3|{}"
    );
    assert_eq!(
        collector.read(
            "SELECT bool_and(abs(EXTRACT(epoch FROM now() - first_at)) < 60) FROM rdmesh.failures"
        ),
        "t"
    );
    assert_eq!(collector.read("SELECT clock_jumps FROM rdmesh.agents"), "1");
}

#[tokio::test]
async fn a_time_beyond_reason_stands_at_its_receipt_and_says_so() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    let mut snapshot = host.snapshot("7");
    let chains = snapshot.chains.as_mut().unwrap();
    chains.first_after_start_ns = vec![9_000_000_000_000_000_000];
    chains.span_ns = vec![100_000_000_000_000_000];
    agent.send(1, Item::Snapshot(snapshot)).await;
    agent.acknowledged(1).await;
    let row = collector.read(
        "SELECT abs(EXTRACT(epoch FROM now() - first_at)) < 60, marks[1] FROM rdmesh.failures",
    );
    assert!(
        row.starts_with("t|its time is more than 35 days before"),
        "{row}"
    );
}

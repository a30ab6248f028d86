//! What agents send is stored once, acknowledged after commit, and explained.

use rdmesh_proto::collector::v1::report_request::Item;
use rdmesh_proto::collector::v1::{Confidence, DiagnoseRequest, VerdictClass};
use rdmesh_proto::common::v1::{AgentKind, Layer, Verb};
use rdmesh_proto::shaper::v1::WireWindow;
use rdmesh_proto::tracer::v1::{Inventory, Kernel, Limits};
use rdmesh_services::uplink::{Identity, Uplink, UplinkConfig};
use std::time::Duration;

use crate::made::{Host, seconds_ago, start};
use crate::running::Running;

#[tokio::test]
async fn a_failure_is_stored_acknowledged_and_explained() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    agent.send(1, Host::probe_report(&[])).await;
    agent.send(2, host.failing("4711")).await;
    agent.acknowledged(2).await;
    assert!(agent.rejected.is_empty());

    collector
        .jobs()
        .start_job(start("4711", 60, &["gpu-01"]))
        .await
        .unwrap();
    let request = DiagnoseRequest {
        job_id: "4711".into(),
        ..DiagnoseRequest::default()
    };
    let answer = collector
        .queries()
        .diagnose(request)
        .await
        .unwrap()
        .into_inner();
    let verdict = answer.verdict.unwrap();
    assert_eq!(verdict.class(), VerdictClass::ApplicationArguments);
    assert_eq!(
        (verdict.layer(), verdict.verb()),
        (Layer::Memory, Verb::RegMr)
    );
    assert_eq!((verdict.errno, verdict.errno_name.as_str()), (14, "EFAULT"));
    assert_eq!(
        (verdict.function.as_str(), verdict.module.as_str()),
        ("ib_umem_get", "ib_uverbs")
    );
    assert_eq!(verdict.confidence(), Confidence::High);
    assert_eq!(verdict.hosts, ["gpu-01"]);
    assert_eq!(verdict.devices, ["rxe0"]);
    assert_eq!(verdict.rule, "memory-bad-address");
    assert_eq!(
        verdict.summary,
        "rank 3 on gpu-01 failed in ib_umem_get (memory layer) with EFAULT while registering \
         memory (reg_mr): the address is in no mapping of the process."
    );
    let functions: Vec<&str> = verdict.chain.iter().map(|s| s.function.as_str()).collect();
    assert_eq!(
        functions,
        ["ib_umem_get", "rxe_reg_user_mr", "ib_uverbs_reg_mr"]
    );
    assert_eq!(answer.failures.len(), 1);
    assert_eq!(answer.failures[0].attempt.as_ref().unwrap().job_id, "4711");
    assert_eq!(answer.totals.len(), 3);
    assert_eq!(answer.totals[0].count, 2);
    assert_eq!(
        collector.read("SELECT job_id, class, confidence, rule FROM rdmesh.diagnoses"),
        "4711|application_arguments|high|memory-bad-address"
    );
    assert_eq!(
        collector.read("SELECT arguments->>'mapping', arguments->>'address' FROM rdmesh.failures"),
        "none|0x7f00dead0000"
    );
}

#[tokio::test]
async fn items_out_of_order_and_twice_are_stored_once() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    for sequence in [2, 1, 2, 4, 3, 1, 4] {
        agent.send(sequence, host.failing("7")).await;
    }
    agent.acknowledged(4).await;
    assert_eq!(agent.finish().await, 4);
    let stored = "SELECT string_agg(sequence::text, ',' ORDER BY sequence) FROM rdmesh.failures";
    assert_eq!(collector.read(stored), "1,2,3,4");
    assert_eq!(
        collector.read("SELECT snapshots, missing FROM rdmesh.agents"),
        "4|0"
    );
}

#[tokio::test]
async fn a_reconnected_agent_replays_and_nothing_is_stored_twice() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut first = collector.agent(host.hello()).await;
    for sequence in 1..=3 {
        first.send(sequence, host.failing("7")).await;
    }
    // The connection breaks before the agent has read more than one acknowledgement.
    first.acknowledged(1).await;
    drop(first);
    let mut second = collector.agent(host.hello()).await;
    for sequence in 1..=5 {
        second.send(sequence, host.failing("7")).await;
    }
    second.acknowledged(5).await;
    assert_eq!(
        collector.read("SELECT count(*), sum(count) FROM rdmesh.failures"),
        "5|10"
    );
    assert_eq!(
        collector
            .read("SELECT sum(count) FROM rdmesh.failure_totals WHERE function = 'ib_umem_get'"),
        "10"
    );
}

#[tokio::test]
async fn sequences_that_the_agent_gave_up_do_not_hold_the_acknowledgement() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    agent.send(1, host.heartbeat()).await;
    agent.send(5, host.heartbeat()).await;
    agent.acknowledged(5).await;
    assert_eq!(
        collector.read("SELECT heartbeats, missing FROM rdmesh.agents"),
        "2|3"
    );
}

#[tokio::test]
async fn many_agents_at_once_share_batches() {
    let collector = Running::start().await;
    let hosts: Vec<Host> = (0..20).map(|n| Host::new(&format!("gpu-{n:02}"))).collect();
    let mut agents = Vec::new();
    for host in &hosts {
        agents.push(collector.agent(host.hello()).await);
    }
    for sequence in 1..=10 {
        for (host, agent) in hosts.iter().zip(&agents) {
            agent.send(sequence, host.failing("7")).await;
        }
    }
    for agent in &mut agents {
        agent.acknowledged(10).await;
    }
    assert_eq!(
        collector.read("SELECT count(*), count(DISTINCT host) FROM rdmesh.failures"),
        "200|20"
    );
}

#[tokio::test]
async fn a_heartbeat_shows_the_host_and_stores_no_failure() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    agent.send(1, host.heartbeat()).await;
    agent.acknowledged(1).await;
    assert_eq!(
        collector.read("SELECT host, agent, snapshots, heartbeats, failures FROM rdmesh.agents"),
        "gpu-01|tracer|0|1|0"
    );
    assert_eq!(collector.read("SELECT count(*) FROM rdmesh.snapshots"), "0");
}

#[tokio::test]
async fn inventories_and_windows_are_kept() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    let inventory = Inventory {
        id: "abc".into(),
        seen_at: Some(seconds_ago(5)),
        kernel: Some(Kernel {
            release: "6.1.0".into(),
            ..Kernel::default()
        }),
        limits: Some(Limits {
            memlock_bytes: Some(8 << 20),
            ..Limits::default()
        }),
        ..Inventory::default()
    };
    agent.send(1, Item::Inventory(inventory)).await;
    let mut shaper = Host::new("dpu-01").hello();
    shaper.agent = AgentKind::Shaper.into();
    let mut shaper = collector.agent(shaper).await;
    let window = WireWindow {
        wire: "w0".into(),
        host: "gpu-01".into(),
        from: Some(seconds_ago(6)),
        to: Some(seconds_ago(1)),
        rate_bps: 100_000_000_000,
        ..WireWindow::default()
    };
    shaper.send(1, Item::WireWindow(window)).await;
    agent.acknowledged(1).await;
    shaper.acknowledged(1).await;
    assert_eq!(
        collector.read("SELECT kernel_release, summary->>'memlock_bytes' FROM rdmesh.inventories"),
        "6.1.0|8388608"
    );
    assert_eq!(
        collector.read("SELECT host, shaped_host, valid, rate_bps FROM rdmesh.wire_windows"),
        "dpu-01|gpu-01|t|100000000000"
    );
}

/// The agents' own client against the real service.
#[tokio::test]
async fn the_real_uplink_drains() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let config = UplinkConfig {
        collector: collector.address.parse().unwrap(),
        ..UplinkConfig::default()
    };
    let identity = Identity::new(AgentKind::Tracer, host.name.clone(), "b".into());
    // A made host's clocks: the real one's boot clock would not fit its snapshots.
    let made = host.clone();
    let uplink = Uplink::start(&config, move || rdmesh_proto::collector::v1::Hello {
        run_id: identity.run_id.clone(),
        ..made.hello()
    });
    let handle = uplink.handle();
    for _ in 0..50 {
        handle.push(host.snapshot("7")).unwrap();
    }
    let drained = uplink.drain(Duration::from_secs(30)).await;
    assert!(drained.is_complete(), "{drained:?}");
    assert_eq!(collector.read("SELECT count(*) FROM rdmesh.failures"), "50");
}

//! Backup and restore as docs/operations.md tells it: the same answers, and ingest goes on.

use std::process::Command;

use rdmesh_collector::config::DatabaseConfig;
use rdmesh_proto::collector::v1::report_request::Item;
use rdmesh_proto::collector::v1::{
    DiagnoseRequest, DiagnoseResponse, EndJobRequest, Hello, JobState,
};
use rdmesh_proto::common::v1::AgentKind;
use rdmesh_proto::shaper::v1::WireWindow;
use rdmesh_proto::tracer::v1::{
    CoSignalColumns, CoSignalKind, Inventory, ProbeCountColumns, Snapshot,
};
use rdmesh_services::config::SecretUrl;
use rdmesh_test_postgres::Cluster;

use crate::made::{Host, attempt, seconds_ago, start};
use crate::running::{Running, cluster};

/// Views that this test fills: a comparison of empty ones would hold nothing.
const FILLED: [&str; 20] = [
    "addresses",
    "agents",
    "co_signals",
    "coverage",
    "diagnoses",
    "drops",
    "failure_totals",
    "failures",
    "host_failure_totals",
    "inventories",
    "job_wires",
    "jobs",
    "judged_attempts",
    "placements",
    "probes",
    "signature_totals",
    "snapshots",
    "wire_gaps",
    "wire_windows",
    "wires",
];

/// Columns that tell how long ago something was, by the clock of whoever asks.
const BY_THE_CLOCK: &str = "lag|age|silent_for|since_seen";

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {complaints}");
    String::from_utf8(output.stdout).unwrap()
}

/// The windows of a shaper's wire, one of them missing.
fn window(number: u64) -> Item {
    let at = |n: u64| Some(seconds_ago(100 - n * 5));
    Item::WireWindow(WireWindow {
        wire: "w0".into(),
        host: "gpu-01".into(),
        virtual_function: "vf0".into(),
        from: at(number - 1),
        to: at(number),
        rate_bps: 10_000_000_000,
        configured_rate_bps: 25_000_000_000,
        sent_bits: 1_000,
        engine_version: "1".into(),
        configuration_hash: "h".into(),
        windows_given_up: u64::from(number > 4),
        ..WireWindow::default()
    })
}

/// A failing call, what else was odd, and records that were lost.
fn snapshot(host: &Host) -> Snapshot {
    let mut snapshot = host.snapshot("7");
    let at = snapshot.interval_end_boot_ns - 4_000_000_000;
    snapshot.strings.push(b"port_down".to_vec());
    let name = u32::try_from(snapshot.strings.len() - 1).unwrap();
    snapshot.co_signals = Some(CoSignalColumns {
        boot_ns: vec![at],
        kind: vec![CoSignalKind::Device.into()],
        independent: vec![true],
        name: vec![name],
        detail: vec![0],
        device_plus_one: vec![1],
        task_plus_one: vec![],
    });
    snapshot.drops = Some(ProbeCountColumns {
        probe: vec![0],
        delta: vec![3],
        total: vec![3],
    });
    snapshot
}

/// A job that failed on one of two hosts, beside a shaper; the tracers' Hellos.
async fn fill(collector: &Running) -> (Host, Hello) {
    let job = start("7", 120, &["gpu-01", "gpu-02"]);
    collector.jobs().start_job(job).await.unwrap();
    let failing = Host::new("gpu-01");
    let hello = failing.hello();
    let mut agent = collector.agent(hello.clone()).await;
    let inventory = Inventory {
        id: "inv".into(),
        seen_at: Some(seconds_ago(200)),
        ofed_version: "24.10".into(),
        ..Inventory::default()
    };
    agent.send(1, Item::Inventory(inventory)).await;
    agent.send(2, Host::probe_report(&["memory.umem"])).await;
    agent.send(3, Item::Snapshot(snapshot(&failing))).await;
    agent.acknowledged(3).await;
    assert_eq!(agent.rejected, []);

    let healthy = Host::new("gpu-02");
    let mut agent = collector.agent(healthy.hello()).await;
    agent.send(1, healthy.heartbeat()).await;
    agent.acknowledged(1).await;

    let mut shaper = Host::new("dpu-01").hello();
    shaper.agent = AgentKind::Shaper.into();
    let mut agent = collector.agent(shaper).await;
    for (sequence, number) in [(1, 1), (2, 2), (3, 3), (4, 6), (5, 7)] {
        agent.send(sequence, window(number)).await;
    }
    agent.acknowledged(5).await;
    assert_eq!(agent.rejected, []);

    let end = EndJobRequest {
        attempt: attempt("7", 0),
        state: JobState::Failed.into(),
        ended_at: Some(seconds_ago(1)),
        exit_code: Some(1),
        ..EndJobRequest::default()
    };
    collector.jobs().end_job(end).await.unwrap();
    diagnose(collector).await;
    (failing, hello)
}

async fn diagnose(collector: &Running) -> DiagnoseResponse {
    let request = DiagnoseRequest {
        job_id: "7".into(),
        ..DiagnoseRequest::default()
    };
    let answer = collector.queries().diagnose(request).await;
    answer.unwrap().into_inner()
}

/// Every documented view and what it shows to those who read, but for columns that follow
/// the clock.
fn answers(of: &Cluster, database: &str) -> Vec<(String, u64, String)> {
    let ask = |sql: &str| of.psql(database, "rdmesh_reader", sql).unwrap();
    let views = ask("SELECT viewname FROM pg_views WHERE schemaname = 'rdmesh' ORDER BY 1");
    let read = |view: &str| {
        let rows = ask(&format!(
            "SELECT coalesce(jsonb_agg(shown ORDER BY shown::text), '[]') FROM (SELECT \
             (SELECT coalesce(jsonb_object_agg(key, value), '{{}}') FROM \
             jsonb_each(to_jsonb(v)) WHERE key !~ '{BY_THE_CLOCK}') AS shown FROM \
             rdmesh.{view} v) rows"
        ));
        let count = ask(&format!("SELECT count(*) FROM rdmesh.{view}"));
        (view.to_owned(), count.trim().parse().unwrap(), rows)
    };
    views.split_whitespace().map(read).collect()
}

#[tokio::test]
async fn a_restored_store_gives_the_same_answers_and_takes_on() {
    let collector = Running::start().await;
    let (failing, hello) = fill(&collector).await;
    let before = answers(cluster(), &collector.database);
    for view in FILLED {
        let rows = before.iter().find(|(name, ..)| name == view);
        assert!(
            rows.is_some_and(|(_, rows, _)| *rows > 0),
            "{view} is empty"
        );
    }
    let verdict = diagnose(&collector).await;

    // The dump is taken while the collector runs.
    let directory = tempfile::tempdir().unwrap();
    let dump = directory.path().join("rdmesh.dump");
    run(cluster()
        .client("pg_dump")
        .args(["--format=custom", "--file"])
        .arg(&dump)
        .arg(&collector.database));

    // Another machine: another cluster, which knows no role of ours.
    let other = Cluster::start().unwrap();
    other
        .psql("postgres", "rdmesh", "CREATE ROLE rdmesh_reader LOGIN")
        .unwrap();
    run(other.client("createdb").arg("restored"));
    run(other
        .client("pg_restore")
        .args(["--exit-on-error", "--dbname=restored"])
        .arg(&dump));
    assert_eq!(answers(&other, "restored"), before);

    let restored = Running::on("restored".into(), |config| {
        config.database = DatabaseConfig {
            url: SecretUrl::new(other.url("restored")),
            ..DatabaseConfig::default()
        };
    })
    .await;
    assert_eq!(answers(&other, "restored"), before, "after a start");
    assert_eq!(diagnose(&restored).await, verdict);

    // The agent repeats what nobody acknowledged, and goes on.
    let failures = || {
        let sql = "SELECT coalesce(sum(count), 0) FROM rdmesh.failures";
        other.psql("restored", "rdmesh_reader", sql).unwrap()
    };
    let stored = failures();
    let mut agent = restored.agent(hello).await;
    agent.send(3, Item::Snapshot(snapshot(&failing))).await;
    agent.acknowledged(3).await;
    assert_eq!(failures(), stored, "a repeat is stored once");
    agent.send(4, Item::Snapshot(snapshot(&failing))).await;
    agent.acknowledged(4).await;
    assert_eq!(agent.rejected, []);
    assert_ne!(failures(), stored, "what is new is stored");
    restored.stop().await;
    collector.stop().await;
}

#[tokio::test]
async fn a_dump_without_exact_snapshots_restores_all_that_is_asked() {
    let collector = Running::start().await;
    fill(&collector).await;
    let before = answers(cluster(), &collector.database);
    let directory = tempfile::tempdir().unwrap();
    let dump = directory.path().join("rdmesh.dump");
    run(cluster()
        .client("pg_dump")
        .args([
            "--format=custom",
            "--exclude-table-data=rdmesh_store.snapshots*",
            "--file",
        ])
        .arg(&dump)
        .arg(&collector.database));
    let smaller = cluster().new_database().unwrap();
    run(cluster()
        .client("pg_restore")
        .args(["--exit-on-error", "--dbname", &smaller])
        .arg(&dump));
    let after = answers(cluster(), &smaller);
    let differ: Vec<&str> = before
        .iter()
        .zip(&after)
        .filter(|(before, after)| before != after)
        .map(|((name, ..), _)| name.as_str())
        .collect();
    assert_eq!(differ, ["snapshots"]);
    collector.stop().await;
}

//! What agents report besides failures: probes, inventories, windows, co-signals.

use rdmesh_store::ingest::{CoSignal, Content, InventoryReport, Probe, ProbeReport, WireWindow};

use crate::made::{Database, NOW, at, attempt, heartbeat, hello, item, run, snapshot, wire_window};

fn report(attached: i32) -> Content {
    let probe = Probe {
        hook: "uverbs.reg_mr".into(),
        function: "ib_uverbs_reg_mr".into(),
        module: "ib_uverbs".into(),
        layer: 5,
        verb: 2,
        logical: true,
        state: 1,
        attached_by: 1,
        reason: String::new(),
        failures: 0,
        drops: 0,
        unseen: 0,
        found_by: "by name".into(),
        missing_because: vec![],
    };
    Content::ProbeReport(Box::new(ProbeReport {
        kernel_release: "6.1.0".into(),
        logical_attached: attached,
        logical_total: 13,
        obstacle: String::new(),
        probes: vec![probe],
        marks: vec!["odd".into()],
        body: vec![u8::try_from(attached).unwrap()],
    }))
}

#[tokio::test]
async fn a_hook_that_the_driver_cannot_have_is_not_missed() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    let Content::ProbeReport(mut report) = report(11) else {
        panic!("a probe report");
    };
    let mut missing = |hook: &str, because: Vec<i16>| {
        report.probes.push(Probe {
            hook: hook.into(),
            state: 2,
            reason: format!("{because:?}"),
            missing_because: because,
            unseen: 3,
            ..report.probes[0].clone()
        });
    };
    missing("driver.reg_dmabuf_mr", vec![8]);
    missing("driver.create_qp", vec![8, 7]);
    missing("memory.umem", vec![]);
    db.store
        .ingest(&[item(&run, 1, Content::ProbeReport(report))])
        .await
        .unwrap();
    let agent = &db.store.agents().await.unwrap()[0];
    assert_eq!(agent.missing_hooks, ["driver.create_qp", "memory.umem"]);
    assert_eq!(agent.missing_reasons, ["[8, 7]", "[]"]);
    assert_eq!(
        db.read("SELECT missing_because FROM rdmesh.probes WHERE hook = 'driver.create_qp'"),
        "{driver_has_no_operation,not_traceable}"
    );
}

fn inventory() -> Content {
    Content::Inventory(Box::new(InventoryReport {
        id: "abc".into(),
        seen_at: NOW,
        kernel_release: "6.1.0".into(),
        ofed_version: String::new(),
        gpu_driver: String::new(),
        summary: "{\"devices\": [\"rxe0\"]}".into(),
        marks: vec!["odd".into()],
        body: vec![7],
    }))
}

fn window() -> Content {
    Content::WireWindow(Box::new(WireWindow {
        invalid: vec![1, 3],
        ..wire_window(1, 2)
    }))
}

#[tokio::test]
async fn the_report_that_was_sent_last_is_the_hosts_current_one() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    // The first was overtaken on the way: kept, and not made the current one.
    let items = [item(&run, 2, report(12)), item(&run, 1, report(11))];
    db.store.ingest(&items).await.unwrap();
    assert_eq!(
        db.read(
            "SELECT hook, state, attached_by, reported_at = '2026-11-25 12:00:10+00' \
             FROM rdmesh.probes"
        ),
        "uverbs.reg_mr|attached|fexit|t"
    );
    let last = db.store.last_probe_report("gpu-01").await.unwrap().unwrap();
    assert_eq!(last.body, [12]);
    assert_eq!(last.marks, ["odd"]);
    assert_eq!(db.read("SELECT marks FROM rdmesh.probes"), "{odd}");
    assert!(
        db.store
            .last_probe_report("gpu-09")
            .await
            .unwrap()
            .is_none()
    );
    assert!(db.store.host_is_known("gpu-01").await.unwrap());
    assert!(!db.store.host_is_known("gpu-09").await.unwrap());
    let agent = &db.store.agents().await.unwrap()[0];
    assert_eq!((agent.logical_attached, agent.logical_total), (12, 13));
}

/// A cloned machine: both say Hello under one name, and both go on.
#[tokio::test]
async fn two_runs_under_one_name_are_told_and_the_one_last_heard_of_counts() {
    let db = Database::new().await;
    let (own, clone) = (run("gpu-01", 1), run("gpu-01", 2));
    hello(&db.store, &own).await;
    hello(&db.store, &clone).await;
    db.store.ingest(&[heartbeat(&own, 1)]).await.unwrap();
    db.store.ingest(&[heartbeat(&clone, 1)]).await.unwrap();
    let restarted = db.store.agents().await.unwrap();
    assert_eq!((restarted.len(), restarted[0].beside), (1, 0));
    // Fifty and 55 seconds after both said Hello.
    db.store.ingest(&[heartbeat(&clone, 10)]).await.unwrap();
    db.store.ingest(&[heartbeat(&own, 11)]).await.unwrap();
    let agents = db.store.agents().await.unwrap();
    assert_eq!(agents.len(), 1);
    assert_eq!((agents[0].run_id, agents[0].beside), (own.run_id, 1));
}

#[tokio::test]
async fn a_diagnosis_gets_the_report_and_inventory_that_were_in_force() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    // Received 5, 10 and 15 seconds after NOW.
    let items = [
        item(&run, 1, report(11)),
        item(&run, 2, report(12)),
        item(&run, 3, inventory()),
        // A run that begins anew tells the same.
        item(&run, 4, inventory()),
    ];
    db.store.ingest(&items).await.unwrap();
    let hosts = ["gpu-01".to_owned(), "gpu-09".to_owned()];
    let watch = db.store.watch_of(&hosts, at(0), at(9)).await.unwrap();
    assert_eq!(watch[0].probe_report.as_deref(), Some(&[11_u8][..]));
    assert_eq!(watch[0].inventory.as_deref(), Some(&[7_u8][..]));
    assert_eq!(
        (watch[1].known, watch[1].probe_report.is_none()),
        (false, true)
    );
    let later = db.store.watch_of(&hosts, at(0), at(60)).await.unwrap();
    assert_eq!(later[0].probe_report.as_deref(), Some(&[12_u8][..]));
    // Nothing was known before the first came.
    let before = db.store.watch_of(&hosts, NOW, at(1)).await.unwrap();
    assert_eq!(before[0].probe_report.as_deref(), Some(&[11_u8][..]));
    assert_eq!(
        db.read("SELECT inventory_id, summary, marks FROM rdmesh.inventories"),
        "abc|{\"devices\": [\"rxe0\"]}|{odd}"
    );
}

#[tokio::test]
async fn windows_and_co_signals_are_found_by_host_and_time() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    let mut with_signal = snapshot(&run, 1, vec![], vec![], vec![]);
    if let Content::Snapshot(snapshot) = &mut with_signal.content {
        snapshot.co_signals.push(CoSignal {
            at: at(3),
            kind: 1,
            independent: true,
            name: "port_down".into(),
            detail: "ACTIVE to DOWN".into(),
            device: "rxe0".into(),
            marks: vec!["odd".into()],
        });
    }
    db.store
        .ingest(&[with_signal, item(&run, 2, window())])
        .await
        .unwrap();
    assert_eq!(
        db.read("SELECT shaped_host, valid FROM rdmesh.wire_windows"),
        "gpu-09|f"
    );
    assert_eq!(
        db.read("SELECT kind, name, marks FROM rdmesh.co_signals"),
        "network|port_down|{odd}"
    );
    let watched = ["gpu-01".to_owned()];
    assert_eq!(
        db.store
            .signals_of(&watched, at(0), at(9), 10)
            .await
            .unwrap()
            .len(),
        1
    );
    assert!(
        db.store
            .signals_of(&watched, at(4), at(9), 10)
            .await
            .unwrap()
            .is_empty()
    );
    let shaped = ["gpu-09".to_owned()];
    let shaping = db
        .store
        .shaping_of(&attempt("7", 0), &shaped, at(0), at(9))
        .await
        .unwrap();
    assert_eq!((shaping[0].windows, shaping[0].invalid), (1, 1));
    assert!(
        db.store
            .shaping_of(&attempt("7", 0), &shaped, at(7_200), at(7_209))
            .await
            .unwrap()
            .is_empty()
    );
}

//! What agents report besides failures: probes, inventories, windows, co-signals.

use rdmesh_store::ingest::{
    CoSignal, Content, Identity, InventoryReport, PortAddress, Probe, ProbeReport, WireWindow,
};

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

fn address(last: u8) -> PortAddress {
    let mut gid = [0; 16];
    (gid[0], gid[15]) = (0xfd, last);
    PortAddress {
        gid,
        device: "rxe0".into(),
        port: 1,
    }
}

#[tokio::test]
async fn addresses_are_those_of_the_newest_inventory() {
    let db = Database::new().await;
    let tells = |seconds, last: &[u8]| {
        let Content::Inventory(mut report) = inventory() else {
            unreachable!("it makes inventories");
        };
        report.seen_at = at(seconds);
        report.addresses = last.iter().map(|last| address(*last)).collect();
        Content::Inventory(report)
    };
    let (first, second) = (run("gpu-01", 1), run("gpu-02", 2));
    for run in [&first, &second] {
        hello(&db.store, run).await;
    }
    let items = [
        item(&first, 1, tells(2, &[7, 8])),
        // Told late: it was so before.
        item(&first, 2, tells(1, &[6])),
        item(&second, 1, tells(1, &[8])),
    ];
    db.store.ingest(&items).await.unwrap();
    let owners = async |last: u8| {
        let gids = [address(last).gid.to_vec()];
        let owners = db.store.owners_of(&gids, 10).await.unwrap();
        owners.into_iter().map(|o| o.host).collect::<Vec<_>>()
    };
    assert_eq!(owners(7).await, ["gpu-01"]);
    assert_eq!(owners(8).await, ["gpu-01", "gpu-02"]);
    assert!(owners(6).await.is_empty());
    // One that says of no address takes them away.
    let nothing = item(&first, 3, tells(3, &[]));
    db.store.ingest(&[nothing]).await.unwrap();
    assert_eq!(owners(8).await, ["gpu-02"]);
    assert_eq!(
        db.read("SELECT host, device, port, gid FROM rdmesh.addresses"),
        "gpu-02|rxe0|1|fd00::8"
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
        addresses: vec![address(7)],
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

fn co_signal(name: &str, task: Option<(u32, Identity)>) -> CoSignal {
    CoSignal {
        at: at(3),
        kind: 1,
        independent: true,
        name: name.into(),
        detail: "ACTIVE to DOWN".into(),
        device: "rxe0".into(),
        task,
        marks: vec!["odd".into()],
    }
}

#[tokio::test]
async fn windows_and_co_signals_are_found_by_host_and_time() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    let mut with_signal = snapshot(&run, 1, vec![], vec![], vec![]);
    if let Content::Snapshot(snapshot) = &mut with_signal.content {
        snapshot.co_signals.push(co_signal("port_down", None));
        for job in ["77", "78"] {
            let whose = Identity {
                job_id: Some(job.into()),
                requeue: 1,
                restart: 0,
                source: 1,
            };
            let end = co_signal("SIGSEGV", Some((4711, whose)));
            snapshot.co_signals.push(end);
        }
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
        db.read(
            "SELECT kind, name, marks, tgid, job_id, requeue, restart
             FROM rdmesh.co_signals ORDER BY job_id NULLS FIRST"
        ),
        "network|port_down|{odd}||||\n\
         network|SIGSEGV|{odd}|4711|77|1|0\n\
         network|SIGSEGV|{odd}|4711|78|1|0"
    );
    let watched = ["gpu-01".to_owned()];
    // What is about the host, and about its own processes.
    let of = async |from| {
        let key = attempt("78", 1);
        let found = db.store.signals_of(&key, &watched, at(from), at(9), 10);
        let found = found.await.unwrap();
        found.into_iter().map(|s| s.name).collect::<Vec<_>>()
    };
    assert_eq!(of(0).await, ["port_down", "SIGSEGV"]);
    assert!(of(4).await.is_empty());
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

//! Incidents, precursors and classes over time: from ingest to SQL, and the same by the
//! library.

use std::sync::Arc;

use rdmesh_store::fleet::{Signature, TimeStep};
use rdmesh_store::ingest::{Content, InventoryReport, Item, RunKey};
use rdmesh_store::jobs::End;
use rdmesh_store::statistics::Ended;
use rdmesh_store::verdicts::{Counted, StoredVerdict};
use time::{Duration, OffsetDateTime};

use crate::made::{
    Database, NOW, attempt, chain, hello, item, named, nobody, run, snapshot, start,
};

const EVER: Ended = Ended {
    from: None,
    to: None,
};

fn inventory(run: &Arc<RunKey>, sequence: i64, at: OffsetDateTime, version: &str) -> Item {
    let summary = format!(
        r#"{{"devices":[{{"driver":"rdma_rxe","driver_version":"{version}","firmware_version":"1"}}],
             "peer_memory":null,"dmabuf":true,"iommu":null,"acs_bridges":null,"memlock_bytes":null}}"#
    );
    let report = InventoryReport {
        id: version.to_owned(),
        seen_at: at,
        kernel_release: "6.12".into(),
        ofed_version: String::new(),
        gpu_driver: String::new(),
        summary,
        marks: Vec::new(),
        addresses: Vec::new(),
        body: Vec::new(),
    };
    item(run, sequence, Content::Inventory(Box::new(report)))
}

/// `failing` hosts that fail after an update of their driver, and some that are well.
async fn fleet(db: &Database, failing: u32, well: u32) {
    let updated = NOW - Duration::hours(1);
    for number in 0..failing + well {
        let run = run(&format!("gpu-{number:02}"), u128::from(number) + 1);
        hello(&db.store, &run).await;
        let mut items = vec![inventory(&run, 1, NOW - Duration::days(3), "24.07")];
        if number < failing {
            items.push(inventory(&run, 2, updated, "24.10"));
            let chains = vec![chain(NOW, nobody()), chain(NOW, nobody())];
            items.push(snapshot(&run, 3, chains, vec![], vec![]));
        }
        db.store.ingest(&items).await.unwrap();
    }
}

#[tokio::test]
async fn an_incident_says_what_its_hosts_share_and_others_lack() {
    let db = Database::new().await;
    fleet(&db, 9, 6).await;
    let incidents = db.store.incidents(EVER).await.unwrap();
    assert_eq!(incidents.len(), 1, "{incidents:?}");
    let incident = &incidents[0];
    assert_eq!(
        (incident.hosts, incident.calls),
        (9, 18 * chain(NOW, nobody()).count)
    );
    assert_eq!(incident.errno_name, "EFAULT");
    assert_eq!(
        incident.shared,
        [
            "driver of rdma_rxe is 24.10 since 2026-11-25 11:00Z: 9 of 9 failing hosts, 0 of 6 others"
        ]
    );
    assert_eq!(
        db.read("SELECT hosts, calls FROM rdmesh.incidents"),
        format!("9|{}", incident.calls)
    );
    // The same again, as an agent whose acknowledgement was lost sends it: nothing more.
    let run = run("gpu-00", 1);
    let again = snapshot(&run, 3, vec![chain(NOW, nobody())], vec![], vec![]);
    db.store.ingest(&[again]).await.unwrap();
    assert_eq!(
        db.read("SELECT calls FROM rdmesh.incidents"),
        incident.calls.to_string()
    );

    let like = chain(NOW, nobody());
    let signature = Signature {
        driver: like.driver.clone(),
        verb: like.verb,
        steps: like.steps.clone(),
    };
    let near = db
        .store
        .incident_of(&signature, NOW)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((near.hosts, near.shared.len()), (9, 1));
    assert_eq!(near.shared[0].since, Some(NOW - Duration::hours(1)));
    let later = NOW + Duration::days(3);
    assert_eq!(db.store.incident_of(&signature, later).await.unwrap(), None);
}

#[tokio::test]
async fn a_few_hosts_and_expected_failures_are_no_incident() {
    let db = Database::new().await;
    fleet(&db, 7, 1).await;
    for number in 20..40 {
        let run = run(&format!("gpu-{number:02}"), number + 1);
        hello(&db.store, &run).await;
        let mut expected = chain(NOW, nobody());
        expected.expected = true;
        let seen = snapshot(&run, 1, vec![expected], vec![], vec![]);
        db.store.ingest(&[seen]).await.unwrap();
    }
    assert_eq!(db.read("SELECT count(*) FROM rdmesh.incidents"), "0");
    assert!(db.store.incidents(EVER).await.unwrap().is_empty());
}

/// An attempt that ended badly, with its verdict.
async fn judged(
    db: &Database,
    job: &str,
    ended_at: OffsetDateTime,
    class: &str,
    at: OffsetDateTime,
) {
    let begun = start(job, 0, Some(ended_at - Duration::hours(1)), &["gpu-01"]);
    db.store.start_job(&begun, ended_at).await.unwrap();
    let end = End {
        attempt: attempt(job, 0),
        state: 4,
        ended_at: Some(ended_at),
        exit_code: Some(1),
        exit_reason: String::new(),
    };
    db.store.end_job(&end, ended_at).await.unwrap();
    let like = chain(at, nobody());
    let verdict = StoredVerdict {
        class: class.into(),
        function: like.steps[0].function.clone(),
        errno: like.steps[0].errno,
        errno_name: "EFAULT".into(),
        hosts: vec!["gpu-01".into()],
        first_at: Some(at),
        counted: Counted {
            told_by: "kernel".into(),
            lost_class: class.into(),
            ..Counted::default()
        },
        ..StoredVerdict::default()
    };
    let key = attempt(job, 0);
    db.store
        .keep_verdict(&key, &verdict, ended_at)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_signature_that_rises_foretells_with_its_lead() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    let day = |hours: i64| NOW - Duration::hours(hours);
    // Two days before: two calls; the day before: more, from five hours before on.
    let mut chains = vec![chain(day(40), named("old", 0, 1))];
    chains.extend((0..4).map(|n| chain(day(5) + Duration::minutes(n), named("old", 0, 1))));
    let seen = snapshot(&run, 1, chains, vec![], vec![]);
    db.store.ingest(&[seen]).await.unwrap();
    // The attempt ran for an hour, and failed at its end.
    judged(&db, "7", NOW + Duration::minutes(1), "driver", NOW).await;
    let found = db.store.precursors(EVER).await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    let calls = chain(NOW, nobody()).count;
    assert_eq!(
        (found[0].calls_day_before, found[0].calls_day_earlier),
        (4 * calls, calls)
    );
    assert_eq!(
        (found[0].rose_at, found[0].lead_seconds),
        (day(5), 5.0 * 3_600.0)
    );
    assert_eq!(
        db.read("SELECT job_id, lead_seconds FROM rdmesh.precursors"),
        "7|18000"
    );
    // Nothing was seen there before this one.
    judged(&db, "8", day(45), "driver", day(45)).await;
    assert_eq!(db.read("SELECT count(*) FROM rdmesh.precursors"), "1");
}

#[tokio::test]
async fn a_class_whose_share_grows_rises_and_the_other_falls() {
    let db = Database::new().await;
    // Four weeks of twenty attempts: of drivers 2, 3, 12 and 14.
    for (week, drivers) in (0..).zip([2, 3, 12, 14]) {
        for number in 0..20 {
            let ended = NOW - Duration::weeks(4 - week) + Duration::minutes(number);
            let class = if number < drivers {
                "driver"
            } else {
                "firmware"
            };
            judged(&db, &format!("{week}-{number}"), ended, class, ended).await;
        }
    }
    let rows = db.store.classes(EVER, TimeStep::Week).await.unwrap();
    let drivers = rows.iter().filter(|row| row.class == "driver");
    let shares: Vec<Option<f64>> = drivers.map(|row| row.share.of_attempts).collect();
    assert_eq!(shares, [0.1, 0.15, 0.6, 0.7].map(Some));
    let trends = db.store.class_trends(EVER, TimeStep::Week).await.unwrap();
    let told: Vec<(&str, &str)> = trends
        .iter()
        .map(|trend| (trend.class.as_str(), trend.trend.as_str()))
        .collect();
    assert_eq!(told, [("firmware", "falls"), ("driver", "rises")]);
    assert_eq!(
        (trends[1].earlier, trends[1].later),
        (Some(0.125), Some(0.65))
    );
    assert_eq!(
        db.read("SELECT class, trend FROM rdmesh.class_trends ORDER BY class"),
        "driver|rises\nfirmware|falls"
    );
    // Of one step there is no trend.
    let one = Ended {
        from: Some(NOW - Duration::days(8)),
        to: None,
    };
    let trends = db.store.class_trends(one, TimeStep::Month).await.unwrap();
    assert!(
        trends
            .iter()
            .all(|t| t.trend == "steady" && t.later.is_none()),
        "{trends:?}"
    );
}

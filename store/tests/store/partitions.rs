//! Weekly partitions: made when needed, dropped as a whole.

use std::time::Duration;

use crate::ingest::one_failure;
use rdmesh_store::Keep;
use time::macros::datetime;

use crate::made::{Database, NOW, at, chain, count, hello, nobody, run, snapshot};

#[tokio::test]
async fn rows_of_other_weeks_find_a_partition_and_old_ones_are_dropped_as_a_whole() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    let old = NOW - Duration::from_secs(30 * 24 * 3600);
    let chains = vec![chain(old, nobody()), chain(at(5), nobody())];
    db.store
        .ingest(&[snapshot(&run, 1, chains, vec![], vec![])])
        .await
        .unwrap();
    assert_eq!(db.read("SELECT count(*) FROM rdmesh.failures"), "2");

    let keep = Duration::from_secs(14 * 24 * 3600);
    let retained = db.store.retain(NOW, keep).await.unwrap();
    assert!(
        retained
            .partitions
            .contains(&"failure_groups_20261026".to_owned()),
        "{retained:?}"
    );
    assert_eq!(db.read("SELECT count(*) FROM rdmesh.failures"), "1");
    // The next row of that week makes its partition anew.
    db.store
        .ingest(&[snapshot(
            &run,
            2,
            vec![chain(old, nobody())],
            vec![],
            vec![],
        )])
        .await
        .unwrap();
    assert_eq!(db.read("SELECT count(*) FROM rdmesh.failures"), "2");
}

#[tokio::test]
async fn a_partition_that_another_collector_dropped_is_made_again() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    db.store.ingest(&[one_failure(&run, 1)]).await.unwrap();
    db.sql("DROP TABLE rdmesh_store.failure_groups_20261123");
    let lost = db.store.ingest(&[one_failure(&run, 2)]).await.unwrap_err();
    assert!(lost.is_retryable(), "{lost}");
    let progress = db.store.ingest(&[one_failure(&run, 2)]).await.unwrap();
    assert_eq!(progress[0].through, 2);
}

#[tokio::test]
async fn what_has_aged_out_is_said_and_sums_by_hour_outlast_it() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    let days = |days: u64| Duration::from_secs(days * 24 * 3600);
    let old = NOW - days(30);
    let chains = vec![chain(old, nobody()), chain(at(5), nobody())];
    let counts = vec![count(None, 3)];
    let mut items = vec![snapshot(&run, 1, chains, counts.clone(), vec![])];
    // Another one whose own time is old.
    let mut earlier = snapshot(&run, 2, vec![], counts, vec![]);
    if let rdmesh_store::ingest::Content::Snapshot(snapshot) = &mut earlier.content {
        snapshot.ended_at = NOW - days(10);
    }
    items.push(earlier);
    db.store.ingest(&items).await.unwrap();
    assert_eq!(
        db.read("SELECT kind, kept_from FROM rdmesh.ages ORDER BY kind"),
        "detail|\nexact|\nhours|"
    );
    let keep = Keep {
        exact: days(2),
        detail: days(20),
        hours: days(90),
    };
    db.store.retain(NOW, keep).await.unwrap();
    let ages = db.store.ages().await.unwrap();
    assert_eq!(ages.exact, Some(datetime!(2026-11-23 00:00 UTC)));
    assert_eq!(ages.detail, Some(datetime!(2026-11-02 00:00 UTC)));
    assert_eq!(ages.hours, None);
    assert_eq!(
        db.read("SELECT kind, kept_from FROM rdmesh.ages ORDER BY kind"),
        "detail|2026-11-02 00:00:00+00\nexact|2026-11-23 00:00:00+00\nhours|"
    );
    // Exact snapshots are gone where counters are not, and sums where failures are.
    assert_eq!(db.read("SELECT count(*) FROM rdmesh.snapshots"), "1");
    assert_eq!(
        db.read("SELECT count(*) FROM rdmesh.host_failure_totals"),
        "2"
    );
    assert_eq!(db.read("SELECT count(*) FROM rdmesh.failures"), "1");
    let calls = "SELECT sum(calls) FROM rdmesh.signature_totals";
    assert_eq!(db.read(calls), "6");
    // It does not become younger again.
    db.store.retain(NOW, days(90)).await.unwrap();
    assert_eq!(db.store.ages().await.unwrap(), ages);
}

#[tokio::test]
async fn dictionaries_forget_what_no_week_has_and_know_it_again() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    let old = NOW - Duration::from_secs(30 * 24 * 3600);
    let with = |at, device: &str| {
        let mut chain = chain(at, nobody());
        chain.device = device.into();
        chain
    };
    let chains = vec![with(old, "old0"), with(at(5), "new0")];
    let item = snapshot(&run, 1, chains, vec![count(None, 1)], vec![]);
    db.store.ingest(&[item]).await.unwrap();
    let devices = "SELECT string_agg(device, ',' ORDER BY device) FROM rdmesh_store.devices";
    assert_eq!(db.sql(devices), "new0,old0");
    let keep = Duration::from_secs(14 * 24 * 3600);
    db.store.retain(NOW, keep).await.unwrap();
    assert_eq!(db.sql(devices), "new0");
    assert_eq!(db.sql("SELECT count(*) FROM rdmesh_store.returns"), "1");
    let again = snapshot(&run, 2, vec![with(at(9), "old0")], vec![], vec![]);
    db.store.ingest(&[again]).await.unwrap();
    assert_eq!(
        db.read("SELECT string_agg(device, ',' ORDER BY device) FROM rdmesh.failures"),
        "new0,old0"
    );
}

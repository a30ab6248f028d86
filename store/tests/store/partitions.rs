//! Weekly partitions: made when needed, dropped as a whole.

use std::time::Duration;

use crate::ingest::one_failure;
use crate::made::{Database, NOW, at, chain, hello, nobody, run, snapshot};

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
            .contains(&"failures_20261026".to_owned()),
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
    db.sql("DROP TABLE rdmesh_store.failures_20261123");
    let lost = db.store.ingest(&[one_failure(&run, 2)]).await.unwrap_err();
    assert!(lost.is_retryable(), "{lost}");
    let progress = db.store.ingest(&[one_failure(&run, 2)]).await.unwrap();
    assert_eq!(progress[0].through, 2);
}

//! What is absurd or unreachable does no harm to others.

use std::time::Duration;

use rdmesh_store::ingest::{DropKind, Dropped};
use rdmesh_store::{Store, StoreError, StoreOptions};

use crate::made::{
    Database, at, attempt, chain, cluster, count, hello, named, nobody, open, run, snapshot, start,
};

#[tokio::test]
async fn sums_of_absurd_counts_stay_within_bounds() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    for sequence in 1..=3 {
        let counts = vec![
            count(None, i64::MAX),
            count(Some(("/job".into(), named("4711", 0, 1))), i64::MAX),
        ];
        let dropped = Dropped {
            kind: DropKind::Ring,
            function: "ib_umem_get".into(),
            module: "ib_uverbs".into(),
            layer: 1,
            delta: i64::MAX,
            total: i64::MAX,
        };
        let item = snapshot(&run, sequence, vec![], counts, vec![dropped]);
        db.store.ingest(&[item]).await.unwrap();
    }
    let most = i64::MAX.to_string();
    for (view, column) in [
        ("failure_totals", "count"),
        ("host_failure_totals", "count"),
        ("agents", "failures"),
        ("agents", "drops"),
    ] {
        let sum = db.read(&format!("SELECT max({column}) FROM rdmesh.{view}"));
        assert_eq!(sum, most, "{view}.{column}");
    }
    let totals = db.store.totals_of(&attempt("4711", 0)).await.unwrap();
    assert_eq!(totals[0].count, i64::MAX);
    let hosts = ["gpu-01".to_owned()];
    let watch = db.store.watch_of(&hosts, at(0), at(60)).await.unwrap();
    assert_eq!(watch[0].drops, i64::MAX);
    // Before anything came, nothing was lost: the sum of no rows is not the largest.
    let watch = db.store.watch_of(&hosts, at(-900), at(-600)).await.unwrap();
    assert_eq!((watch[0].drops, watch[0].counter_overflow), (0, 0));
}

#[tokio::test]
async fn a_failure_that_two_attempts_may_have_made_is_told_to_both() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    for job in ["a", "b"] {
        let placed = start(job, 0, Some(at(0)), &["gpu-01"]);
        db.store.start_job(&placed, at(0)).await.unwrap();
    }
    let mut normal = chain(at(6), nobody());
    normal.expected = true;
    let chains = vec![
        chain(at(5), nobody()),
        chain(at(6), named("c", 0, 1)),
        normal,
    ];
    db.store
        .ingest(&[snapshot(&run, 1, chains, vec![], vec![])])
        .await
        .unwrap();
    for (mine, other) in [("a", "b/0"), ("b", "a/0")] {
        let shared = db.store.ambiguous_of(&attempt(mine, 0)).await.unwrap();
        assert_eq!(shared.len(), 1);
        assert_eq!((shared[0].host.as_str(), shared[0].calls), ("gpu-01", 3));
        assert_eq!(shared[0].others, [other]);
    }
    assert!(
        db.store
            .ambiguous_of(&attempt("c", 0))
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn an_unreachable_postgres_is_named_without_its_password() {
    let store = Store::new(&StoreOptions {
        // Port 1 is nobody's.
        url: "postgres://rdmesh:hunter2@127.0.0.1:1/mesh".into(),
        connections: 3,
        acquire_timeout: Duration::from_secs(1),
    })
    .unwrap();
    assert_eq!(store.target(), "127.0.0.1:1, database mesh, role rdmesh");
    for error in [
        store.migrate().await.unwrap_err(),
        store.ping().await.unwrap_err(),
    ] {
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        assert!(error.to_string().contains("refused"), "{error}");
    }
}

#[tokio::test]
async fn the_reader_cannot_fill_the_database_or_run_without_end() {
    let db = Database::new().await;
    assert_eq!(db.read("SHOW statement_timeout"), "2min");
    assert_eq!(db.read("SHOW jit"), "off");
    for forbidden in [
        "CREATE TEMP TABLE t (n int)",
        "BEGIN READ WRITE; CREATE TEMP TABLE t (n int)",
    ] {
        let refused = cluster().psql(&db.name, "rdmesh_reader", forbidden);
        assert!(refused.is_err(), "{forbidden}");
    }
    open(&cluster().url(&db.name)).migrate().await.unwrap();
}

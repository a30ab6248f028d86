//! Exactly-once effect, order, bounds, text.

use std::sync::Arc;
use std::time::Duration;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};
use rdmesh_store::StoreError;
use rdmesh_store::ingest::{Content, DropKind, Dropped, Item, RunKey};
use rdmesh_store::query::FailureFilter;

use crate::made::{
    Database, at, chain, cluster, count, heartbeat, hello, item, named, nobody, run, snapshot,
};

pub(crate) fn one_failure(run: &Arc<RunKey>, sequence: i64) -> Item {
    let chains = vec![chain(at(sequence * 5), named("4711", 0, 1))];
    snapshot(run, sequence, chains, vec![count(None, 3)], vec![])
}

#[tokio::test]
async fn a_failure_is_seen_by_sql_and_by_query_as_it_was_sent() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    assert_eq!(hello(&db.store, &run).await, 0);
    let progress = db.store.ingest(&[one_failure(&run, 1)]).await.unwrap();
    assert_eq!((progress[0].through, progress[0].repeated), (1, 0));

    let seen = db.read(
        "SELECT host, verb, function, layer, errno_name, functions, layers, errno_names, tid, \
         job_id, source, arguments->>'mapping', marks FROM rdmesh.failures",
    );
    assert_eq!(
        seen,
        "gpu-01|reg_mr|ib_umem_get|memory|EFAULT|{ib_umem_get,rxe_reg_user_mr,ib_uverbs_reg_mr}|\
         {memory,driver,uverbs}|{EFAULT,EFAULT,EFAULT}|4000000000|4711|environment|none|\
         {\"a \\\"quoted\\\" mark\"}"
    );
    let filter = FailureFilter {
        limit: 10,
        ..FailureFilter::default()
    };
    let listed = db.failures(&filter).await;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].first_at, at(5));
    assert_eq!(listed[0].steps.len(), 3);
    assert_eq!(listed[0].rank, Some(0));
    assert_eq!(listed[0].local_rank, None);
}

#[tokio::test]
async fn an_item_is_stored_once_whatever_the_order_and_repetition() {
    let db = Database::new().await;
    let mut number = 100;
    let strategy = proptest::collection::vec(1_i64..12, 1..40);
    let mut runner = TestRunner::new(Config {
        cases: 12,
        ..Config::default()
    });
    let cases: Vec<Vec<i64>> = (0..12)
        .map(|_| strategy.new_tree(&mut runner).unwrap().current())
        .collect();
    for sequences in cases {
        number += 1;
        let run = run("gpu-01", number);
        hello(&db.store, &run).await;
        for batch in sequences.chunks(7) {
            let items: Vec<Item> = batch.iter().map(|s| one_failure(&run, *s)).collect();
            db.store.ingest(&items).await.unwrap();
        }
        let mut distinct = sequences.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let stored = db.sql(&format!(
            "SELECT string_agg(seq::text, ',' ORDER BY seq) FROM rdmesh_store.failures \
             WHERE run_id = '{}'",
            run.run_id
        ));
        let expected: Vec<String> = distinct.iter().map(ToString::to_string).collect();
        assert_eq!(stored, expected.join(","), "of {sequences:?}");
        let failures = db.sql(&format!(
            "SELECT failures FROM rdmesh_store.agent_runs WHERE run_id = '{}'",
            run.run_id
        ));
        assert_eq!(failures, (distinct.len() * 3).to_string());
    }
}

#[tokio::test]
async fn the_same_items_written_at_once_by_two_collectors_are_stored_once() {
    let db = Database::new().await;
    let runs: Vec<_> = (0..6).map(|n| run(&format!("gpu-{n}"), n)).collect();
    for run in &runs {
        hello(&db.store, run).await;
    }
    let batch: Vec<Item> = runs
        .iter()
        .flat_map(|run| (1..5).map(|s| one_failure(run, s)))
        .collect();
    let backwards: Vec<Item> = batch.iter().rev().cloned().collect();
    let (one, other) = tokio::join!(db.store.ingest(&batch), db.store.ingest(&backwards));
    let repeated: u64 = one
        .unwrap()
        .iter()
        .chain(&other.unwrap())
        .map(|progress| progress.repeated)
        .sum();
    assert_eq!(repeated, 24);
    assert_eq!(db.sql("SELECT count(*) FROM rdmesh_store.failures"), "24");
}

#[tokio::test]
async fn sequences_take_constant_space_and_holes_are_counted() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    for chunk in (1..=200_i64).collect::<Vec<_>>().chunks(50) {
        let beats: Vec<Item> = chunk.iter().map(|s| heartbeat(&run, *s)).collect();
        db.store.ingest(&beats).await.unwrap();
    }
    let ranges = "SELECT seqs, watched FROM rdmesh_store.agent_runs";
    assert_eq!(db.sql(ranges), "{[1,201)}|{[1005000000000,2005000000000)}");
    db.store.ingest(&[heartbeat(&run, 205)]).await.unwrap();
    assert_eq!(
        db.read("SELECT missing, heartbeats FROM rdmesh.agents"),
        "4|201"
    );
    assert_eq!(db.store.agents().await.unwrap()[0].missing, 4);
    // The agent's reconnection is told how far it had got.
    assert_eq!(hello(&db.store, &run).await, 200);
}

#[tokio::test]
async fn an_agent_that_leaves_a_thousand_holes_costs_no_more_space() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    for chunk in (1..=1_200_i64).collect::<Vec<_>>().chunks(400) {
        let beats: Vec<Item> = chunk.iter().map(|s| heartbeat(&run, s * 2)).collect();
        db.store.ingest(&beats).await.unwrap();
    }
    let ranges: u32 = db
        .sql("SELECT count(*) FROM rdmesh_store.agent_runs, unnest(seqs)")
        .parse()
        .unwrap();
    assert!(ranges <= 1_024, "{ranges} ranges");
    let through = hello(&db.store, &run).await;
    assert!(through > 800, "closed through {through}");
    assert_eq!(db.read("SELECT heartbeats FROM rdmesh.agents"), "1200");
}

#[tokio::test]
async fn a_refused_item_counts_as_done_and_is_told() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    let refused = item(&run, 1, Content::Rejected("chains.task[0] is 9".into()));
    let progress = db
        .store
        .ingest(&[refused, one_failure(&run, 2)])
        .await
        .unwrap();
    assert_eq!(progress[0].through, 2);
    assert_eq!(
        db.read("SELECT rejected, last_rejection, snapshots FROM rdmesh.agents"),
        "1|chains.task[0] is 9|1"
    );
}

#[tokio::test]
async fn a_run_without_hello_is_refused_and_nothing_is_stored() {
    let db = Database::new().await;
    let (known, unknown) = (run("gpu-01", 1), run("gpu-02", 2));
    hello(&db.store, &known).await;
    let result = db
        .store
        .ingest(&[one_failure(&known, 1), one_failure(&unknown, 1)])
        .await;
    assert!(matches!(result, Err(StoreError::UnknownRun)), "{result:?}");
    assert_eq!(db.sql("SELECT count(*) FROM rdmesh_store.failures"), "0");
}

#[tokio::test]
async fn a_value_that_postgres_refuses_is_the_items_own_fault() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    let mut bad = chain(at(5), nobody());
    bad.comm = "nul \0 in text".into();
    let error = db
        .store
        .ingest(&[snapshot(&run, 1, vec![bad], vec![], vec![])])
        .await
        .unwrap_err();
    assert!(error.is_about_data() && !error.is_retryable(), "{error}");
    assert_eq!(db.sql("SELECT seqs FROM rdmesh_store.agent_runs"), "{}");
}

#[tokio::test]
async fn totals_are_exact_by_attempt_and_drops_are_told() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    let of_job = || Some(("/job".to_owned(), named("4711", 0, 2)));
    let dropped = |kind, delta| Dropped {
        kind,
        function: "ib_umem_get".into(),
        module: "ib_uverbs".into(),
        layer: 1,
        delta,
        total: delta,
    };
    let counts = vec![count(None, 100_000), count(of_job(), 99_999)];
    let drops = vec![
        dropped(DropKind::Ring, 90_000),
        dropped(DropKind::CounterMap, 1),
        dropped(DropKind::Unseen, 7),
    ];
    let first = snapshot(&run, 1, vec![], counts, drops);
    let second = snapshot(&run, 2, vec![], vec![count(of_job(), 2)], vec![]);
    db.store.ingest(&[first, second]).await.unwrap();
    assert_eq!(
        db.read("SELECT job_id, function, errno_name, count FROM rdmesh.failure_totals"),
        "4711|ib_umem_get|EFAULT|100001"
    );
    assert_eq!(
        db.read("SELECT count FROM rdmesh.host_failure_totals"),
        "100000"
    );
    assert_eq!(
        db.read("SELECT string_agg(kind || count, ' ' ORDER BY kind) FROM rdmesh.drops"),
        "counter_map_full1 ring_full90000 unseen7"
    );
    assert_eq!(
        db.read("SELECT drops, unseen FROM rdmesh.snapshots ORDER BY sequence LIMIT 1"),
        "90000|7"
    );
    assert_eq!(
        db.read("SELECT drops, unseen FROM rdmesh.agents"),
        "90000|7"
    );
    let probes = db.store.probe_counts("gpu-01", run.run_id).await.unwrap();
    assert_eq!(
        (probes[0].failures, probes[0].drops, probes[0].unseen),
        (100_000, 90_000, 7)
    );
    let totals = db
        .store
        .totals_of(&crate::made::attempt("4711", 0))
        .await
        .unwrap();
    assert_eq!(totals.iter().map(|t| t.count).sum::<i64>(), 100_001);
    let watch = db
        .store
        .watch_of(&["gpu-01".into()], at(5), at(25))
        .await
        .unwrap();
    let losses = (watch[0].drops, watch[0].counter_overflow, watch[0].unseen);
    assert_eq!(losses, (90_000, 1, 7));
    assert!((watch[0].watched_seconds - 10.0).abs() < 0.001, "{watch:?}");
    assert!((watch[0].attempt_seconds - 20.0).abs() < 0.001);
}

#[tokio::test]
async fn failures_are_paged_in_order_and_filtered() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    let mut chains: Vec<_> = (0..5).map(|n| chain(at(n / 2), nobody())).collect();
    chains[4].expected = true;
    chains[3].device = "mlx5_0".into();
    db.store
        .ingest(&[snapshot(&run, 1, chains, vec![], vec![])])
        .await
        .unwrap();
    let mut filter = FailureFilter {
        limit: 3,
        ..FailureFilter::default()
    };
    let page = db.failures(&filter).await;
    let ordinals = |page: &[rdmesh_store::query::Failure]| {
        page.iter().map(|f| f.cursor.ordinal).collect::<Vec<_>>()
    };
    assert_eq!(ordinals(&page), [3, 2, 1]);
    filter.after = Some(page[2].cursor.clone());
    assert_eq!(ordinals(&db.failures(&filter).await), [0]);
    let all = FailureFilter {
        limit: 9,
        include_expected: true,
        oldest_first: true,
        host: Some("gpu-01".into()),
        function: Some("rxe_reg_user_mr".into()),
        errno: Some(14),
        from: Some(at(0)),
        to: Some(at(3)),
        ..FailureFilter::default()
    };
    assert_eq!(ordinals(&db.failures(&all).await), [0, 1, 2, 3, 4]);
    let device = FailureFilter {
        device: Some("mlx5_0".into()),
        limit: 9,
        ..Default::default()
    };
    assert_eq!(ordinals(&db.failures(&device).await), [3]);
    assert_eq!(db.store.count_failures(&device).await.unwrap(), 1);
    assert_eq!(db.store.count_failures(&all).await.unwrap(), 5);
}

#[tokio::test]
async fn a_stopped_postgres_is_unavailable_and_the_store_works_again_after() {
    let db = Database::new().await;
    let run = run("gpu-01", 1);
    hello(&db.store, &run).await;
    cluster().stop().unwrap();
    let url = cluster().url(&db.name);
    let impatient = rdmesh_store::Store::new(&rdmesh_store::StoreOptions {
        url,
        connections: 1,
        acquire_timeout: Duration::from_millis(300),
    })
    .unwrap();
    let away = impatient.ping().await.unwrap_err();
    assert!(away.is_retryable(), "{away}");
    cluster().start_again().unwrap();
    let mut stored = db.store.ingest(&[one_failure(&run, 1)]).await;
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while stored.as_ref().is_err_and(StoreError::is_retryable) {
        assert!(std::time::Instant::now() < deadline);
        stored = db.store.ingest(&[one_failure(&run, 1)]).await;
    }
    assert_eq!(stored.unwrap()[0].through, 1);
}

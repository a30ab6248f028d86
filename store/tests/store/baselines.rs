//! Windows of automatic mode: whose turn it is, and what is kept of them.

use rdmesh_store::baselines::{
    Finished, ForkSeen, HOST_WINDOWS_AN_HOUR, Lease, LeaseAsk, LeaseBounds, NoLease, Purpose,
    StoredBaseline, TRIES,
};
use rdmesh_store::fleet::Signature;
use rdmesh_store::ingest::Step;
use sqlx::types::Uuid;
use time::Duration;

use crate::made::{Database, NOW, at};

fn bounds(hosts_at_once: u32) -> LeaseBounds {
    LeaseBounds {
        hosts_at_once,
        lasts: Duration::minutes(4),
    }
}

fn ask(host: &str, purpose: Purpose) -> LeaseAsk {
    LeaseAsk {
        host: host.to_owned(),
        run_id: Uuid::from_u128(7),
        kernel_release: "6.12".to_owned(),
        driver: "rdma_rxe".to_owned(),
        purpose,
    }
}

fn record(verbs: &[&str]) -> Purpose {
    Purpose::Record {
        verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
    }
}

fn signature(errno: i32) -> Signature {
    let step = |function: &str, layer| Step {
        function: function.to_owned(),
        module: "ib_uverbs".to_owned(),
        layer,
        errno,
    };
    Signature {
        driver: "rdma_rxe".to_owned(),
        verb: 2,
        steps: vec![step("ib_umem_get", 1), step("ib_uverbs_reg_mr", 5)],
    }
}

fn capture(errno: i32, has_baseline: bool) -> Purpose {
    Purpose::Capture {
        verb: "reg_mr".to_owned(),
        signature: signature(errno),
        has_baseline,
    }
}

fn baseline(host: &str, verb: &str, good_calls: i64) -> StoredBaseline {
    StoredBaseline {
        host: host.to_owned(),
        kernel_release: "6.12".to_owned(),
        driver: "rdma_rxe".to_owned(),
        verb: verb.to_owned(),
        recorded_at: NOW,
        good_calls,
        functions: 212,
        body: vec![1, 2, 3],
    }
}

fn seen(errno: i32) -> ForkSeen {
    ForkSeen {
        verb: "reg_mr".to_owned(),
        call_errno: errno,
        path: vec!["ib_uverbs_reg_mr".to_owned(), "ib_umem_get".to_owned()],
        errno,
        good_calls: 25,
        baseline_host: "gpu-07".to_owned(),
        baseline_recorded_at: Some(NOW),
        body: vec![9],
    }
}

fn finished(host: &str, lease: &Lease) -> Finished {
    Finished {
        host: host.to_owned(),
        lease_id: lease.id,
        baselines: Vec::new(),
        fork: None,
        failure: String::new(),
    }
}

impl Database {
    async fn lease(&self, ask: &LeaseAsk, hosts: u32, seconds: i64) -> Result<Lease, NoLease> {
        let granted = self.store.lease_window(ask, bounds(hosts), at(seconds));
        granted.await.unwrap()
    }
}

#[tokio::test]
async fn the_fleet_has_so_many_windows_at_a_time_and_a_dead_hosts_turn_passes() {
    let db = Database::new().await;
    let one = ask("gpu-01", record(&["reg_mr"]));
    let other = ask("gpu-02", record(&["create_qp"]));
    let lease = db.lease(&one, 1, 0).await.unwrap();
    assert_eq!(lease.expires_at, at(240));
    assert_eq!(db.lease(&other, 1, 10).await, Err(NoLease::FleetBusy));
    // A second place, and then the first host never says a word again.
    assert!(db.lease(&other, 2, 20).await.is_ok());
    let third = ask("gpu-03", record(&["modify_qp"]));
    assert_eq!(db.lease(&third, 2, 239).await, Err(NoLease::FleetBusy));
    assert!(db.lease(&third, 2, 240).await.is_ok());
    // A window that was long over is kept all the same: the work is done.
    let late = Finished {
        baselines: vec![baseline("gpu-01", "reg_mr", 3)],
        ..finished("gpu-01", &lease)
    };
    assert!(db.store.finish_window(&late, at(600)).await.unwrap());
    assert!(!db.store.finish_window(&late, at(601)).await.unwrap());
    assert_eq!(
        db.read("SELECT host, verb, good_calls, functions FROM rdmesh.baselines"),
        "gpu-01|reg_mr|3|212"
    );
}

#[tokio::test]
async fn hosts_that_ask_together_get_no_more_than_there_are() {
    let db = Database::new().await;
    let asks = ["a", "b", "c", "d", "e", "f"].map(|host| ask(host, record(&[host])));
    let all = asks.iter().map(|ask| db.lease(ask, 2, 0));
    let answers = futures_of(all).await;
    let granted = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(granted, 2, "{answers:?}");
}

/// All of them, at the same time.
async fn futures_of<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    let mut out: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, place) in futures.iter_mut().zip(&mut out) {
            if place.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(context)
            {
                *place = Some(value);
            }
        }
        match out.iter().all(Option::is_some) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    out.into_iter().flatten().collect()
}

#[tokio::test]
async fn what_is_recorded_or_being_recorded_is_not_recorded_again() {
    let db = Database::new().await;
    let both = ask("gpu-01", record(&["reg_mr", "create_qp"]));
    let lease = db.lease(&both, 9, 0).await.unwrap();
    assert_eq!(lease.verbs, ["reg_mr", "create_qp"]);
    let more = ask("gpu-02", record(&["modify_qp", "reg_mr"]));
    let second = db.lease(&more, 9, 1).await.unwrap();
    assert_eq!(second.verbs, ["modify_qp"]);
    let same = ask("gpu-03", record(&["reg_mr"]));
    assert_eq!(db.lease(&same, 9, 2).await, Err(NoLease::Recorded));
    let done = Finished {
        baselines: vec![baseline("gpu-01", "reg_mr", 3)],
        ..finished("gpu-01", &lease)
    };
    assert!(db.store.finish_window(&done, at(3)).await.unwrap());
    assert_eq!(db.lease(&same, 9, 4).await, Err(NoLease::Recorded));
    // Of another kernel or driver it is another one.
    let other = LeaseAsk {
        driver: "mlx5_ib".to_owned(),
        ..same.clone()
    };
    assert!(db.lease(&other, 9, 5).await.is_ok());
    // A window without a result: somebody else's turn.
    let nothing = Finished {
        failure: "no call succeeded".to_owned(),
        ..finished("gpu-02", &second)
    };
    assert!(db.store.finish_window(&nothing, at(6)).await.unwrap());
    let again = ask("gpu-04", record(&["modify_qp"]));
    assert!(db.lease(&again, 9, 7).await.is_ok());
}

#[tokio::test]
async fn a_failing_call_is_captured_once_beside_the_best_baseline() {
    let db = Database::new().await;
    let without = ask("gpu-01", capture(14, false));
    assert_eq!(db.lease(&without, 9, 0).await, Err(NoLease::NoBaseline));
    for (host, calls) in [("gpu-07", 25), ("gpu-08", 3)] {
        let asked = ask(host, record(&["reg_mr"]));
        // Each as if the other had none.
        db.sql("UPDATE rdmesh_store.baselines SET kernel_release = kernel_release || 'x'");
        let lease = db.lease(&asked, 9, 1).await.unwrap();
        let done = Finished {
            baselines: vec![baseline(host, "reg_mr", calls)],
            ..finished(host, &lease)
        };
        assert!(db.store.finish_window(&done, at(2)).await.unwrap());
    }
    db.sql("UPDATE rdmesh_store.baselines SET kernel_release = '6.12'");
    let lease = db.lease(&without, 9, 3).await.unwrap();
    assert_eq!(lease.baseline, Some(baseline("gpu-07", "reg_mr", 25)));
    let other = ask("gpu-02", capture(14, true));
    assert_eq!(db.lease(&other, 9, 4).await, Err(NoLease::Captured));
    let found = db.store.fork_of(signature(14).id(), &[]).await.unwrap();
    assert_eq!(found, None);
    let done = Finished {
        fork: Some(seen(14)),
        ..finished("gpu-01", &lease)
    };
    assert!(db.store.finish_window(&done, at(5)).await.unwrap());
    assert_eq!(db.lease(&other, 9, 6).await, Err(NoLease::Captured));
    let hosts = ["gpu-05".to_owned()];
    let found = db.store.fork_of(signature(14).id(), &hosts).await.unwrap();
    let found = found.unwrap();
    assert_eq!(
        (found.host.as_str(), found.kernel_release.as_str()),
        ("gpu-01", "6.12")
    );
    assert_eq!(found.seen, seen(14));
    assert_eq!(
        db.store.fork_of(signature(12).id(), &hosts).await.unwrap(),
        None
    );
    assert_eq!(
        db.read(
            "SELECT host, function, depth, errno_name, baseline_host, call_errno FROM rdmesh.forks"
        ),
        "gpu-01|ib_umem_get|1|EFAULT|gpu-07|14"
    );
    // Its own baseline goes before the fleet's.
    let own = ask("gpu-02", capture(12, true));
    assert_eq!(db.lease(&own, 9, 7).await.unwrap().baseline, None);
}

#[tokio::test]
async fn a_failing_call_that_no_window_sees_is_given_up() {
    let db = Database::new().await;
    for host in 0..TRIES {
        let host = format!("gpu-{host}");
        let asked = ask(&host, capture(14, true));
        let lease = db.lease(&asked, 9, 1).await.unwrap();
        let nothing = Finished {
            failure: "no such call came".to_owned(),
            ..finished(&host, &lease)
        };
        assert!(db.store.finish_window(&nothing, at(60)).await.unwrap());
    }
    let more = ask("gpu-09", capture(14, true));
    assert_eq!(db.lease(&more, 9, 100).await, Err(NoLease::NotSeen));
}

#[tokio::test]
async fn whoever_asks_again_gives_the_last_one_back_and_an_hour_has_an_end() {
    let db = Database::new().await;
    let asked = ask("gpu-01", record(&["reg_mr"]));
    let first = db.lease(&asked, 1, 0).await.unwrap();
    // It never heard the answer, or it restarted: one place is enough for it.
    let second = db.lease(&asked, 1, 1).await.unwrap();
    assert_ne!(first.id, second.id);
    assert!(
        !db.store
            .finish_window(&finished("gpu-01", &first), at(2))
            .await
            .unwrap()
    );
    for second in 2..HOST_WINDOWS_AN_HOUR {
        assert!(db.lease(&asked, 1, second).await.is_ok());
    }
    assert_eq!(db.lease(&asked, 1, 10).await, Err(NoLease::HostBusy));
    let other = ask("gpu-02", record(&["reg_mr"]));
    assert!(db.lease(&other, 1, 11).await.is_ok());
    db.lease(&other, 1, 12).await.unwrap();
    let end = db.lease(&other, 1, 13).await.unwrap();
    let nothing = Finished {
        failure: "x".to_owned(),
        ..finished("gpu-02", &end)
    };
    assert!(db.store.finish_window(&nothing, at(14)).await.unwrap());
    assert!(db.lease(&asked, 1, 3_610).await.is_ok());
}

#[tokio::test]
async fn old_rows_go_with_the_rest() {
    let db = Database::new().await;
    let asked = ask("gpu-01", capture(14, true));
    let lease = db.lease(&asked, 9, 0).await.unwrap();
    let done = Finished {
        fork: Some(seen(14)),
        baselines: vec![baseline("gpu-01", "reg_mr", 3)],
        ..finished("gpu-01", &lease)
    };
    assert!(db.store.finish_window(&done, at(5)).await.unwrap());
    let counts =
        "SELECT (SELECT count(*) FROM rdmesh.baselines), (SELECT count(*) FROM rdmesh.forks)";
    let day = std::time::Duration::from_secs(24 * 3600);
    db.store.retain(at(3_600), day).await.unwrap();
    assert_eq!(db.read(counts), "1|1");
    db.store.retain(at(3 * 24 * 3600), day).await.unwrap();
    assert_eq!(db.read(counts), "0|0");
    assert_eq!(
        db.sql("SELECT count(*) FROM rdmesh_store.window_leases"),
        "0"
    );
    assert!(db.lease(&asked, 9, 3 * 24 * 3600).await.is_ok());
}

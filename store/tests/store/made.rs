//! A database for a test, and items to put into it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rdmesh_store::ingest::{
    Chain, ClockEstimate, Content, Count, Dropped, Heartbeat, Hello, Identity, Interval, Item,
    RunKey, Snapshot, Step, WireWindow,
};
use rdmesh_store::jobs::{AttemptKey, Placement, Start};
use rdmesh_store::query::{Failure, FailureFilter};
use rdmesh_store::{ReaderRole, Store, StoreOptions};
use rdmesh_test_postgres::Cluster;
use sqlx::types::Uuid;
use time::OffsetDateTime;
use time::macros::datetime;

/// One for the process; its guardian removes it when the process ends.
pub(crate) fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| Cluster::start().expect("a private Postgres"))
}

pub(crate) struct Database {
    pub(crate) name: String,
    pub(crate) store: Store,
}

impl Database {
    pub(crate) async fn new() -> Self {
        let name = cluster().new_database().unwrap();
        let store = open(&cluster().url(&name));
        assert_eq!(store.migrate().await.unwrap(), ReaderRole::Ready);
        Self { name, store }
    }

    /// One value or several lines, as the read-only role sees them.
    pub(crate) fn read(&self, sql: &str) -> String {
        cluster()
            .psql(&self.name, "rdmesh_reader", sql)
            .unwrap()
            .trim()
            .to_owned()
    }

    /// Failures, all of them in one page.
    pub(crate) async fn failures(&self, filter: &FailureFilter) -> Vec<Failure> {
        let page = self.store.list_failures(filter, usize::MAX).await.unwrap();
        page.failures
    }

    /// As the owner sees them.
    pub(crate) fn sql(&self, sql: &str) -> String {
        cluster()
            .psql(&self.name, "rdmesh", sql)
            .unwrap()
            .trim()
            .to_owned()
    }
}

pub(crate) fn open(url: &str) -> Store {
    Store::new(&StoreOptions {
        url: url.to_owned(),
        connections: 4,
        acquire_timeout: Duration::from_secs(20),
    })
    .unwrap()
}

pub(crate) const NOW: OffsetDateTime = datetime!(2026-11-25 12:00 UTC);

pub(crate) fn at(seconds: i64) -> OffsetDateTime {
    NOW + time::Duration::seconds(seconds)
}

/// Boot clock of every made host at [`NOW`].
const BOOT_NS_AT_NOW: i64 = 1_000_000_000_000;

pub(crate) fn run(host: &str, number: u128) -> Arc<RunKey> {
    Arc::new(RunKey {
        host: host.to_owned(),
        agent: 1,
        run_id: Uuid::from_u128(number),
    })
}

pub(crate) fn clock() -> ClockEstimate {
    let now_ns = i64::try_from(NOW.unix_timestamp_nanos()).unwrap();
    ClockEstimate {
        boot_epoch_ns: now_ns - BOOT_NS_AT_NOW,
        offset_ns: 1_500_000,
        jumps: 0,
    }
}

pub(crate) async fn hello(store: &Store, run: &RunKey) -> i64 {
    let hello = Hello {
        certificate_ends_at: None,
        run: run.clone(),
        boot_id: "b".into(),
        version: "0.1.0".into(),
        address: String::new(),
        started_at: NOW,
        received_at: NOW,
        clock: Some(clock()),
    };
    store.hello(&hello).await.unwrap()
}

fn interval(seconds: i64) -> Interval {
    let from_boot_ns = BOOT_NS_AT_NOW + seconds * 1_000_000_000;
    Interval {
        from_boot_ns,
        to_boot_ns: from_boot_ns + 5_000_000_000,
    }
}

pub(crate) fn item(run: &Arc<RunKey>, sequence: i64, content: Content) -> Item {
    Item {
        run: run.clone(),
        sequence,
        received_at: at(sequence * 5),
        clock: Some(clock()),
        content,
    }
}

pub(crate) fn heartbeat(run: &Arc<RunKey>, sequence: i64) -> Item {
    let beat = Heartbeat {
        interval: interval(sequence * 5),
        inventory_id: "inv".into(),
        given_up: 0,
    };
    item(run, sequence, Content::Heartbeat(beat))
}

pub(crate) fn nobody() -> Identity {
    Identity {
        job_id: None,
        requeue: 0,
        restart: 0,
        source: 4,
    }
}

pub(crate) fn named(job: &str, requeue: i64, source: i16) -> Identity {
    Identity {
        job_id: Some(job.to_owned()),
        requeue,
        restart: 0,
        source,
    }
}

pub(crate) fn chain(first_at: OffsetDateTime, identity: Identity) -> Chain {
    let step = |function: &str, module: &str, layer| Step {
        function: function.into(),
        module: module.into(),
        layer,
        errno: 14,
    };
    Chain {
        first_at,
        last_at: first_at + Duration::from_millis(10),
        host_first_at: first_at,
        host_last_at: first_at,
        count: 3,
        verb: 2,
        steps: vec![
            step("ib_umem_get", "ib_uverbs", 1),
            step("rxe_reg_user_mr", "rdma_rxe", 3),
            step("ib_uverbs_reg_mr", "ib_uverbs", 5),
        ],
        driver: "rdma_rxe".into(),
        device: "rxe0".into(),
        netdev: "eth0".into(),
        pci_address: String::new(),
        tgid: 100,
        tid: 4_000_000_000,
        comm: "rank".into(),
        cgroup_path: "/job".into(),
        identity,
        rank: Some(0),
        local_rank: None,
        expected: false,
        swallowed: false,
        incomplete: false,
        marks: vec!["a \"quoted\" mark".into()],
        arguments: Some("{\"mapping\": \"none\"}".into()),
    }
}

pub(crate) fn snapshot(
    run: &Arc<RunKey>,
    sequence: i64,
    chains: Vec<Chain>,
    counts: Vec<Count>,
    drops: Vec<Dropped>,
) -> Item {
    let snapshot = Snapshot {
        interval: interval(sequence * 5),
        started_at: at(sequence * 5),
        ended_at: at(sequence * 5 + 5),
        inventory_id: "inv".into(),
        given_up: 0,
        chains_left_out: 0,
        marks: vec![],
        chains,
        counts,
        drops,
        co_signals: vec![],
        body: vec![1, 2, 3],
        reference_seq: None,
    };
    item(run, sequence, Content::Snapshot(Box::new(snapshot)))
}

pub(crate) fn count(cgroup: Option<(String, Identity)>, delta: i64) -> Count {
    Count {
        function: "ib_umem_get".into(),
        module: "ib_uverbs".into(),
        layer: 1,
        errno: 14,
        cgroup,
        delta,
        total: delta,
    }
}

pub(crate) fn attempt(job: &str, requeue: u32) -> AttemptKey {
    AttemptKey {
        job_id: job.into(),
        requeue,
        restart: 0,
    }
}

pub(crate) fn placed_on(host: &str) -> Placement {
    Placement {
        host: host.into(),
        ranks: vec![0, 4_000_000_000],
        devices: vec!["mlx5_0".into(), "mlx5_1".into()],
        gpus: vec![],
        virtual_functions: vec![],
    }
}

pub(crate) fn start(job: &str, requeue: u32, at: Option<OffsetDateTime>, hosts: &[&str]) -> Start {
    Start {
        attempt: attempt(job, requeue),
        name: "train".into(),
        user: "ada".into(),
        scheduler: "slurm".into(),
        cluster: "c1".into(),
        job_class: "training".into(),
        started_at: at,
        placements: hosts.iter().map(|host| placed_on(host)).collect(),
        labels: "{\"team\": \"x\"}".into(),
    }
}

/// A valid window of `w0`, which shapes `vf0` of gpu-09.
pub(crate) fn wire_window(from: i64, to: i64) -> WireWindow {
    WireWindow {
        from_at: at(from),
        to_at: at(to),
        wire: "w0".into(),
        shaped_host: "gpu-09".into(),
        virtual_function: "vf0".into(),
        rate_bps: 1_000_000_000,
        configured_rate_bps: 25_000_000_000,
        expires_at: None,
        policy_generation: 1,
        sent_frames: 10,
        sent_bits: 12_000,
        queue_frames_now: 1,
        queue_frames_p50: 2,
        queue_frames_p99: 3,
        queue_frames_max: 4,
        waited_ns_p50: 5,
        waited_ns_p99: 6,
        waited_ns_max: 7,
        catch_up_used_ps: 8,
        lost_ps: 9,
        ce_marks: 10,
        imissed: 11,
        rx_nombuf: 12,
        tx_not_accepted: 13,
        full_polls: 14,
        longest_poll_gap_ns: 15,
        poll_gap_buckets: vec![0, 16, 17],
        repeated_frames: 18,
        repeated_bytes: 19,
        windows_given_up: 0,
        invalid: vec![],
        bypass: false,
        engine_version: "1".into(),
        configuration_hash: "h".into(),
        marks: vec![],
        body: vec![9],
    }
}

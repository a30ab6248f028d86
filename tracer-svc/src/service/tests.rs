//! The pipeline with events that a test makes, an uplink and a server over real
//! sockets.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdmesh_proto::collector::v1::ingest_service_server::{IngestService, IngestServiceServer};
use rdmesh_proto::collector::v1::{
    Ack, ReportRequest, ReportResponse, report_request, report_response,
};
use rdmesh_proto::common::v1::{AgentKind, ClockPair};
use rdmesh_proto::tracer::v1::tracer_service_client::TracerServiceClient;
use rdmesh_proto::tracer::v1::tracer_service_server::TracerServiceServer;
use rdmesh_proto::tracer::v1::watch_failures_response::Event as Watched;
use rdmesh_proto::tracer::v1::{
    GetProbeReportRequest, ProbeState as WireState, WatchFailuresRequest,
};
use rdmesh_services::host::clock_pair;
use rdmesh_services::server::{Server, ServerConfig, bind};
use rdmesh_services::shutdown::channel;
use rdmesh_services::uplink::{Identity as Agent, Item, Uplink, UplinkConfig};
use tokio::sync::{Notify, mpsc};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::kernel::Kernel;
use super::pipeline::{Outputs, Pipeline, Settings};
use super::{
    Feed, Figures, TracerGrpc, failure_line, probe_report, report_json, report_table, run,
};
use crate::catalogue::{Catalogue, ExpectedRules};
use crate::counters::{Counters, ErrorCount, ProbeLosses};
use crate::host::Roots;
use crate::loader::LoadError;
use crate::record::{
    ARG_WORDS, ArgsKind, COMM_BYTES, DEVICE_BYTES, DecodeError, Event, Identity, ProbeId, Record,
    STACK_DEPTH,
};
use crate::resolve::{Found, HookReport, HookState, Mechanism, Missing, Probe, ProbeState, Report};

/// No test waits longer for something that should happen at once.
const DEADLINE: Duration = Duration::from_secs(20);

const UMEM: u16 = 0;
const DRIVER: u16 = 1;
const UVERBS: u16 = 2;

fn report() -> Report {
    let hooks = Catalogue::built_in().unwrap().hooks;
    let find = |name: &str| hooks.iter().find(|h| h.name == name).unwrap().clone();
    let probe = |id: u16, hook: &str, module: &str, function: &str, found| Probe {
        id: ProbeId(id),
        hook: find(hook),
        module: module.to_owned(),
        function: function.to_owned(),
        role: crate::catalogue::Role::Main,
        found,
        state: ProbeState::Attached(Mechanism::Fexit),
    };
    let served = |id: u16, hook: &str| HookReport {
        hook: find(hook),
        state: HookState::Attached,
        probes: vec![ProbeId(id)],
        gaps: Vec::new(),
    };
    Report {
        probes: vec![
            probe(
                UMEM,
                "memory.umem",
                "ib_core",
                "ib_umem_get_desc",
                Found::Name,
            ),
            probe(
                DRIVER,
                "driver.reg_mr",
                "rdma_rxe",
                "rxe_reg_user_mr",
                Found::OpsTable,
            ),
            probe(
                UVERBS,
                "uverbs.reg_mr",
                "ib_uverbs",
                "ib_uverbs_reg_mr",
                Found::Name,
            ),
        ],
        hooks: vec![
            served(UVERBS, "uverbs.reg_mr"),
            served(DRIVER, "driver.reg_mr"),
            HookReport {
                hook: find("driver.reg_dmabuf_mr"),
                state: HookState::Missing(vec![Missing::NoOperation {
                    module: "rdma_rxe".to_owned(),
                    operation: "reg_user_mr_dmabuf".to_owned(),
                }]),
                probes: Vec::new(),
                gaps: Vec::new(),
            },
            HookReport {
                hook: find("memory.umem"),
                state: HookState::Replaced {
                    by: vec!["ib_core:ib_umem_get_desc".to_owned()],
                },
                probes: vec![ProbeId(UMEM)],
                gaps: Vec::new(),
            },
        ],
    }
}

fn record(probe: u16, boot_ns: u64) -> Record {
    let mut device = [0; DEVICE_BYTES];
    device[..4].copy_from_slice(b"rxe0");
    Record {
        boot_ns,
        probe: ProbeId(probe),
        errno: 14,
        tgid: 4_000_000,
        tid: 4_000_001,
        start_boot_ns: 5,
        comm: *b"python\x1b\0\0\0\0\0\0\0\0\0",
        cgroup_id: 44,
        device,
        object: 0,
        entry: 7,
        drops_so_far: 0,
        stack: [0; STACK_DEPTH],
        args_kind: ArgsKind::None,
        args: [0; ARG_WORDS],
    }
}

fn failing_call(boot_ns: u64) -> Vec<Event> {
    [UMEM, DRIVER, UVERBS]
        .into_iter()
        .zip(boot_ns..)
        .map(|(probe, at)| Event::Record(record(probe, at)))
        .collect()
}

fn identity() -> Event {
    Event::Identity(Box::new(Identity {
        boot_ns: 1,
        tgid: 4_000_000,
        start_boot_ns: 5,
        comm: [0; COMM_BYTES],
        cgroup_id: 44,
        environ: b"AWS_SECRET=hidden\0RDMESH_JOB_ID=demo\0RDMESH_ATTEMPT=1\0RANK=3\0".to_vec(),
        environ_cut: false,
        cgroup_path: b"/work/demo".to_vec(),
        cgroup_cut: false,
    }))
}

/// A kernel that a test plays.
#[derive(Clone, Default)]
struct Played {
    state: Arc<Mutex<PlayedState>>,
    woken: Arc<Notify>,
    report: Report,
}

#[derive(Default)]
struct PlayedState {
    events: VecDeque<Event>,
    counters: Counters,
    after_refresh: Option<Report>,
}

impl Played {
    fn new(report: Report) -> Self {
        Self {
            report,
            ..Self::default()
        }
    }

    fn fail(&self, events: Vec<Event>) {
        self.state.lock().unwrap().events.extend(events);
        self.woken.notify_one();
    }

    fn count(&self, count: u64, dropped: u64) {
        let dropped = ProbeLosses {
            records_dropped: dropped,
            ..ProbeLosses::default()
        };
        self.state.lock().unwrap().counters = Counters {
            by_errno: vec![ErrorCount {
                probe: ProbeId(UVERBS),
                errno: 14,
                count,
            }],
            losses: vec![ProbeLosses::default(), ProbeLosses::default(), dropped],
            ..Counters::default()
        };
    }
}

impl Kernel for Played {
    async fn ready(&mut self) -> io::Result<()> {
        self.woken.notified().await;
        Ok(())
    }

    fn next(&mut self) -> Option<Result<Event, DecodeError>> {
        self.state.lock().unwrap().events.pop_front().map(Ok)
    }

    fn counters(&self) -> Result<Counters, LoadError> {
        Ok(self.state.lock().unwrap().counters.clone())
    }

    fn report(&self) -> &Report {
        &self.report
    }

    fn refresh(&mut self) -> Result<bool, LoadError> {
        let found = self.state.lock().unwrap().after_refresh.take();
        let changed = found.is_some();
        if let Some(found) = found {
            self.report = found;
        }
        Ok(changed)
    }
}

/// Keeps what was sent.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Item>>>);

impl Outputs for Kept {
    fn push(&mut self, item: Item) {
        self.0.lock().unwrap().push(item);
    }

    fn given_up(&self) -> u64 {
        3
    }
}

fn settings(root: &std::path::Path) -> Settings {
    Settings {
        roots: Roots {
            proc: root.join("proc"),
            sys: root.join("sys"),
        },
        clock: Box::new(|| ClockPair {
            boottime_ns: 10_000_000_000,
            realtime_ns: 1_800_000_000_000_000_000,
        }),
        rules: ExpectedRules::built_in().unwrap(),
        feed: Feed::default(),
        figures: Figures::new("6.1.0-test"),
    }
}

#[test]
fn events_become_one_message_with_the_job_of_a_process_that_is_gone() {
    let root = tempfile::tempdir().unwrap();
    let (kernel, sent) = (Played::new(report()), Kept::default());
    let mut pipeline = Pipeline::start(kernel.clone(), sent.clone(), settings(root.path()));
    kernel.fail(vec![identity()]);
    kernel.fail(failing_call(9_000_000_000));
    kernel.fail(failing_call(9_100_000_000));
    kernel.count(2, 0);
    pipeline.snapshot();
    pipeline.snapshot();

    let items = sent.0.lock().unwrap();
    assert!(matches!(items[0], Item::Inventory(_)));
    assert!(matches!(items[1], Item::ProbeReport(_)));
    let Item::Snapshot(snapshot) = &items[2] else {
        panic!("{:?}", items[2])
    };
    let chains = snapshot.chains.as_ref().unwrap();
    assert_eq!((&chains.count, &chains.marks), (&vec![2], &vec![0]));
    let tasks = snapshot.tasks.as_ref().unwrap();
    let text = |place: u32| String::from_utf8_lossy(&snapshot.strings[place as usize]).into_owned();
    assert_eq!(
        (text(tasks.job_id[0]), tasks.requeue[0], tasks.rank[0]),
        ("demo".to_owned(), 1, 3)
    );
    let signatures = snapshot.signatures.as_ref().unwrap();
    assert_eq!(
        (text(signatures.driver[0]), &signatures.steps),
        ("rdma_rxe".to_owned(), &vec![3])
    );
    assert_eq!(snapshot.counters.as_ref().unwrap().delta, [2]);
    assert_eq!(snapshot.snapshots_given_up, 3);
    assert!(
        !snapshot
            .strings
            .iter()
            .any(|s| s.windows(6).any(|w| w == b"hidden"))
    );
    let Item::Heartbeat(beat) = &items[3] else {
        panic!("{:?}", items[3])
    };
    assert_eq!(beat.interval_start_boot_ns, snapshot.interval_end_boot_ns);
    assert!(!beat.inventory_id.is_empty());
}

#[test]
fn a_module_that_appears_changes_the_report_once() {
    let root = tempfile::tempdir().unwrap();
    let (kernel, sent) = (Played::new(Report::default()), Kept::default());
    let mut pipeline = Pipeline::start(kernel.clone(), sent.clone(), settings(root.path()));
    kernel.state.lock().unwrap().after_refresh = Some(report());
    pipeline.refresh();
    pipeline.refresh();
    // Records of the new probes find their places.
    kernel.fail(failing_call(9_000_000_000));
    pipeline.snapshot();
    let items = sent.0.lock().unwrap();
    let reports: Vec<_> = items
        .iter()
        .filter_map(|i| match i {
            Item::ProbeReport(r) => Some((r.probes.len(), r.obstacle.is_empty())),
            _ => None,
        })
        .collect();
    assert_eq!(reports, [(0, false), (5, true)]);
    let Some(Item::Snapshot(snapshot)) = items.last() else {
        panic!("no snapshot")
    };
    assert_eq!(snapshot.chains.as_ref().unwrap().marks, [0]);
}

#[test]
fn lost_records_are_told_and_mark_the_chain_that_waits() {
    let root = tempfile::tempdir().unwrap();
    let (kernel, sent) = (Played::new(report()), Kept::default());
    let mut pipeline = Pipeline::start(kernel.clone(), sent.clone(), settings(root.path()));
    kernel.fail(vec![Event::Record(record(UMEM, 1_000))]);
    kernel.count(500, 499);
    pipeline.end();
    let items = sent.0.lock().unwrap();
    let Some(Item::Snapshot(snapshot)) = items.last() else {
        panic!("no snapshot")
    };
    assert_eq!(snapshot.chains.as_ref().unwrap().marks, [2 | 4]);
    assert_eq!(snapshot.drops.as_ref().unwrap().total, [499]);
    assert_eq!(snapshot.counters.as_ref().unwrap().total, [500]);
}

#[test]
fn the_report_as_a_table_and_as_json() {
    let counters = Counters {
        by_errno: vec![ErrorCount {
            probe: ProbeId(UVERBS),
            errno: 14,
            count: 12,
        }],
        ..Counters::default()
    };
    let told = probe_report(
        &report(),
        &counters,
        &["rdma_rxe".to_owned()],
        "6.1.0-test",
        Default::default(),
    );
    assert_eq!((told.logical_attached, told.logical_total), (3, 4));
    insta::assert_snapshot!("probe_table", report_table(&told));
    insta::assert_snapshot!("probe_json", format!("{:#}", report_json(&told)));
    let nothing = probe_report(
        &Report::default(),
        &Counters::default(),
        &[],
        "6.1.0-test",
        Default::default(),
    );
    assert!(
        nothing.obstacle.contains("no RDMA module is loaded"),
        "{}",
        nothing.obstacle
    );
}

/// The collector as far as an agent sees it: acknowledges everything.
struct Collector(mpsc::Sender<ReportRequest>);

#[tonic::async_trait]
impl IngestService for Collector {
    type ReportStream = ReceiverStream<Result<ReportResponse, Status>>;

    async fn report(
        &self,
        request: Request<Streaming<ReportRequest>>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        let (answers, stream) = mpsc::channel(16);
        let seen = self.0.clone();
        tokio::spawn(async move {
            let mut items = request.into_inner();
            while let Some(Ok(item)) = items.next().await {
                let ack = Ack {
                    sequence: item.sequence,
                    ..Ack::default()
                };
                if seen.send(item).await.is_err() {
                    return;
                }
                let answer = ReportResponse {
                    item: Some(report_response::Item::Ack(ack)),
                };
                if answers.send(Ok(answer)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

async fn next_item(seen: &mut mpsc::Receiver<ReportRequest>) -> report_request::Item {
    let request = tokio::time::timeout(DEADLINE, seen.recv())
        .await
        .expect("nothing came in time");
    request.expect("the stream ended").item.expect("an item")
}

#[tokio::test]
async fn a_failure_reaches_the_collector_and_those_who_watch() {
    let (seen_by_collector, mut seen) = mpsc::channel(64);
    let mut collector = Server::new();
    collector.add(IngestServiceServer::new(Collector(seen_by_collector)));
    let listener = bind(&ServerConfig::at(0)).await.unwrap();
    let address = listener.local_address().unwrap().to_string();
    let (stop_collector, collector_ending) = channel();
    tokio::spawn(async move {
        collector
            .serve(listener, collector_ending.requested(), DEADLINE)
            .await
    });

    let root = tempfile::tempdir().unwrap();
    let config = UplinkConfig {
        collector: address.parse().unwrap(),
        ..UplinkConfig::default()
    };
    let agent = Agent::new(AgentKind::Tracer, "gpu-1".to_owned(), "boot".to_owned());
    let uplink = Uplink::start(&config, move || agent.hello());
    let settings = Settings {
        clock: Box::new(clock_pair),
        ..settings(root.path())
    };
    let feed = settings.feed.clone();
    let mut server = Server::new();
    let service = TracerGrpc::new(
        settings.figures.clone(),
        settings.feed.clone(),
        server.ending(),
    );
    server.add(TracerServiceServer::new(service));
    let listener = bind(&ServerConfig::at(0)).await.unwrap();
    let address = listener.local_address().unwrap().to_string();
    let (stop, closing) = channel();
    let serving = tokio::spawn({
        let end = closing.clone();
        async move {
            server
                .serve(listener, end.requested(), DEADLINE)
                .await
                .map(|_| ())
        }
    });
    let kernel = Played::new(report());
    let pipeline = Pipeline::start(kernel.clone(), uplink.handle(), settings);
    let tracing = tokio::spawn(run(pipeline, Duration::from_millis(50), None, closing));

    let mut client = TracerServiceClient::connect(format!("http://{address}"))
        .await
        .unwrap();
    let told = client
        .get_probe_report(GetProbeReportRequest {})
        .await
        .unwrap()
        .into_inner()
        .report
        .unwrap();
    assert_eq!(
        told.probes
            .iter()
            .filter(|p| p.state() == WireState::Attached)
            .count(),
        3
    );
    let watch = client.watch_failures(WatchFailuresRequest::default());
    let mut watch = watch.await.unwrap().into_inner();

    assert!(matches!(
        next_item(&mut seen).await,
        report_request::Item::Hello(_)
    ));
    assert!(matches!(
        next_item(&mut seen).await,
        report_request::Item::Inventory(_)
    ));
    assert!(matches!(
        next_item(&mut seen).await,
        report_request::Item::ProbeReport(_)
    ));
    assert!(feed.is_watched());
    kernel.fail(vec![identity()]);
    kernel.fail(failing_call(clock_pair().boottime_ns));
    let watched = tokio::time::timeout(DEADLINE, watch.next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let Some(Watched::Failure(failure)) = watched.event else {
        panic!("{watched:?}")
    };
    let line = failure_line(&failure);
    let (_, line) = line.split_once(' ').unwrap();
    assert_eq!(
        line,
        "python\u{fffd}[4000000/4000001] ib_umem_get_desc EFAULT > rxe_reg_user_mr EFAULT > \
         ib_uverbs_reg_mr EFAULT on rxe0 job demo/1"
    );
    assert_eq!(failure.cgroup_path, "/work/demo");
    let snapshot = loop {
        match next_item(&mut seen).await {
            report_request::Item::Snapshot(snapshot) => break snapshot,
            report_request::Item::Heartbeat(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(snapshot.chains.unwrap().count, [1]);

    // What fails right before the end is still sent.
    kernel.fail(failing_call(clock_pair().boottime_ns));
    stop.fire();
    tokio::time::timeout(DEADLINE, tracing)
        .await
        .unwrap()
        .unwrap();
    assert!(uplink.drain(DEADLINE).await.is_complete());
    tokio::time::timeout(DEADLINE, serving)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let last = loop {
        match next_item(&mut seen).await {
            report_request::Item::Snapshot(snapshot) => break snapshot,
            report_request::Item::Heartbeat(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(last.chains.unwrap().count, [1]);
    // The stream ends with the server.
    let rest = tokio::time::timeout(DEADLINE, watch.collect::<Vec<_>>())
        .await
        .unwrap();
    assert!(rest.len() <= 1, "{rest:?}");
    stop_collector.fire();
}

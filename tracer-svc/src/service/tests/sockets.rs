//! From an event to a collector and a watcher, over real sockets.

use std::time::Duration;

use rdmesh_proto::collector::v1::ingest_service_server::{IngestService, IngestServiceServer};
use rdmesh_proto::collector::v1::{
    Ack, ReportRequest, ReportResponse, report_request, report_response,
};
use rdmesh_proto::common::v1::AgentKind;
use rdmesh_proto::tracer::v1::tracer_service_client::TracerServiceClient;
use rdmesh_proto::tracer::v1::tracer_service_server::TracerServiceServer;
use rdmesh_proto::tracer::v1::watch_failures_response::Event as Watched;
use rdmesh_proto::tracer::v1::{
    AttachProbesRequest, DetachProbesRequest, DiffBaselineRequest, GetProbeReportRequest,
    ListBaselinesRequest, ProbeState, RecordBaselineRequest, Snapshot, WatchFailuresRequest,
    WindowPhase, diff_baseline_response, record_baseline_response,
};
use rdmesh_services::host::clock_pair;
use rdmesh_services::server::{Server, ServerConfig, bind};
use rdmesh_services::shutdown::{Closing, channel};
use rdmesh_services::uplink::{Identity, Uplink, UplinkConfig};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use super::played::{Played, failing_call, identity, report, settings};
use crate::service::pipeline::{Pipeline, Settings};
use crate::service::{TracerGrpc, failure_line, orders, run};
use crate::window::played::Played as PlayedField;
use crate::window::{Shelf, Windows};

/// No test waits longer for something that should happen at once.
const DEADLINE: Duration = Duration::from_secs(20);

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

/// The next message with failures.
async fn next_snapshot(seen: &mut mpsc::Receiver<ReportRequest>) -> Snapshot {
    loop {
        match next_item(seen).await {
            report_request::Item::Snapshot(snapshot) => return snapshot,
            report_request::Item::Heartbeat(_) | report_request::Item::ProbeReport(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Serves on a free port until the end is asked for; returns the address.
async fn serve(server: Server, end: Closing) -> String {
    let listener = bind(&ServerConfig::at(0)).await.unwrap();
    let address = listener.local_address().unwrap().to_string();
    tokio::spawn(async move { server.serve(listener, end.requested(), DEADLINE).await });
    address
}

#[tokio::test]
async fn a_failure_reaches_the_collector_and_those_who_watch() {
    let (seen_by_collector, mut seen) = mpsc::channel(64);
    let mut collector = Server::new();
    collector.add(IngestServiceServer::new(Collector(seen_by_collector)));
    let (stop_collector, collector_ending) = channel();
    let config = UplinkConfig {
        collector: serve(collector, collector_ending).await.parse().unwrap(),
        ..UplinkConfig::default()
    };
    let agent = Identity::new(AgentKind::Tracer, "gpu-1".to_owned(), "boot".to_owned());
    let uplink = Uplink::start(&config, move || agent.hello());

    let root = tempfile::tempdir().unwrap();
    let settings = Settings {
        clock: Box::new(clock_pair),
        ..settings(root.path())
    };
    let mut server = Server::new();
    let (orders_in, orders_out) = orders();
    let field = PlayedField::default();
    let windows = Windows::new(
        field.clone(),
        Shelf::at(&root.path().join("baselines")),
        server.ending(),
    );
    let service = TracerGrpc::new(
        settings.figures.clone(),
        settings.feed.clone(),
        orders_in,
        windows,
        server.ending(),
    );
    server.add(TracerServiceServer::new(service));
    let (stop, closing) = channel();
    let address = serve(server, closing.clone()).await;
    let kernel = Played::new(report());
    let pipeline = Pipeline::start(kernel.clone(), uplink.handle(), settings);
    let tracing = tokio::spawn(run(
        pipeline,
        Duration::from_millis(50),
        None,
        Some(orders_out),
        closing,
    ));

    let mut client = TracerServiceClient::connect(format!("http://{address}"))
        .await
        .unwrap();
    let answer = client
        .get_probe_report(GetProbeReportRequest {})
        .await
        .unwrap();
    let told = answer.into_inner().report.unwrap();
    let attached = told
        .probes
        .iter()
        .filter(|p| p.state() == ProbeState::Attached);
    assert_eq!(attached.count(), 3);
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
    kernel.fail(vec![identity()]);
    kernel.fail(failing_call(clock_pair().boottime_ns));
    let watched = timeout(DEADLINE, watch.next())
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
    assert_eq!(next_snapshot(&mut seen).await.chains.unwrap().count, [1]);

    let detached = client
        .detach_probes(DetachProbesRequest {
            module: "rdma_rxe".to_owned(),
        })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(detached.detached, 1);
    let states = detached.report.unwrap().probes;
    let of_driver = states.iter().find(|p| p.module == "rdma_rxe").unwrap();
    assert_eq!(of_driver.state(), ProbeState::Detached);
    let slip = client.detach_probes(DetachProbesRequest {
        module: "mlx9_ib".to_owned(),
    });
    let slip = slip.await.unwrap_err();
    assert!(slip.message().contains("ib_core, ib_uverbs"), "{slip:?}");
    let back = client.attach_probes(AttachProbesRequest::default());
    assert_eq!(back.await.unwrap().into_inner().attached, 1);

    baselines(&mut client, &field).await;

    // What fails right before the end is still sent, and the stream ends.
    kernel.fail(failing_call(clock_pair().boottime_ns));
    stop.fire();
    timeout(DEADLINE, tracing).await.unwrap().unwrap();
    assert!(uplink.drain(DEADLINE).await.is_complete());
    assert_eq!(next_snapshot(&mut seen).await.chains.unwrap().count, [1]);
    let rest = timeout(DEADLINE, watch.collect::<Vec<_>>()).await.unwrap();
    assert!(rest.len() <= 1, "{rest:?}");
    stop_collector.fire();
}

/// Good calls are recorded, listed, and failing ones laid beside them.
async fn baselines(client: &mut TracerServiceClient<Channel>, field: &PlayedField) {
    field.call(0, 0);
    let verbs = vec!["reg_mr".to_owned()];
    let request = RecordBaselineRequest {
        verbs: verbs.clone(),
        seconds: 1,
        driver: String::new(),
    };
    let events = client.record_baseline(request).await.unwrap().into_inner();
    let events: Vec<_> = timeout(DEADLINE, events.collect()).await.unwrap();
    let mut phases = Vec::new();
    let mut recorded = None;
    for event in events {
        match event.unwrap().event.unwrap() {
            record_baseline_response::Event::Progress(p) => phases.push(p.phase()),
            record_baseline_response::Event::Baseline(b) => recorded = Some(b),
        }
    }
    assert_eq!(phases.first(), Some(&WindowPhase::Finding));
    assert_eq!(phases.last(), Some(&WindowPhase::Ended));
    let recorded = recorded.unwrap();
    let nodes: Vec<_> = recorded
        .nodes
        .iter()
        .map(|n| (n.depth, n.function.as_str(), n.calls))
        .collect();
    assert_eq!(nodes, [(0, "ib_uverbs_reg_mr", 1), (1, "pin", 1)]);

    let list = client.list_baselines(ListBaselinesRequest {
        verb: "reg_mr".to_owned(),
        nodes: true,
    });
    assert_eq!(list.await.unwrap().into_inner().baselines, [recorded]);
    let none = client.list_baselines(ListBaselinesRequest {
        verb: "create_cq".to_owned(),
        nodes: true,
    });
    assert_eq!(none.await.unwrap().into_inner().baselines, []);

    field.call(14, 22);
    let request = DiffBaselineRequest {
        verbs,
        seconds: 1,
        driver: String::new(),
    };
    let events = client.diff_baseline(request).await.unwrap().into_inner();
    let events: Vec<_> = timeout(DEADLINE, events.collect()).await.unwrap();
    let forks: Vec<_> = events
        .into_iter()
        .filter_map(|event| match event.unwrap().event.unwrap() {
            diff_baseline_response::Event::Fork(fork) => Some(fork),
            diff_baseline_response::Event::Progress(_) => None,
        })
        .collect();
    let [fork] = forks.as_slice() else {
        panic!("{forks:?}")
    };
    assert_eq!(fork.path, ["ib_uverbs_reg_mr", "pin"]);
    assert_eq!(
        (fork.errno_name.as_str(), fork.call_errno_name.as_str()),
        ("EFAULT", "EINVAL")
    );
    let steps: Vec<_> = fork.trace.iter().map(|s| (s.depth, s.errno)).collect();
    assert_eq!(steps, [(0, 22), (1, 14)]);
    let wrong = client.diff_baseline(DiffBaselineRequest {
        seconds: 301,
        ..DiffBaselineRequest::default()
    });
    assert_eq!(
        wrong.await.unwrap_err().code(),
        tonic::Code::InvalidArgument
    );
}

//! A server as grpcurl, a health checker and an operator meet it.
#![allow(missing_docs, clippy::unwrap_used)]

use std::pin::Pin;
use std::time::Duration;

use rdmesh_proto::collector::v1::ingest_service_client::IngestServiceClient;
use rdmesh_proto::collector::v1::ingest_service_server::{IngestService, IngestServiceServer};
use rdmesh_proto::collector::v1::{ReportRequest, ReportResponse, report_request};
use rdmesh_proto::tracer::v1::Snapshot;
use rdmesh_services::limited;
use rdmesh_services::server::{Listener, MAX_REQUEST_BYTES, Server, ServerError};
use rdmesh_services::shutdown::{self, Budget, Closing, Trigger};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const DEADLINE: Duration = Duration::from_secs(20);

async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(output) => output,
        Err(_) => panic!("not within {DEADLINE:?}: {what}"),
    }
}

/// Answers nothing; its streams end when the server says so, or never.
struct Ingest {
    ending: Option<Closing>,
    received: mpsc::UnboundedSender<Result<ReportRequest, Status>>,
}

#[tonic::async_trait]
impl IngestService for Ingest {
    type ReportStream = Pin<Box<dyn Stream<Item = Result<ReportResponse, Status>> + Send>>;

    async fn report(
        &self,
        request: Request<Streaming<ReportRequest>>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        let mut incoming = request.into_inner();
        let received = self.received.clone();
        let ending = self.ending.clone();
        let (out, stream) = mpsc::channel(1);
        tokio::spawn(async move {
            let until_end = async {
                match ending {
                    Some(ending) => ending.requested().await,
                    None => std::future::pending().await,
                }
            };
            let read = async {
                while let Some(request) = incoming.next().await {
                    let _ = received.send(request);
                }
            };
            tokio::select! { () = until_end => {} () = read => {} }
            drop(out);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}

struct Running {
    channel: Channel,
    stop: Trigger,
    task: JoinHandle<Result<Budget, ServerError>>,
    received: mpsc::UnboundedReceiver<Result<ReportRequest, Status>>,
}

/// A server with an ingest service; its streams end in time when `orderly`.
async fn running(orderly: bool, grace: Duration) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let mut server = Server::new();
    let (received_in, received) = mpsc::unbounded_channel();
    let ending = orderly.then(|| server.ending());
    server.add(limited!(IngestServiceServer::new(Ingest {
        ending,
        received: received_in
    })));
    let (stop, closing) = shutdown::channel();
    let task = tokio::spawn(async move {
        server
            .serve(listener, async move { closing.requested().await }, grace)
            .await
    });
    let channel = soon("connect", Endpoint::from_shared(uri).unwrap().connect())
        .await
        .unwrap();
    Running {
        channel,
        stop,
        task,
        received,
    }
}

async fn report(
    channel: &Channel,
    first: ReportRequest,
) -> (mpsc::Sender<ReportRequest>, Streaming<ReportResponse>) {
    let (requests, stream) = mpsc::channel(4);
    requests.send(first).await.unwrap();
    let mut client = IngestServiceClient::new(channel.clone());
    let responses = soon("open", client.report(ReceiverStream::new(stream)))
        .await
        .unwrap();
    (requests, responses.into_inner())
}

#[tokio::test]
async fn health_knows_the_server_and_each_service() {
    let server = running(true, DEADLINE).await;
    let mut health = HealthClient::new(server.channel.clone());
    for service in ["", "rdmesh.collector.v1.IngestService"] {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let answer = health.check(request).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
    }
    let request = HealthCheckRequest {
        service: "rdmesh.shaper.v1.ShaperService".to_owned(),
    };
    assert_eq!(
        health.check(request).await.unwrap_err().code(),
        Code::NotFound
    );
}

const LISTED: [&str; 4] = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "rdmesh.collector.v1.IngestService",
];

macro_rules! reflection_test {
    ($name:ident, $version:ident) => {
        #[tokio::test]
        async fn $name() {
            use tonic_reflection::pb::$version::ServerReflectionRequest;
            use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
            use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
            use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;

            let server = running(true, DEADLINE).await;
            let mut client = ServerReflectionClient::new(server.channel.clone());
            let asked = [
                MessageRequest::ListServices(String::new()),
                MessageRequest::FileContainingSymbol("grpc.health.v1.Health".to_owned()),
                MessageRequest::FileContainingSymbol(LISTED[3].to_owned()),
            ];
            let requests = asked.map(|message_request| ServerReflectionRequest {
                host: String::new(),
                message_request: Some(message_request),
            });
            let stream = client
                .server_reflection_info(tokio_stream::iter(requests))
                .await;
            let mut stream = stream.unwrap().into_inner();
            let listed = stream.message().await.unwrap().unwrap().message_response;
            let Some(MessageResponse::ListServicesResponse(list)) = listed else {
                panic!()
            };
            let mut names: Vec<String> = list.service.into_iter().map(|s| s.name).collect();
            names.sort();
            assert_eq!(names, LISTED);
            for _ in 0..2 {
                let file = stream.message().await.unwrap().unwrap().message_response;
                assert!(matches!(
                    file,
                    Some(MessageResponse::FileDescriptorResponse(_))
                ));
            }
        }
    };
}

reflection_test!(reflection_v1_lists_and_describes_all_that_is_served, v1);
reflection_test!(
    reflection_v1alpha_lists_and_describes_all_that_is_served,
    v1alpha
);

#[tokio::test]
async fn a_message_over_the_limit_is_refused_and_the_server_lives() {
    let mut server = running(true, DEADLINE).await;
    let item = Snapshot {
        strings: vec![vec![0; MAX_REQUEST_BYTES]],
        ..Default::default()
    };
    let item = Some(report_request::Item::Snapshot(item));
    let (_requests, _responses) =
        report(&server.channel, ReportRequest { sequence: 1, item }).await;
    let got = soon("the refusal", server.received.recv()).await.unwrap();
    assert_eq!(got.unwrap_err().code(), Code::OutOfRange);
    let mut health = HealthClient::new(server.channel.clone());
    health.check(HealthCheckRequest::default()).await.unwrap();
}

#[tokio::test]
async fn the_end_says_not_serving_then_ends_streams_and_refuses_newcomers() {
    let mut server = running(true, DEADLINE).await;
    let (_requests, mut responses) = report(
        &server.channel,
        ReportRequest {
            sequence: 1,
            item: None,
        },
    )
    .await;
    soon("the request", server.received.recv())
        .await
        .unwrap()
        .unwrap();
    let mut health = HealthClient::new(server.channel.clone());
    let watch = health.watch(HealthCheckRequest::default()).await.unwrap();
    let mut watch = watch.into_inner();
    assert_eq!(
        watch.message().await.unwrap().unwrap().status(),
        ServingStatus::Serving
    );

    let began = tokio::time::Instant::now();
    server.stop.fire();
    let word = soon("not serving", watch.message()).await.unwrap().unwrap();
    assert_eq!(word.status(), ServingStatus::NotServing);
    assert!(
        soon("the watch ends", watch.message())
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        soon("the stream ends", responses.message())
            .await
            .unwrap()
            .is_none()
    );
    let budget = soon("the server ends", server.task).await.unwrap().unwrap();
    assert!(began.elapsed() < DEADLINE);
    assert_eq!(budget.step("flush", async { 1 }).await, Some(1));
    let mut late = HealthClient::new(server.channel);
    assert_eq!(
        late.check(HealthCheckRequest::default())
            .await
            .unwrap_err()
            .code(),
        Code::Unavailable
    );
}

#[tokio::test]
async fn a_stream_that_does_not_end_is_cut_after_the_grace() {
    let grace = Duration::from_millis(600);
    let mut server = running(false, grace).await;
    let (_requests, _responses) = report(
        &server.channel,
        ReportRequest {
            sequence: 1,
            item: None,
        },
    )
    .await;
    soon("the request", server.received.recv())
        .await
        .unwrap()
        .unwrap();
    let began = tokio::time::Instant::now();
    server.stop.fire();
    let budget = soon("the server ends", server.task).await.unwrap().unwrap();
    assert!(began.elapsed() >= grace);
    assert_eq!(budget.left(), shutdown::MIN_STEP);
}

#[tokio::test]
async fn a_unix_socket_serves_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rdmesh.sock");
    let listener = Listener::Unix(tokio::net::UnixListener::bind(&path).unwrap());
    let (stop, closing) = shutdown::channel();
    let task = tokio::spawn(async move {
        Server::new()
            .serve(listener, async move { closing.requested().await }, DEADLINE)
            .await
    });
    let uri = format!("unix:{}", path.display());
    let channel = soon("connect", Endpoint::from_shared(uri).unwrap().connect())
        .await
        .unwrap();
    let answer = HealthClient::new(channel)
        .check(HealthCheckRequest::default())
        .await
        .unwrap();
    assert_eq!(answer.into_inner().status(), ServingStatus::Serving);
    stop.fire();
    soon("the server ends", task).await.unwrap().unwrap();
}

//! A collector whose every answer the test gives by hand, on a real socket and a
//! runtime of its own, so that it can be killed as a process is.

use std::net::SocketAddr;
use std::pin::Pin;
use std::thread::JoinHandle;
use std::time::Duration;

use rdmesh_proto::collector::v1::ingest_service_server::{IngestService, IngestServiceServer};
use rdmesh_proto::collector::v1::report_request::Item;
use rdmesh_proto::collector::v1::{
    Ack, Hello, Rejection, ReportRequest, ReportResponse, report_response,
};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

/// Nothing in these tests takes longer, also on a loaded machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Waits for a future, or fails the test.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(output) => output,
        Err(_) => panic!("not within {DEADLINE:?}: {what}"),
    }
}

/// Waits for a condition that another task brings about.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    soon(what, async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// A running collector.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    streams: UnboundedReceiver<AgentStream>,
    process: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

/// One stream of an agent.
pub(crate) struct AgentStream {
    requests: UnboundedReceiver<ReportRequest>,
    responses: UnboundedSender<Result<ReportResponse, Status>>,
}

impl Collector {
    pub(crate) fn start() -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    pub(crate) fn start_at(address: SocketAddr) -> Self {
        let (streams_in, streams) = unbounded_channel();
        let (bound_in, bound) = std::sync::mpsc::channel();
        let (kill, killed) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let serve = async move {
                let listener = TcpListener::bind(address).await.unwrap();
                bound_in.send(listener.local_addr().unwrap()).unwrap();
                tonic::transport::Server::builder()
                    .add_service(IngestServiceServer::new(Script {
                        streams: streams_in,
                    }))
                    .serve_with_incoming(TcpIncoming::from(listener))
                    .await
            };
            // Leaving the block drops the runtime, and with it every connection.
            runtime.unwrap().block_on(async {
                tokio::select! {
                    served = serve => served.unwrap(),
                    _ = killed => {}
                }
            });
        });
        let address = bound.recv_timeout(DEADLINE).unwrap();
        Self {
            address,
            streams,
            process: Some((kill, thread)),
        }
    }

    /// The next stream that an agent opens, with its Hello.
    pub(crate) async fn stream(&mut self) -> (Hello, AgentStream) {
        let mut stream = soon("a stream", self.streams.recv()).await.unwrap();
        let first = stream.request().await;
        assert_eq!(first.sequence, 0);
        match first.item {
            Some(Item::Hello(hello)) => (hello, stream),
            other => panic!("the first item is no Hello: {other:?}"),
        }
    }

    /// Ends it at once with all its connections, as a kill does.
    pub(crate) fn kill(mut self) -> SocketAddr {
        self.end();
        self.address
    }

    fn end(&mut self) {
        if let Some((kill, thread)) = self.process.take() {
            drop(kill);
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.end();
    }
}

impl AgentStream {
    /// The next request.
    pub(crate) async fn request(&mut self) -> ReportRequest {
        soon("a request", self.requests.recv())
            .await
            .expect("the agent ended the stream")
    }

    /// The sequences of the next `count` requests.
    pub(crate) async fn sequences(&mut self, count: usize) -> Vec<u64> {
        let mut sequences = Vec::new();
        for _ in 0..count {
            sequences.push(self.request().await.sequence);
        }
        sequences
    }

    /// How many requests came that the test has not looked at.
    pub(crate) fn owed(&self) -> usize {
        self.requests.len()
    }

    /// What came besides.
    pub(crate) fn try_request(&mut self) -> Option<ReportRequest> {
        self.requests.try_recv().ok()
    }

    /// Whether the agent ended its side.
    pub(crate) async fn is_ended_by_agent(&mut self) -> bool {
        soon("the end of the stream", self.requests.recv())
            .await
            .is_none()
    }

    pub(crate) fn ack(&self, sequence: u64) {
        self.respond(Ack {
            sequence,
            ..Ack::default()
        });
    }

    pub(crate) fn reject(&self, sequence: u64, reason: &str) {
        self.reject_ahead(sequence, sequence, reason);
    }

    /// Rejects an item and acknowledges up to another.
    pub(crate) fn reject_ahead(&self, sequence: u64, rejected: u64, reason: &str) {
        let rejected = vec![Rejection {
            sequence: rejected,
            reason: reason.to_owned(),
        }];
        self.respond(Ack {
            sequence,
            rejected,
            slow_down_ms: 0,
        });
    }

    pub(crate) fn slow_down(&self, sequence: u64, milliseconds: u32) {
        self.respond(Ack {
            sequence,
            slow_down_ms: milliseconds,
            ..Ack::default()
        });
    }

    pub(crate) fn end(self, status: Status) {
        let _ = self.responses.send(Err(status));
    }

    fn respond(&self, ack: Ack) {
        let response = ReportResponse {
            item: Some(report_response::Item::Ack(ack)),
        };
        // The agent may be gone; whoever cares asks for its status.
        let _ = self.responses.send(Ok(response));
    }
}

struct Script {
    streams: UnboundedSender<AgentStream>,
}

#[tonic::async_trait]
impl IngestService for Script {
    type ReportStream = Pin<Box<dyn Stream<Item = Result<ReportResponse, Status>> + Send>>;

    async fn report(
        &self,
        request: Request<Streaming<ReportRequest>>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        let mut incoming = request.into_inner();
        let (requests_in, requests) = unbounded_channel();
        let (responses, responses_out) = unbounded_channel();
        self.streams
            .send(AgentStream {
                requests,
                responses,
            })
            .map_err(|_| Status::unavailable("the test is over"))?;
        tokio::spawn(async move {
            while let Some(Ok(request)) = incoming.next().await {
                if requests_in.send(request).is_err() {
                    break;
                }
            }
        });
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(
            responses_out,
        ))))
    }
}

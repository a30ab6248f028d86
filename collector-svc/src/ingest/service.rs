//! `rdmesh.collector.v1.IngestService`.

use std::pin::Pin;
use std::sync::Arc;

use rdmesh_proto::collector::v1::ingest_service_server::IngestService;
use rdmesh_proto::collector::v1::report_request::Item as Sent;
use rdmesh_proto::collector::v1::{Hello, ReportRequest, ReportResponse};
use rdmesh_services::shutdown::Closing;
use rdmesh_store::ingest as stored;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::backing::Backing;
use crate::ingest::hello::Introduction;
use crate::ingest::item::Reader;
use crate::ingest::ledger::Ledger;
use crate::ingest::limits::HELLO_WITHIN;
use crate::ingest::queue::Queue;
use crate::ingest::stream::Stream;
use crate::metrics::IngestMetrics;
use crate::{names, status};

/// Acknowledgements on their way to one agent. They are cumulative: an agent that does
/// not read them needs no more of them.
const RESPONSES_MAX: usize = 4;

/// Takes what agents report.
#[derive(Debug)]
pub struct Ingest {
    backing: Backing,
    queue: Queue,
    ending: Closing,
    metrics: IngestMetrics,
}

impl Ingest {
    /// The service, whose items go through `queue`; `ending` says when streams are to end.
    #[must_use]
    pub fn new(backing: Backing, queue: Queue, ending: Closing) -> Self {
        Self {
            backing,
            queue,
            ending,
            metrics: IngestMetrics::new(),
        }
    }

    async fn open(&self, mut requests: Streaming<ReportRequest>) -> Result<Opened, Status> {
        let first = timeout(HELLO_WITHIN, requests.message())
            .await
            .map_err(|_| {
                Status::deadline_exceeded(format!(
                    "no hello within {HELLO_WITHIN:?}; send it first"
                ))
            })??;
        let hello = match first.and_then(|request| request.item) {
            Some(Sent::Hello(hello)) => hello,
            Some(_) => {
                return Err(Status::invalid_argument(
                    "the first item is no hello; say who reports before the report",
                ));
            }
            None => {
                return Err(Status::invalid_argument(
                    "the stream has no hello; send one as its first item",
                ));
            }
        };
        let reader = self.introduce(&hello).await?;
        Ok(Opened {
            requests,
            reader,
            kind: names::agent(hello.agent()),
        })
    }

    async fn introduce(&self, hello: &Hello) -> Result<Reader, Status> {
        let who = Introduction::try_from(hello).map_err(|e| status::from_bad_request(&e))?;
        let store = self.backing.store()?;
        let received_at = self.backing.now();
        let run = Arc::new(who.run);
        let reader = Reader::new(
            run.clone(),
            who.reading.map(|reading| (reading, received_at)),
        );
        let hello = stored::Hello {
            run: (*run).clone(),
            boot_id: who.boot_id,
            version: who.version,
            address: who.address,
            started_at: who.started_at.unwrap_or(received_at),
            received_at,
            clock: reader.clock(),
        };
        let through = store
            .hello(&hello)
            .await
            .map_err(|e| status::from_store(&e))?;
        tracing::info!(
            host = %run.host, agent = %names::agent(who.kind), run_id = %run.run_id,
            version = %hello.version, through, "agent connected"
        );
        Ok(reader)
    }
}

struct Opened {
    requests: Streaming<ReportRequest>,
    reader: Reader,
    kind: String,
}

#[tonic::async_trait]
impl IngestService for Ingest {
    type ReportStream =
        Pin<Box<dyn tokio_stream::Stream<Item = Result<ReportResponse, Status>> + Send>>;

    async fn report(
        &self,
        request: Request<Streaming<ReportRequest>>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        let Opened {
            requests,
            reader,
            kind,
        } = self.open(request.into_inner()).await?;
        let (responses, answers) = mpsc::channel(RESPONSES_MAX);
        let stream = Stream {
            requests,
            reader,
            share: self.queue.share(),
            queue: self.queue.clone(),
            responses,
            ending: self.ending.clone(),
            now: self.backing.clock(),
            metrics: self.metrics.clone(),
            ledger: Arc::new(Ledger::default()),
        };
        let metrics = self.metrics.clone();
        metrics.stream(&kind, 1);
        tokio::spawn(async move {
            stream.run().await;
            metrics.stream(&kind, -1);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}

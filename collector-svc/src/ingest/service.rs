//! `rdmesh.collector.v1.IngestService`.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rdmesh_proto::collector::v1::ingest_service_server::IngestService;
use rdmesh_proto::collector::v1::report_request::Item as Sent;
use rdmesh_proto::collector::v1::{Hello, ReportRequest, ReportResponse};
use rdmesh_services::server::Caller;
use rdmesh_services::shutdown::Closing;
use rdmesh_store::ingest as stored;
use time::OffsetDateTime;
use tokio::sync::{Semaphore, mpsc};
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
    /// What the streams of each host take of the queue.
    shares: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// Hosts in the table before those without a stream are looked for.
const SWEEP_ABOVE: usize = 1_024;

impl Ingest {
    /// The service, whose items go through `queue`; `ending` says when streams are to end.
    #[must_use]
    pub fn new(backing: Backing, queue: Queue, ending: Closing) -> Self {
        Self {
            backing,
            queue,
            ending,
            metrics: IngestMetrics::new(),
            shares: Mutex::new(HashMap::new()),
        }
    }

    /// One share for all streams of a host: many of them take no more than one.
    fn share(&self, host: &str) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(host).and_then(Weak::upgrade) {
            return share;
        }
        if shares.len() > SWEEP_ABOVE {
            shares.retain(|_, share| share.strong_count() > 0);
        }
        let share = self.queue.share();
        shares.insert(host.to_owned(), Arc::downgrade(&share));
        share
    }

    async fn open(
        &self,
        caller: &Caller,
        mut requests: Streaming<ReportRequest>,
    ) -> Result<Opened, Status> {
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
        caller.may_report_for(&hello.host)?;
        let reader = self.introduce(caller, &hello).await?;
        Ok(Opened {
            requests,
            share: self.share(&hello.host),
            reader,
            kind: names::agent(hello.agent()),
        })
    }

    async fn introduce(&self, caller: &Caller, hello: &Hello) -> Result<Reader, Status> {
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
            certificate_ends_at: caller
                .peer()
                .and_then(|peer| OffsetDateTime::from_unix_timestamp(peer.not_after).ok()),
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
    share: Arc<Semaphore>,
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
        let caller = Caller::of(&request);
        let Opened {
            requests,
            share,
            reader,
            kind,
        } = self.open(&caller, request.into_inner()).await?;
        let (responses, answers) = mpsc::channel(RESPONSES_MAX);
        let stream = Stream {
            requests,
            reader,
            share,
            caller,
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

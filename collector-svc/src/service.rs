//! The collector, put together.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use rdmesh_joblog::Classifier;
use rdmesh_proto::collector::v1::baseline_service_server::BaselineServiceServer;
use rdmesh_proto::collector::v1::ingest_service_server::IngestServiceServer;
use rdmesh_proto::collector::v1::job_service_server::JobServiceServer;
use rdmesh_proto::collector::v1::query_service_server::QueryServiceServer;
use rdmesh_proto::collector::v1::statistics_service_server::StatisticsServiceServer;
use rdmesh_proto::collector::v1::wire_service_server::WireServiceServer;
use rdmesh_services::limited;
use rdmesh_services::server::{self, Listener, Server, ServerError};
use rdmesh_services::shutdown::Budget;
use rdmesh_services::tls::Tls;
use rdmesh_store::{Store, StoreError};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::server::NamedService;

use crate::backing::Backing;
use crate::baselines::Baselines;
use crate::config::{CollectorConfig, IngestConfig};
use crate::ingest::{Ingest, Queue, Writer, WriterPace};
use crate::jobs::Jobs;
use crate::live::Live;
use crate::logs::Intake;
use crate::query::{Queries, Statistics};
use crate::site::{self, Site, SiteError};
use crate::upkeep::Upkeep;
use crate::wires::{Dialer, WireFigures, Wires};

/// Why the collector ended before it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server cannot serve.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A file of the site is refused.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The upkeep ended by itself.
    #[error("the upkeep task ended unexpectedly: {0}")]
    Upkeep(String),
}

/// A collector that is built and not yet serving.
#[derive(Debug)]
pub struct Collector {
    server: Server,
    upkeep: Upkeep,
    writers: JoinSet<()>,
    store: Store,
    grace: Duration,
}

impl Collector {
    /// Builds the collector. Postgres need not be there yet. `now` reads the clock.
    ///
    /// # Errors
    /// When the database URL cannot be read, or a file of the site is refused.
    pub fn new(
        config: &CollectorConfig,
        now: fn() -> OffsetDateTime,
    ) -> Result<Self, CollectorError> {
        Self::with(config, &Tls::default(), now)
    }

    /// [`Collector::new`], with `tls` for the shapers that it dials.
    ///
    /// # Errors
    /// As [`Collector::new`].
    pub fn with(
        config: &CollectorConfig,
        tls: &Tls,
        now: fn() -> OffsetDateTime,
    ) -> Result<Self, CollectorError> {
        let store = Store::new(&config.database.options())?;
        let (ready, is_ready) = watch::channel(false);
        let writers = usize::try_from(config.ingest.writers).unwrap_or(1);
        let queue_mib = usize::try_from(config.ingest.queue_mib).unwrap_or(usize::MAX);
        let (queue, ends) = Queue::new(queue_mib, writers);
        let mut tasks = JoinSet::new();
        let figures = WireFigures::registered(&opentelemetry::global::meter("rdmesh.collector"));
        let live = Live::default();
        for end in ends {
            let writer = Writer::new(
                store.clone(),
                pace(&config.ingest),
                figures.clone(),
                live.clone(),
            );
            tasks.spawn(writer.run(end));
        }
        let site = Arc::new(Site::open(&config.diagnosis)?);
        let classifier = Arc::new(Classifier::new(site::log_rules(&config.diagnosis)?));
        let backing = Backing::new(store.clone(), is_ready, now).with_site(site.clone());
        let mut server = Server::new();
        server.limit(config.server.limits());
        let shapers = Dialer::new(tls.clone(), config.tls.insecure_dial);
        let ending = server.ending();
        let ingest = Ingest::new(backing.clone(), queue, ending.clone());
        server
            .add(limited!(IngestServiceServer::new(ingest)))
            .add(limited!(JobServiceServer::new(Jobs::new(
                backing.clone(),
                Intake::new(backing.clone(), classifier, ending.clone())
            ))))
            .add(limited!(StatisticsServiceServer::new(Statistics::new(
                backing.clone()
            ))))
            .add(limited!(QueryServiceServer::new(Queries::new(
                backing.clone(),
                live,
                ending.clone()
            ))))
            .add(limited!(BaselineServiceServer::new(Baselines::new(
                backing.clone(),
                config.baseline.clone()
            ))))
            .add(limited!(WireServiceServer::new(Wires::new(
                backing,
                shapers,
                ending.clone()
            ))));
        let upkeep = Upkeep {
            store: store.clone(),
            health: server.health(),
            services: names(),
            keep: config.retention.keep(),
            site,
            now,
            ending,
            ready,
        };
        Ok(Self {
            server,
            upkeep,
            writers: tasks,
            store,
            grace: config.server.grace(),
        })
    }

    /// Serves on `listener` until `end` completes, then lets streams and writers finish.
    ///
    /// # Errors
    /// When the schema cannot be brought up to date, or the server fails.
    pub async fn serve<D>(
        self,
        listener: impl Into<Listener>,
        end: impl Future<Output = D>,
    ) -> Result<Budget, CollectorError> {
        let Self {
            server,
            upkeep,
            mut writers,
            store,
            grace,
        } = self;
        // Until the schema is there; the upkeep says when.
        upkeep.say(false).await;
        let mut upkeep = tokio::spawn(upkeep.run());
        let mut failed = None;
        let asked = async {
            tokio::select! {
                _ = end => {}
                ended = &mut upkeep => failed = Some(ended),
            }
        };
        let budget = server.serve(listener, asked, grace).await?;
        // The services are gone, and with them the queue's way in.
        let drained = async { while writers.join_next().await.is_some() {} };
        budget.step("write what waits", drained).await;
        budget.step("close the store", store.close()).await;
        match failed {
            None => Ok(budget),
            Some(Ok(Ok(()))) => Ok(budget),
            Some(Ok(Err(error))) => Err(error.into()),
            Some(Err(error)) => Err(CollectorError::Upkeep(error.to_string())),
        }
    }
}

/// The services that need the store.
fn names() -> Vec<&'static str> {
    vec![
        <BaselineServiceServer<Baselines> as NamedService>::NAME,
        <IngestServiceServer<Ingest> as NamedService>::NAME,
        <JobServiceServer<Jobs> as NamedService>::NAME,
        <QueryServiceServer<Queries> as NamedService>::NAME,
        <StatisticsServiceServer<Statistics> as NamedService>::NAME,
        <WireServiceServer<Wires> as NamedService>::NAME,
    ]
}

fn pace(config: &IngestConfig) -> WriterPace {
    WriterPace {
        batch_items: usize::try_from(config.batch_items).unwrap_or(usize::MAX),
        batch_wait: Duration::from_millis(u64::from(config.batch_wait_ms)),
        retry_for: Duration::from_secs(u64::from(config.retry_seconds)),
    }
}

/// Binds what the configuration names.
///
/// # Errors
/// When the address is not allowed or taken.
pub async fn bind(config: &CollectorConfig, tls: &Tls) -> Result<Listener, CollectorError> {
    Ok(server::bind_with(&config.server, tls).await?)
}

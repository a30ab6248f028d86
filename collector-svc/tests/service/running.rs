//! A running collector, and an agent that speaks to it.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rdmesh_collector::config::{CollectorConfig, DatabaseConfig};
use rdmesh_collector::service::Collector;
use rdmesh_proto::collector::v1::ingest_service_client::IngestServiceClient;
use rdmesh_proto::collector::v1::job_service_client::JobServiceClient;
use rdmesh_proto::collector::v1::query_service_client::QueryServiceClient;
use rdmesh_proto::collector::v1::report_request::Item;
use rdmesh_proto::collector::v1::{Ack, Hello, ReportRequest, ReportResponse, report_response};
use rdmesh_services::config::SecretUrl;
use rdmesh_services::server::Listener;
use rdmesh_test_postgres::Cluster;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// Nothing here takes longer, also on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(crate) fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| Cluster::start().expect("a private Postgres"))
}

/// Waits until `holds`, which is looked at again and again.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = Instant::now() + DEADLINE;
    let mut looks = tokio::time::interval(LOOK_EVERY);
    while !holds().await {
        assert!(
            Instant::now() < deadline,
            "{what} did not come true within {DEADLINE:?}"
        );
        looks.tick().await;
    }
}

pub(crate) struct Running {
    pub(crate) database: String,
    pub(crate) channel: Channel,
    pub(crate) address: String,
    end: Option<oneshot::Sender<()>>,
    served: tokio::task::JoinHandle<Result<(), String>>,
}

impl Running {
    pub(crate) async fn start() -> Self {
        let database = cluster().new_database().unwrap();
        Self::on(database, |_| {}).await
    }

    pub(crate) async fn on(database: String, change: impl FnOnce(&mut CollectorConfig)) -> Self {
        let mut config = CollectorConfig {
            database: DatabaseConfig {
                url: SecretUrl::new(cluster().url(&database)),
                wait_seconds: 1,
                ..DatabaseConfig::default()
            },
            ..CollectorConfig::default()
        };
        change(&mut config);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let collector = Collector::new(&config, OffsetDateTime::now_utc).unwrap();
        let (end, asked) = oneshot::channel::<()>();
        let served = tokio::spawn(async move {
            let served = collector.serve(Listener::from(listener), asked).await;
            served.map(drop).map_err(|error| error.to_string())
        });
        let channel = Channel::from_shared(address.clone())
            .unwrap()
            .connect_lazy();
        let running = Self {
            database,
            channel,
            address,
            end: Some(end),
            served,
        };
        until("the collector serves", || running.serves()).await;
        running
    }

    pub(crate) async fn serves(&self) -> bool {
        use tonic_health::pb::HealthCheckRequest;
        use tonic_health::pb::health_check_response::ServingStatus;
        use tonic_health::pb::health_client::HealthClient;
        let mut health = HealthClient::new(self.channel.clone());
        let answer = health.check(HealthCheckRequest::default()).await;
        answer.is_ok_and(|answer| answer.get_ref().status() == ServingStatus::Serving)
    }

    pub(crate) fn jobs(&self) -> JobServiceClient<Channel> {
        JobServiceClient::new(self.channel.clone())
    }

    pub(crate) fn queries(&self) -> QueryServiceClient<Channel> {
        QueryServiceClient::new(self.channel.clone())
    }

    /// What the read-only role sees.
    pub(crate) fn read(&self, sql: &str) -> String {
        cluster()
            .psql(&self.database, "rdmesh_reader", sql)
            .unwrap()
            .trim()
            .to_owned()
    }

    pub(crate) async fn agent(&self, hello: Hello) -> Agent {
        self.try_agent(hello).await.unwrap()
    }

    pub(crate) async fn try_agent(&self, hello: Hello) -> Result<Agent, Status> {
        self.open(ReportRequest {
            sequence: 0,
            item: Some(Item::Hello(hello)),
        })
        .await
    }

    pub(crate) async fn open(&self, first: ReportRequest) -> Result<Agent, Status> {
        Agent::open(self.channel.clone(), first).await
    }

    /// Ends the collector as a signal does.
    pub(crate) async fn stop(mut self) {
        drop(self.end.take());
        self.served.await.unwrap().unwrap();
    }
}

/// An agent's side of a stream.
pub(crate) struct Agent {
    requests: Option<mpsc::Sender<ReportRequest>>,
    pub(crate) responses: Streaming<ReportResponse>,
    /// (sequence, reason) of all rejections so far.
    pub(crate) rejected: Vec<(u64, String)>,
    pub(crate) through: u64,
}

impl Agent {
    /// Opens a stream whose first item is `first`.
    pub(crate) async fn open(channel: Channel, first: ReportRequest) -> Result<Agent, Status> {
        let (requests, stream) = mpsc::channel(1_024);
        requests.send(first).await.unwrap();
        let mut client = IngestServiceClient::new(channel);
        let responses = client
            .report(ReceiverStream::new(stream))
            .await?
            .into_inner();
        Ok(Agent {
            requests: Some(requests),
            responses,
            rejected: Vec::new(),
            through: 0,
        })
    }

    pub(crate) async fn send(&self, sequence: u64, item: impl Into<Sent>) {
        let request = ReportRequest {
            sequence,
            item: item.into().0,
        };
        self.requests.as_ref().unwrap().send(request).await.unwrap();
    }

    /// The next acknowledgement.
    pub(crate) async fn next(&mut self) -> Result<Option<Ack>, Status> {
        let response = tokio::time::timeout(DEADLINE, self.responses.message())
            .await
            .expect("an answer within the deadline")?;
        let Some(ReportResponse {
            item: Some(report_response::Item::Ack(ack)),
        }) = response
        else {
            return Ok(None);
        };
        self.through = self.through.max(ack.sequence);
        self.rejected
            .extend(ack.rejected.iter().map(|r| (r.sequence, r.reason.clone())));
        Ok(Some(ack))
    }

    /// Reads until everything up to `sequence` is acknowledged.
    pub(crate) async fn acknowledged(&mut self, sequence: u64) {
        while self.through < sequence {
            assert!(
                self.next().await.unwrap().is_some(),
                "the stream ended at {}",
                self.through
            );
        }
    }

    /// Reads until `count` items were rejected.
    pub(crate) async fn refused(&mut self, count: usize) {
        while self.rejected.len() < count {
            assert!(self.next().await.unwrap().is_some(), "the stream ended");
        }
    }

    /// Ends the agent's side and reads to the end of the collector's.
    pub(crate) async fn finish(mut self) -> u64 {
        drop(self.requests.take());
        while self.next().await.unwrap().is_some() {}
        self.through
    }
}

/// An item, or none.
pub(crate) struct Sent(pub(crate) Option<Item>);

impl From<Item> for Sent {
    fn from(item: Item) -> Self {
        Self(Some(item))
    }
}

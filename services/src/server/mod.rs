//! A tonic server as every rdmesh service runs it: health (v1), reflection (v1 and
//! v1alpha, both listing all that is served), limits, a listener given as an
//! argument, and an orderly end.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use rdmesh_services::{server::{self, Server, ServerConfig}, shutdown::Signals};
//! let config = ServerConfig::at(7400);
//! let listener = server::bind(&config).await?;
//! let mut server = Server::new();
//! let ending = server.ending(); // for handlers that hold streams
//! // server.add(rdmesh_services::limited!(XServiceServer::new(X::new(ending))));
//! # drop(ending);
//! let mut signals = Signals::install()?;
//! let budget = server.serve(listener, signals.received(), config.grace()).await?;
//! budget.step("flush", async {}).await;
//! # Ok(()) }
//! ```

mod accept;
mod allowance;
mod decode;
mod guard;
mod listen;
mod secured;

use std::convert::Infallible;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::body::Body;
use tonic::codegen::http::Request;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, HealthService};
use tower::layer::util::{Identity, Stack};

use crate::config::{Check, Invalid, Validate};
use crate::shutdown::{self, Budget, Closing, DEFAULT_GRACE, Trigger};

pub use allowance::Limits;
pub use guard::Caller;
pub use listen::{ListenAddress, Listener, bind, bind_with};
pub use secured::{
    HANDSHAKE_WITHIN, MAX_CONNECTIONS_PER_IDENTITY, MAX_HANDSHAKES, MAX_HANDSHAKES_PER_ADDRESS,
};

/// Largest request message, bytes: twice an uplink item
/// ([`crate::uplink::MAX_ITEM_BYTES`]), so that whoever keeps that limit is never
/// refused here.
pub const MAX_REQUEST_BYTES: usize = 4 << 20;

/// Largest response message, bytes. Queries are paged; a page stays far below.
pub const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// Largest header list, bytes: metadata are a few names and a trace context.
pub const MAX_HEADER_BYTES: u32 = 16 << 10;

/// Streams and calls at the same time on one connection. An agent has one, a
/// dashboard a few dozen; a proxy in front may carry the agents of a rack.
pub const MAX_STREAMS_PER_CONNECTION: u32 = 1024;

/// When the peer of a connection was silent for so long, it is asked whether it
/// lives. Agents speak every five seconds, so only idle clients are ever asked.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(60);

/// A peer that does not answer the question for so long is taken for dead.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// TCP's own keep-alive, in the kernel: keeps NAT entries, wakes no process.
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Why a server does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Other machines could connect, and there is no TLS.
    #[error(
        "refusing to listen on {address} without TLS; name certificates in [tls] (`rdmesh certs` \
         makes them), listen on 127.0.0.1 or a unix: socket, or set server.insecure_listen = true \
         if everyone who reaches this address may read and report everything"
    )]
    Insecure {
        /// The address.
        address: ListenAddress,
    },
    /// The system refuses the address.
    #[error("cannot listen on {address}: {source}; {advice}")]
    Bind {
        /// The address.
        address: ListenAddress,
        /// What the system said.
        source: std::io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// The descriptors do not decode: the build is broken.
    #[error("reflection cannot be built: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The transport failed.
    #[error("serving failed: {0}")]
    Transport(#[from] tonic::transport::Error),
}

/// Section `[server]` of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Where to listen: `IP:PORT`, `[IPv6]:PORT` or `unix:/path`.
    pub listen: ListenAddress,
    /// Listen without TLS where other machines can connect.
    pub insecure_listen: bool,
    /// Seconds for the whole end of the process, after a signal.
    pub grace_seconds: u32,
    /// Calls and streams at the same time, for each identity; more are refused.
    pub streams_per_identity: u32,
    /// Messages a second, for each identity; faster ones wait.
    pub messages_per_second: u32,
    /// Mebibytes of messages a second, for each identity; faster ones wait.
    pub mib_per_second: u32,
}

/// Calls of one identity at the same time: an agent has three, a dashboard some dozens.
const STREAMS_PER_IDENTITY: u32 = 128;

/// Messages of one identity: an agent sends one in five seconds, and its spool of three days
/// within a minute.
const MESSAGES_PER_SECOND: u32 = 1_000;

/// Bytes of one identity: the spool's 256 MiB within some seconds, and an eighth of a
/// 1 Gbit/s line.
const MIB_PER_SECOND: u32 = 16;

impl ServerConfig {
    /// Loopback at `port`, everything else by default.
    #[must_use]
    pub fn at(port: u16) -> Self {
        Self {
            listen: ListenAddress::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            insecure_listen: false,
            grace_seconds: u32::try_from(DEFAULT_GRACE.as_secs()).unwrap_or(10),
            streams_per_identity: STREAMS_PER_IDENTITY,
            messages_per_second: MESSAGES_PER_SECOND,
            mib_per_second: MIB_PER_SECOND,
        }
    }

    /// What one identity may take; nothing is counted without TLS.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            streams: self.streams_per_identity,
            messages_per_second: self.messages_per_second,
            bytes_per_second: u64::from(self.mib_per_second) << 20,
        }
    }

    /// Other machines may connect where there is TLS, or on request.
    ///
    /// # Errors
    /// [`Invalid`] for `listen`.
    pub fn allows_listen(&self, has_tls: bool) -> Result<(), Invalid> {
        if self.listen.is_local() || self.insecure_listen || has_tls {
            return Ok(());
        }
        Err(Invalid::new(
            "listen",
            &self.listen,
            "127.0.0.1, ::1 or unix:/path; other addresses with certificates in [tls] (`rdmesh \
             certs` makes them), or with insecure_listen = true",
        ))
    }

    /// The time that the steps of the end share.
    #[must_use]
    pub fn grace(&self) -> Duration {
        Duration::from_secs(u64::from(self.grace_seconds))
    }
}

/// A free port of loopback; a service's own default is [`ServerConfig::at`] its port.
impl Default for ServerConfig {
    fn default() -> Self {
        Self::at(0)
    }
}

impl Validate for ServerConfig {
    fn validate(&self) -> Result<(), Invalid> {
        Check::range("grace_seconds", self.grace_seconds, 1..=300)?;
        Check::range(
            "streams_per_identity",
            self.streams_per_identity,
            4..=100_000,
        )?;
        Check::range(
            "messages_per_second",
            self.messages_per_second,
            10..=1_000_000,
        )?;
        // A message of the largest size must not wait for longer than an agent does.
        Check::range("mib_per_second", self.mib_per_second, 1..=10_000)
    }
}

/// Gives a generated service the message size limits of this module:
/// `limited!(XServiceServer::new(x))`.
#[macro_export]
macro_rules! limited {
    ($service:expr) => {
        $service
            .max_decoding_message_size($crate::server::MAX_REQUEST_BYTES)
            .max_encoding_message_size($crate::server::MAX_RESPONSE_BYTES)
    };
}

/// The services of one process, before and while they are served.
#[derive(Debug)]
pub struct Server {
    routes: Routes,
    names: Vec<&'static str>,
    health: HealthReporter,
    end_streams: Trigger,
    ending: Closing,
    own: Option<String>,
    limits: Limits,
}

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

impl Server {
    /// A server with health alone.
    #[must_use]
    pub fn new() -> Self {
        let health = HealthReporter::new();
        let service = HealthService::from_health_reporter(health.clone());
        let service = tonic_health::pb::health_server::HealthServer::new(service);
        let (end_streams, ending) = shutdown::channel();
        Self {
            routes: Routes::new(limited!(service)),
            names: Vec::new(),
            health,
            end_streams,
            ending,
            own: None,
            limits: ServerConfig::default().limits(),
        }
    }

    /// What one identity may take.
    pub fn limit(&mut self, limits: Limits) -> &mut Self {
        self.limits = limits;
        self
    }

    /// The host for which this service speaks: its own agent may command it.
    pub fn speaks_for(&mut self, host: &str) -> &mut Self {
        self.own = Some(host.to_owned());
        self
    }

    /// Adds a service, healthy from the start; see [`limited!`](crate::limited) for
    /// its message sizes.
    pub fn add<S>(&mut self, service: S) -> &mut Self
    where
        S: Service<Request<Body>, Response = http::Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        self.names.push(S::NAME);
        self.routes = std::mem::take(&mut self.routes).add_service(service);
        self
    }

    /// Tells handlers of long streams when to end them: after NOT_SERVING was said
    /// and new connections are refused.
    #[must_use]
    pub fn ending(&self) -> Closing {
        self.ending.clone()
    }

    /// For a service that is not ready at all times.
    #[must_use]
    pub fn health(&self) -> HealthReporter {
        self.health.clone()
    }

    /// Serves until `end` completes, then says NOT_SERVING, accepts no more, ends the
    /// streams and waits for the calls in flight, for `grace` at most. Returns what
    /// is left of the grace for the flushes.
    ///
    /// # Errors
    /// [`ServerError::Reflection`] or [`ServerError::Transport`].
    pub async fn serve<D>(
        self,
        listener: impl Into<Listener>,
        end: impl Future<Output = D>,
        grace: Duration,
    ) -> Result<Budget, ServerError> {
        let listener = listener.into();
        // Removed when this function ends.
        let _socket_file = listen::SocketFile::of(&listener);
        let routes = self.with_reflection()?;
        for name in &self.names {
            self.health
                .set_service_status(name, ServingStatus::Serving)
                .await;
        }
        if let Ok(address) = listener.local_address() {
            tracing::info!(listen = %address, services = ?self.names, "serving");
        }
        let (stop_accepting, accepting) = shutdown::channel();
        let stopped = async move { accepting.requested().await };
        let mut transport = self.transport();
        let ending = self.ending.clone();
        let mut serving = std::pin::pin!(async move {
            let router = transport.add_routes(routes);
            match listener {
                Listener::Tcp(listener) => {
                    let incoming = TcpIncoming::from(listener)
                        .with_nodelay(Some(true))
                        .with_keepalive(Some(TCP_KEEP_ALIVE));
                    let incoming = accept::Patient::new(incoming);
                    router.serve_with_incoming_shutdown(incoming, stopped).await
                }
                Listener::Secured(listener, live) => {
                    let incoming = TcpIncoming::from(listener)
                        .with_nodelay(Some(true))
                        .with_keepalive(Some(TCP_KEEP_ALIVE));
                    let incoming = accept::Patient::new(incoming);
                    let shaken = secured::shake_hands(incoming, live, ending);
                    let incoming = ReceiverStream::new(shaken);
                    router.serve_with_incoming_shutdown(incoming, stopped).await
                }
                Listener::Unix(listener) => {
                    let incoming = accept::Patient::new(UnixListenerStream::new(listener));
                    router.serve_with_incoming_shutdown(incoming, stopped).await
                }
            }
        });
        tokio::select! {
            served = &mut serving => {
                served?;
                return Ok(Budget::start(grace));
            }
            _ = end => {}
        }
        let budget = Budget::start(grace);
        let closing = async {
            self.say_not_serving().await;
            stop_accepting.fire();
            // Lets the transport refuse newcomers before the streams end, so that an
            // agent which reconnects at once does not come back here.
            tokio::task::yield_now().await;
            self.end_streams.fire();
            self.end_watches().await;
            std::future::pending::<Infallible>().await
        };
        let ended = budget.step("end streams", async {
            tokio::select! {
                served = &mut serving => served,
                never = closing => match never {},
            }
        });
        if let Some(served) = ended.await {
            served?;
        }
        Ok(budget)
    }

    async fn say_not_serving(&self) {
        for name in self.names.iter().copied().chain([""]) {
            self.health
                .set_service_status(name, ServingStatus::NotServing)
                .await;
        }
    }

    /// Health watches never end by themselves and would hold the server for the
    /// whole grace. They have been sent NOT_SERVING; forgetting the name ends them.
    async fn end_watches(&self) {
        let mut health = self.health.clone();
        for name in self.names.iter().copied().chain([""]) {
            health.clear_service_status(name).await;
        }
    }

    fn with_reflection(&self) -> Result<Routes, ServerError> {
        let builder = || {
            let mut builder = tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(rdmesh_proto::FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(
                    tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
                )
                .include_reflection_service(false);
            // Only what this process serves: the contract names more.
            for name in self.names.iter().copied().chain(EVERYWHERE) {
                builder = builder.with_service_name(name);
            }
            builder
        };
        let v1 = builder().build_v1()?;
        let v1alpha = builder().build_v1alpha()?;
        Ok(self
            .routes
            .clone()
            .add_service(limited!(v1))
            .add_service(limited!(v1alpha)))
    }

    fn transport(&self) -> tonic::transport::Server<Layers> {
        tonic::transport::Server::builder()
            .layer(guard::Guard::new(self.own.as_deref(), self.limits))
            .layer(decode::answers())
            .max_concurrent_streams(MAX_STREAMS_PER_CONNECTION)
            .http2_max_header_list_size(MAX_HEADER_BYTES)
            .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
    }
}

/// The guard outermost, so that nothing else sees what is refused.
type Layers = Stack<decode::Answers, Stack<guard::Guard, Identity>>;

/// What every server serves besides its own.
const EVERYWHERE: [&str; 3] = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
];

//! A server with TLS: handshakes that never end, certificates that are replaced, and how much
//! one identity may have open.
#![allow(missing_docs, clippy::unwrap_used)]

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rdmesh_services::server::{
    self, HANDSHAKE_WITHIN, ListenAddress, MAX_HANDSHAKES_PER_ADDRESS, Server, ServerConfig,
};
use rdmesh_services::tls::{ConnectError, Expected, Tls, TlsConfig};
use rdmesh_services::uplink::{CollectorAddress, CollectorDialer, Dial};
use rdmesh_tls::authority::{Authority, Request};
use rdmesh_tls::{Checked, Files, Live, Role, now};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::server::HealthReporter;

/// Nothing here takes longer, also on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(60);

struct Site {
    authority: Authority,
    folder: TempDir,
}

fn write(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::set_permissions(&beside, PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::rename(beside, path).unwrap();
}

impl Site {
    fn new() -> Self {
        let (authority, own) = Authority::create("s", now(), 30).unwrap();
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("ca.crt"), &own.certificate);
        Self { authority, folder }
    }

    fn files(&self, role: Role, name: &str) -> Files {
        let at = |ending: &str| self.folder.path().join(format!("{role}-{name}.{ending}"));
        Files {
            ca: self.folder.path().join("ca.crt"),
            certificate: at("crt"),
            key: at("key"),
        }
    }

    /// Issues, and writes the files anew.
    fn issue(&self, role: Role, name: &str) -> Files {
        let request = Request::new(role, name, now(), 7).unwrap();
        let issued = self.authority.issue(&request, now()).unwrap();
        let files = self.files(role, name);
        write(&files.key, &issued.key);
        write(&files.certificate, &issued.certificate);
        files
    }

    fn live(&self, role: Role, name: &str) -> Arc<Live> {
        Arc::new(Live::open(self.issue(role, name)).unwrap())
    }
}

struct Serving {
    address: SocketAddr,
    health: HealthReporter,
    live: Arc<Live>,
    end: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<()>,
}

async fn serve(site: &Site, change: impl FnOnce(&mut ServerConfig)) -> Serving {
    let mut config = ServerConfig::at(0);
    change(&mut config);
    let live = site.live(Role::Collector, "c1");
    let tls = Tls::with(Arc::clone(&live));
    let listener = server::bind_with(&config, &tls).await.unwrap();
    let ListenAddress::Tcp(address) = listener.local_address().unwrap() else {
        panic!("a TCP address");
    };
    let mut server = Server::new();
    server.limit(config.limits());
    let health = server.health();
    let (end, ended) = oneshot::channel();
    let grace = config.grace();
    let served = tokio::spawn(async move {
        server.serve(listener, ended, grace).await.unwrap();
    });
    Serving {
        address,
        health,
        live,
        end,
        served,
    }
}

impl Serving {
    async fn channel(&self, live: Arc<Live>) -> Result<Channel, String> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        let tls = Tls::with(live);
        let connecting = tls.connect(endpoint, self.address, None, Expected::Collector);
        let connected = soon("connect", connecting).await;
        connected.map_err(|error| rdmesh_services::causes::with_causes(&error))
    }

    async fn stop(self) {
        let _ = self.end.send(());
        soon("end", self.served).await.unwrap();
    }
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(DEADLINE, future).await;
    done.unwrap_or_else(|_| panic!("{what} within {DEADLINE:?}"))
}

async fn check(channel: Channel) -> Result<(), tonic::Status> {
    let asked = HealthCheckRequest::default();
    HealthClient::new(channel).check(asked).await.map(drop)
}

#[tokio::test]
async fn new_certificates_are_used_and_streams_go_on() {
    let site = Site::new();
    let serving = serve(&site, |_| {}).await;
    let agent = site.live(Role::Agent, "gpu-01");
    let channel = serving.channel(Arc::clone(&agent)).await.unwrap();
    let mut watch = HealthClient::new(channel.clone())
        .watch(HealthCheckRequest::default())
        .await
        .unwrap()
        .into_inner();
    soon("the first state", watch.message())
        .await
        .unwrap()
        .unwrap();

    // Another authority takes over: its certificate is believed beside the old one's, and then
    // alone.
    let next = Site::new();
    let files = site.files(Role::Collector, "c1");
    let both =
        [&site, &next].map(|s| std::fs::read_to_string(s.files(Role::Agent, "x").ca).unwrap());
    write(&files.ca, &both.concat());
    assert!(matches!(serving.live.check(), Checked::Reloaded));
    let newcomer = next.issue(Role::Agent, "gpu-02");
    write(&newcomer.ca, &both.concat());
    let newcomer = Arc::new(Live::open(newcomer).unwrap());
    check(serving.channel(Arc::clone(&newcomer)).await.unwrap())
        .await
        .unwrap();
    let issued = next.issue(Role::Collector, "c1");
    for (from, to) in [
        (issued.key, &files.key),
        (issued.certificate, &files.certificate),
    ] {
        write(to, &std::fs::read_to_string(from).unwrap());
    }
    write(&files.ca, &both[1]);
    assert!(matches!(serving.live.check(), Checked::Reloaded));
    check(serving.channel(newcomer).await.unwrap())
        .await
        .unwrap();
    // Who is of the old one alone comes in no more,
    let message = serving.channel(agent).await.unwrap_err();
    assert!(message.contains("not believed here"), "{message}");
    // and what stood goes on.
    serving
        .health
        .set_service_status("", ServingStatus::NotServing)
        .await;
    let told = soon("the next state", watch.message())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        told.status(),
        tonic_health::pb::health_check_response::ServingStatus::NotServing
    );
    check(channel).await.unwrap();
    drop(watch);
    serving.stop().await;
}

/// A connection from an address of its own.
async fn from(ip: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((ip, 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

#[tokio::test]
async fn handshakes_that_never_end_hold_up_nobody_and_are_closed() {
    let site = Site::new();
    let serving = serve(&site, |_| {}).await;
    let live = site.live(Role::Reader, "ada");
    let mut silent = Vec::new();
    for _ in 0..MAX_HANDSHAKES_PER_ADDRESS {
        silent.push(from([127, 0, 0, 2], serving.address).await);
    }
    // They fill their address's share, so that one more of it is closed at once, long before
    // the time of a handshake is over; others are served.
    let channel = serving.channel(Arc::clone(&live)).await.unwrap();
    check(channel).await.unwrap();
    let mut byte = [0];
    let mut more = from([127, 0, 0, 2], serving.address).await;
    let closed = soon("closed", more.read(&mut byte)).await;
    assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    // Those are closed when their time is over, and their places are free again.
    assert!(HANDSHAKE_WITHIN < DEADLINE);
    for mut stream in silent {
        let closed = soon("closed", stream.read(&mut byte)).await;
        assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    }
    check(serving.channel(live).await.unwrap()).await.unwrap();
    serving.stop().await;
}

#[tokio::test]
async fn one_identity_has_so_many_calls_open_and_others_have_theirs() {
    let site = Site::new();
    let serving = serve(&site, |config| config.streams_per_identity = 4).await;
    let first = serving
        .channel(site.live(Role::Agent, "gpu-01"))
        .await
        .unwrap();
    // On connections of its own, it is the same one.
    let second = serving
        .channel(site.live(Role::Agent, "gpu-01"))
        .await
        .unwrap();
    let other = serving
        .channel(site.live(Role::Agent, "gpu-02"))
        .await
        .unwrap();
    let watch = async |channel: &Channel| {
        HealthClient::new(channel.clone())
            .watch(HealthCheckRequest::default())
            .await
    };
    let mut open = Vec::new();
    for channel in [&first, &second, &first, &second] {
        open.push(watch(channel).await.unwrap());
    }
    let refused = watch(&first).await.map(drop).unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(
        refused.message().contains("rdmesh://s/agent/gpu-01"),
        "{refused}"
    );
    watch(&other).await.unwrap();
    open.clear();
    soon("a place that is given back", async {
        while watch(&second).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    serving.stop().await;
}

#[tokio::test]
async fn the_uplinks_dialer_gives_nothing_to_somebody_else() {
    let site = Site::new();
    let serving = serve(&site, |_| {}).await;
    let agent = Tls::with(site.live(Role::Agent, "gpu-01"));
    let address: CollectorAddress = serving.address.to_string().parse().unwrap();
    let dialer = |tls: &Tls| CollectorDialer::new(address.clone()).secured(tls.clone());
    let channel = soon("dial", dialer(&agent).dial()).await.unwrap();
    check(channel).await.unwrap();
    // Without TLS there is no connection either, and it is told what is missing.
    let plain = CollectorDialer::new(address.clone());
    let refused = soon("dial", plain.dial()).await.unwrap_err();
    assert!(refused.to_string().contains("speaks TLS"), "{refused}");
    // An authority of the same site's name is another one.
    let other = Tls::with(Site::new().live(Role::Agent, "gpu-01"));
    let refused = soon("dial", dialer(&other).dial()).await.unwrap_err();
    assert!(refused.to_string().contains("TLS: "), "{refused}");
    serving.stop().await;
}

#[tokio::test]
async fn one_side_without_tls_is_told_which_in_both_directions() {
    let site = Site::new();
    let serving = serve(&site, |_| {}).await;
    let endpoint = |to: SocketAddr| Endpoint::from_shared(format!("http://{to}")).unwrap();
    // A client without TLS at a server with it.
    let to = serving.address;
    let plain = Tls::default();
    let connecting = plain.connect(endpoint(to), to, None, Expected::Collector);
    let error = soon("connect", connecting).await.unwrap_err();
    assert!(matches!(error, ConnectError::SpeaksTls), "{error:?}");
    assert!(!error.is_without_tls());
    let named = to.to_string();
    let connecting = plain.connect_by_name(endpoint(to), &named, Expected::Collector);
    let error = soon("connect", connecting).await.unwrap_err();
    assert!(error.to_string().contains("[tls]"), "{error}");
    serving.stop().await;
    // A client with TLS at a server without.
    let listener = server::bind_with(&ServerConfig::at(0), &plain)
        .await
        .unwrap();
    let ListenAddress::Tcp(to) = listener.local_address().unwrap() else {
        panic!("a TCP address");
    };
    let (end, ended) = oneshot::channel();
    let grace = ServerConfig::at(0).grace();
    let served = tokio::spawn(async move {
        Server::new().serve(listener, ended, grace).await.unwrap();
    });
    let reader = Tls::with(site.live(Role::Reader, "ada"));
    for bound in [None, Some(DEADLINE)] {
        let mut endpoint = endpoint(to);
        if let Some(bound) = bound {
            endpoint = endpoint.connect_timeout(bound);
        }
        let connecting = reader.connect(endpoint, to, None, Expected::Collector);
        let error = soon("connect", connecting).await.unwrap_err();
        assert!(error.is_without_tls(), "{error:?}");
        let told = rdmesh_services::causes::with_causes(&error);
        assert!(told.contains("does not speak TLS"), "{told}");
    }
    // And one without at a server without is served.
    let connecting = plain.connect(endpoint(to), to, None, Expected::Collector);
    check(soon("connect", connecting).await.unwrap())
        .await
        .unwrap();
    let _ = end.send(());
    soon("end", served).await.unwrap();
}

/// Who says nothing at all is taken as before: how long it may be silent is the caller's matter.
#[tokio::test]
async fn a_server_that_is_silent_is_connected_to() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let endpoint = Endpoint::from_shared(format!("http://{to}")).unwrap();
    let plain = Tls::default();
    let connecting = plain.connect(endpoint, to, None, Expected::Collector);
    soon("connect", connecting).await.unwrap();
}

#[test]
fn a_section_that_cannot_be_used_names_the_file() {
    let site = Site::new();
    let files = site.issue(Role::Agent, "gpu-01");
    let config = TlsConfig {
        ca: files.ca.clone(),
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        insecure_dial: false,
    };
    let tls = Tls::open(&config).unwrap();
    assert_eq!(tls.live().unwrap().identity().name, "gpu-01");
    std::fs::remove_file(&files.key).unwrap();
    let message = Tls::open(&config).unwrap_err().to_string();
    assert!(message.contains("agent-gpu-01.key"), "{message}");
    assert!(!Tls::open(&TlsConfig::default()).unwrap().is_on());
}

//! A collector with TLS, the authority of its site, and those who call it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use rcgen::string::Ia5String;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType};
use rdmesh_collector::config::CollectorConfig;
use rdmesh_collector::service::Collector;
use rdmesh_services::server::{self, ServerConfig};
use rdmesh_services::tls::Tls;
use rdmesh_tls::authority::{Authority, Issued, Request};
use rdmesh_tls::connect::{Secured, connect};
use rdmesh_tls::{Expected, Files, Live, Role, now};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tonic::transport::{Channel, Endpoint};

use crate::running::{cluster, until};

/// An authority and its files.
pub(crate) struct Site {
    pub(crate) authority: Authority,
    pub(crate) own: Issued,
    folder: TempDir,
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

impl Site {
    pub(crate) fn new(name: &str) -> Self {
        let (authority, own) = Authority::create(name, now(), 30).unwrap();
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("ca.crt"), &own.certificate);
        Self {
            authority,
            own,
            folder,
        }
    }

    /// A certificate, with hosts beside its own.
    pub(crate) fn issue(&self, role: Role, name: &str, also_for: &[&str]) -> Issued {
        let mut request = Request::new(role, name, now(), 7).unwrap();
        request.also_for = also_for.iter().map(ToString::to_string).collect();
        // For clients that know nothing of identities.
        request.addresses = vec!["localhost".to_owned()];
        self.authority.issue(&request, now()).unwrap()
    }

    /// One that holds from and until so many seconds from now.
    pub(crate) fn timed(&self, role: Role, name: &str, from: i64, until: i64) -> Issued {
        let mut request = Request::new(role, name, now(), 7).unwrap();
        (request.not_before, request.not_after) = (now() + from, now() + until);
        self.authority.issue(&request, now()).unwrap()
    }

    /// One that `rdmesh certs` would not make: other names in it.
    pub(crate) fn odd(&self, uris: &[&str], client: bool) -> Issued {
        let issuer = KeyPair::from_pem(&self.own.key).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&self.own.certificate, issuer).unwrap();
        let mut params = CertificateParams::default();
        let names = uris.iter().map(|uri| {
            let uri = Ia5String::try_from(*uri).unwrap();
            SanType::URI(uri)
        });
        params.subject_alt_names = names.collect();
        params.not_before = OffsetDateTime::now_utc() - time::Duration::hours(1);
        params.not_after = OffsetDateTime::now_utc() + time::Duration::hours(1);
        params.extended_key_usages = vec![if client {
            ExtendedKeyUsagePurpose::ClientAuth
        } else {
            ExtendedKeyUsagePurpose::ServerAuth
        }];
        let key = KeyPair::generate().unwrap();
        Issued {
            certificate: params.signed_by(&key, &issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    pub(crate) fn live(&self, name: &str, issued: &Issued) -> Arc<Live> {
        let at = |ending: &str| self.folder.path().join(format!("{name}.{ending}"));
        let files = Files {
            ca: self.folder.path().join("ca.crt"),
            certificate: at("crt"),
            key: at("key"),
        };
        write(&files.certificate, &issued.certificate);
        write(&files.key, &issued.key);
        Arc::new(Live::open(files).unwrap())
    }
}

/// A collector that is served over TLS.
pub(crate) struct SecuredCollector {
    pub(crate) site: Site,
    pub(crate) database: String,
    pub(crate) address: std::net::SocketAddr,
    end: Option<oneshot::Sender<()>>,
    served: tokio::task::JoinHandle<Result<(), String>>,
}

impl SecuredCollector {
    pub(crate) async fn start(change: impl FnOnce(&mut CollectorConfig)) -> Self {
        let site = Site::new("s");
        let database = cluster().new_database().unwrap();
        let mut config = CollectorConfig::default();
        config.database.url = rdmesh_services::config::SecretUrl::new(cluster().url(&database));
        config.database.wait_seconds = 1;
        config.server = ServerConfig::at(0);
        change(&mut config);
        let own = site.issue(Role::Collector, "c1", &[]);
        let tls = Tls::with(site.live("c1", &own));
        let listener = server::bind_with(&config.server, &tls).await.unwrap();
        let server::ListenAddress::Tcp(address) = listener.local_address().unwrap() else {
            panic!("a TCP address");
        };
        let collector = Collector::with(&config, &tls, OffsetDateTime::now_utc).unwrap();
        let (end, asked) = oneshot::channel::<()>();
        let served = tokio::spawn(async move {
            let served = collector.serve(listener, asked).await;
            served.map(drop).map_err(|error| error.to_string())
        });
        let running = Self {
            site,
            database,
            address,
            end: Some(end),
            served,
        };
        let operator = running.caller(Role::Operator, "ada").await;
        until("the collector serves", || serves(operator.clone())).await;
        running
    }

    /// The channel of somebody with a proper certificate.
    pub(crate) async fn caller(&self, role: Role, name: &str) -> Channel {
        self.with_hosts(role, name, &[]).await
    }

    pub(crate) async fn with_hosts(&self, role: Role, name: &str, also_for: &[&str]) -> Channel {
        let issued = self.site.issue(role, name, also_for);
        let live = self.site.live(&format!("{role}-{name}"), &issued);
        let secured = Secured {
            live,
            expected: Expected::Collector,
        };
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        connect(endpoint, self.address, None, secured)
            .await
            .unwrap()
    }

    /// A channel of a client that knows TLS and nothing of identities, with whatever it shows.
    pub(crate) async fn raw(&self, shows: Option<&Issued>) -> Result<Channel, String> {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(self.site.own.certificate.as_bytes()).unwrap();
        roots.add(ca).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match shows {
            None => builder.with_no_client_auth(),
            Some(issued) => {
                let chain = CertificateDer::pem_slice_iter(issued.certificate.as_bytes());
                let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
                let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let address = self.address;
        let dial = move |_| {
            let connector = connector.clone();
            async move {
                let stream = TcpStream::connect(address).await?;
                let name = ServerName::try_from("localhost").unwrap();
                connector.connect(name, stream).await.map(TokioIo::new)
            }
        };
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let connecting = endpoint.connect_with_connector(tower::service_fn(dial));
        connecting.await.map_err(|error| format!("{error:?}"))
    }

    /// What the read-only role sees.
    pub(crate) fn read(&self, sql: &str) -> String {
        let read = cluster().psql(&self.database, "rdmesh_reader", sql);
        read.unwrap().trim().to_owned()
    }

    pub(crate) async fn stop(mut self) {
        drop(self.end.take());
        self.served.await.unwrap().unwrap();
    }
}

async fn serves(channel: Channel) -> bool {
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_check_response::ServingStatus;
    use tonic_health::pb::health_client::HealthClient;
    let mut health = HealthClient::new(channel);
    let answer = health.check(HealthCheckRequest::default()).await;
    answer.is_ok_and(|answer| answer.get_ref().status() == ServingStatus::Serving)
}

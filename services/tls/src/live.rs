//! The certificates of this process: read from files, read again when those change, and TLS
//! with them in both directions.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::certificate::{CertificateError, Facts};
use crate::identity::{Identity, Peer};
use crate::verify::ByIdentity;

pub use crate::verify::Expected;

/// Largest of the files, bytes: a dozen authorities have 20 KB.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// What is spoken inside of TLS: gRPC's HTTP/2.
const ALPN: &[u8] = b"h2";

/// The name that a client hello must carry; nobody looks at it.
const SERVER_NAME: &str = "rdmesh.invalid";

/// Bits of a file's mode that let others than owner and group at it.
const OTHERS: u32 = 0o007;

/// Where the certificates are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// Certificates of the authorities that are believed, PEM.
    pub ca: PathBuf,
    /// The certificate of this process, then those between it and the authority, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM (PKCS#8, SEC1 or PKCS#1).
    pub key: PathBuf,
}

impl Files {
    fn all(&self) -> [&Path; 3] {
        [&self.ca, &self.certificate, &self.key]
    }
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}; `rdmesh certs` makes certificates", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file holds something else.
    #[error("{}: {why}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Others may read the key.
    #[error(
        "{}: everybody on this machine may read this private key; `chmod 600` it (640 for a group \
         of its own)",
        path.display()
    )]
    OpenKey {
        /// Which.
        path: PathBuf,
    },
    /// Who this is cannot be told.
    #[error("{}: {source}", path.display())]
    Identity {
        /// The certificate.
        path: PathBuf,
        /// What is wrong with it.
        source: CertificateError,
    },
    /// The certificate's time is over, or has not come.
    #[error(
        "{}: the certificate {why}; issue a new one (`rdmesh certs issue --renew`), or set this \
         machine's clock",
        path.display()
    )]
    Time {
        /// Which.
        path: PathBuf,
        /// What of its time.
        why: &'static str,
    },
}

/// Why a handshake came to nothing.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct HandshakeError {
    /// A few words without anything secret.
    pub why: String,
    /// A short word that is one of few, for metrics.
    pub kind: &'static str,
}

/// What [`Live::check`] found.
#[derive(Debug)]
pub enum Checked {
    /// Nothing has changed.
    Same,
    /// New certificates are in use from now on.
    Reloaded,
    /// The files have changed and cannot be used; those of before stay.
    Kept(TlsError),
}

/// When a file was written, how large it is, and which it is.
type Stamp = Option<(i64, i64, u64, u64)>;

/// The certificates in use. Connections that stand keep those with which they began.
#[derive(Debug)]
pub struct Live {
    files: Files,
    loaded: RwLock<Arc<Loaded>>,
    stamps: Mutex<[Stamp; 3]>,
}

/// One reading of the files.
#[derive(Debug)]
struct Loaded {
    own: Facts,
    identity: Identity,
    /// When the first of the authorities ends.
    ca_not_after: i64,
    server: Arc<ServerConfig>,
    roots: Arc<RootCertStore>,
    key: Arc<CertifiedKey>,
    provider: Arc<CryptoProvider>,
}

impl Live {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`] names the file and what to do.
    pub fn open(files: Files) -> Result<Self, TlsError> {
        let stamps = files.all().map(stamp);
        let loaded = Loaded::read(&files)?;
        loaded.check_time(&files, crate::now())?;
        Ok(Self {
            loaded: RwLock::new(Arc::new(loaded)),
            stamps: Mutex::new(stamps),
            files,
        })
    }

    /// Reads the files again if they have changed. One reading for each change: a bad one is
    /// told once.
    pub fn check(&self) -> Checked {
        let mut known = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = self.files.all().map(stamp);
        if *known == stamps {
            return Checked::Same;
        }
        *known = stamps;
        let loaded = Loaded::read(&self.files).and_then(|loaded| {
            loaded.check_time(&self.files, crate::now())?;
            Ok(loaded)
        });
        match loaded {
            Ok(loaded) => {
                *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
                Checked::Reloaded
            }
            Err(error) => Checked::Kept(error),
        }
    }

    fn loaded(&self) -> Arc<Loaded> {
        Arc::clone(&self.loaded.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Who this process is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.loaded().identity.clone()
    }

    /// What its certificate says.
    #[must_use]
    pub fn own(&self) -> Facts {
        self.loaded().own.clone()
    }

    /// When the first of the authorities in the file ends, seconds since 1970.
    #[must_use]
    pub fn ca_not_after(&self) -> i64 {
        self.loaded().ca_not_after
    }

    /// The files, for messages.
    #[must_use]
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// The server's side of a handshake. The peer has shown a certificate of an authority that
    /// is believed; whom that names may still be nobody of this site, which is the inner error.
    ///
    /// # Errors
    /// [`HandshakeError`]. Takes as long as the peer lets it: bound the time.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        io: S,
    ) -> Result<(server::TlsStream<S>, Result<Peer, String>), HandshakeError> {
        let loaded = self.loaded();
        let accepted = TlsAcceptor::from(Arc::clone(&loaded.server)).accept(io);
        let stream = accepted.await.map_err(|error| told(&error))?;
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let first = certificates.first().map(CertificateDer::as_ref);
        let peer = match first.map(Facts::read) {
            None => Err("there is no certificate".to_owned()),
            Some(Err(error)) => Err(error.to_string()),
            Some(Ok(facts)) => facts.peer().map_err(|error| error.to_string()),
        };
        let peer = peer.and_then(|peer| {
            if peer.identity.site == loaded.identity.site {
                return Ok(peer);
            }
            Err(format!(
                "{} is of another site than {}",
                peer.identity, loaded.identity
            ))
        });
        Ok((stream, peer))
    }

    /// The client's side, ended when the server has taken this side's certificate: it speaks
    /// first, as ours do.
    ///
    /// # Errors
    /// [`HandshakeError`]. Takes as long as the peer lets it: bound the time.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        io: S,
        expected: &Expected,
    ) -> Result<client::TlsStream<S>, HandshakeError> {
        let config = self.loaded().client(expected);
        let config = config.map_err(|error| HandshakeError {
            why: error.to_string(),
            kind: "configuration",
        })?;
        let name = ServerName::try_from(SERVER_NAME).map_err(|error| HandshakeError {
            why: error.to_string(),
            kind: "configuration",
        })?;
        let connected = TlsConnector::from(Arc::new(config)).connect(name, io);
        let mut stream = connected.await.map_err(|error| told(&error))?;
        // In TLS 1.3 a client is done before the server has looked at its certificate; the
        // refusal comes where the first answer would be.
        let first = stream.fill_buf().await.map_err(|error| told(&error))?;
        if first.is_empty() {
            return Err(HandshakeError {
                why: "the server closed the connection after the handshake".to_owned(),
                kind: "closed",
            });
        }
        Ok(stream)
    }
}

impl Loaded {
    fn read(files: &Files) -> Result<Self, TlsError> {
        let content = |path: &Path, why: String| TlsError::Content {
            path: path.to_owned(),
            why,
        };
        let (roots, ca_not_after) = read_authorities(&files.ca)?;
        let chain = read_certificates(&files.certificate)?;
        let unusable = |source| TlsError::Identity {
            path: files.certificate.clone(),
            source,
        };
        let own = Facts::read(&chain[0]).map_err(unusable)?;
        let identity = own.peer().map_err(unusable)?.identity;
        let key = read_key(&files.key)?;
        let provider = Arc::new(ring::default_provider());
        let key = CertifiedKey::from_der(chain, key, &provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => content(
                &files.key,
                format!(
                    "this key is not that of {}: both were not replaced together",
                    files.certificate.display()
                ),
            ),
            other => content(&files.key, other.to_string()),
        })?;
        let key = Arc::new(key);
        let roots = Arc::new(roots);
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()
                .map_err(|error| content(&files.ca, error.to_string()))?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| content(&files.certificate, error.to_string()))?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(Arc::clone(
                &key,
            ))));
        server.alpn_protocols = vec![ALPN.to_vec()];
        // A session that is resumed brings back a peer whose certificate is not looked at again.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self {
            own,
            identity,
            ca_not_after,
            server: Arc::new(server),
            roots,
            key,
            provider,
        })
    }

    fn check_time(&self, files: &Files, now: i64) -> Result<(), TlsError> {
        let refuse = |why| TlsError::Time {
            path: files.certificate.clone(),
            why,
        };
        if now >= self.own.not_after {
            return Err(refuse("has expired"));
        }
        if now < self.own.not_before {
            return Err(refuse("is not valid yet"));
        }
        Ok(())
    }

    fn client(&self, expected: &Expected) -> Result<ClientConfig, rustls::Error> {
        let verifier = ByIdentity {
            roots: Arc::clone(&self.roots),
            provider: Arc::clone(&self.provider),
            site: self.identity.site.clone(),
            expected: expected.clone(),
        };
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(Arc::clone(
                &self.key,
            ))));
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

fn stamp(path: &Path) -> Stamp {
    let meta = fs::metadata(path).ok()?;
    Some((meta.mtime(), meta.mtime_nsec(), meta.size(), meta.ino()))
}

/// The bytes of a file, up to [`MAX_FILE_BYTES`].
fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |source| TlsError::Read {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(TlsError::Content {
            path: path.to_owned(),
            why: format!("it has more than {MAX_FILE_BYTES} bytes; is it the right file?"),
        });
    }
    Ok(bytes)
}

/// The certificates in a PEM file, one at least.
///
/// # Errors
/// [`TlsError::Read`] and [`TlsError::Content`].
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let content = |why: String| TlsError::Content {
        path: path.to_owned(),
        why,
    };
    let found = found.map_err(|error| content(error.to_string()))?;
    if found.is_empty() {
        return Err(content("there is no certificate in it (PEM)".to_owned()));
    }
    Ok(found)
}

pub(crate) fn read_authorities(path: &Path) -> Result<(RootCertStore, i64), TlsError> {
    let mut roots = RootCertStore::empty();
    let mut ends = i64::MAX;
    let content = |why: String| TlsError::Content {
        path: path.to_owned(),
        why,
    };
    for certificate in read_certificates(path)? {
        let facts = Facts::read(&certificate).map_err(|error| content(error.to_string()))?;
        if !facts.is_authority {
            return Err(content(format!(
                "{} is no authority's certificate; here belongs ca.crt",
                facts.subject
            )));
        }
        ends = ends.min(facts.not_after);
        roots
            .add(certificate)
            .map_err(|error| content(error.to_string()))?;
    }
    Ok((roots, ends))
}

pub(crate) fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let meta = fs::metadata(path).map_err(|source| TlsError::Read {
        path: path.to_owned(),
        source,
    })?;
    if meta.mode() & OTHERS != 0 {
        return Err(TlsError::OpenKey {
            path: path.to_owned(),
        });
    }
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| TlsError::Content {
        path: path.to_owned(),
        // The error says what is missing and quotes nothing.
        why: format!("there is no private key in it (PEM): {error}"),
    })
}

/// What a failed handshake says, in words for people.
fn told(error: &io::Error) -> HandshakeError {
    use rustls::{AlertDescription as Alert, CertificateError as Bad, Error as E};
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<E>());
    let (kind, why) = match inner {
        Some(E::NoCertificatesPresented) => ("no_certificate", "it shows no certificate".into()),
        Some(E::InvalidCertificate(bad)) => match bad {
            Bad::Expired | Bad::ExpiredContext { .. } => {
                ("expired", "the certificate has expired".into())
            }
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                ("not_yet", "the certificate is not valid yet".into())
            }
            // An authority of the same name with another key.
            Bad::UnknownIssuer | Bad::BadSignature => (
                "unknown_issuer",
                "the certificate is of an authority that is not believed here".into(),
            ),
            Bad::Other(other) => ("identity", other.0.to_string()),
            other => (
                "certificate",
                format!("the certificate is refused: {other:?}"),
            ),
        },
        Some(E::AlertReceived(alert)) => (
            "refused",
            match alert {
                Alert::CertificateRequired => "the other side wants a certificate".into(),
                Alert::CertificateExpired => {
                    "the other side says that this certificate has expired or is not valid yet"
                        .into()
                }
                Alert::UnknownCA | Alert::DecryptError => {
                    "the other side does not believe the authority of this certificate".into()
                }
                Alert::BadCertificate | Alert::CertificateUnknown | Alert::AccessDenied => {
                    format!("the other side refuses this certificate ({alert:?})")
                }
                other => format!("the other side ends the handshake ({other:?})"),
            },
        ),
        Some(E::InvalidMessage(_)) => (
            "no_tls",
            "the other side does not speak TLS; has it a [tls] section?".into(),
        ),
        Some(other) => ("protocol", other.to_string()),
        None => match error.kind() {
            io::ErrorKind::UnexpectedEof => (
                "closed",
                "the other side closed the connection in the handshake".into(),
            ),
            _ => ("connection", error.to_string()),
        },
    };
    HandshakeError { why, kind }
}

//! What connections are made of: TLS with the caller's certificate, or plain TCP to this
//! machine, and to others on request alone.

use std::path::PathBuf;
use std::sync::Arc;

use rdmesh_tls::connect::{ConnectError, Secured};
use rdmesh_tls::{Expected, Files, Live, TlsError};
use serde::Deserialize;
use tonic::transport::{Channel, Endpoint};

use crate::endpoint::UNIX_PREFIX;
use crate::error::innermost;

/// Where the caller's certificate is: section `[tls]` of `cli.toml`, and flags over it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsSettings {
    /// Authorities that are believed, PEM.
    pub ca: Option<PathBuf>,
    /// The caller's certificate, PEM.
    pub certificate: Option<PathBuf>,
    /// Its private key, PEM.
    pub key: Option<PathBuf>,
    /// Dial other machines without any of them.
    pub insecure: bool,
}

impl TlsSettings {
    /// What `self` leaves out is `other`'s.
    #[must_use]
    pub fn over(self, other: Self) -> Self {
        Self {
            ca: self.ca.or(other.ca),
            certificate: self.certificate.or(other.certificate),
            key: self.key.or(other.key),
            insecure: self.insecure || other.insecure,
        }
    }
}

/// Why there are no links.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Some of the files are named, and not all.
    #[error("ca, certificate and key belong together: {0} is not named")]
    Incomplete(&'static str),
    /// A file cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// This side has no certificate, and other machines are not dialled without.
const NO_CERTIFICATE: &str = "it is on another machine, and there is no certificate: name one with \
     --tls-ca, --tls-certificate and --tls-key or in [tls] of cli.toml, or say --insecure";

/// This side has no certificate, and the other side has one.
const SPEAKS_TLS: &str = "what answers there speaks TLS: name your certificate with --tls-ca, \
     --tls-certificate and --tls-key, by RDMESH_TLS_CA, RDMESH_TLS_CERTIFICATE and RDMESH_TLS_KEY, \
     or in [tls] of cli.toml (`rdmesh certs issue` makes one)";

/// This side has a certificate, and the other side has none.
const WITHOUT_TLS: &str = "what answers there does not speak TLS: give that service a [tls] \
     section; or ask it without your certificate (no --tls-ca, --tls-certificate and --tls-key, no \
     RDMESH_TLS_…, no [tls] in cli.toml), on another machine with --insecure";

/// Whether a refusal of [`Links::connect`] says by itself what to do.
pub(crate) fn says_what_to_do(reason: &str) -> bool {
    [NO_CERTIFICATE, SPEAKS_TLS, WITHOUT_TLS].contains(&reason)
}

/// How connections are made. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Links {
    live: Option<Arc<Live>>,
    insecure: bool,
}

impl Links {
    /// Reads the certificate, where there is one.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn open(settings: TlsSettings) -> Result<Self, LinkError> {
        let TlsSettings {
            ca,
            certificate,
            key,
            insecure,
        } = settings;
        let live = match (ca, certificate, key) {
            (None, None, None) => None,
            (Some(ca), Some(certificate), Some(key)) => {
                let files = Files {
                    ca,
                    certificate,
                    key,
                };
                Some(Arc::new(Live::open(files)?))
            }
            (None, ..) => return Err(LinkError::Incomplete("ca")),
            (_, None, _) => return Err(LinkError::Incomplete("certificate")),
            (.., None) => return Err(LinkError::Incomplete("key")),
        };
        Ok(Self { live, insecure })
    }

    /// Whether connections to other machines have TLS.
    pub(crate) fn have_tls(&self) -> bool {
        self.live.is_some()
    }

    /// Connects to `authority` (`HOST:PORT` or `unix:/PATH`); a refusal is a sentence.
    pub(crate) async fn connect(
        &self,
        endpoint: Endpoint,
        authority: &str,
        expected: Expected,
    ) -> Result<Channel, String> {
        // A socket of the file system has no TLS.
        if authority.starts_with(UNIX_PREFIX) {
            let connected = endpoint.connect().await;
            return connected.map_err(|error| innermost(&error).to_string());
        }
        let to = authority.to_owned();
        let connected = match &self.live {
            Some(live) => {
                let secured = Secured {
                    live: Arc::clone(live),
                    expected,
                };
                rdmesh_tls::connect::connect(endpoint, to, None, secured).await
            }
            None if !self.insecure && !is_local(authority) => return Err(NO_CERTIFICATE.to_owned()),
            None => rdmesh_tls::connect::connect_plain(endpoint, to, None).await,
        };
        connected.map_err(|error| match error {
            ConnectError::SpeaksTls => SPEAKS_TLS.to_owned(),
            error if error.is_without_tls() => WITHOUT_TLS.to_owned(),
            error => innermost(&error).to_string(),
        })
    }
}

pub(crate) fn is_local(authority: &str) -> bool {
    let host = authority
        .rsplit_once(':')
        .map_or(authority, |(host, _)| host);
    let ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_lie_over_the_file_and_all_three_are_needed() {
        let file = TlsSettings {
            ca: Some("/a".into()),
            certificate: Some("/b".into()),
            ..TlsSettings::default()
        };
        let flags = TlsSettings {
            certificate: Some("/c".into()),
            ..TlsSettings::default()
        };
        let both = flags.over(file);
        assert_eq!(both.certificate, Some("/c".into()));
        let message = Links::open(both).unwrap_err().to_string();
        assert!(message.contains("key is not named"), "{message}");
        assert!(Links::open(TlsSettings::default()).is_ok());
    }

    #[tokio::test]
    async fn another_machine_is_not_dialled_without_a_certificate() {
        let dial = async |links: Links, authority: &str| {
            let endpoint = Endpoint::from_shared(format!("http://{authority}")).unwrap();
            links
                .connect(endpoint, authority, Expected::Collector)
                .await
                .map(drop)
                .unwrap_err()
        };
        let refused = dial(Links::default(), "192.0.2.1:7400").await;
        assert!(refused.contains("--insecure"), "{refused}");
        // Nobody answers here, and that is what it says.
        let tried = dial(Links::default(), "127.0.0.1:1").await;
        assert!(!tried.contains("--insecure"), "{tried}");
    }
}

//! Who is at the other end, asked by the one who connects: the name of DNS says nothing, the
//! identity in the certificate everything.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

use crate::certificate::Facts;
use crate::identity::Role;

/// Who is expected where a connection goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A collector, whatever its name: each of them may take what agents report.
    Collector,
    /// The agent of a host.
    AgentOf(String),
    /// An agent dialled by address. Where that is a name, the agent's name is it, or begins
    /// it: `gpu-01` answers at `gpu-01.site:7401`.
    AgentAt(String),
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collector => f.write_str("a collector"),
            Self::AgentOf(host) => write!(f, "the agent of {host}"),
            Self::AgentAt(address) => write!(f, "the agent at {address}"),
        }
    }
}

impl Expected {
    fn is(&self, facts: &Facts, site: &str) -> Result<(), NotExpected> {
        let refuse = |who: String| NotExpected {
            expected: self.clone(),
            site: site.to_owned(),
            who,
        };
        let peer = facts.peer().map_err(|error| refuse(error.to_string()))?;
        let fits = peer.identity.site == site
            && match self {
                Self::Collector => peer.identity.role == Role::Collector,
                Self::AgentOf(host) => peer.speaks_for(host),
                Self::AgentAt(address) => {
                    peer.identity.role == Role::Agent
                        && peer.hosts.iter().any(|host| answers_at(host, address))
                }
            };
        if fits {
            return Ok(());
        }
        Err(refuse(format!("{} answers", peer.identity)))
    }
}

/// Whether `host` may answer at `address`, as far as the address is a name.
fn answers_at(host: &str, address: &str) -> bool {
    let name = address.rsplit_once(':').map_or(address, |(name, _)| name);
    let is_ip = name
        .trim_matches(['[', ']'])
        .parse::<std::net::IpAddr>()
        .is_ok();
    let begins = |longer: &str, shorter: &str| {
        longer
            .strip_prefix(shorter)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    is_ip || name == "localhost" || begins(name, host) || begins(host, name)
}

/// Somebody else answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected} of site {site}, but {who}")]
pub(crate) struct NotExpected {
    expected: Expected,
    site: String,
    who: String,
}

/// Verifies a server by authority and identity.
#[derive(Debug)]
pub(crate) struct ByIdentity {
    pub(crate) roots: Arc<RootCertStore>,
    pub(crate) provider: Arc<CryptoProvider>,
    pub(crate) site: String,
    pub(crate) expected: Expected,
}

impl ServerCertVerifier for ByIdentity {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        let other =
            |error| Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))));
        let facts = Facts::read(end_entity)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        self.expected.is(&facts, &self.site).map_err(other)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.3 is spoken here alone".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_dialled_is_the_agents() {
        for (host, address, fits) in [
            ("gpu-01", "gpu-01:7401", true),
            ("gpu-01", "gpu-01.site:7401", true),
            ("gpu-01.site", "gpu-01:7401", true),
            ("gpu-01", "10.0.0.1:7401", true),
            ("gpu-01", "[fd00::1]:7401", true),
            ("gpu-01", "localhost:7401", true),
            ("gpu-01", "gpu-011:7401", false),
            ("gpu-01", "gpu-0:7401", false),
            ("gpu-01", "gpu-02:7401", false),
        ] {
            assert_eq!(answers_at(host, address), fits, "{host} {address}");
        }
    }
}

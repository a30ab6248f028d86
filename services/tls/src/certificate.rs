//! What a certificate says, read from its bytes. Whether to believe it is the handshake's to
//! decide.

use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::identity::{Identity, IdentityError, Peer, Role, SCHEME};

/// Names of one certificate at most: a DPU has one host, a proxy a few names.
const MAX_NAMES: usize = 64;

/// Why a certificate tells nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// It is none.
    #[error("it is no certificate of X.509")]
    Unreadable,
    /// It names nobody.
    #[error(
        "the certificate names no identity: it needs a URI rdmesh://SITE/ROLE/NAME among its \
         subject alternative names, as `rdmesh certs issue` writes it"
    )]
    Nobody,
    /// It names somebody in a wrong form.
    #[error("the certificate's identity cannot be used: {0}")]
    Identity(#[from] IdentityError),
    /// It names several, which is for agents of one site alone.
    #[error(
        "the certificate names several identities; only an agent may, for hosts of the same site \
         of which it reports"
    )]
    Several,
    /// It has too many names.
    #[error("the certificate has more than {MAX_NAMES} names")]
    ManyNames,
}

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// URIs of our scheme, as they stand there.
    pub identities: Vec<String>,
    /// Names of DNS and IP addresses, for clients that look at those.
    pub addresses: Vec<String>,
    /// From when it holds, seconds since 1970.
    pub not_before: i64,
    /// Until when.
    pub not_after: i64,
    /// Whether it may issue others.
    pub is_authority: bool,
    /// The site of an authority: the organization in its name.
    pub organization: String,
    /// Its name.
    pub subject: String,
    /// The name of who issued it.
    pub issuer: String,
    /// Its number, hexadecimal.
    pub serial: String,
}

impl Facts {
    /// Reads a certificate.
    ///
    /// # Errors
    /// [`CertificateError::Unreadable`] and [`CertificateError::ManyNames`].
    pub fn read(der: &[u8]) -> Result<Self, CertificateError> {
        let (rest, certificate) =
            X509Certificate::from_der(der).map_err(|_| CertificateError::Unreadable)?;
        if !rest.is_empty() {
            return Err(CertificateError::Unreadable);
        }
        let names = certificate
            .subject_alternative_name()
            .map_err(|_| CertificateError::Unreadable)?;
        let names = names.map_or(&[][..], |names| &names.value.general_names);
        if names.len() > MAX_NAMES {
            return Err(CertificateError::ManyNames);
        }
        let (mut identities, mut addresses) = (Vec::new(), Vec::new());
        for name in names {
            match name {
                GeneralName::URI(uri) if uri.starts_with(SCHEME) => {
                    identities.push((*uri).to_owned());
                }
                GeneralName::DNSName(name) => addresses.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => addresses.extend(ip(bytes)),
                _ => {}
            }
        }
        let organization = certificate.subject().iter_organization().next();
        let organization = organization.and_then(|o| o.as_str().ok()).unwrap_or("");
        Ok(Self {
            identities,
            addresses,
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
            is_authority: certificate.is_ca(),
            organization: organization.to_owned(),
            subject: certificate.subject().to_string(),
            issuer: certificate.issuer().to_string(),
            serial: certificate.raw_serial_as_string(),
        })
    }

    /// Whom it names: the first identity, and for an agent the hosts of all of them.
    ///
    /// # Errors
    /// [`CertificateError`]: nobody, somebody in a wrong form, or several who are not agents of
    /// one site.
    pub fn peer(&self) -> Result<Peer, CertificateError> {
        let mut named = self.identities.iter().map(|uri| uri.parse::<Identity>());
        let identity = named.next().ok_or(CertificateError::Nobody)??;
        let mut hosts = Vec::new();
        if identity.role == Role::Agent {
            hosts.push(identity.name.clone());
        }
        for other in named {
            let other = other?;
            let is_agent = identity.role == Role::Agent && other.role == Role::Agent;
            if !is_agent || other.site != identity.site {
                return Err(CertificateError::Several);
            }
            hosts.push(other.name);
        }
        Ok(Peer {
            identity,
            hosts,
            not_after: self.not_after,
        })
    }
}

fn ip(bytes: &[u8]) -> Option<String> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(four).to_string());
    }
    let sixteen = <[u8; 16]>::try_from(bytes).ok()?;
    Some(std::net::Ipv6Addr::from(sixteen).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naming(identities: &[&str]) -> Facts {
        Facts {
            identities: identities.iter().map(ToString::to_string).collect(),
            addresses: Vec::new(),
            not_before: 0,
            not_after: 7,
            is_authority: false,
            organization: String::new(),
            subject: String::new(),
            issuer: String::new(),
            serial: String::new(),
        }
    }

    #[test]
    fn an_agent_may_speak_for_more_hosts_and_nobody_else_may() {
        let peer = naming(&["rdmesh://s/agent/dpu-1", "rdmesh://s/agent/gpu-1"]);
        let peer = peer.peer().unwrap();
        assert_eq!(peer.identity.to_string(), "rdmesh://s/agent/dpu-1");
        assert!(peer.speaks_for("dpu-1") && peer.speaks_for("gpu-1"));
        assert!(!peer.speaks_for("gpu-2") && !peer.speaks_for("GPU-1"));
        let reader = naming(&["rdmesh://s/reader/ada"]).peer().unwrap();
        assert!(!reader.speaks_for("ada"));
        for bad in [
            &["rdmesh://s/agent/a", "rdmesh://t/agent/b"][..],
            &["rdmesh://s/agent/a", "rdmesh://s/operator/b"],
            &["rdmesh://s/reader/a", "rdmesh://s/operator/b"],
        ] {
            assert_eq!(naming(bad).peer(), Err(CertificateError::Several));
        }
        assert_eq!(naming(&[]).peer(), Err(CertificateError::Nobody));
        assert!(naming(&["rdmesh://s/agent/a/b"]).peer().is_err());
    }

    #[test]
    fn what_is_no_certificate_is_refused() {
        for bad in [&b""[..], b"x", &[0x30, 0x80], &[0x30; 4096]] {
            assert_eq!(Facts::read(bad), Err(CertificateError::Unreadable));
        }
    }
}

//! A small authority: makes itself, and certificates for a site.

use std::net::IpAddr;
use std::str::FromStr;

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use time::OffsetDateTime;

use crate::certificate::{CertificateError, Facts};
use crate::identity::{Identity, IdentityError, Role, check_name};

/// How long an authority holds: it is on every machine, and to replace it touches each.
pub const AUTHORITY_DAYS: u32 = 3_650;

/// How long a certificate holds: a year's leave to renew it, and a stolen one ends.
pub const CERTIFICATE_DAYS: u32 = 365;

/// Longest time of any of them: a certificate that outlives those who know of it is a fault.
pub const MAX_DAYS: u32 = 7_300;

/// A certificate holds from so long before it was made: clocks of a site differ.
const BACKDATED_SECONDS: i64 = 300;

/// Seconds of a day.
const DAY: i64 = 86_400;

/// Why nothing is issued.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A name.
    #[error(transparent)]
    Name(#[from] IdentityError),
    /// A name of DNS or an address.
    #[error("{0:?} is neither a name of DNS nor an IP address")]
    Address(String),
    /// A lifetime.
    #[error("{0} days are not allowed: 1 to {MAX_DAYS}")]
    Days(u32),
    /// The certificate would outlive its authority.
    #[error(
        "the authority itself ends in {0} days, before the certificate would; say --days {0} at \
         most, or make a new authority"
    )]
    Outlived(i64),
    /// More hosts are for agents.
    #[error("only an agent speaks for more hosts (--for); a {0} has one name")]
    MoreHosts(Role),
    /// The file is no authority's.
    #[error("this is no authority of rdmesh: {0}")]
    NoAuthority(String),
    /// The library refuses.
    #[error("the certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
    /// What was made cannot be read.
    #[error(transparent)]
    Unreadable(#[from] CertificateError),
}

/// A certificate with its key, both as PEM.
#[derive(Clone)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

/// The key is nobody's to see.
impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// What is asked of an authority.
#[derive(Clone, Debug)]
pub struct Request {
    /// What it is to be.
    pub role: Role,
    /// Its name.
    pub name: String,
    /// Hosts of which an agent reports besides.
    pub also_for: Vec<String>,
    /// Names of DNS and IP addresses, for clients that look at those.
    pub addresses: Vec<String>,
    /// From when it holds, seconds since 1970.
    pub not_before: i64,
    /// Until when.
    pub not_after: i64,
}

impl Request {
    /// For `role` of that name, from now for `days`.
    ///
    /// # Errors
    /// [`AuthorityError::Days`].
    pub fn new(role: Role, name: &str, now: i64, days: u32) -> Result<Self, AuthorityError> {
        let (not_before, not_after) = lifetime(now, days)?;
        Ok(Self {
            role,
            name: name.to_owned(),
            also_for: Vec::new(),
            addresses: Vec::new(),
            not_before,
            not_after,
        })
    }
}

fn lifetime(now: i64, days: u32) -> Result<(i64, i64), AuthorityError> {
    if days == 0 || days > MAX_DAYS {
        return Err(AuthorityError::Days(days));
    }
    Ok((now - BACKDATED_SECONDS, now + i64::from(days) * DAY))
}

/// An authority that can issue.
#[derive(Debug)]
pub struct Authority {
    site: String,
    not_after: i64,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes an authority for a site. What it returns beside itself is to be kept; the key in
    /// it is the site's.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn create(site: &str, now: i64, days: u32) -> Result<(Self, Issued), AuthorityError> {
        check_name(site)?;
        let (not_before, not_after) = lifetime(now, days)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, format!("rdmesh authority of {site}"));
        params
            .distinguished_name
            .push(DnType::OrganizationName, site);
        // It issues certificates, and no authorities.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_time(&mut params, not_before, not_after);
        params.serial_number = Some(serial());
        let key = KeyPair::generate()?;
        let issued = Issued {
            certificate: params.self_signed(&key)?.pem(),
            key: key.serialize_pem(),
        };
        let authority = Self {
            site: site.to_owned(),
            not_after,
            issuer: Issuer::new(params, key),
        };
        Ok((authority, issued))
    }

    /// The authority of a certificate and its key, both PEM.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn open(certificate: &str, key: &str) -> Result<Self, AuthorityError> {
        let no = |why: &str| AuthorityError::NoAuthority(why.to_owned());
        let der = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|_| no("the file holds no certificate"))?;
        let facts = Facts::read(&der)?;
        if !facts.is_authority || check_name(&facts.organization).is_err() {
            return Err(no(
                "the certificate is not one that `rdmesh certs init` made",
            ));
        }
        let key = KeyPair::from_pem(key).map_err(|_| no("its key cannot be read"))?;
        if !der
            .as_ref()
            .windows(key.public_key_raw().len())
            .any(|part| part == key.public_key_raw())
        {
            return Err(no("the key is not that of the certificate"));
        }
        Ok(Self {
            site: facts.organization,
            not_after: facts.not_after,
            issuer: Issuer::from_ca_cert_der(&der, key)?,
        })
    }

    /// Its site.
    #[must_use]
    pub fn site(&self) -> &str {
        &self.site
    }

    /// Makes a key and a certificate for it.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn issue(&self, request: &Request, now: i64) -> Result<Issued, AuthorityError> {
        if request.not_after > self.not_after {
            return Err(AuthorityError::Outlived((self.not_after - now) / DAY));
        }
        if request.role != Role::Agent && !request.also_for.is_empty() {
            return Err(AuthorityError::MoreHosts(request.role));
        }
        let mut names = Vec::new();
        for name in std::iter::once(&request.name).chain(&request.also_for) {
            let identity = Identity::new(&self.site, request.role, name)?.to_string();
            let uri = Ia5String::try_from(identity)?;
            names.push(SanType::URI(uri));
        }
        for address in &request.addresses {
            names.push(address_of(address)?);
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, self.site.as_str());
        params
            .distinguished_name
            .push(DnType::OrganizationalUnitName, request.role.as_str());
        params.subject_alt_names = names;
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // Those who serve are dialled, and dial.
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if request.role.serves() {
            params
                .extended_key_usages
                .push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        set_time(&mut params, request.not_before, request.not_after);
        params.serial_number = Some(serial());
        let key = KeyPair::generate()?;
        Ok(Issued {
            certificate: params.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn set_time(params: &mut CertificateParams, not_before: i64, not_after: i64) {
    let at = |seconds| {
        OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    };
    params.not_before = at(not_before);
    params.not_after = at(not_after);
}

/// A number of 16 random bytes, as RFC 5280 wants it: positive and not to be guessed.
fn serial() -> SerialNumber {
    let mut bytes = uuid::Uuid::new_v4().into_bytes();
    bytes[0] = bytes[0] & 0x7f | 0x40;
    SerialNumber::from_slice(&bytes)
}

fn address_of(text: &str) -> Result<SanType, AuthorityError> {
    if let Ok(ip) = IpAddr::from_str(text) {
        return Ok(SanType::IpAddress(ip));
    }
    let wrong = || AuthorityError::Address(text.chars().take(80).collect());
    check_name(text).map_err(|_| wrong())?;
    let name = Ia5String::try_from(text).map_err(|_| wrong())?;
    Ok(SanType::DnsName(name))
}

//! What is wrong with the files of a certificate, all of it and not the first alone: for people
//! who look for it. What a process takes into use is [`crate::Live`]'s to decide.

use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError as Bad, Error};

use crate::certificate::Facts;
use crate::identity::Peer;
use crate::live::{Files, TlsError, read_authorities, read_certificates, read_key};

/// What the three files say. A sentence says why something cannot be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The certificate itself.
    pub own: Result<Facts, String>,
    /// Whom it names.
    pub peer: Result<Peer, String>,
    /// The authorities that are believed.
    pub authorities: Result<Vec<Facts>, String>,
    /// Whether the key can be read, and is that of the certificate.
    pub key: Result<(), String>,
    /// Whether one of the authorities issued the certificate. Its time is not asked here.
    pub chain: Result<(), String>,
}

/// Reads the files and puts them side by side. `now`: seconds since 1970. Blocks while the files
/// are read; who names a pipe waits for its writer.
#[must_use]
pub fn inspect(files: &Files, now: i64) -> Inspection {
    let told = |error: TlsError| error.to_string();
    let chain = read_certificates(&files.certificate).map_err(told);
    let own = match &chain {
        Ok(chain) => facts(&chain[0]),
        Err(why) => Err(why.clone()),
    };
    let peer = match &own {
        Ok(own) => own.peer().map_err(|error| error.to_string()),
        Err(why) => Err(why.clone()),
    };
    let authorities = read_certificates(&files.ca).map_err(told);
    let authorities = authorities.and_then(|all| all.iter().map(facts).collect());
    Inspection {
        key: fits(files, chain.as_deref()),
        chain: issued(files, chain.as_deref(), own.as_ref(), now),
        own,
        peer,
        authorities,
    }
}

fn facts(certificate: &CertificateDer<'_>) -> Result<Facts, String> {
    Facts::read(certificate).map_err(|error| error.to_string())
}

/// Whether the key is that of the certificate.
fn fits(files: &Files, chain: Result<&[CertificateDer<'static>], &String>) -> Result<(), String> {
    let key = read_key(&files.key).map_err(|error| error.to_string())?;
    // What is wrong with the certificate is told as such.
    let Ok(chain) = chain else { return Ok(()) };
    let pair = CertifiedKey::from_der(chain.to_vec(), key, &ring::default_provider());
    match pair {
        Ok(_) => Ok(()),
        Err(Error::InconsistentKeys(_)) => Err(format!(
            "{} is not the key of {}: both were not replaced together",
            files.key.display(),
            files.certificate.display()
        )),
        Err(other) => Err(format!("{}: {other}", files.key.display())),
    }
}

/// Whether an authority issued the certificate, at a moment at which it holds.
fn issued(
    files: &Files,
    chain: Result<&[CertificateDer<'static>], &String>,
    own: Result<&Facts, &String>,
    now: i64,
) -> Result<(), String> {
    let (roots, _) = read_authorities(&files.ca).map_err(|error| error.to_string())?;
    let (chain, own) = match (chain, own) {
        (Ok(chain), Ok(own)) => (chain, own),
        (Err(why), _) | (_, Err(why)) => return Err(why.clone()),
    };
    let verifier = WebPkiClientVerifier::builder_with_provider(
        Arc::new(roots),
        Arc::new(ring::default_provider()),
    )
    .build()
    .map_err(|error| format!("{}: {error}", files.ca.display()))?;
    // A certificate of a wrong time has an issuer all the same.
    let last = own.not_after.saturating_sub(1).max(own.not_before);
    let at = u64::try_from(now.clamp(own.not_before, last)).unwrap_or(0);
    let at = UnixTime::since_unix_epoch(Duration::from_secs(at));
    match verifier.verify_client_cert(&chain[0], &chain[1..], at) {
        Ok(_) => Ok(()),
        Err(Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature)) => Err(format!(
            "no authority in {} issued {}",
            files.ca.display(),
            files.certificate.display()
        )),
        Err(other) => Err(format!("{}: {other}", files.certificate.display())),
    }
}

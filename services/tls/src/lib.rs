//! Who speaks on the links of the mesh: identities as URIs in certificates, mutual TLS in both
//! directions, certificates that are read again when their files change, a small authority that
//! issues them, and the table of who may call what.
//!
//! This crate never decides about a domain object: it knows names of methods and of hosts, and
//! nothing of jobs, failures or wires. It never writes a log line either: whoever uses it does.
//!
//! | module | what |
//! |---|---|
//! | [`identity`] | `rdmesh://SITE/ROLE/NAME` |
//! | [`certificate`] | what a certificate says, read from its bytes |
//! | [`live`] | the files of this process, and TLS with them |
//! | [`connect`] | a gRPC channel over TLS or plain TCP |
//! | [`inspect`] | what is wrong with the files, all of it |
//! | [`authority`] | makes an authority and certificates |
//! | [`rights`] | which role may call which method |
#![forbid(unsafe_code)]

pub mod authority;
pub mod certificate;
pub mod connect;
mod first;
pub mod identity;
pub mod inspect;
pub mod live;
pub mod rights;
mod verify;

pub use certificate::{CertificateError, Facts};
pub use identity::{Identity, Peer, Role};
pub use live::{Checked, Expected, Files, Live, TlsError};

/// Seconds since 1970, by the system's clock.
#[must_use]
pub fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

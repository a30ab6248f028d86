//! Section `[tls]`: the certificates of a service, kept fresh, and what is allowed without.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use rdmesh_tls::{Checked, Files, now};
use serde::{Deserialize, Serialize};
use tonic::transport::{Channel, Endpoint};

use crate::config::{Check, Invalid, Validate};

pub use rdmesh_tls::connect::ConnectError;
pub use rdmesh_tls::{Expected, Identity, Live, Peer, Role, TlsError};

/// How often it is looked whether the files have changed: three `stat` calls. A new
/// certificate comes days before the old one ends.
pub const LOOK_EVERY: Duration = Duration::from_secs(30);

/// How often the log says that a certificate ends soon.
const WARN_EVERY: Duration = Duration::from_secs(12 * 3600);

/// From when on it says so: a month leaves time to issue a new one in office hours.
const WARN_BEFORE_SECONDS: i64 = 30 * 86_400;

/// A certificate for less than a few months is renewed by a program: then the last third of
/// its time.
const WARN_BEFORE_SHARE: i64 = 3;

/// Section `[tls]` of a configuration. All three files, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// Certificates of the authorities that are believed, PEM; absolute path.
    pub ca: PathBuf,
    /// The certificate of this service, PEM; absolute path. Read again when it changes.
    pub certificate: PathBuf,
    /// Its private key, PEM; absolute path. Nobody but owner and group may read it.
    pub key: PathBuf,
    /// Without the three files: dial other machines all the same, without TLS.
    pub insecure_dial: bool,
}

impl TlsConfig {
    /// Whether there are certificates.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.certificate.as_os_str().is_empty()
    }

    /// Whether to dial what is local or not: without certificates other machines only on
    /// request.
    ///
    /// # Errors
    /// [`Invalid`] for `field`, whose value is `shown`.
    pub fn allows_dial(&self, field: &str, shown: &str, is_local: bool) -> Result<(), Invalid> {
        if is_local || self.is_on() || self.insecure_dial {
            return Ok(());
        }
        Err(Invalid::new(
            field,
            shown,
            "127.0.0.1 or ::1; other machines with certificates in [tls] (`rdmesh certs` makes \
             them), or with tls.insecure_dial = true if whoever is on the way may read and change \
             what passes",
        ))
    }
}

impl Validate for TlsConfig {
    fn validate(&self) -> Result<(), Invalid> {
        let files = [
            ("ca", &self.ca),
            ("certificate", &self.certificate),
            ("key", &self.key),
        ];
        let some = files.iter().any(|(_, path)| !path.as_os_str().is_empty());
        for (name, path) in files {
            if some && !path.is_absolute() {
                let allowed = "an absolute path; ca, certificate and key belong together";
                return Err(Invalid::new(
                    name,
                    format!("{:?}", path.display().to_string()),
                    allowed,
                ));
            }
        }
        if some && self.insecure_dial {
            return Err(Invalid::new(
                "insecure_dial",
                true,
                "false where there are certificates: every link has TLS then",
            ));
        }
        Ok(())
    }
}

/// The certificates of a running service, or none. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    live: Option<Arc<Live>>,
}

impl Tls {
    /// Reads the files. Says in the log what is given up without.
    ///
    /// # Errors
    /// [`TlsError`] names the file and what to do.
    pub fn open(config: &TlsConfig) -> Result<Self, TlsError> {
        if !config.is_on() {
            if config.insecure_dial {
                tracing::warn!(
                    "dialling other machines without TLS (tls.insecure_dial): whoever is on the \
                     way can read and change what passes, and whoever answers is believed"
                );
            }
            return Ok(Self::default());
        }
        let live = Live::open(Files {
            ca: config.ca.clone(),
            certificate: config.certificate.clone(),
            key: config.key.clone(),
        })?;
        tracing::info!(
            identity = %live.identity(),
            expires_in_days = live.own().not_after.saturating_sub(now()) / 86_400,
            "links have TLS"
        );
        Ok(Self {
            live: Some(Arc::new(live)),
        })
    }

    /// With certificates that are read already.
    #[must_use]
    pub fn with(live: Arc<Live>) -> Self {
        Self { live: Some(live) }
    }

    /// The certificates.
    #[must_use]
    pub fn live(&self) -> Option<&Arc<Live>> {
        self.live.as_ref()
    }

    /// Whether there are certificates.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.live.is_some()
    }

    /// Looks after the files as long as the runtime lives, warns before they end, and tells
    /// metrics. Without certificates nothing runs.
    pub fn keep_fresh(&self) {
        let Some(live) = &self.live else { return };
        register(live);
        let live = Arc::downgrade(live);
        tokio::spawn(async move {
            let mut warned: Option<tokio::time::Instant> = None;
            while let Some(live) = live.upgrade() {
                look(&live);
                if warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) && warn_of_the_end(&live) {
                    warned = Some(tokio::time::Instant::now());
                }
                drop(live);
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
    }

    /// Connects `endpoint`, whose address is `to`, over TLS where there are certificates.
    ///
    /// # Errors
    /// [`ConnectError`]; the innermost cause tells why a handshake failed.
    pub async fn connect(
        &self,
        endpoint: Endpoint,
        to: SocketAddr,
        keep_alive: Option<Duration>,
        expected: Expected,
    ) -> Result<Channel, ConnectError> {
        match &self.live {
            None => rdmesh_tls::connect::connect_plain(endpoint, to, keep_alive).await,
            Some(live) => {
                let secured = rdmesh_tls::connect::Secured {
                    live: Arc::clone(live),
                    expected,
                };
                rdmesh_tls::connect::connect(endpoint, to, keep_alive, secured).await
            }
        }
    }

    /// [`Tls::connect`] to `HOST:PORT`, whose name is looked up for each connection.
    ///
    /// # Errors
    /// As [`Tls::connect`].
    pub async fn connect_by_name(
        &self,
        endpoint: Endpoint,
        to: &str,
        expected: Expected,
    ) -> Result<Channel, ConnectError> {
        match &self.live {
            None => rdmesh_tls::connect::connect_plain(endpoint, to.to_owned(), None).await,
            Some(live) => {
                let secured = rdmesh_tls::connect::Secured {
                    live: Arc::clone(live),
                    expected,
                };
                rdmesh_tls::connect::connect(endpoint, to.to_owned(), None, secured).await
            }
        }
    }
}

/// Takes new files into use. Connections that stand are left alone.
fn look(live: &Live) {
    match live.check() {
        Checked::Same => {}
        Checked::Reloaded => tracing::info!(
            identity = %live.identity(),
            expires_in_days = live.own().not_after.saturating_sub(now()) / 86_400,
            "new certificates are in use; connections that stand go on"
        ),
        Checked::Kept(error) => tracing::warn!(
            %error,
            "the certificate files have changed and cannot be used; those of before stay in use"
        ),
    }
}

/// Whether there was something to warn of.
fn warn_of_the_end(live: &Live) -> bool {
    let (own, now) = (live.own(), now());
    let left = own.not_after - now;
    let warn_below = WARN_BEFORE_SECONDS.min((own.not_after - own.not_before) / WARN_BEFORE_SHARE);
    let file = live.files().certificate.display();
    if left <= 0 {
        tracing::error!(
            certificate = %file,
            "the certificate has expired and nobody takes it any more; `rdmesh certs issue \
             --renew` makes a new one, which is taken into use without a restart"
        );
        return true;
    }
    if left < warn_below {
        tracing::warn!(
            certificate = %file, expires_in_days = left / 86_400,
            "the certificate ends soon; `rdmesh certs issue --renew` makes a new one, which is \
             taken into use without a restart"
        );
        return true;
    }
    let ca_left = live.ca_not_after() - now;
    if ca_left < WARN_BEFORE_SECONDS {
        tracing::warn!(
            ca = %live.files().ca.display(), expires_in_days = ca_left / 86_400,
            "an authority ends soon, and with it every certificate that it issued"
        );
        return true;
    }
    false
}

fn register(live: &Arc<Live>) {
    let live = Arc::downgrade(live);
    let meter = opentelemetry::global::meter("rdmesh.tls");
    let _ = meter
        .i64_observable_gauge("rdmesh.tls.certificate.expires_in")
        .with_unit("s")
        .with_description("Seconds until the certificate (of the service, of its authority) ends")
        .with_callback(move |observer| {
            let Some(live) = live.upgrade() else { return };
            let now = now();
            let ends = [("own", live.own().not_after), ("ca", live.ca_not_after())];
            for (which, at) in ends {
                observer.observe(at - now, &[KeyValue::new("certificate", which)]);
            }
        })
        .build();
}

/// A section's name and its checks together, for the services.
///
/// # Errors
/// What the section says.
pub fn check_links(tls: &TlsConfig, server: &crate::server::ServerConfig) -> Result<(), Invalid> {
    Check::section("tls", tls)?;
    server
        .allows_listen(tls.is_on())
        .map_err(|invalid| invalid.within("server"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_files_or_none() {
        let all = TlsConfig {
            ca: "/c".into(),
            certificate: "/x".into(),
            key: "/k".into(),
            insecure_dial: false,
        };
        assert_eq!(all.validate(), Ok(()));
        assert_eq!(TlsConfig::default().validate(), Ok(()));
        for (bad, field) in [
            (
                TlsConfig {
                    key: PathBuf::new(),
                    ..all.clone()
                },
                "`key`",
            ),
            (
                TlsConfig {
                    ca: "ca.crt".into(),
                    ..all.clone()
                },
                "`ca`",
            ),
            (
                TlsConfig {
                    insecure_dial: true,
                    ..all.clone()
                },
                "`insecure_dial`",
            ),
        ] {
            let message = bad.validate().unwrap_err().to_string();
            assert!(message.starts_with(field), "{message}");
        }
    }

    #[test]
    fn other_machines_are_dialled_with_certificates_or_on_request() {
        let plain = TlsConfig::default();
        let asked = TlsConfig {
            insecure_dial: true,
            ..TlsConfig::default()
        };
        assert!(
            plain
                .allows_dial("uplink.collector", "127.0.0.1:1", true)
                .is_ok()
        );
        assert!(asked.allows_dial("uplink.collector", "c:1", false).is_ok());
        let refused = plain.allows_dial("uplink.collector", "c:1", false);
        let message = refused.unwrap_err().to_string();
        for words in [
            "uplink.collector",
            "c:1",
            "`rdmesh certs`",
            "tls.insecure_dial = true",
        ] {
            assert!(message.contains(words), "{message}");
        }
    }
}

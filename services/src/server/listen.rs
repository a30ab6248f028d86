//! Where a server listens, and when that is refused.

use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rdmesh_tls::Live;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::{Instant, sleep};

use super::{ServerConfig, ServerError};
use crate::tls::Tls;

/// `IP:PORT` or `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A TCP socket; port 0 takes a free one.
    Tcp(SocketAddr),
    /// A Unix socket, for programs on the same machine.
    Unix(PathBuf),
}

impl ListenAddress {
    /// Whether only this machine can reach it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.starts_with('/') {
                Ok(Self::Unix(path.into()))
            } else {
                Err(format!("`{text}`: write the socket as unix:/absolute/path"))
            };
        }
        text.parse().map(Self::Tcp).map_err(|_| {
            format!("`{text}` is no listen address: write IP:PORT, [IPv6]:PORT or unix:/path")
        })
    }
}

impl Serialize for ListenAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ListenAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// A socket that listens.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// TCP, and TLS on it.
    Secured(TcpListener, Arc<Live>),
    /// Unix: for programs of this machine, by the rights of its file.
    Unix(UnixListener),
}

impl Listener {
    /// Where it listens, with the port that the system chose.
    ///
    /// # Errors
    /// The system does not say.
    pub fn local_address(&self) -> std::io::Result<ListenAddress> {
        match self {
            Self::Tcp(listener) | Self::Secured(listener, _) => {
                listener.local_addr().map(ListenAddress::Tcp)
            }
            Self::Unix(listener) => {
                let address = listener.local_addr()?;
                let path = address.as_pathname().map(PathBuf::from).unwrap_or_default();
                Ok(ListenAddress::Unix(path))
            }
        }
    }
}

/// The file of a Unix socket that this process listens on; removed when dropped, unless
/// another process has put its own there meanwhile.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    /// The file of `listener`; none for TCP.
    pub(super) fn of(listener: &Listener) -> Option<Self> {
        let ListenAddress::Unix(path) = listener.local_address().ok()? else {
            return None;
        };
        let identity = Self::identity(&path)?;
        Some(Self { path, identity })
    }

    fn identity(path: &std::path::Path) -> Option<(u64, u64)> {
        use std::os::unix::fs::MetadataExt;
        let meta = std::fs::symlink_metadata(path).ok()?;
        Some((meta.dev(), meta.ino()))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if Self::identity(&self.path) == Some(self.identity)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "socket file stays behind");
        }
    }
}

/// How long a TCP address that is in use is tried again: the kernel may still be taking
/// down a predecessor that was killed (its BPF programs, its memory).
const TAKEN_FOR: Duration = Duration::from_secs(3);

/// How often meanwhile.
const TRY_EVERY: Duration = Duration::from_millis(100);

async fn bind_tcp(address: SocketAddr, patience: Duration) -> std::io::Result<TcpListener> {
    let until = Instant::now() + patience;
    loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < until => {
                sleep(TRY_EVERY).await;
            }
            bound => return bound,
        }
    }
}

/// What to do about an address that the system refuses.
pub(super) fn advice(address: &ListenAddress, source: &std::io::Error) -> &'static str {
    match (source.kind(), address) {
        (ErrorKind::AddrInUse, ListenAddress::Tcp(_)) => {
            "another process has it: `ss -ltnp` names it; one that was killed may still be ending, \
             which takes seconds on a busy machine: start again then"
        }
        (ErrorKind::AddrInUse, ListenAddress::Unix(_)) => {
            "another process has it: `ss -lxp` names it; or remove the file, if it is no socket"
        }
        (ErrorKind::AddrNotAvailable, _) => {
            "no interface of this machine has that address: `ip address` lists those it has"
        }
        (ErrorKind::NotFound, _) => {
            "make the directory first (RuntimeDirectory= in a systemd unit)"
        }
        (ErrorKind::PermissionDenied, ListenAddress::Tcp(_)) => {
            "ports below 1024 need CAP_NET_BIND_SERVICE; choose a higher one"
        }
        (ErrorKind::PermissionDenied, ListenAddress::Unix(_)) => {
            "this user may not write to the directory"
        }
        (ErrorKind::InvalidInput, ListenAddress::Unix(_)) => {
            "a socket's path has 107 bytes at most"
        }
        _ => "choose another address",
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

/// Binds what the configuration names.
///
/// # Errors
/// [`ServerError::Insecure`] for an address that other machines reach, unless
/// `insecure_listen` is set; [`ServerError::Bind`] when the system refuses. A TCP
/// address in use is tried again for three seconds.
pub async fn bind(config: &ServerConfig) -> Result<Listener, ServerError> {
    bind_with(config, &Tls::default()).await
}

/// [`bind`], with TLS where there are certificates and the address is no Unix socket.
///
/// # Errors
/// As [`bind`].
pub async fn bind_with(config: &ServerConfig, tls: &Tls) -> Result<Listener, ServerError> {
    allow(config, tls.is_on())?;
    let refuse = |source| ServerError::Bind {
        advice: advice(&config.listen, &source),
        address: config.listen.clone(),
        source,
    };
    match &config.listen {
        ListenAddress::Tcp(address) => bind_tcp(*address, TAKEN_FOR)
            .await
            .map(|listener| match tls.live() {
                Some(live) => Listener::Secured(listener, Arc::clone(live)),
                None => Listener::Tcp(listener),
            })
            .map_err(refuse),
        ListenAddress::Unix(path) => {
            remove_dead_socket(path).map_err(refuse)?;
            UnixListener::bind(path).map(Listener::Unix).map_err(refuse)
        }
    }
}

/// Without TLS only this machine may connect, unless the operator says otherwise.
fn allow(config: &ServerConfig, has_tls: bool) -> Result<(), ServerError> {
    if config.listen.is_local() || has_tls {
        return Ok(());
    }
    if !config.insecure_listen {
        return Err(ServerError::Insecure {
            address: config.listen.clone(),
        });
    }
    tracing::warn!(
        listen = %config.listen,
        "listening without TLS: anyone who reaches this port can read and report as any host, \
         and what passes can be read and changed on the way"
    );
    Ok(())
}

/// Removes a socket that a process which is gone left behind. A live one stays, and
/// binding fails.
fn remove_dead_socket(path: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(meta) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    let dead = meta.file_type().is_socket()
        && std::os::unix::net::UnixStream::connect(path)
            .is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused);
    if dead {
        std::fs::remove_file(path)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(listen: &str, insecure_listen: bool) -> ServerConfig {
        ServerConfig {
            listen: listen.parse().unwrap(),
            insecure_listen,
            ..ServerConfig::at(0)
        }
    }

    fn allow_plain(config: &ServerConfig) -> Result<(), ServerError> {
        allow(config, false)
    }

    #[test]
    fn addresses_are_read_back_as_written() {
        for text in ["127.0.0.1:7400", "[::1]:7400", "unix:/run/rdmesh/c.sock"] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
        for bad in ["localhost", "7400", "unix:relative", ""] {
            assert!(bad.parse::<ListenAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn other_machines_are_let_in_only_on_request() {
        assert!(allow_plain(&config("127.0.0.1:0", false)).is_ok());
        assert!(allow_plain(&config("[::1]:0", false)).is_ok());
        assert!(allow_plain(&config("unix:/run/x", false)).is_ok());
        assert!(allow_plain(&config("0.0.0.0:0", true)).is_ok());
        assert!(allow(&config("0.0.0.0:0", false), true).is_ok());
        let message = allow_plain(&config("0.0.0.0:7400", false))
            .unwrap_err()
            .to_string();
        assert!(message.contains("0.0.0.0:7400"), "{message}");
        assert!(message.contains("insecure_listen = true"), "{message}");
    }

    #[test]
    fn an_address_that_is_given_back_soon_is_waited_for() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = first.local_addr().unwrap();
            let taken = bind_tcp(address, Duration::ZERO).await.unwrap_err();
            assert_eq!(taken.kind(), ErrorKind::AddrInUse);
            let give_back = async {
                tokio::task::yield_now().await;
                drop(first);
            };
            let (second, ()) = tokio::join!(bind_tcp(address, TAKEN_FOR), give_back);
            second.unwrap();
        });
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        for (listen, expected) in [
            ("unix:/nonexistent/x", "make the directory first"),
            ("192.0.2.1:7400", "no interface of this machine"),
        ] {
            let error = runtime.block_on(bind(&config(listen, true))).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(expected), "{text}");
            assert!(!text.contains("another process"), "{text}");
        }
    }

    #[test]
    fn the_file_of_a_socket_goes_unless_it_is_another_ones() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let config = config(&format!("unix:{}", path.display()), false);
        runtime.block_on(async {
            let listener = bind(&config).await.unwrap();
            let file = SocketFile::of(&listener).unwrap();
            drop(listener);
            drop(file);
            assert!(!path.exists());
            let old = bind(&config).await.unwrap();
            let file = SocketFile::of(&old).unwrap();
            // Renamed, so that its inode is not given to the next one.
            std::fs::rename(&path, directory.path().join("old")).unwrap();
            let _new = bind(&config).await.unwrap();
            drop(file);
            assert!(path.exists());
        });
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let config = config(&format!("unix:{}", path.display()), false);
        runtime.block_on(async {
            let live = bind(&config).await.unwrap();
            assert_eq!(live.local_address().unwrap(), config.listen);
            assert!(matches!(bind(&config).await, Err(ServerError::Bind { .. })));
            drop(live);
            bind(&config).await.unwrap();
        });
    }
}

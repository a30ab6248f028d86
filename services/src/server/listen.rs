//! Where a server listens, and when that is refused.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::net::{TcpListener, UnixListener};

use super::{ServerConfig, ServerError};

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
    /// Unix.
    Unix(UnixListener),
}

impl Listener {
    /// Where it listens, with the port that the system chose.
    ///
    /// # Errors
    /// The system does not say.
    pub fn local_address(&self) -> std::io::Result<ListenAddress> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(ListenAddress::Tcp),
            Self::Unix(listener) => {
                let address = listener.local_addr()?;
                let path = address.as_pathname().map(PathBuf::from).unwrap_or_default();
                Ok(ListenAddress::Unix(path))
            }
        }
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
/// `insecure_listen` is set; [`ServerError::Bind`] when the system refuses.
pub async fn bind(config: &ServerConfig) -> Result<Listener, ServerError> {
    allow(config)?;
    let refuse = |source| ServerError::Bind {
        address: config.listen.clone(),
        source,
    };
    match &config.listen {
        ListenAddress::Tcp(address) => TcpListener::bind(address)
            .await
            .map(Listener::Tcp)
            .map_err(refuse),
        ListenAddress::Unix(path) => {
            remove_dead_socket(path).map_err(refuse)?;
            UnixListener::bind(path).map(Listener::Unix).map_err(refuse)
        }
    }
}

/// Without TLS only this machine may connect, unless the operator says otherwise.
fn allow(config: &ServerConfig) -> Result<(), ServerError> {
    if config.listen.is_local() {
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
        assert!(allow(&config("127.0.0.1:0", false)).is_ok());
        assert!(allow(&config("[::1]:0", false)).is_ok());
        assert!(allow(&config("unix:/run/x", false)).is_ok());
        assert!(allow(&config("0.0.0.0:0", true)).is_ok());
        let message = allow(&config("0.0.0.0:7400", false))
            .unwrap_err()
            .to_string();
        assert!(message.contains("0.0.0.0:7400"), "{message}");
        assert!(message.contains("insecure_listen = true"), "{message}");
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

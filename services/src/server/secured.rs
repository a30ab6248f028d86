//! Handshakes beside the accept loop: each has a task, a time, and a place among a few.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::Counter;
use rdmesh_tls::{Identity, Live, Peer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::shutdown::Closing;

/// How long a handshake may take: two round trips and a signature; a slow machine behind a
/// slow line takes a second.
pub const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);

/// Handshakes at the same time. One holds 20 KB; who comes above is closed and comes again.
pub const MAX_HANDSHAKES: usize = 1_024;

/// Of them from one address: who opens connections and says nothing takes no more from the
/// others. A rack behind one address still comes in within seconds.
pub const MAX_HANDSHAKES_PER_ADDRESS: usize = 256;

/// Connections of one identity: an agent has three, everybody's operator on a login node some
/// dozens.
pub const MAX_CONNECTIONS_PER_IDENTITY: usize = 256;

/// How often the log warns of refused handshakes; metrics count each.
const WARN_EVERY: Duration = Duration::from_secs(1);

/// Connections that have shaken hands and wait for the transport to take them.
const WAITING: usize = 64;

/// Who is at the other end of a connection with TLS, for each of its calls.
#[derive(Clone, Debug)]
pub(super) struct SecuredInfo {
    /// Who, or why nobody.
    pub(super) peer: Result<Arc<Peer>, Arc<str>>,
    /// As connections without TLS tell it.
    pub(super) tcp: TcpConnectInfo,
}

/// A connection that has shaken hands.
#[derive(Debug)]
pub(super) struct Secured {
    stream: TlsStream<TcpStream>,
    info: SecuredInfo,
    _counted: Option<Counted<Identity>>,
}

impl Connected for Secured {
    type ConnectInfo = SecuredInfo;

    fn connect_info(&self) -> SecuredInfo {
        self.info.clone()
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Secured {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Counts by key.
#[derive(Debug)]
struct Counts<K>(Arc<Mutex<HashMap<K, usize>>>);

/// One of a count; given back when dropped.
#[derive(Debug)]
struct Counted<K: Eq + Hash> {
    counts: Arc<Mutex<HashMap<K, usize>>>,
    key: K,
}

impl<K: Eq + Hash + Clone> Counts<K> {
    fn new() -> Self {
        Self(Arc::default())
    }

    /// One more of `key`, unless there are `most` already.
    fn enter(&self, key: &K, most: usize) -> Option<Counted<K>> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(key.clone()).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Counted {
            counts: Arc::clone(&self.0),
            key: key.clone(),
        })
    }
}

impl<K: Eq + Hash> Drop for Counted<K> {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

/// What the handshakes of one server share.
struct Gate {
    live: Arc<Live>,
    handshakes: Arc<Semaphore>,
    addresses: Counts<IpAddr>,
    connections: Counts<Identity>,
    refused: Counter<u64>,
    /// When the log was last warned.
    warned: Mutex<Option<Instant>>,
}

impl Gate {
    fn new(live: Arc<Live>) -> Self {
        Self {
            live,
            handshakes: Arc::new(Semaphore::new(MAX_HANDSHAKES)),
            addresses: Counts::new(),
            connections: Counts::new(),
            refused: opentelemetry::global::meter("rdmesh.tls")
                .u64_counter("rdmesh.tls.handshakes.refused")
                .with_description("Connections that were closed before a call, by reason")
                .build(),
            warned: Mutex::new(None),
        }
    }

    /// Counts a refusal and tells the log, which somebody who knocks all day must not fill.
    fn refuse(&self, from: SocketAddr, kind: &'static str, why: &str) {
        self.refused.add(1, &[KeyValue::new("reason", kind)]);
        // What speaks no TLS, or goes away, is a port scan or a health check.
        let is_scan = matches!(kind, "closed" | "connection" | "no_tls" | "protocol");
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_scan && warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            *warned = Some(Instant::now());
            tracing::warn!(%from, kind, why, "handshake refused");
        } else {
            tracing::debug!(%from, kind, why, "handshake refused");
        }
    }
}

/// Takes connections from `incoming` and passes on those that have shaken hands, until
/// `ending` or until nobody takes them any more.
pub(super) fn shake_hands<S>(
    incoming: S,
    live: Arc<Live>,
    ending: Closing,
) -> mpsc::Receiver<io::Result<Secured>>
where
    S: Stream<Item = io::Result<TcpStream>> + Send + Unpin + 'static,
{
    let (done, ready) = mpsc::channel(WAITING);
    tokio::spawn(take(incoming, live, ending, done));
    ready
}

async fn take<S>(
    mut incoming: S,
    live: Arc<Live>,
    ending: Closing,
    done: mpsc::Sender<io::Result<Secured>>,
) where
    S: Stream<Item = io::Result<TcpStream>> + Send + Unpin,
{
    let gate = Arc::new(Gate::new(live));
    loop {
        let accepted = tokio::select! {
            () = ending.requested() => return,
            () = done.closed() => return,
            accepted = incoming.next() => accepted,
        };
        let stream = match accepted {
            None => return,
            Some(Ok(stream)) => stream,
            Some(Err(error)) => {
                // A connection that ended before it was accepted; the next is another.
                tracing::debug!(%error, "not accepted");
                continue;
            }
        };
        let Ok(from) = stream.peer_addr() else {
            continue;
        };
        let place = Arc::clone(&gate.handshakes).try_acquire_owned().ok();
        let of_address = gate.addresses.enter(&from.ip(), MAX_HANDSHAKES_PER_ADDRESS);
        let (Some(place), Some(of_address)) = (place, of_address) else {
            gate.refuse(from, "too_many", "too many handshakes at the same time");
            continue;
        };
        let (gate, done) = (Arc::clone(&gate), done.clone());
        tokio::spawn(async move {
            let secured = shake(stream, from, &gate).await;
            drop((place, of_address));
            if let Some(secured) = secured {
                let _ = done.send(Ok(secured)).await;
            }
        });
    }
}

async fn shake(stream: TcpStream, from: SocketAddr, gate: &Gate) -> Option<Secured> {
    let tcp = stream.connect_info();
    let accepted = tokio::time::timeout(HANDSHAKE_WITHIN, gate.live.accept(stream)).await;
    let (stream, peer) = match accepted {
        Err(_) => {
            gate.refuse(from, "too_slow", "no handshake in time");
            return None;
        }
        Ok(Err(error)) => {
            gate.refuse(from, error.kind, &error.why);
            return None;
        }
        Ok(Ok(shaken)) => shaken,
    };
    let counted = match &peer {
        // It is told by the answer to its first call.
        Err(why) => {
            gate.refuse(from, "identity", why);
            None
        }
        Ok(peer) => {
            let counted = gate
                .connections
                .enter(&peer.identity, MAX_CONNECTIONS_PER_IDENTITY);
            if counted.is_none() {
                let why = format!("{} has too many connections", peer.identity);
                gate.refuse(from, "too_many", &why);
                return None;
            }
            counted
        }
    };
    Some(Secured {
        stream,
        info: SecuredInfo {
            peer: peer.map(Arc::new).map_err(Arc::from),
            tcp,
        },
        _counted: counted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_its_share_takes_nothing_of_the_others_and_gives_back() {
        let counts = Counts::new();
        let places: Vec<_> = (0..3).map(|_| counts.enter(&"a", 3).unwrap()).collect();
        assert!(counts.enter(&"a", 3).is_none());
        assert!(counts.enter(&"b", 3).is_some());
        drop(places);
        assert!(counts.0.lock().unwrap().is_empty());
    }
}

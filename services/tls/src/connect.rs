//! A gRPC channel, over TLS or plain TCP.

use std::error::Error as StdError;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::sync::oneshot;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use crate::first::{Heard, Spoken};
use crate::live::{Expected, HandshakeError, Live};

/// How long the first word of a server without TLS is waited for, before the connection is
/// taken as it is. A server of HTTP/2 has to speak within a round trip, and one with TLS
/// refuses what it heard as fast; one that is stopped or overloaded is the caller's to bound.
pub const FIRST_WORD_WITHIN: Duration = Duration::from_secs(1);

/// TLS for one connection: with which certificates, and who is to answer.
#[derive(Clone, Debug)]
pub struct Secured {
    /// The certificates.
    pub live: Arc<Live>,
    /// Who is to answer.
    pub expected: Expected,
}

/// Why there is no channel.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No connection, or no handshake; the innermost cause says why.
    #[error(transparent)]
    Transport(#[from] tonic::transport::Error),
    /// This side has no certificates, and the other side speaks TLS alone.
    #[error("the other side speaks TLS; name certificates (ca, certificate and key in [tls])")]
    SpeaksTls,
}

impl ConnectError {
    /// Whether this side began with TLS and the other side answered without.
    #[must_use]
    pub fn is_without_tls(&self) -> bool {
        let mut cause: Option<&(dyn StdError + 'static)> = Some(self);
        while let Some(error) = cause {
            let inner = error
                .downcast_ref::<io::Error>()
                .and_then(io::Error::get_ref);
            let handshake = inner.and_then(|inner| inner.downcast_ref::<Handshake>());
            if let Some(Handshake(told)) = handshake {
                return told.kind == "no_tls";
            }
            cause = error.source();
        }
        false
    }
}

/// Connects `endpoint` to `to` over TLS: each connection that the channel makes, now and
/// later, shakes hands with the certificates of that time. The endpoint's own bound of the time
/// to connect holds for all of it.
///
/// # Errors
/// As [`Endpoint::connect`]; the innermost cause says why a handshake failed.
pub async fn connect<A>(
    endpoint: Endpoint,
    to: A,
    keep_alive: Option<Duration>,
    secured: Secured,
) -> Result<Channel, ConnectError>
where
    A: ToSocketAddrs + Clone + Send + Sync + 'static,
{
    let dial = move |_| {
        let (to, secured) = (to.clone(), secured.clone());
        async move {
            let stream = open(to, keep_alive).await?;
            let shaken = secured.live.connect(stream, &secured.expected).await;
            shaken.map(TokioIo::new).map_err(failed)
        }
    };
    Ok(endpoint.connect_with_connector(service_fn(dial)).await?)
}

/// Connects `endpoint` to `to` without TLS, and listens to the other side's first word: a
/// server with TLS does not understand HTTP/2 and says so in TLS, which without this would be
/// a frame of invalid size.
///
/// # Errors
/// As [`Endpoint::connect`], and [`ConnectError::SpeaksTls`].
pub async fn connect_plain<A>(
    endpoint: Endpoint,
    to: A,
    keep_alive: Option<Duration>,
) -> Result<Channel, ConnectError>
where
    A: ToSocketAddrs + Clone + Send + Sync + 'static,
{
    let (tell, told) = oneshot::channel();
    // The first connection of the channel alone is listened to: later ones go to the same
    // place, and nobody waits for their word.
    let tell = Arc::new(Mutex::new(Some(tell)));
    let dial = move |_| {
        let (to, tell) = (to.clone(), Arc::clone(&tell));
        async move {
            let stream = open(to, keep_alive).await?;
            let tell = tell.lock().unwrap_or_else(PoisonError::into_inner).take();
            Ok::<_, io::Error>(TokioIo::new(Heard::new(stream, tell)))
        }
    };
    let channel = endpoint.connect_with_connector(service_fn(dial)).await?;
    match tokio::time::timeout(FIRST_WORD_WITHIN, told).await {
        Ok(Ok(Spoken::Tls)) => Err(ConnectError::SpeaksTls),
        _ => Ok(channel),
    }
}

async fn open<A: ToSocketAddrs>(to: A, keep_alive: Option<Duration>) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    if let Some(idle) = keep_alive {
        rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
        rustix::net::sockopt::set_tcp_keepidle(&stream, idle)?;
    }
    Ok(stream)
}

fn failed(error: HandshakeError) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, Handshake(error))
}

/// With the words before it that tell a person where to look.
#[derive(Debug, thiserror::Error)]
#[error("TLS: {0}")]
struct Handshake(HandshakeError);

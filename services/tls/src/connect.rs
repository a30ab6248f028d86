//! A gRPC channel, over TLS or plain TCP.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, ToSocketAddrs};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use crate::live::{Expected, HandshakeError, Live};

/// TLS for one connection: with which certificates, and who is to answer.
#[derive(Clone, Debug)]
pub struct Secured {
    /// The certificates.
    pub live: Arc<Live>,
    /// Who is to answer.
    pub expected: Expected,
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
) -> Result<Channel, tonic::transport::Error>
where
    A: ToSocketAddrs + Clone + Send + Sync + 'static,
{
    let dial = move |_| {
        let (to, secured) = (to.clone(), secured.clone());
        async move {
            let stream = TcpStream::connect(to).await?;
            stream.set_nodelay(true)?;
            if let Some(idle) = keep_alive {
                rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
                rustix::net::sockopt::set_tcp_keepidle(&stream, idle)?;
            }
            let shaken = secured.live.connect(stream, &secured.expected).await;
            shaken.map(TokioIo::new).map_err(failed)
        }
    };
    endpoint.connect_with_connector(service_fn(dial)).await
}

fn failed(error: HandshakeError) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, Handshake(error))
}

/// With the words before it that tell a person where to look.
#[derive(Debug, thiserror::Error)]
#[error("TLS: {0}")]
struct Handshake(HandshakeError);

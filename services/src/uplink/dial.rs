//! Making a connection; TLS will be another [`Dial`].

use std::fmt::Debug;
use std::pin::Pin;
use std::time::Duration;

use tonic::transport::{Channel, Endpoint};

use super::CollectorAddress;
use crate::causes::with_causes;

/// TCP's own keep-alive, in the kernel: keeps NAT entries of an idle agent, wakes no
/// process.
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(60);

/// HTTP/2 receive windows, bytes: all that comes down are acknowledgements. The default
/// would be 64 KB too; larger ones would only cost memory.
const RECEIVE_WINDOW_BYTES: u32 = 64 << 10;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to {address}: {why}")]
pub struct DialError {
    /// Where to.
    pub address: String,
    /// What failed, with its causes.
    pub why: String,
}

/// The future of [`Dial::dial`].
pub type Dialing<'a> = Pin<Box<dyn Future<Output = Result<Channel, DialError>> + Send + 'a>>;

/// Makes connections.
pub trait Dial: Debug + Send + Sync {
    /// Connects once; the uplink bounds the time and repeats.
    fn dial(&self) -> Dialing<'_>;
}

/// Plain TCP. Resolves the name anew each time.
#[derive(Clone, Debug)]
pub struct PlainDialer {
    address: CollectorAddress,
}

impl PlainDialer {
    /// Dials `address`.
    #[must_use]
    pub fn new(address: CollectorAddress) -> Self {
        Self { address }
    }
}

impl Dial for PlainDialer {
    fn dial(&self) -> Dialing<'_> {
        Box::pin(async {
            let refuse = |error: &(dyn std::error::Error + 'static)| DialError {
                address: self.address.to_string(),
                why: with_causes(error),
            };
            let endpoint = Endpoint::from_shared(self.address.uri()).map_err(|e| refuse(&e))?;
            endpoint
                .tcp_nodelay(true)
                .tcp_keepalive(Some(TCP_KEEP_ALIVE))
                .initial_stream_window_size(RECEIVE_WINDOW_BYTES)
                .initial_connection_window_size(RECEIVE_WINDOW_BYTES)
                .connect()
                .await
                .map_err(|e| refuse(&e))
        })
    }
}

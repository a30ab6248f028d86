//! Making a connection to a collector.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdmesh_tls::Expected;
use tokio::net::lookup_host;
use tonic::transport::{Channel, Endpoint};

use super::{CollectorAddress, CollectorAddresses};
use crate::causes::with_causes;
use crate::tls::Tls;

/// TCP's own keep-alive, in the kernel: keeps NAT entries of an idle agent, wakes no
/// process.
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(60);

/// How long one address may take to connect: two SYN retransmissions (1 + 2 s), so that a
/// machine that is gone leaves time for two others within [`super::CONNECT_WITHIN`].
const ADDRESS_WITHIN: Duration = Duration::from_millis(3_200);

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

/// TCP, and TLS where there are certificates. Resolves the names anew each time, and begins behind the address that answered
/// the last time: a collector that accepts and then fails is left for the next one.
#[derive(Debug)]
pub struct CollectorDialer {
    addresses: CollectorAddresses,
    tls: Tls,
    /// Where it begins as long as none has answered.
    turn: usize,
    /// The one that answered last.
    answered: Mutex<Option<SocketAddr>>,
}

impl CollectorDialer {
    /// Dials `addresses`, beginning with the first.
    #[must_use]
    pub fn new(addresses: impl Into<CollectorAddresses>) -> Self {
        Self::from_turn(addresses, 0)
    }

    /// Dials `addresses`, beginning with the one of number `turn`: agents with other
    /// numbers spread over the collectors.
    #[must_use]
    pub fn from_turn(addresses: impl Into<CollectorAddresses>, turn: usize) -> Self {
        Self {
            addresses: addresses.into(),
            tls: Tls::default(),
            turn,
            answered: Mutex::new(None),
        }
    }

    /// The same over TLS.
    #[must_use]
    pub fn secured(self, tls: Tls) -> Self {
        Self { tls, ..self }
    }

    /// Every address behind every name, each with the name it was found by.
    async fn resolve(&self) -> Result<Vec<(SocketAddr, &CollectorAddress)>, DialError> {
        let mut found: Vec<(SocketAddr, &CollectorAddress)> = Vec::new();
        let mut refused = None;
        for address in self.addresses.iter() {
            match lookup_host(address.to_string()).await {
                Ok(resolved) => {
                    for at in resolved {
                        if !found.iter().any(|(known, _)| *known == at) {
                            found.push((at, address));
                        }
                    }
                }
                Err(error) => refused = Some(failed(address, &error)),
            }
        }
        match refused {
            Some(error) if found.is_empty() => Err(error),
            _ => Ok(found),
        }
    }

    fn answered(&self) -> MutexGuard<'_, Option<SocketAddr>> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self) -> Result<Channel, DialError> {
        let mut found = self.resolve().await?;
        if found.is_empty() {
            return Err(DialError {
                address: self.addresses.to_string(),
                why: "the name stands for no address".to_owned(),
            });
        }
        let answered = *self.answered();
        // A dead address does not take the turn of the collector behind it.
        let first = match found.iter().position(|(at, _)| Some(*at) == answered) {
            Some(position) => position + 1,
            None => self.turn,
        };
        let first = first % found.len();
        found.rotate_left(first);
        let mut errors = Vec::new();
        for (at, address) in found {
            match connect_to(at, address, &self.tls).await {
                Ok(channel) => {
                    *self.answered() = Some(at);
                    return Ok(channel);
                }
                Err(error) => errors.push(error),
            }
        }
        Err(all_of(errors))
    }
}

fn failed(address: &dyn std::fmt::Display, error: &(dyn std::error::Error + 'static)) -> DialError {
    DialError {
        address: address.to_string(),
        why: with_causes(error),
    }
}

async fn connect_to(
    at: SocketAddr,
    address: &CollectorAddress,
    tls: &Tls,
) -> Result<Channel, DialError> {
    // Whom it means is told by name, where it is by address.
    let origin = address.uri().parse().map_err(|e| failed(address, &e))?;
    let endpoint = Endpoint::from_shared(format!("http://{at}")).map_err(|e| failed(&at, &e))?;
    let endpoint = endpoint
        .origin(origin)
        .connect_timeout(ADDRESS_WITHIN)
        .tcp_nodelay(true)
        .initial_stream_window_size(RECEIVE_WINDOW_BYTES)
        .initial_connection_window_size(RECEIVE_WINDOW_BYTES);
    tls.connect(endpoint, at, Some(TCP_KEEP_ALIVE), Expected::Collector)
        .await
        .map_err(|e| failed(&at, &e))
}

/// One error for all addresses.
fn all_of(mut errors: Vec<DialError>) -> DialError {
    match (errors.pop(), errors.is_empty()) {
        (Some(only), true) => only,
        (Some(last), false) => {
            errors.push(last);
            let list = |part: fn(&DialError) -> &str, between| {
                errors.iter().map(part).collect::<Vec<_>>().join(between)
            };
            DialError {
                address: list(|e| &e.address, ", "),
                why: list(|e| &e.why, "; "),
            }
        }
        (None, _) => DialError {
            address: String::new(),
            why: "no address".to_owned(),
        },
    }
}

impl Dial for CollectorDialer {
    fn dial(&self) -> Dialing<'_> {
        Box::pin(self.connect())
    }
}

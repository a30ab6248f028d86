//! The connection to the collector: one channel, deadlines, bounded retry of
//! reads.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rdmesh_proto::collector::v1::job_service_client::JobServiceClient;
use rdmesh_proto::collector::v1::query_service_client::QueryServiceClient;
use rdmesh_proto::collector::v1::statistics_service_client::StatisticsServiceClient;
use rdmesh_proto::collector::v1::wire_service_client::WireServiceClient;
use rdmesh_tls::Expected;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

use crate::endpoint::CollectorAddress;
use crate::error::{ClientError, Subject, from_status};
use crate::links::Links;

/// How long the connection may take. A collector in the same site answers in
/// milliseconds; five seconds outlast two lost SYNs (1 s, then 2 s).
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long one answer may take, retries included, unless the caller says
/// otherwise. Cluster-wide questions over a month are meant to take 60 ms.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// How often a read is asked. Three questions with the pauses below bridge a
/// collector's short refusal and do not add to a real overload.
pub const MAX_READ_ATTEMPTS: u32 = 3;

/// The pause before the second question; it doubles before the third. The
/// collector may ask for a longer one.
pub const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Longest pause that the collector can ask for. A person who waits longer
/// without a word thinks that the program hangs.
pub const MAX_RETRY_PAUSE: Duration = Duration::from_secs(3);

/// Largest answer that is taken. A thousand failures with 64 steps each stay
/// below 8 MiB.
pub const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// A connection to one collector. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
    address: CollectorAddress,
    call_timeout: Duration,
}

impl Client {
    /// Connects to a collector.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] when nothing answers within
    /// [`CONNECT_TIMEOUT`].
    pub async fn connect(address: CollectorAddress) -> Result<Client, ClientError> {
        Client::connect_over(&Links::default(), address).await
    }

    /// Connects to a collector, over TLS where the caller has a certificate.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn connect_over(
        links: &Links,
        address: CollectorAddress,
    ) -> Result<Client, ClientError> {
        let unreachable = |reason: String| ClientError::Unreachable {
            address: address.clone(),
            reason,
        };
        let endpoint = Endpoint::from_shared(address.uri())
            .map_err(|error| unreachable(error.to_string()))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .user_agent(concat!("rdmesh-client/", env!("CARGO_PKG_VERSION")))
            .map_err(|error| unreachable(error.to_string()))?;
        let connecting = links.connect(endpoint, &address.authority, Expected::Collector);
        let channel = match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(why)) => return Err(unreachable(why)),
            Err(_) => {
                let seconds = CONNECT_TIMEOUT.as_secs();
                return Err(unreachable(format!("no connection within {seconds} s")));
            }
        };
        Ok(Client::with_channel(channel, address))
    }

    /// A client over a channel that the caller made; `address` is what errors
    /// show.
    pub fn with_channel(channel: Channel, address: CollectorAddress) -> Client {
        Client {
            channel,
            address,
            call_timeout: CALL_TIMEOUT,
        }
    }

    /// The same connection with another deadline for each call.
    pub fn with_call_timeout(mut self, call_timeout: Duration) -> Client {
        self.call_timeout = call_timeout;
        self
    }

    /// How long one answer may take.
    pub(crate) fn call_timeout(&self) -> Duration {
        self.call_timeout
    }

    /// Where this client is connected.
    pub fn address(&self) -> &CollectorAddress {
        &self.address
    }

    pub(crate) fn job_service(&self) -> JobServiceClient<Channel> {
        JobServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub(crate) fn query_service(&self) -> QueryServiceClient<Channel> {
        QueryServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub(crate) fn statistics_service(&self) -> StatisticsServiceClient<Channel> {
        StatisticsServiceClient::new(self.channel.clone())
            .max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub(crate) fn wire_service(&self) -> WireServiceClient<Channel> {
        WireServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    /// Asks once, within the deadline: for calls that change something.
    pub(crate) async fn write<T>(
        &self,
        subject: &Subject,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, ClientError> {
        match tokio::time::timeout(self.call_timeout, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(from_status(&status, &self.address, subject)),
            Err(_) => Err(ClientError::Timeout {
                address: self.address.clone(),
                limit: self.call_timeout,
            }),
        }
    }

    /// Asks again after a passing refusal, at most [`MAX_READ_ATTEMPTS`] times
    /// and all within one deadline: for reads alone.
    pub(crate) async fn read<T, F, C>(&self, subject: &Subject, call: C) -> Result<T, ClientError>
    where
        C: Fn() -> F,
        F: Future<Output = Result<Response<T>, Status>>,
    {
        // What a try was told stands above that the next one took too long.
        let told = Mutex::new(None);
        let attempts = async {
            let mut pause = FIRST_RETRY_PAUSE;
            let mut attempt = 1;
            loop {
                let error = match call().await {
                    Ok(response) => return Ok(response.into_inner()),
                    Err(status) => from_status(&status, &self.address, subject),
                };
                if attempt == MAX_READ_ATTEMPTS || !error.is_passing() {
                    return Err(error);
                }
                let wait = pause_before_retry(&error, pause);
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                tokio::time::sleep(wait).await;
                pause *= 2;
                attempt += 1;
            }
        };
        match tokio::time::timeout(self.call_timeout, attempts).await {
            Ok(result) => result,
            Err(_) => {
                let told = told.into_inner().unwrap_or_else(PoisonError::into_inner);
                Err(told.unwrap_or_else(|| ClientError::Timeout {
                    address: self.address.clone(),
                    limit: self.call_timeout,
                }))
            }
        }
    }
}

/// The collector's own wish, within [`MAX_RETRY_PAUSE`].
fn pause_before_retry(error: &ClientError, planned: Duration) -> Duration {
    match error {
        ClientError::Busy {
            retry_after: Some(wished),
            ..
        } => planned.max((*wished).min(MAX_RETRY_PAUSE)),
        _ => planned,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_collector_can_ask_for_a_longer_pause_within_a_bound() {
        let busy = |seconds: Option<u64>| ClientError::Busy {
            reason: String::new(),
            retry_after: seconds.map(Duration::from_secs),
        };
        let pause = |seconds| pause_before_retry(&busy(seconds), FIRST_RETRY_PAUSE);
        assert_eq!(pause(None), FIRST_RETRY_PAUSE);
        assert_eq!(pause(Some(0)), FIRST_RETRY_PAUSE);
        assert_eq!(pause(Some(2)), Duration::from_secs(2));
        assert_eq!(pause(Some(3_600)), MAX_RETRY_PAUSE);
    }
}

//! One shaper, asked on its own: for a host without a collector.

use std::time::Duration;

use rdmesh_proto::shaper::v1::shaper_service_client::ShaperServiceClient;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::direct::{DialError, dial};
use crate::endpoint::AddressError;
use crate::error::innermost;
use crate::links::{Links, says_what_to_do};

/// The shaper's port.
pub const SHAPER_PORT: u16 = 7402;

/// Why a shaper does not answer.
#[derive(Debug, thiserror::Error)]
pub enum ShaperError {
    /// The text is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Nothing that speaks gRPC answers there.
    #[error("no shaper answers at {address}: {reason}")]
    Unreachable {
        /// What was dialled.
        address: String,
        /// The innermost cause.
        reason: String,
    },
    /// No answer came in time.
    #[error("the shaper at {address} did not answer within {} s", .limit.as_secs_f64())]
    Timeout {
        /// Who was asked.
        address: String,
        /// How long it had.
        limit: Duration,
    },
    /// What answers there does not know a shaper's calls.
    #[error("what answers at {address} is no shaper")]
    NoShaper {
        /// Who was asked.
        address: String,
    },
    /// It answers, and does not do it.
    #[error("the shaper refuses: {reason}")]
    Refused {
        /// Why, as gRPC has it.
        code: Code,
        /// Its words.
        reason: String,
    },
    /// The name fits no wire of it, or several.
    #[error("{0}")]
    Wire(String),
}

impl ShaperError {
    /// A stable word for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            ShaperError::Address(_) => "address",
            ShaperError::Unreachable { .. } => "unreachable",
            ShaperError::Timeout { .. } => "timeout",
            ShaperError::Wire(_) => "not_found",
            ShaperError::NoShaper { .. } => "unsupported",
            ShaperError::Refused { code, .. } => match code {
                Code::NotFound => "not_found",
                Code::InvalidArgument | Code::AlreadyExists => "invalid_argument",
                _ => "refused",
            },
        }
    }

    /// Whether nobody answers or can serve for now: who waits can ask again.
    pub fn is_outage(&self) -> bool {
        match self {
            ShaperError::Unreachable { .. } | ShaperError::Timeout { .. } => true,
            ShaperError::Refused { code, .. } => matches!(
                code,
                Code::Unavailable | Code::ResourceExhausted | Code::Aborted
            ),
            ShaperError::Address(_) | ShaperError::NoShaper { .. } | ShaperError::Wire(_) => false,
        }
    }

    /// What to do next; empty: the error says it itself.
    pub fn next(&self) -> String {
        match self {
            ShaperError::Unreachable { reason, .. } if says_what_to_do(reason) => String::new(),
            ShaperError::Unreachable { .. } => format!(
                "does shaper-svc run there? [server] listen in its shaper.toml says where it \
                 listens: --shaper HOST:{SHAPER_PORT} or --shaper unix:/PATH"
            ),
            ShaperError::Timeout { .. } => {
                "whether a change is in force is not known: repeat it with the same --request-id"
                    .to_owned()
            }
            ShaperError::NoShaper { .. } => {
                format!(
                    "a shaper listens on port {SHAPER_PORT} unless its shaper.toml says otherwise"
                )
            }
            _ => String::new(),
        }
    }
}

/// A connection to one shaper. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ShaperClient {
    channel: Channel,
    address: String,
    call_timeout: Duration,
}

impl ShaperClient {
    /// Connects to `HOST[:PORT]` (7402 unless said) or `unix:/PATH`.
    ///
    /// # Errors
    /// [`ShaperError::Address`] for a text that is none, [`ShaperError::Unreachable`]
    /// when nothing answers.
    pub async fn connect(text: &str, call_timeout: Duration) -> Result<ShaperClient, ShaperError> {
        ShaperClient::connect_over(&Links::default(), text, call_timeout).await
    }

    /// The same over TLS, where the caller has a certificate.
    ///
    /// # Errors
    /// As [`ShaperClient::connect`].
    pub async fn connect_over(
        links: &Links,
        text: &str,
        call_timeout: Duration,
    ) -> Result<ShaperClient, ShaperError> {
        match dial(links, text, SHAPER_PORT).await {
            Ok((channel, address)) => Ok(ShaperClient {
                channel,
                address,
                call_timeout,
            }),
            Err(DialError::Address(error)) => Err(error.into()),
            Err(DialError::Unreachable { address, reason }) => {
                Err(ShaperError::Unreachable { address, reason })
            }
        }
    }

    pub(crate) fn service(&self) -> ShaperServiceClient<Channel> {
        ShaperServiceClient::new(self.channel.clone())
    }

    /// Asks once, within the deadline.
    pub(crate) async fn ask<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, ShaperError> {
        match tokio::time::timeout(self.call_timeout, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.refused(&status)),
            Err(_) => Err(ShaperError::Timeout {
                address: self.address.clone(),
                limit: self.call_timeout,
            }),
        }
    }

    pub(crate) fn refused(&self, status: &Status) -> ShaperError {
        // A status that tonic made itself of a broken connection carries its cause.
        match std::error::Error::source(status) {
            Some(source) => ShaperError::Unreachable {
                address: self.address.clone(),
                reason: innermost(source).to_string(),
            },
            None if status.code() == Code::Unimplemented => ShaperError::NoShaper {
                address: self.address.clone(),
            },
            None => ShaperError::Refused {
                code: status.code(),
                reason: status.message().to_owned(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_a_kind() {
        let kind = |code| {
            let reason = String::new();
            ShaperError::Refused { code, reason }.kind()
        };
        assert_eq!(kind(Code::NotFound), "not_found");
        assert_eq!(kind(Code::AlreadyExists), "invalid_argument");
        assert_eq!(kind(Code::FailedPrecondition), "refused");
    }
}

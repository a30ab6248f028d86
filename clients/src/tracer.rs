//! One tracer, asked on its own: what only its host knows.

use std::time::Duration;

use rdmesh_proto::tracer::v1::tracer_service_client::TracerServiceClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status, Streaming};

use crate::client::{CONNECT_TIMEOUT, MAX_ANSWER_BYTES};
use crate::endpoint::{AddressError, AddressSources, with_port};
use crate::error::innermost;

/// The tracer's port.
pub const TRACER_PORT: u16 = 7401;

/// Longest silence of a window that is open: following the calls through the module files
/// may take 60 s, and attaching the functions one by one some tens.
const LONGEST_SILENCE: Duration = Duration::from_secs(150);

/// Why a tracer does not answer.
#[derive(Debug, thiserror::Error)]
pub enum TracerError {
    /// The text is no address.
    #[error("{text:?} is no address of a tracer: {reason}; write HOST, HOST:PORT or unix:/PATH")]
    Address {
        /// What was written.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nothing that speaks gRPC answers there.
    #[error("no tracer answers at {address}: {reason}")]
    Unreachable {
        /// What was dialled.
        address: String,
        /// The innermost cause.
        reason: String,
    },
    /// No answer came in time.
    #[error("the tracer at {address} did not answer within {} s", .limit.as_secs_f64())]
    Timeout {
        /// Who was asked.
        address: String,
        /// How long it had.
        limit: Duration,
    },
    /// What answers there does not know a tracer's calls.
    #[error("what answers at {address} is no tracer, or one before 0.2")]
    NoTracer {
        /// Who was asked.
        address: String,
    },
    /// It answers, and does not do it.
    #[error("{reason}")]
    Refused {
        /// Why, as gRPC has it.
        code: Code,
        /// Its words.
        reason: String,
    },
    /// It keeps no such baseline.
    #[error("the tracer at {address} has no baseline of {verb}")]
    NoBaseline {
        /// Who was asked.
        address: String,
        /// The verb.
        verb: String,
    },
    /// The answer breaks the wire contract.
    #[error("the tracer's answer cannot be read: {field}: {reason}")]
    BadAnswer {
        /// Which field.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

impl TracerError {
    /// A stable word for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            TracerError::Address { .. } => "address",
            TracerError::Unreachable { .. } => "unreachable",
            TracerError::Timeout { .. } => "timeout",
            TracerError::NoTracer { .. } => "unsupported",
            TracerError::NoBaseline { .. } => "not_found",
            TracerError::BadAnswer { .. } => "bad_answer",
            TracerError::Refused { code, .. } => match code {
                Code::NotFound => "not_found",
                Code::InvalidArgument => "invalid_argument",
                Code::ResourceExhausted | Code::Unavailable => "busy",
                _ => "refused",
            },
        }
    }

    /// What to do next; empty: the error says it itself.
    pub fn next(&self) -> String {
        match self {
            TracerError::Unreachable { .. } => format!(
                "does tracer-svc run there, and is its port reached from here? [server] listen in \
                 its tracer.toml says where it listens; else HOST:{TRACER_PORT}"
            ),
            TracerError::Timeout { .. } => {
                "look at the tracer's log; a window that nobody listens to has ended".to_owned()
            }
            TracerError::NoTracer { .. } => {
                format!(
                    "a tracer listens on port {TRACER_PORT} unless its tracer.toml says otherwise"
                )
            }
            TracerError::NoBaseline { verb, .. } => {
                format!("record one while good calls are made: rdmesh baseline record HOST {verb}")
            }
            TracerError::BadAnswer { .. } => format!(
                "is the tracer older or newer than this program ({})? Update the older one",
                env!("CARGO_PKG_VERSION")
            ),
            TracerError::Address { .. } | TracerError::Refused { .. } => String::new(),
        }
    }
}

/// A connection to one tracer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TracerClient {
    channel: Channel,
    address: String,
    call_timeout: Duration,
}

impl TracerClient {
    /// Connects to `HOST[:PORT]` (7401 unless said) or `unix:/PATH`.
    ///
    /// # Errors
    /// [`TracerError::Address`] for a text that is none, [`TracerError::Unreachable`]
    /// when nothing answers.
    pub async fn connect(text: &str, call_timeout: Duration) -> Result<TracerClient, TracerError> {
        let sources = AddressSources {
            flag: Some(with_port(text, TRACER_PORT)),
            ..AddressSources::default()
        };
        let address = sources.resolve().map_err(|error| TracerError::Address {
            text: text.to_owned(),
            reason: match error {
                AddressError::Text { reason, .. } => reason.to_owned(),
                AddressError::File { reason, .. } => reason,
            },
        })?;
        let unreachable = |reason: String| TracerError::Unreachable {
            address: address.authority.clone(),
            reason,
        };
        let endpoint = Endpoint::from_shared(address.uri())
            .map_err(|error| unreachable(error.to_string()))?
            .tcp_nodelay(true);
        match tokio::time::timeout(CONNECT_TIMEOUT, endpoint.connect()).await {
            Ok(Ok(channel)) => Ok(TracerClient {
                channel,
                address: address.authority,
                call_timeout,
            }),
            Ok(Err(error)) => Err(unreachable(innermost(&error).to_string())),
            Err(_) => Err(unreachable(format!(
                "no connection within {} s",
                CONNECT_TIMEOUT.as_secs()
            ))),
        }
    }

    /// Where it is connected.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn service(&self) -> TracerServiceClient<Channel> {
        TracerServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    /// Asks once, within the deadline.
    pub(crate) async fn ask<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, TracerError> {
        match tokio::time::timeout(self.call_timeout, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.refused(&status)),
            Err(_) => Err(self.timeout(self.call_timeout)),
        }
    }

    /// The next word of a window; none when it is over.
    pub(crate) async fn next<T>(
        &self,
        stream: &mut Streaming<T>,
    ) -> Result<Option<T>, TracerError> {
        match tokio::time::timeout(LONGEST_SILENCE, stream.message()).await {
            Ok(Ok(next)) => Ok(next),
            Ok(Err(status)) => Err(self.refused(&status)),
            Err(_) => Err(self.timeout(LONGEST_SILENCE)),
        }
    }

    fn timeout(&self, limit: Duration) -> TracerError {
        TracerError::Timeout {
            address: self.address.clone(),
            limit,
        }
    }

    fn refused(&self, status: &Status) -> TracerError {
        // A status that tonic made itself of a broken connection carries its cause.
        match std::error::Error::source(status) {
            Some(source) => TracerError::Unreachable {
                address: self.address.clone(),
                reason: innermost(source).to_string(),
            },
            None if status.code() == Code::Unimplemented => TracerError::NoTracer {
                address: self.address.clone(),
            },
            None => TracerError::Refused {
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
            TracerError::Refused { code, reason }.kind()
        };
        assert_eq!(kind(Code::NotFound), "not_found");
        assert_eq!(kind(Code::InvalidArgument), "invalid_argument");
        assert_eq!(kind(Code::ResourceExhausted), "busy");
        assert_eq!(kind(Code::FailedPrecondition), "refused");
    }

    #[tokio::test]
    async fn a_text_that_is_no_address_is_told_as_it_was_written() {
        let error = TracerClient::connect("a b", CONNECT_TIMEOUT)
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("\"a b\" is no address of a tracer"),
            "{text}"
        );
        assert!(!text.contains("collector"), "{text}");
    }
}

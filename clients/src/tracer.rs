//! One tracer, asked itself: for what only its host knows, or to let a kernel module go and
//! to come back. The collector has no part in either.

use std::time::Duration;

use rdmesh_proto::tracer::v1::tracer_service_client::TracerServiceClient;
use rdmesh_proto::tracer::v1::{AttachProbesRequest, DetachProbesRequest, ProbeReport};
use serde::Serialize;
use tonic::transport::Channel;
use tonic::{Code, Response, Status, Streaming};

use crate::client::{Client, MAX_ANSWER_BYTES};
use crate::direct::{DialError, dial};
use crate::endpoint::AddressError;
use crate::error::{ClientError, innermost};
use crate::links::{Links, says_what_to_do};
use crate::model::agent::AgentKind;

/// The tracer's port.
pub const TRACER_PORT: u16 = 7401;

/// Longest silence of a window that is open: following the calls through the module files
/// may take 60 s, and attaching the functions one by one some tens.
const LONGEST_SILENCE: Duration = Duration::from_secs(150);

/// What is asked of a tracer. A module of none means all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Take the probes off, so that the module can be unloaded.
    Detach(Option<String>),
    /// Put them on again.
    Attach(Option<String>),
}

/// What a tracer did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Done {
    /// Where.
    pub host: String,
    /// The kernel module; absent: all.
    pub module: Option<String>,
    /// Probes that were taken off; absent where they were to be put on.
    pub detached: Option<u32>,
    /// Probes that were put on; absent where they were to be taken off.
    pub attached: Option<u32>,
    /// Logical hooks with an attached probe afterwards.
    pub logical_attached: u32,
    /// Logical hooks in all.
    pub logical_total: u32,
}

/// Why a tracer did not do it.
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
    /// The collector does not know where the tracer can be dialled.
    #[error("the tracer of {host} does not say where it can be dialled")]
    NoAddress {
        /// Which host.
        host: String,
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
    #[error("the tracer refuses: {reason}")]
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
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            TracerError::Address { .. } => "address",
            TracerError::NoAddress { .. } => "no_address",
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
    #[must_use]
    pub fn next(&self) -> String {
        match self {
            TracerError::NoAddress { host } => format!(
                "name it with --tracer HOST:{TRACER_PORT}, set `advertise` in the tracer.toml of \
                 {host}, or run `tracer-svc detach` there"
            ),
            TracerError::Unreachable { reason, .. } if says_what_to_do(reason) => String::new(),
            TracerError::Unreachable { .. } => format!(
                "does tracer-svc run there, and listen for others than its own host? [server] \
                 listen in its tracer.toml says so: HOST:{TRACER_PORT} or unix:/PATH; to detach on \
                 the host itself: `tracer-svc detach`"
            ),
            TracerError::Timeout { .. } => {
                "an order may have been done all the same, and can be given again; the tracer's \
                 log tells"
                    .to_owned()
            }
            TracerError::NoTracer { .. } => format!(
                "a tracer listens on port {TRACER_PORT} unless its tracer.toml says otherwise"
            ),
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
        TracerClient::connect_over(&Links::default(), text, call_timeout).await
    }

    /// The same over TLS, where the caller has a certificate.
    ///
    /// # Errors
    /// As [`TracerClient::connect`].
    pub async fn connect_over(
        links: &Links,
        text: &str,
        call_timeout: Duration,
    ) -> Result<TracerClient, TracerError> {
        match dial(links, text, TRACER_PORT).await {
            Ok((channel, address)) => Ok(TracerClient {
                channel,
                address,
                call_timeout,
            }),
            Err(DialError::Address(error)) => Err(TracerError::Address {
                text: text.to_owned(),
                reason: match error {
                    AddressError::Text { reason, .. } => reason.to_owned(),
                    AddressError::File { reason, .. } => reason,
                },
            }),
            Err(DialError::Unreachable { address, reason }) => {
                Err(TracerError::Unreachable { address, reason })
            }
        }
    }

    /// Where it is connected.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Gives an order; `host` is how the answer names the tracer.
    ///
    /// # Errors
    /// [`TracerError`]: a module in which nothing is hooked is a refusal with
    /// [`Code::NotFound`].
    pub async fn order(&self, host: &str, order: &Order) -> Result<Done, TracerError> {
        let mut tracer = self.service();
        let name = |module: &Option<String>| module.clone().unwrap_or_default();
        let done = |module: &Option<String>, report: Option<ProbeReport>| {
            let report = report.unwrap_or_default();
            Done {
                host: host.to_owned(),
                module: module.clone(),
                detached: None,
                attached: None,
                logical_attached: report.logical_attached,
                logical_total: report.logical_total,
            }
        };
        match order {
            Order::Detach(module) => {
                let request = DetachProbesRequest {
                    module: name(module),
                };
                let answer = self.ask(tracer.detach_probes(request)).await?;
                let done = done(module, answer.report);
                let detached = Some(answer.detached);
                Ok(Done { detached, ..done })
            }
            Order::Attach(module) => {
                let request = AttachProbesRequest {
                    module: name(module),
                };
                let answer = self.ask(tracer.attach_probes(request)).await?;
                let done = done(module, answer.report);
                let attached = Some(answer.attached);
                Ok(Done { attached, ..done })
            }
        }
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

impl Client {
    /// Where the tracer of a host says that it can be dialled; none where it does not.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when no tracer of that name has reported.
    pub async fn tracer_address(&self, host: &str) -> Result<Option<String>, ClientError> {
        let agents = self.list_agents().await?;
        let mut tracers = agents.into_iter().filter(|a| a.kind == AgentKind::Tracer);
        match tracers.find(|agent| agent.host == host) {
            Some(agent) => Ok(agent.address),
            // The collector's own words for a host that it does not know.
            None => self.host_probes(host).await.map(|_| None),
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
        let error = TracerClient::connect("a b", Duration::from_secs(1))
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

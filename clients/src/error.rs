//! What can go wrong between a question and its answer, and what to do then.

use std::error::Error as StdError;
use std::time::Duration;

use tonic::{Code, Status};

use crate::endpoint::{AddressError, AddressSource, CollectorAddress, DEFAULT_PORT, VARIABLE};
use crate::links::says_what_to_do;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Where the collector is could not be told.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Nothing that speaks gRPC answers there.
    #[error("no collector answers at {address} (from {}): {reason}", address.source)]
    Unreachable {
        /// What was dialled.
        address: CollectorAddress,
        /// The innermost cause.
        reason: String,
    },
    /// No answer came in time.
    #[error("the collector at {address} did not answer within {} s", .limit.as_secs_f64())]
    Timeout {
        /// Who was asked.
        address: CollectorAddress,
        /// How long it had.
        limit: Duration,
    },
    /// The collector does not know what was asked for.
    #[error("{what} is not known to the collector: {reason}")]
    NotFound {
        /// `job 4711`, `host gpu-01`.
        what: String,
        /// The collector's words.
        reason: String,
        /// The command that lists what is known; empty: none does.
        listed_by: &'static str,
    },
    /// The collector refuses a value of the request.
    #[error("the collector refuses the request: {0}")]
    Invalid(String),
    /// The caller has not the right.
    #[error("the collector does not allow this: {0}")]
    Denied(String),
    /// The collector answers and cannot serve for now.
    #[error("the collector cannot serve this now: {reason}")]
    Busy {
        /// The collector's words.
        reason: String,
        /// How long the collector asks to wait; absent: it did not say.
        retry_after: Option<Duration>,
    },
    /// The collector, or the shaper that it asked, does not do it as things stand.
    #[error("{0}")]
    Refused(String),
    /// The collector gave the question up.
    #[error("the collector gave the question up: {0}")]
    TooSlow(String),
    /// What answers does not know this call.
    #[error("what answers at {address} does not know this call{}", told(.reason))]
    Unsupported {
        /// Who was asked.
        address: CollectorAddress,
        /// Its words; may be empty.
        reason: String,
    },
    /// The collector failed.
    #[error("the collector failed: {0}")]
    Failed(String),
    /// The answer breaks the wire contract.
    #[error("the collector's answer cannot be read: {field}: {reason}")]
    BadAnswer {
        /// Which field.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

impl ClientError {
    /// A stable word for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            ClientError::Address(_) => "address",
            ClientError::Unreachable { .. } => "unreachable",
            ClientError::Timeout { .. } => "timeout",
            ClientError::NotFound { .. } => "not_found",
            ClientError::Invalid(_) => "invalid_argument",
            ClientError::Denied(_) => "denied",
            ClientError::Busy { .. } => "busy",
            ClientError::Refused(_) => "refused",
            ClientError::TooSlow(_) => "too_slow",
            ClientError::Unsupported { .. } => "unsupported",
            ClientError::Failed(_) => "failed",
            ClientError::BadAnswer { .. } => "bad_answer",
        }
    }

    /// What to do next, as one sentence; empty: the error says it itself.
    pub fn next(&self) -> String {
        match self {
            ClientError::Address(_) | ClientError::Invalid(_) | ClientError::Refused(_) => {
                String::new()
            }
            ClientError::Unreachable { reason, .. } if says_what_to_do(reason) => String::new(),
            ClientError::Unreachable { address, .. } => unreachable_hint(address),
            ClientError::Timeout { .. } => {
                "ask for less (--limit, --since), or wait longer: --timeout SECONDS".to_owned()
            }
            // The collector may have said so itself.
            ClientError::NotFound {
                reason, listed_by, ..
            } if reason.contains(listed_by) => String::new(),
            ClientError::NotFound { listed_by, .. } => format!("{listed_by} shows what is known"),
            ClientError::Denied(_) => "ask the collector's operator for the right".to_owned(),
            ClientError::TooSlow(_) => {
                "ask for less (--limit, --since), or try again when the collector has less to do"
                    .to_owned()
            }
            ClientError::Busy { retry_after, .. } => {
                let wait = retry_after.map_or_else(
                    || "a few seconds".to_owned(),
                    |wait| format!("{} s", wait.as_secs()),
                );
                format!(
                    "try again in {wait}; if it stays so, look at the collector's log and its \
                     database"
                )
            }
            ClientError::Unsupported { .. } => format!(
                "is it a collector (port {DEFAULT_PORT}) and no agent (7401, 7402)? If so, is it \
                 older or newer than this program ({})? Update the older one",
                env!("CARGO_PKG_VERSION")
            ),
            ClientError::BadAnswer { .. } => format!(
                "is the collector older or newer than this program ({})? Update the older one",
                env!("CARGO_PKG_VERSION")
            ),
            ClientError::Failed(_) => "look at the collector's log".to_owned(),
        }
    }

    /// Whether the same read may succeed a moment later.
    pub fn is_passing(&self) -> bool {
        matches!(self, ClientError::Busy { .. })
    }

    /// Whether nobody answers or can serve for now: who waits can ask again.
    pub fn is_outage(&self) -> bool {
        matches!(
            self,
            ClientError::Unreachable { .. }
                | ClientError::Timeout { .. }
                | ClientError::Busy { .. }
                | ClientError::TooSlow(_)
        )
    }
}

/// `: reason`, unless there is none.
fn told(reason: &str) -> String {
    match reason {
        "" => String::new(),
        reason => format!(": {reason}"),
    }
}

fn unreachable_hint(address: &CollectorAddress) -> String {
    let elsewhere = format!(
        "If it runs elsewhere, say so: --collector HOST:{DEFAULT_PORT}, {VARIABLE}, or \
         collector = \"HOST:{DEFAULT_PORT}\" in ~/.config/rdmesh/cli.toml"
    );
    if address.is_unix() {
        return format!(
            "is it running on this machine, and may you write to its socket? {elsewhere}"
        );
    }
    match &address.source {
        AddressSource::File(path) => {
            format!(
                "is it running there? {elsewhere} ({} decided now)",
                path.display()
            )
        }
        _ => format!("is it running there? {elsewhere}"),
    }
}

/// What was asked for, to say so when it is not found.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) what: String,
    pub(crate) listed_by: &'static str,
    /// Whether every value of the request was checked here by the contract's
    /// rules. A refusal then is the collector's own trouble and no wrong usage.
    pub(crate) checked: bool,
    /// Whether a shaper may stand behind the answer: its words are told as they are,
    /// and the collector is not to blame.
    pub(crate) by_shaper: bool,
}

impl Subject {
    pub(crate) fn checked(mut self) -> Subject {
        self.checked = true;
        self
    }

    pub(crate) fn job(what: &impl std::fmt::Display) -> Subject {
        Subject {
            what: format!("job {what}"),
            listed_by: "rdmesh job list",
            checked: false,
            by_shaper: false,
        }
    }

    pub(crate) fn host(host: &str) -> Subject {
        Subject {
            what: format!("host {host}"),
            listed_by: "rdmesh fleet",
            checked: false,
            by_shaper: false,
        }
    }

    pub(crate) fn wire(which: &impl std::fmt::Display) -> Subject {
        Subject {
            what: format!("wire {which}"),
            listed_by: "rdmesh wire list",
            checked: false,
            by_shaper: true,
        }
    }

    pub(crate) fn wires() -> Subject {
        Subject {
            what: "a wire that fits".to_owned(),
            listed_by: "rdmesh wire list",
            checked: false,
            by_shaper: true,
        }
    }

    /// Windows, which the collector itself reads: no shaper stands behind them.
    pub(crate) fn watched() -> Subject {
        Subject {
            by_shaper: false,
            ..Subject::wires()
        }
    }

    pub(crate) fn none() -> Subject {
        Subject {
            what: "this".to_owned(),
            listed_by: "",
            checked: false,
            by_shaper: false,
        }
    }
}

/// The one place where a gRPC status becomes an error.
pub(crate) fn from_status(
    status: &Status,
    address: &CollectorAddress,
    subject: &Subject,
) -> ClientError {
    let text = status.message().to_owned();
    // A status that tonic made itself of a broken connection carries its cause.
    if let Some(source) = status.source() {
        return ClientError::Unreachable {
            address: address.clone(),
            reason: innermost(source).to_string(),
        };
    }
    // tonic's words for an HTTP answer without a status of gRPC: a web server.
    if text.contains("grpc-status header missing") && status.code() != Code::Unavailable {
        return ClientError::Unreachable {
            address: address.clone(),
            reason: format!("something answers there that speaks no gRPC ({text})"),
        };
    }
    match status.code() {
        Code::FailedPrecondition if subject.by_shaper => ClientError::Refused(text),
        // The collector itself says how long to wait.
        Code::Unavailable | Code::DeadlineExceeded
            if subject.by_shaper && retry_after(status).is_none() =>
        {
            ClientError::Refused(text)
        }
        Code::NotFound => ClientError::NotFound {
            what: subject.what.clone(),
            reason: text,
            listed_by: subject.listed_by,
        },
        Code::InvalidArgument if subject.checked => ClientError::Failed(text),
        Code::InvalidArgument | Code::AlreadyExists => ClientError::Invalid(text),
        Code::PermissionDenied | Code::Unauthenticated => ClientError::Denied(text),
        Code::Unavailable | Code::ResourceExhausted | Code::Aborted => ClientError::Busy {
            reason: text,
            retry_after: retry_after(status),
        },
        Code::Unimplemented => ClientError::Unsupported {
            address: address.clone(),
            reason: text,
        },
        Code::DeadlineExceeded => ClientError::TooSlow(text),
        _ => ClientError::Failed(text),
    }
}

/// The wait that the collector asks for, in whole seconds.
fn retry_after(status: &Status) -> Option<Duration> {
    let text = status.metadata().get("retry-after")?.to_str().ok()?;
    text.parse().ok().map(Duration::from_secs)
}

/// The cause at the bottom of a chain of causes: what a person can act on.
pub(crate) fn innermost<'a>(error: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::AddressSources;

    fn error_of(status: &Status) -> ClientError {
        let address = AddressSources::default().resolve().unwrap();
        from_status(status, &address, &Subject::job(&"4711"))
    }

    #[test]
    fn each_status_has_its_kind() {
        let kinds = [
            (Code::NotFound, "not_found"),
            (Code::InvalidArgument, "invalid_argument"),
            (Code::PermissionDenied, "denied"),
            (Code::Unauthenticated, "denied"),
            (Code::Unavailable, "busy"),
            (Code::ResourceExhausted, "busy"),
            (Code::Unimplemented, "unsupported"),
            (Code::DeadlineExceeded, "too_slow"),
            // The collector's own trouble, not the caller's.
            (Code::FailedPrecondition, "failed"),
            (Code::Internal, "failed"),
            (Code::Unknown, "failed"),
        ];
        for (code, kind) in kinds {
            assert_eq!(error_of(&Status::new(code, "x")).kind(), kind, "{code:?}");
        }
    }

    #[test]
    fn a_web_server_is_no_collector() {
        let text = "grpc-status header missing, mapped from HTTP status code";
        let answer = |code, number: u16| error_of(&Status::new(code, format!("{text} {number}")));
        let error = answer(Code::Unimplemented, 404);
        assert_eq!(error.kind(), "unreachable");
        assert!(error.to_string().contains("speaks no gRPC"), "{error}");
        assert_eq!(answer(Code::PermissionDenied, 403).kind(), "unreachable");
        // A proxy whose collector is being restarted.
        assert_eq!(answer(Code::Unavailable, 503).kind(), "busy");
    }

    #[test]
    fn a_checked_request_is_not_to_blame() {
        let address = AddressSources::default().resolve().unwrap();
        let refused = Status::invalid_argument("Postgres refused a value: bigint out of range");
        let subject = Subject::job(&"4711").checked();
        assert_eq!(from_status(&refused, &address, &subject).kind(), "failed");
        let subject = Subject::job(&"4711");
        let error = from_status(&refused, &address, &subject);
        assert_eq!(error.kind(), "invalid_argument");
    }

    #[test]
    fn what_the_collector_said_is_not_said_twice() {
        let told = error_of(&Status::not_found(
            "no job 4711; `rdmesh job list` shows what is known",
        ));
        assert_eq!(told.next(), "");
        let bare = error_of(&Status::not_found("no job 4711"));
        assert_eq!(bare.next(), "rdmesh job list shows what is known");
    }

    #[test]
    fn the_wait_that_the_collector_asks_for_is_told() {
        let mut status = Status::unavailable("waits for Postgres");
        status.metadata_mut().insert("retry-after", 2.into());
        assert!(error_of(&status).next().contains("try again in 2 s"));
        status
            .metadata_mut()
            .insert("retry-after", "soon".parse().unwrap());
        assert!(
            error_of(&status)
                .next()
                .contains("try again in a few seconds")
        );
    }
}

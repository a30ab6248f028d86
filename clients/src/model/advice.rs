//! Advice on another attempt.

use rdmesh_proto::collector::v1 as wire;
use serde::Serialize;

use super::verdict::{Confidence, VerdictClass};
use super::{present, text, wire_enum};
use crate::attempt::AttemptId;
use crate::error::ClientError;

wire_enum! {
    /// What to do.
    RetryAdvice from rdmesh_proto::collector::v1::RetryAdvice {
        Retry => "retry",
        RetryWithoutHosts => "retry_without_hosts",
        DoNotRetry => "do_not_retry",
    }
}

/// What to do after an attempt, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// Which attempt.
    pub attempt: AttemptId,
    /// What to do.
    pub advice: RetryAdvice,
    /// Hosts to leave out.
    pub hosts: Vec<String>,
    /// How sure that is.
    pub confidence: Confidence,
    /// Why, in a sentence.
    pub reason: String,
    /// What speaks for it.
    pub evidence: Vec<String>,
    /// Earlier attempts with the same failure.
    pub same_failure: Vec<String>,
    /// Class of the verdict.
    pub class: VerdictClass,
    /// Whom to call.
    pub route_to: Option<String>,
    /// What is odd about the answer.
    pub marks: Vec<String>,
}

impl TryFrom<wire::AdviseRetryResponse> for Advice {
    type Error = ClientError;

    fn try_from(answer: wire::AdviseRetryResponse) -> Result<Advice, ClientError> {
        let mut marks = Vec::new();
        Ok(Advice {
            attempt: AttemptId::told(present("attempt", answer.attempt)?, &mut marks),
            advice: answer.advice.into(),
            hosts: answer.hosts,
            confidence: answer.confidence.into(),
            reason: answer.reason,
            evidence: answer.evidence,
            same_failure: answer.same_failure,
            class: answer.class.into(),
            route_to: text(answer.route_to),
            marks,
        })
    }
}

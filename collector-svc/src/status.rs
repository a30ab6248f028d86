//! The one place where errors become gRPC status.

use rdmesh_store::StoreError;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::attempt::BadRequest;

/// Metadata key of the wait before a call is worth repeating, seconds.
const RETRY_AFTER: &str = "retry-after";

/// A call that the store could not serve.
pub(crate) fn from_store(error: &StoreError) -> Status {
    let code = match error {
        StoreError::Unavailable(_)
        | StoreError::Conflict(_)
        | StoreError::NoPartition(_)
        // The agent says Hello again when it comes back.
        | StoreError::UnknownRun => Code::Unavailable,
        StoreError::NoRoom(_) => Code::ResourceExhausted,
        StoreError::TooSlow(_) => Code::DeadlineExceeded,
        StoreError::Permission(_)
        | StoreError::ReadOnly(_)
        | StoreError::Schema(_)
        | StoreError::ServerTooOld { .. }
        | StoreError::NotComparable(_)
        | StoreError::Url(_) => Code::FailedPrecondition,
        // Requests are validated before: a value that Postgres refuses is a fault here,
        // not of whoever asks.
        // So is one in the database that cannot be read.
        StoreError::Data(_) | StoreError::Unreadable(_) | StoreError::Other(_) => Code::Internal,
    };
    let mut status = Status::new(code, error.to_string());
    if error.is_retryable() {
        let seconds = error.retry_after().as_secs().max(1);
        status
            .metadata_mut()
            .insert(RETRY_AFTER, MetadataValue::from(seconds));
    }
    status
}

/// Whether a refusal is about something that passes by itself.
pub(crate) fn passes(status: &Status) -> bool {
    status.code() == Code::Unavailable && status.metadata().contains_key(RETRY_AFTER)
}

/// What an agent hears whose items could not be stored. Nothing is wrong with them; whoever
/// reads it in the agent's log must look at the database.
pub(crate) fn for_agent(error: &StoreError) -> Status {
    let StoreError::TooSlow(detail) = error else {
        return from_store(error);
    };
    let mut status = Status::unavailable(format!(
        "the collector's database did not commit in time ({detail}); nothing is lost: the agent \
         keeps what is not acknowledged and sends it again; if this goes on, look at the load, \
         the disk and the locks of the collector's Postgres"
    ));
    status
        .metadata_mut()
        .insert(RETRY_AFTER, MetadataValue::from(2));
    status
}

/// A request that says something that is not allowed.
pub(crate) fn from_bad_request(error: &BadRequest) -> Status {
    Status::invalid_argument(error.to_string())
}

/// What is too busy for a call, which may come again.
pub(crate) fn busy(words: &str) -> Status {
    let mut status = Status::unavailable(words);
    status
        .metadata_mut()
        .insert(RETRY_AFTER, MetadataValue::from(2));
    status
}

/// While the schema is not there yet.
pub(crate) fn not_ready() -> Status {
    let mut status = Status::unavailable(
        "the collector waits for Postgres (see its log); try again in a few seconds",
    );
    status
        .metadata_mut()
        .insert(RETRY_AFTER, MetadataValue::from(2));
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_told_of_a_slow_database_and_not_to_ask_for_less() {
        let slow = StoreError::TooSlow("canceling statement due to statement timeout".into());
        let status = for_agent(&slow);
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().contains("sends it again"), "{status:?}");
        assert!(!status.message().contains("ask for less"), "{status:?}");
        assert!(status.metadata().get(RETRY_AFTER).is_some());
        assert_eq!(from_store(&slow).code(), Code::DeadlineExceeded);
    }

    #[test]
    fn what_can_be_tried_again_says_when() {
        let status = from_store(&StoreError::Unavailable("gone".into()));
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(status.metadata().get(RETRY_AFTER).unwrap(), "1");
        assert!(status.message().contains("tried again"));
        for fault in [
            StoreError::Data("x".into()),
            StoreError::Unreadable("x".into()),
        ] {
            let status = from_store(&fault);
            assert_eq!(status.code(), Code::Internal);
            assert!(status.message().contains('x'), "{}", status.message());
            assert!(status.metadata().get(RETRY_AFTER).is_none());
        }
    }
}

//! Windows and baselines as the calls of the contract ask and answer.

use std::pin::Pin;

use rdmesh_proto::tracer::v1 as wire;
use rdmesh_proto::tracer::v1::{diff_baseline_response, record_baseline_response};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use crate::baseline::Tree;
use crate::window::contract::{baseline, fork, progress};
use crate::window::{Ask, Kept, Purpose, ShelfError, Told, WindowError, Words};

/// What comes of a call that streams.
pub(super) type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A call as it is asked for.
pub(super) fn ask(purpose: Purpose, verbs: &[String], seconds: u32, driver: &str) -> Ask {
    Ask {
        purpose,
        verbs: verbs.to_vec(),
        driver: (!driver.is_empty()).then(|| driver.to_owned()),
        seconds,
        beside: Vec::new(),
    }
}

/// The window's words for who records. Dropping it closes the window.
pub(super) fn recorded(words: Words) -> Answers<wire::RecordBaselineResponse> {
    use record_baseline_response::Event;
    Box::pin(ReceiverStream::new(words).filter_map(|word| {
        let event = match word {
            Ok(Told::Progress(told)) => Event::Progress(progress(&told)),
            Ok(Told::Recorded(tree)) => Event::Baseline(baseline(&tree, true)),
            // A recording tells none.
            Ok(Told::Parted(_)) => return None,
            Err(error) => return Some(Err(status(&error))),
        };
        Some(Ok(wire::RecordBaselineResponse { event: Some(event) }))
    }))
}

/// The window's words for who compares.
pub(super) fn compared(words: Words) -> Answers<wire::DiffBaselineResponse> {
    use diff_baseline_response::Event;
    Box::pin(ReceiverStream::new(words).filter_map(|word| {
        let event = match word {
            Ok(Told::Progress(told)) => Event::Progress(progress(&told)),
            Ok(Told::Parted(parted)) => Event::Fork(fork(&parted)),
            // A comparison tells none.
            Ok(Told::Recorded(_)) => return None,
            Err(error) => return Some(Err(status(&error))),
        };
        Some(Ok(wire::DiffBaselineResponse { event: Some(event) }))
    }))
}

/// The baselines of a verb, or of all.
pub(super) fn listed(kept: Kept, verb: &str, nodes: bool) -> wire::ListBaselinesResponse {
    let wanted = |tree: &&Tree| verb.is_empty() || tree.verb == verb;
    let trees = kept.trees.iter().filter(wanted);
    wire::ListBaselinesResponse {
        baselines: trees.map(|tree| baseline(tree, nodes)).collect(),
        damaged: kept.damaged,
    }
}

/// Why there is none.
pub(super) fn status(error: &WindowError) -> Status {
    let text = error.to_string();
    match error {
        WindowError::Busy { .. } | WindowError::Thread(_) => Status::resource_exhausted(text),
        WindowError::Asked(_) | WindowError::Shelf(ShelfError::Name(_)) => {
            Status::invalid_argument(text)
        }
        WindowError::NoBaseline { .. } => Status::not_found(text),
        WindowError::NothingGood { .. } | WindowError::Load(_) | WindowError::Shelf(_) => {
            Status::failed_precondition(text)
        }
        WindowError::Closed(_) => Status::aborted(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_code() {
        use tonic::Code;
        let code = |error: WindowError| status(&error).code();
        assert_eq!(code(WindowError::Closed("")), Code::Aborted);
        assert_eq!(
            code(WindowError::Asked(String::new())),
            Code::InvalidArgument
        );
        let name = ShelfError::Name("..".to_owned());
        assert_eq!(code(name.into()), Code::InvalidArgument);
        let busy = WindowError::Busy {
            what: String::new(),
            left: 1,
        };
        assert_eq!(code(busy), Code::ResourceExhausted);
    }
}

//! What a client sends that does not decode is the client's fault: INVALID_ARGUMENT, with
//! what to do. The transport says INTERNAL, which reads as a fault of the server.

use tonic::body::Body;
use tonic::codegen::http::Response;
use tonic::{Code, Status};
use tower::util::MapResponseLayer;

/// How the transport and the codec begin to say that a request does not decode: a message,
/// its frame, or its end. Tests hold these words of tonic 0.14 and prost 0.14.
const UNDECODABLE: [&str; 4] = [
    "failed to decode Protobuf message",
    "protocol error: received message with invalid compression flag",
    "protocol error: received message with compressed-flag",
    "Unexpected EOF decoding stream",
];

type Answer = fn(Response<Body>) -> Response<Body>;

/// Looks at every answer of a server.
pub(super) type Answers = MapResponseLayer<Answer>;

pub(super) fn answers() -> Answers {
    MapResponseLayer::new(answer)
}

/// A call whose first message does not decode has no answer but its status, which stands in
/// the headers. Later messages of a stream are the service's own to answer.
fn answer(response: Response<Body>) -> Response<Body> {
    match Status::from_header_map(response.headers()) {
        Some(status) if is_undecodable(&status) => blame_the_request(&status).into_http(),
        _ => response,
    }
}

fn is_undecodable(status: &Status) -> bool {
    status.code() == Code::Internal
        && UNDECODABLE
            .iter()
            .any(|words| status.message().starts_with(words))
}

fn blame_the_request(status: &Status) -> Status {
    Status::invalid_argument(format!(
        "the request is no message of this call ({}); is the client of another version? \
         `grpcurl -plaintext ADDRESS describe` shows what this server takes",
        status.message()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: &Status) -> Status {
        let response = answer(status.clone().into_http());
        Status::from_header_map(response.headers()).unwrap_or_else(|| Status::ok(""))
    }

    #[test]
    fn a_fault_of_the_server_stays_one() {
        let own = Status::internal("the disk is gone");
        assert_eq!(answered(&own).code(), Code::Internal);
        assert_eq!(answered(&own).message(), own.message());
        let ok = answer(Response::new(Body::empty()));
        assert!(ok.headers().is_empty());
    }

    #[test]
    fn a_message_that_does_not_decode_is_the_clients() {
        for words in UNDECODABLE {
            let told = answered(&Status::internal(format!("{words}: x")));
            assert_eq!(told.code(), Code::InvalidArgument, "{words}");
            assert!(told.message().contains(words), "{}", told.message());
        }
    }
}

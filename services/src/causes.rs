//! An error with what caused it, in one line.

use std::error::Error;

/// `transport error: tcp connect error: Connection refused`: the error, then its
/// causes from the outermost inward, each that is not told yet. A message that
/// quotes its cause in the middle of a sentence is thereby not followed by it once
/// more.
#[must_use]
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{ListenAddress, ServerError};
    use std::io;

    #[derive(Debug, thiserror::Error)]
    #[error("the collector cannot start")]
    struct Outer(#[source] ServerError);

    fn taken() -> ServerError {
        ServerError::Bind {
            address: ListenAddress::Tcp(([127, 0, 0, 1], 7400).into()),
            source: io::Error::from_raw_os_error(98),
            advice: "another process has it",
        }
    }

    #[test]
    fn a_cause_that_a_message_quotes_is_told_once() {
        let told = with_causes(&taken());
        assert_eq!(
            told,
            "cannot listen on 127.0.0.1:7400: Address already in use (os error 98); another \
             process has it"
        );
    }

    #[test]
    fn causes_that_no_message_quotes_follow() {
        let told = with_causes(&Outer(taken()));
        assert!(told.starts_with("the collector cannot start: cannot listen on"));
        assert_eq!(told.matches("Address already in use").count(), 1, "{told}");
    }
}

//! Jobs' own logs, handed to the collector.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rdmesh_proto::collector::v1 as wire;
use rdmesh_proto::collector::v1::submit_job_log_request::Item;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use crate::attempt::{AttemptId, AttemptSelector};
use crate::client::Client;
use crate::error::{ClientError, Subject, from_status};
use crate::model::log::{JobLogs, SubmittedLog};

/// Bytes of one message: large enough that messages cost nothing beside their bytes, and
/// a quarter of what the collector takes.
const MESSAGE_BYTES: usize = 256 << 10;

/// Messages that were read and are not sent: a file is read while the network is written.
const WAITING: usize = 4;

/// Whose log it is.
#[derive(Clone, Debug)]
pub struct LogSource {
    /// The attempt.
    pub attempt: AttemptId,
    /// Host that wrote it; empty: of the whole attempt, or not known.
    pub host: String,
    /// Rank that wrote it; absent: of the whole attempt, or not known.
    pub rank: Option<u32>,
    /// Tells logs of one attempt, host and rank apart; may be empty.
    pub name: String,
}

/// Why a log was not submitted. The collector then keeps nothing of it.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The log could not be read to its end.
    #[error("the log could not be read after {bytes} bytes: {error}")]
    Read {
        /// How much of it was read.
        bytes: u64,
        /// What the reader said.
        error: io::Error,
    },
    /// The collector did not take it.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl Client {
    /// What is kept of an attempt's logs and dumps, `limit` of them at most.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when the collector never heard of it.
    pub async fn job_logs(
        &self,
        selector: &AttemptSelector,
        limit: u32,
    ) -> Result<JobLogs, ClientError> {
        let request = wire::ListJobLogsRequest {
            job_id: selector.job_id().to_owned(),
            requeue: selector.requeue,
            restart: selector.restart,
            page_size: limit,
            page_token: String::new(),
        };
        let ask = || {
            let (mut service, request) = (self.job_service(), request.clone());
            async move { service.list_job_logs(request).await }
        };
        let answer = self.read(&Subject::job(selector).checked(), ask).await?;
        let logs = answer.logs.into_iter();
        Ok(JobLogs {
            logs: logs
                .map(|log| SubmittedLog::told(log, false))
                .collect::<Result<_, _>>()?,
            total: answer.total,
        })
    }

    /// Hands a log of any length to the collector, which reads it once and keeps what it
    /// says. The same log again changes nothing. `reader` is read on a thread of its own.
    ///
    /// A call has no deadline as a whole: it ends when nothing moved for the deadline of
    /// a call.
    ///
    /// # Errors
    /// See [`SubmitError`].
    pub async fn submit_log(
        &self,
        source: LogSource,
        reader: impl Read + Send + 'static,
    ) -> Result<SubmittedLog, SubmitError> {
        let subject = Subject::job(&source.attempt);
        let source = wire::JobLogSource {
            attempt: Some(source.attempt.into()),
            host: source.host,
            rank: source.rank,
            name: source.name,
        };
        let (messages, sent) = mpsc::channel(WAITING);
        let (fails, failed) = oneshot::channel();
        std::thread::spawn(move || {
            // The error takes the way in along: a stream that ended would be a whole log.
            if let Err(error) = hand_on(reader, &messages) {
                let _ = fails.send((error, messages));
            }
        });
        let moved = Arc::new(AtomicU64::new(0));
        let moves = Arc::clone(&moved);
        let first = tokio_stream::once(Item::Source(source));
        let items = first.chain(ReceiverStream::new(sent).map(Item::Data));
        let requests = items.map(move |item| {
            moves.fetch_add(1, Ordering::Relaxed);
            wire::SubmitJobLogRequest { item: Some(item) }
        });
        let mut service = self.job_service();
        let failed = async {
            match failed.await {
                Ok(failure) => failure,
                // It was read to its end.
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            answer = service.submit_job_log(requests) => {
                let answer = answer.map_err(|s| from_status(&s, self.address(), &subject))?;
                Ok(answer.into_inner().try_into()?)
            }
            (failure, _messages) = failed => Err(SubmitError::Read {
                bytes: failure.bytes,
                error: failure.error,
            }),
            () = stalled(&moved, self.call_timeout()) => {
                Err(SubmitError::Client(ClientError::Timeout {
                    address: self.address().clone(),
                    limit: self.call_timeout(),
                }))
            }
        }
    }
}

/// Completes when `moved` stood still for `limit`.
async fn stalled(moved: &AtomicU64, limit: Duration) {
    loop {
        let before = moved.load(Ordering::Relaxed);
        tokio::time::sleep(limit).await;
        if moved.load(Ordering::Relaxed) == before {
            return;
        }
    }
}

struct ReadFailure {
    bytes: u64,
    error: io::Error,
}

/// Reads to the end; ends early without an error when nobody takes the messages any more.
fn hand_on(mut reader: impl Read, messages: &mpsc::Sender<Vec<u8>>) -> Result<(), ReadFailure> {
    let mut bytes = 0_u64;
    loop {
        let mut message = Vec::with_capacity(MESSAGE_BYTES);
        let most = u64::try_from(MESSAGE_BYTES).unwrap_or(u64::MAX);
        let read = Read::by_ref(&mut reader)
            .take(most)
            .read_to_end(&mut message);
        let count = u64::try_from(message.len()).unwrap_or(u64::MAX);
        bytes = bytes.saturating_add(count);
        match read {
            Ok(0) => return Ok(()),
            Ok(_) if messages.blocking_send(message).is_ok() => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(ReadFailure { bytes, error }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives some bytes, then fails.
    struct Broken(usize);

    impl Read for Broken {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(io::Error::other("the disk is gone"));
            }
            let count = to.len().min(self.0);
            self.0 -= count;
            to[..count].fill(b'x');
            Ok(count)
        }
    }

    #[test]
    fn a_log_is_handed_on_in_messages_of_bounded_size() {
        let (messages, mut sent) = mpsc::channel(64);
        let log = vec![b'x'; 2 * MESSAGE_BYTES + 1];
        assert!(hand_on(io::Cursor::new(log), &messages).is_ok());
        drop(messages);
        let mut sizes = Vec::new();
        while let Some(message) = sent.blocking_recv() {
            sizes.push(message.len());
        }
        assert_eq!(sizes, [MESSAGE_BYTES, MESSAGE_BYTES, 1]);
    }

    #[test]
    fn what_cannot_be_read_further_is_no_end() {
        let (messages, _sent) = mpsc::channel(64);
        let failure = hand_on(Broken(7), &messages).unwrap_err();
        assert_eq!(failure.bytes, 7);
        assert_eq!(failure.error.to_string(), "the disk is gone");
    }
}

//! The stream of one log.

use std::sync::Arc;
use std::time::Duration;

use rdmesh_joblog::Classifier;
use rdmesh_proto::collector::v1::submit_job_log_request::Item;
use rdmesh_proto::collector::v1::{JobLogSource, SubmitJobLogRequest, SubmitJobLogResponse};
use rdmesh_services::server::Caller;
use rdmesh_services::shutdown::Closing;
use rdmesh_store::logs::{Kept, LOGS_MAX, LogKey};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tonic::{Status, Streaming};

use super::kept;
use super::reading::{Read, read};
use crate::attempt::{self, BadRequest};
use crate::backing::Backing;
use crate::{rights, status};

/// Logs that are read at the same time: each takes some 8 MiB and a core. The others wait,
/// and gRPC's flow control keeps their bytes where they are.
const PLACES: usize = 8;

/// How long a log waits for a place: a job of thousands of ranks ends at once, and a
/// usual log takes milliseconds.
const PLACE_WITHIN: Duration = Duration::from_secs(60);

/// How long a sender may take for the next message: a disk that spins up, a pipe whose
/// other end computes.
const NEXT_WITHIN: Duration = Duration::from_secs(30);

/// How long a log may take in all: 16 GiB at 10 MB/s.
const WHOLE_WITHIN: Duration = Duration::from_secs(1_800);

/// Longest log: eight times the largest that are known of. More is no log of one job.
const LOG_MAX_BYTES: u64 = 16 << 30;

/// Longest message of bytes: one that is larger costs memory and saves nothing.
const DATA_MAX_BYTES: usize = 1 << 20;

/// Messages that wait for the thread that reads.
const WAITING: usize = 4;

/// Bytes of the name of a log: those of a file's name.
const NAME_MAX_BYTES: usize = 255;

/// Takes logs.
#[derive(Debug)]
pub(crate) struct Intake {
    backing: Backing,
    classifier: Arc<Classifier>,
    places: Arc<Semaphore>,
    ending: Closing,
}

impl Intake {
    /// Logs are read by `classifier` and kept in `backing`; `ending` ends their streams.
    pub(crate) fn new(backing: Backing, classifier: Arc<Classifier>, ending: Closing) -> Self {
        Self {
            backing,
            classifier,
            places: Arc::new(Semaphore::new(PLACES)),
            ending,
        }
    }

    /// Reads a log to its end and keeps what it says. A log whose stream breaks leaves
    /// nothing.
    pub(crate) async fn take(
        &self,
        caller: &Caller,
        mut requests: Streaming<SubmitJobLogRequest>,
    ) -> Result<SubmitJobLogResponse, Status> {
        let store = self.backing.store()?;
        let source = source(next(&mut requests).await?)?;
        rights::changes_job(caller, store, &source.attempt).await?;
        let place = timeout(PLACE_WITHIN, self.places.acquire()).await;
        let Ok(Ok(_place)) = place else {
            return Err(status::busy(
                "the collector reads as many logs as it may; send this one again in a while",
            ));
        };
        let whole = timeout(WHOLE_WITHIN, self.read(&mut requests));
        let whole = tokio::select! {
            () = self.ending.requested() => {
                return Err(status::busy("the collector ends; send the log again"));
            }
            whole = whole => whole,
        };
        let whole = whole.map_err(|_| {
            Status::deadline_exceeded(format!(
                "the log took longer than {WHOLE_WITHIN:?}; send the part around the failure \
                 (tail -n 1000000 FILE)"
            ))
        })??;
        let log = kept::of(source, whole, self.backing.now());
        let kept = store
            .keep_log(&log.stored)
            .await
            .map_err(|e| status::from_store(&e))?;
        match kept {
            Kept::Stored => Ok(SubmitJobLogResponse {
                log: Some(log.told),
                repeated: false,
            }),
            Kept::Repeated => {
                let former = store
                    .log(&log.stored.key)
                    .await
                    .map_err(|e| status::from_store(&e))?;
                // Dropped since, with its attempt: what was read now is the same.
                let received_at = former.map_or(log.stored.received_at, |f| f.received_at);
                Ok(SubmitJobLogResponse {
                    log: Some(kept::received_at(log.told, received_at)),
                    repeated: true,
                })
            }
            Kept::TooMany => Err(Status::failed_precondition(format!(
                "the attempt {} has {LOGS_MAX} logs, which is the most; send those of the ranks \
                 that failed, and the same name for the same log",
                attempt::written(&log.stored.key.attempt)
            ))),
        }
    }

    /// Hands the bytes to a thread that reads them.
    async fn read(&self, requests: &mut Streaming<SubmitJobLogRequest>) -> Result<Read, Status> {
        let (bytes, waiting) = mpsc::channel(WAITING);
        let classifier = self.classifier.clone();
        let reading = tokio::task::spawn_blocking(move || read(waiting, &classifier));
        let mut total = 0_u64;
        while let Some(request) = next(requests).await? {
            let data = data(request)?;
            total = total.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
            if total > LOG_MAX_BYTES {
                return Err(Status::out_of_range(format!(
                    "the log has more than {LOG_MAX_BYTES} bytes; send the part around the failure \
                     (tail -n 1000000 FILE)"
                )));
            }
            if bytes.send(data).await.is_err() {
                break;
            }
        }
        drop(bytes);
        let read = reading
            .await
            .map_err(|error| Status::internal(format!("the log could not be read: {error}")))?;
        read.map_err(|error| {
            Status::invalid_argument(format!(
                "it begins like a dump of the Flight Recorder, and is refused: {error}; write it \
                 as JSON, or send the rank's log instead"
            ))
        })
    }
}

/// The next message, none at the end of the stream.
async fn next(
    requests: &mut Streaming<SubmitJobLogRequest>,
) -> Result<Option<SubmitJobLogRequest>, Status> {
    match timeout(NEXT_WITHIN, requests.message()).await {
        Ok(message) => message,
        Err(_) => Err(Status::deadline_exceeded(format!(
            "nothing of the log came for {NEXT_WITHIN:?}; send it again"
        ))),
    }
}

/// Whose log it is: the first message.
fn source(first: Option<SubmitJobLogRequest>) -> Result<LogKey, Status> {
    match first.and_then(|request| request.item) {
        Some(Item::Source(source)) => key_of(&source).map_err(|e| status::from_bad_request(&e)),
        Some(Item::Data(_)) => Err(Status::invalid_argument(
            "the first message is no source; say whose log it is before the log",
        )),
        None => Err(Status::invalid_argument(
            "the stream has no source; say whose log it is in its first message",
        )),
    }
}

/// Bytes of the log: every later message.
fn data(request: SubmitJobLogRequest) -> Result<Vec<u8>, Status> {
    let bad = |problem| status::from_bad_request(&BadRequest::new("item", problem));
    match request.item {
        Some(Item::Data(data)) if data.len() <= DATA_MAX_BYTES => Ok(data),
        Some(Item::Data(data)) => Err(bad(format!(
            "has {} bytes of data; at most {DATA_MAX_BYTES} are allowed: send more messages",
            data.len()
        ))),
        Some(Item::Source(_)) => Err(bad(
            "is a second source; send each log in a stream of its own".to_owned(),
        )),
        None => Err(bad(
            "is missing (or of a kind that this collector does not know); send data".to_owned(),
        )),
    }
}

/// The source, validated.
fn key_of(source: &JobLogSource) -> Result<LogKey, BadRequest> {
    let host = match source.host.as_str() {
        "" => String::new(),
        host => attempt::host("source.host", host)?,
    };
    Ok(LogKey {
        attempt: attempt::attempt(source.attempt.as_ref())?,
        host,
        rank: source.rank,
        name: attempt::text("source.name", &source.name, NAME_MAX_BYTES)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmesh_proto::common::v1::AttemptId;

    fn told(host: &str, name: &str) -> JobLogSource {
        JobLogSource {
            attempt: Some(AttemptId {
                job_id: "7".into(),
                requeue: 1,
                restart: 0,
            }),
            host: host.into(),
            rank: None,
            name: name.into(),
        }
    }

    #[test]
    fn a_source_names_its_attempt_and_perhaps_its_host() {
        let key = key_of(&told("", "slurm-7.out")).unwrap();
        assert_eq!((key.attempt.requeue, key.name.as_str()), (1, "slurm-7.out"));
        for (host, name, field) in [
            ("a b", "", "source.host"),
            ("", "a\u{1b}b", "source.name"),
            ("", &*"x".repeat(256), "source.name"),
        ] {
            let refused = key_of(&told(host, name)).unwrap_err().to_string();
            assert!(refused.starts_with(field), "{refused}");
        }
        let nobody = JobLogSource::default();
        assert!(key_of(&nobody).is_err());
    }

    #[test]
    fn messages_come_in_their_order() {
        let of = |item| Some(SubmitJobLogRequest { item: Some(item) });
        assert!(source(of(Item::Data(vec![1]))).is_err());
        assert!(source(None).is_err());
        assert!(source(of(Item::Source(told("", "")))).is_ok());
        let refused = |item| data(SubmitJobLogRequest { item }).unwrap_err();
        assert!(refused(None).message().contains("is missing"));
        let second = refused(Some(Item::Source(told("", ""))));
        assert!(second.message().contains("second source"));
        let large = refused(Some(Item::Data(vec![0; DATA_MAX_BYTES + 1])));
        assert!(large.message().contains("1048577 bytes"), "{large:?}");
    }
}

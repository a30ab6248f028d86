//! One agent's stream, from Hello to its end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rdmesh_proto::collector::v1::report_request::Item as Sent;
use rdmesh_proto::collector::v1::{Ack, ReportRequest, ReportResponse, report_response};
use rdmesh_services::server::Caller;
use rdmesh_services::shutdown::Closing;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep_until, timeout};
use tonic::{Code, Status, Streaming};

use crate::ingest::item::{Incoming, Reader};
use crate::ingest::ledger::Ledger;
use crate::ingest::limits::{
    ACK_EVERY, REASON_MAX_BYTES, SEQUENCE_MAX, SLOW_DOWN_MAX, UNACKNOWLEDGED_MAX,
};
use crate::ingest::queue::{Queue, Queued, Room};
use crate::metrics::IngestMetrics;
use crate::times::Now;

/// Above this share of the queue agents are asked to slow down.
const SLOW_DOWN_ABOVE: f64 = 0.5;

/// An item that waits for room in the queue.
struct Waiting {
    item: Incoming,
    sequence: u64,
    room: Pin<Box<dyn Future<Output = Option<Room>> + Send>>,
}

/// One stream.
pub(crate) struct Stream {
    pub(crate) requests: Streaming<ReportRequest>,
    pub(crate) caller: Caller,
    pub(crate) reader: Reader,
    pub(crate) queue: Queue,
    /// What the stream may take of the queue.
    pub(crate) share: Arc<Semaphore>,
    pub(crate) responses: mpsc::Sender<Result<ReportResponse, Status>>,
    pub(crate) ending: Closing,
    pub(crate) now: Now,
    pub(crate) metrics: IngestMetrics,
    pub(crate) ledger: Arc<Ledger>,
}

/// What happened next.
enum Event {
    Came(Box<Result<Option<ReportRequest>, Status>>),
    Room(Option<Room>),
    Changed,
    AckDue,
    Ending,
}

impl Stream {
    /// Runs until the agent ends its side and everything is committed, or until the
    /// connection, the store or the collector ends it.
    pub(crate) async fn run(mut self) {
        let mut waiting: Option<Waiting> = None;
        let mut reading = true;
        let mut last_ack = Instant::now();
        loop {
            let in_flight = self.ledger.in_flight() + usize::from(waiting.is_some());
            if !reading && in_flight == 0 {
                let _ = self.acknowledge().await;
                return;
            }
            let ack_due = (in_flight > 0).then_some(last_ack + ACK_EVERY);
            match self.event(reading, &mut waiting, ack_due).await {
                Event::Came(came) => match *came {
                    Ok(Some(request)) => waiting = Some(self.take(&request)),
                    Ok(None) => reading = false,
                    Err(status) => {
                        self.broken(&status).await;
                        return;
                    }
                },
                Event::Ending => reading = false,
                Event::Room(room) => {
                    if !self.enqueue(waiting.take(), room) {
                        return;
                    }
                }
                Event::Changed | Event::AckDue => {
                    if !self.acknowledge().await {
                        return;
                    }
                    last_ack = Instant::now();
                }
            }
        }
    }

    async fn event(
        &mut self,
        reading: bool,
        waiting: &mut Option<Waiting>,
        ack_due: Option<Instant>,
    ) -> Event {
        let may_read = reading && waiting.is_none() && self.ledger.in_flight() < UNACKNOWLEDGED_MAX;
        let room = async {
            match waiting {
                Some(waiting) => waiting.room.as_mut().await,
                None => std::future::pending().await,
            }
        };
        let due = async {
            match ack_due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.ledger.changed() => Event::Changed,
            () = self.ending.requested(), if reading => Event::Ending,
            room = room => Event::Room(room),
            came = self.requests.message(), if may_read => Event::Came(Box::new(came)),
            () = due => Event::AckDue,
        }
    }

    /// Reads a request. One whose sequence is none is refused, and counted like any other
    /// refusal.
    fn take(&mut self, request: &ReportRequest) -> Waiting {
        let stored = i64::try_from(request.sequence)
            .ok()
            .filter(|sequence| (1..=SEQUENCE_MAX).contains(sequence));
        let now = (self.now)();
        let item = match (stored, &request.item) {
            // A shaper labels its windows with the host that it shapes, which is the agent's
            // own or one that its certificate names too.
            (Some(_), Some(Sent::WireWindow(window)))
                if self.caller.may_report_for(&window.host).is_err() =>
            {
                let refused = self.caller.may_report_for(&window.host).err();
                let reason = refused.map_or_else(String::new, |status| status.message().to_owned());
                self.reader.refused(reason, now)
            }
            (Some(sequence), item) => self.reader.read(sequence, item.as_ref(), now),
            (None, Some(Sent::Hello(_))) => {
                let reason = "a second hello; hello comes first and once".to_owned();
                self.reader.refused(reason, now)
            }
            (None, _) => {
                let reason = format!(
                    "sequence is {}; items are counted from 1 to {SEQUENCE_MAX}",
                    request.sequence
                );
                self.reader.refused(reason, now)
            }
        };
        self.waiting(item, request.sequence)
    }

    fn waiting(&self, item: Incoming, sequence: u64) -> Waiting {
        let room = self.queue.clone().room(self.share.clone(), item.held);
        Waiting {
            item,
            sequence,
            room: Box::pin(room),
        }
    }

    fn enqueue(&self, waiting: Option<Waiting>, room: Option<Room>) -> bool {
        let (Some(Waiting { item, sequence, .. }), Some(room)) = (waiting, room) else {
            return false;
        };
        self.queue.push(Queued {
            item,
            sequence,
            ledger: self.ledger.clone(),
            room,
        })
    }

    /// Sends what is owed. Returns whether the stream goes on.
    async fn acknowledge(&self) -> bool {
        let owed = self.ledger.take();
        if let Some(status) = owed.failed {
            let _ = self.responses.send(Err(status)).await;
            return false;
        }
        let fill = self.queue.fill();
        self.metrics.queue_fill(fill);
        let ack = Ack {
            sequence: owed.through,
            rejected: owed.rejected,
            slow_down_ms: u32::try_from(slow_down(fill).as_millis()).unwrap_or(u32::MAX),
        };
        let response = ReportResponse {
            item: Some(report_response::Item::Ack(ack)),
        };
        self.responses.send(Ok(response)).await.is_ok()
    }

    /// The transport gave up on the agent's side.
    async fn broken(&self, status: &Status) {
        let host = &self.reader.run().host;
        tracing::debug!(%host, code = ?status.code(), error = status.message(), "stream broken");
        let answer = match status.code() {
            Code::OutOfRange => Status::out_of_range(format!(
                "an item is larger than {} bytes; report fewer chains or samples at once",
                rdmesh_services::server::MAX_REQUEST_BYTES
            )),
            Code::Internal | Code::InvalidArgument => Status::invalid_argument(format!(
                "an item is no ReportRequest ({}); is the agent of another version?",
                status.message()
            )),
            // The agent is gone: nobody hears an answer.
            _ => return,
        };
        self.count_refusal(answer.message()).await;
        let _ = self.responses.send(Err(answer)).await;
    }

    /// An item that could not even be read is counted like any other refusal, so that the
    /// fleet shows it. It has no sequence.
    async fn count_refusal(&self, reason: &str) {
        let reason = rdmesh_store::text::storable(reason.as_bytes(), REASON_MAX_BYTES).text;
        let refused = self.reader.refused(reason, (self.now)());
        let Waiting { item, room, .. } = self.waiting(refused, 0);
        // The answer does not wait long for a queue that is full.
        if let Ok(Some(room)) = timeout(ACK_EVERY, room).await {
            let ledger = self.ledger.clone();
            self.queue.push(Queued {
                item,
                sequence: 0,
                ledger,
                room,
            });
        }
    }
}

/// The fuller the queue, the longer the pause.
fn slow_down(fill: f64) -> Duration {
    let above = ((fill - SLOW_DOWN_ABOVE) / (1.0 - SLOW_DOWN_ABOVE)).clamp(0.0, 1.0);
    SLOW_DOWN_MAX.mul_f64(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_slow_down_with_the_queue() {
        assert_eq!(slow_down(0.2), Duration::ZERO);
        assert_eq!(slow_down(0.5), Duration::ZERO);
        assert_eq!(slow_down(0.75), SLOW_DOWN_MAX / 2);
        assert_eq!(slow_down(1.0), SLOW_DOWN_MAX);
    }
}

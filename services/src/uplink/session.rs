//! One connection, from Hello to its end.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use prost::bytes::Bytes;
use rdmesh_proto::collector::v1::{
    Hello, ReportRequest, ReportResponse, report_request, report_response,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::Pace;
use super::shared::{Next, Shared};
use super::wire;

/// How long the collector has to end its side after everything was acknowledged.
const GOODBYE_WITHIN: Duration = Duration::from_millis(500);

/// Longest wait that a refusal can ask for, as long as the longest back-off: so that
/// everything flows again within ten seconds of a fault's end.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(5);

/// How a session ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The queue is closed and everything is acknowledged.
    Done,
    /// Lost; try again.
    Lost(Lost),
}

/// Why a session was lost.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) why: String,
    /// Whether the collector settled anything: then the next attempt may come soon.
    pub(crate) progressed: bool,
    /// Whether it refused in a way that haste will not mend.
    pub(crate) refused: bool,
    /// When it said that another attempt is worth while.
    pub(crate) retry_after: Option<Duration>,
}

/// Metadata of a refusal: seconds before the call is worth repeating.
const RETRY_AFTER: &str = "retry-after";

/// What a refusal says of the next attempt, within [`MAX_RETRY_AFTER`].
fn retry_after(status: &Status) -> Option<Duration> {
    let seconds = status.metadata().get(RETRY_AFTER)?.to_str().ok()?;
    Some(Duration::from_secs(seconds.parse().ok()?).min(MAX_RETRY_AFTER))
}

impl Lost {
    fn by(status: &Status, progressed: bool) -> Self {
        let refused = matches!(
            status.code(),
            Code::InvalidArgument
                | Code::PermissionDenied
                | Code::Unauthenticated
                | Code::Unimplemented
                | Code::FailedPrecondition
        );
        let why = match status.message() {
            "" => status.code().description().to_owned(),
            message => message.to_owned(),
        };
        Self {
            why,
            progressed,
            refused,
            retry_after: retry_after(status),
        }
    }

    pub(crate) fn before_answer(why: String) -> Self {
        Self {
            why,
            progressed: false,
            refused: false,
            retry_after: None,
        }
    }
}

/// One connection.
pub(crate) struct Session {
    shared: Arc<Shared>,
    pace: Pace,
    requests: mpsc::Sender<Bytes>,
    responses: Streaming<ReportResponse>,
    /// Highest sequence sent on this connection.
    sent: u64,
    /// When the collector last said something, or began to owe.
    heard_at: Instant,
    progressed: bool,
}

/// What happened next.
enum Event {
    Heard(Result<Option<ReportResponse>, Status>),
    Sent(u64),
    Woken,
    Silent,
    Gone,
}

impl Session {
    /// Opens the stream on a connection and says Hello.
    pub(crate) async fn open(
        shared: Arc<Shared>,
        pace: Pace,
        channel: Channel,
        hello: Hello,
    ) -> Result<Self, Lost> {
        // One slot: what is in the channel is neither in the socket nor in our hands.
        let (requests, stream) = mpsc::channel(1);
        let hello = ReportRequest {
            sequence: 0,
            item: Some(report_request::Item::Hello(hello)),
        };
        requests
            .try_send(hello.encode_to_vec().into())
            .map_err(|e| Lost::before_answer(e.to_string()))?;
        let responses = wire::report(channel, ReceiverStream::new(stream))
            .await
            .map_err(|status| Lost::by(&status, false))?;
        shared.connected();
        Ok(Self {
            shared,
            pace,
            requests,
            responses,
            sent: 0,
            heard_at: Instant::now(),
            progressed: false,
        })
    }

    /// Sends and listens until the connection ends or everything is done. `away_since`
    /// is when the collector was lost, for the log.
    pub(crate) async fn run(mut self, away_since: Option<Instant>) -> End {
        loop {
            let next = self.shared.next(self.sent, self.pace.window_items);
            if matches!(next, Next::Done) {
                self.say_goodbye().await;
                return End::Done;
            }
            match self.event(next).await {
                Event::Heard(Ok(Some(response))) => self.hear(&response, away_since),
                Event::Heard(Ok(None)) => return self.lost("the collector ended the stream"),
                Event::Heard(Err(status)) => return End::Lost(Lost::by(&status, self.progressed)),
                Event::Sent(sequence) => {
                    if !self.shared.owes(self.sent) {
                        self.heard_at = Instant::now();
                    }
                    self.sent = sequence;
                }
                Event::Woken => {}
                Event::Silent => return self.lost("the collector sent no acknowledgement in time"),
                // The reason follows in the responses.
                Event::Gone => match timeout(GOODBYE_WITHIN, self.responses.message()).await {
                    Ok(Err(status)) => return End::Lost(Lost::by(&status, self.progressed)),
                    _ => return self.lost("the connection was lost"),
                },
            }
        }
    }

    /// Waits for whatever comes first. Arms no timer while nothing is owed.
    async fn event(&mut self, next: Next) -> Event {
        let now = Instant::now();
        let held = self.shared.held_until().filter(|until| *until > now);
        let entry = match next {
            Next::Send(entry) if held.is_none() => Some(entry),
            _ => None,
        };
        let owes = self.shared.owes(self.sent);
        // A collector that asked for a pause may be silent for as long.
        let deadline = held.unwrap_or(self.heard_at).max(self.heard_at) + self.pace.ack_within;
        tokio::select! {
            biased;
            heard = self.responses.message() => Event::Heard(heard),
            room = self.requests.reserve(), if entry.is_some() => match (room, entry) {
                (Ok(room), Some(entry)) => {
                    room.send(entry.bytes);
                    Event::Sent(entry.sequence)
                }
                _ => Event::Gone,
            },
            () = self.shared.changed() => Event::Woken,
            () = sleep_until(held.unwrap_or(now)), if held.is_some() => Event::Woken,
            () = sleep_until(deadline), if owes => Event::Silent,
        }
    }

    fn hear(&mut self, response: &ReportResponse, away_since: Option<Instant>) {
        self.heard_at = Instant::now();
        // An item of a later version says at least that the collector lives.
        let Some(report_response::Item::Ack(ack)) = &response.item else {
            return;
        };
        let settled = self.shared.apply(ack, self.sent, self.heard_at);
        if settled > 0 && !self.progressed {
            self.progressed = true;
            if !self.shared.is_of_earlier_run() {
                log_progress(away_since);
            }
        }
    }

    fn lost(&self, why: &str) -> End {
        End::Lost(Lost {
            why: why.to_owned(),
            progressed: self.progressed,
            refused: false,
            retry_after: None,
        })
    }

    /// Ends our side and lets the collector end its own, so that it logs no lost agent.
    async fn say_goodbye(self) {
        let Self {
            requests,
            mut responses,
            ..
        } = self;
        drop(requests);
        let until_end = async { while let Ok(Some(_)) = responses.message().await {} };
        let _ = timeout(GOODBYE_WITHIN, until_end).await;
    }
}

/// Says so when the collector settles something and not when it accepts: one that
/// refuses each Hello, or has no database, would fill the log.
fn log_progress(away_since: Option<Instant>) {
    match away_since {
        Some(since) => tracing::info!(away = ?since.elapsed(), "reporting to the collector again"),
        None => tracing::info!("reporting to the collector"),
    }
}

//! `WatchFailures`: a follower's task.

use rdmesh_proto::collector::v1::{
    ListFailuresRequest, WatchFailuresRequest, WatchFailuresResponse,
};
use rdmesh_services::shutdown::Closing;
use rdmesh_store::query::{FailureFilter, StoredSnapshot};
use rdmesh_store::{Store, StoreError};
use tokio::sync::mpsc;
use tonic::Status;

use crate::attempt::BadRequest;
use crate::live::Following;
use crate::query::failures;
use crate::status;

/// Snapshots that are read from the store at once.
const AT_ONCE: usize = 64;

/// Rows of one answer: a page of a list.
const ROWS_AT_ONCE: u32 = 1_000;

/// Bytes of their texts: below what gRPC clients take unless told otherwise.
const BYTES_AT_ONCE: usize = 3 << 20;

/// Answers that are on their way to one follower; flow control does the rest.
pub(super) const STREAM_ANSWERS: usize = 4;

/// Tries while Postgres is away before the follower is told: what it asks for was
/// committed a moment before.
const TRIES: u32 = 20;

/// The pause between them.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(500);

/// What a request follows.
pub(super) fn filter(request: &WatchFailuresRequest) -> Result<FailureFilter, BadRequest> {
    let filter = failures::filter(&ListFailuresRequest {
        job_id: request.job_id.clone(),
        requeue: request.requeue,
        restart: request.restart,
        host: request.host.clone(),
        device: request.device.clone(),
        function: request.function.clone(),
        errno: request.errno,
        include_expected: request.include_expected,
        ..ListFailuresRequest::default()
    })?;
    Ok(FailureFilter {
        oldest_first: true,
        limit: ROWS_AT_ONCE,
        ..filter
    })
}

/// One follower.
pub(super) struct Follower {
    pub(super) store: Store,
    pub(super) filter: FailureFilter,
    pub(super) following: Following,
    pub(super) ending: Closing,
    pub(super) to: mpsc::Sender<Result<WatchFailuresResponse, Status>>,
}

impl Follower {
    /// Runs until the follower goes, or the collector ends.
    pub(super) async fn run(mut self) {
        // Says that the watch has begun.
        if self.send(WatchFailuresResponse::default()).await.is_err() {
            return;
        }
        loop {
            let mut waiting = Vec::with_capacity(AT_ONCE);
            tokio::select! {
                () = self.ending.requested() => return,
                () = self.to.closed() => return,
                got = self.following.snapshots.recv_many(&mut waiting, AT_ONCE) => {
                    if got == 0 { return }
                }
            }
            let told = tokio::select! {
                () = self.ending.requested() => return,
                told = self.tell(waiting) => told,
            };
            if told.is_err() {
                return;
            }
        }
    }

    /// All rows of these snapshots that pass the filter.
    async fn tell(&self, snapshots: Vec<StoredSnapshot>) -> Result<(), ()> {
        let mut filter = FailureFilter {
            of_snapshots: snapshots,
            ..self.filter.clone()
        };
        let mut missed = self.following.take_missed();
        loop {
            let page = match self.page(&filter).await {
                Ok(page) => page,
                Err(error) => {
                    let _ = self.to.send(Err(status::from_store(&error))).await;
                    return Err(());
                }
            };
            let next = page.failures.last().map(|last| last.cursor.clone());
            if missed > 0 || next.is_some() {
                let failures = page.failures.into_iter().map(failures::to_proto);
                self.send(WatchFailuresResponse {
                    failures: failures.collect(),
                    missed: std::mem::take(&mut missed),
                })
                .await?;
            }
            match next {
                Some(last) if page.more => filter.after = Some(last),
                _ => return Ok(()),
            }
        }
    }

    async fn page(
        &self,
        filter: &FailureFilter,
    ) -> Result<rdmesh_store::query::FailurePage, StoreError> {
        let mut tries = 0;
        loop {
            match self.store.list_failures(filter, BYTES_AT_ONCE).await {
                Err(error) if error.is_retryable() && tries < TRIES => {
                    tries += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                done => return done,
            }
        }
    }

    async fn send(&self, answer: WatchFailuresResponse) -> Result<(), ()> {
        self.to.send(Ok(answer)).await.map_err(drop)
    }
}

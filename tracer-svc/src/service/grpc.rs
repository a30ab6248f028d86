//! TracerService.

use rdmesh_proto::tracer::v1::tracer_service_server::TracerService;
use rdmesh_proto::tracer::v1::{
    AttachProbesRequest, AttachProbesResponse, DetachProbesRequest, DetachProbesResponse,
    DiffBaselineRequest, DiffBaselineResponse, GetProbeReportRequest, GetProbeReportResponse,
    ListBaselinesRequest, ListBaselinesResponse, RecordBaselineRequest, RecordBaselineResponse,
    WatchFailuresRequest, WatchFailuresResponse,
};
use rdmesh_services::shutdown::Closing;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::baselines::{self, Answers};
use super::feed::{Feed, Subscription};
use super::figures::Figures;
use super::orders::{NotDone, Orders, Wish};
use crate::window::{Purpose, Windows};

/// Answers on their way to one watcher; the feed holds those behind.
const IN_FLIGHT: usize = 8;

/// The service on a GPU host.
#[derive(Debug)]
pub struct Tracer {
    figures: Figures,
    feed: Feed,
    orders: Orders,
    windows: Windows,
    ending: Closing,
}

impl Tracer {
    /// `ending` ends the streams; `orders` reach the pipeline.
    #[must_use]
    pub fn new(
        figures: Figures,
        feed: Feed,
        orders: Orders,
        windows: Windows,
        ending: Closing,
    ) -> Self {
        Self {
            figures,
            feed,
            orders,
            windows,
            ending,
        }
    }
}

/// An empty name means all modules.
fn module(name: &str) -> Option<String> {
    (!name.is_empty()).then(|| name.to_owned())
}

fn status(why: &NotDone) -> Status {
    match why {
        NotDone::NoProbe { .. } => Status::not_found(why.to_string()),
        NotDone::Refused(_) => Status::failed_precondition(why.to_string()),
        NotDone::Ending => Status::unavailable(why.to_string()),
    }
}

fn number(probes: usize) -> u32 {
    u32::try_from(probes).unwrap_or(u32::MAX)
}

#[tonic::async_trait]
impl TracerService for Tracer {
    async fn get_probe_report(
        &self,
        _request: Request<GetProbeReportRequest>,
    ) -> Result<Response<GetProbeReportResponse>, Status> {
        Ok(Response::new(GetProbeReportResponse {
            report: Some(self.figures.probe_report()),
        }))
    }

    async fn detach_probes(
        &self,
        request: Request<DetachProbesRequest>,
    ) -> Result<Response<DetachProbesResponse>, Status> {
        let wish = Wish::Detach(module(&request.get_ref().module));
        // Its links keep modules from going, too.
        self.windows.close().await;
        let done = self.orders.give(wish).await.map_err(|why| status(&why))?;
        Ok(Response::new(DetachProbesResponse {
            detached: number(done.probes),
            report: Some(done.report),
        }))
    }

    async fn attach_probes(
        &self,
        request: Request<AttachProbesRequest>,
    ) -> Result<Response<AttachProbesResponse>, Status> {
        let wish = Wish::Attach(module(&request.get_ref().module));
        let done = self.orders.give(wish).await.map_err(|why| status(&why))?;
        Ok(Response::new(AttachProbesResponse {
            attached: number(done.probes),
            report: Some(done.report),
        }))
    }

    type RecordBaselineStream = Answers<RecordBaselineResponse>;

    async fn record_baseline(
        &self,
        request: Request<RecordBaselineRequest>,
    ) -> Result<Response<Self::RecordBaselineStream>, Status> {
        let asked = request.get_ref();
        let ask = baselines::ask(Purpose::Record, &asked.verbs, asked.seconds, &asked.driver);
        let words = self.windows.open(ask);
        let words = words.map_err(|error| baselines::status(&error))?;
        Ok(Response::new(baselines::recorded(words)))
    }

    async fn list_baselines(
        &self,
        request: Request<ListBaselinesRequest>,
    ) -> Result<Response<ListBaselinesResponse>, Status> {
        let asked = request.into_inner();
        let shelf = self.windows.shelf().clone();
        let kept = tokio::task::spawn_blocking(move || shelf.all())
            .await
            .map_err(|error| Status::internal(error.to_string()))?
            .map_err(|error| baselines::status(&error.into()))?;
        Ok(Response::new(baselines::listed(
            kept,
            &asked.verb,
            asked.nodes,
        )))
    }

    type DiffBaselineStream = Answers<DiffBaselineResponse>;

    async fn diff_baseline(
        &self,
        request: Request<DiffBaselineRequest>,
    ) -> Result<Response<Self::DiffBaselineStream>, Status> {
        let asked = request.get_ref();
        let ask = baselines::ask(Purpose::Diff, &asked.verbs, asked.seconds, &asked.driver);
        let words = self.windows.open(ask);
        let words = words.map_err(|error| baselines::status(&error))?;
        Ok(Response::new(baselines::compared(words)))
    }

    type WatchFailuresStream = ReceiverStream<Result<WatchFailuresResponse, Status>>;

    async fn watch_failures(
        &self,
        request: Request<WatchFailuresRequest>,
    ) -> Result<Response<Self::WatchFailuresStream>, Status> {
        let subscription = self
            .feed
            .subscribe(request.get_ref().include_expected)
            .map_err(|full| Status::resource_exhausted(full.to_string()))?;
        let (sender, receiver) = mpsc::channel(IN_FLIGHT);
        tokio::spawn(forward(subscription, sender, self.ending.clone()));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// Until the watcher goes, the tracer ends, or the server asks for the end.
async fn forward(
    mut subscription: Subscription,
    sender: mpsc::Sender<Result<WatchFailuresResponse, Status>>,
    ending: Closing,
) {
    loop {
        let event = tokio::select! {
            event = subscription.next() => event,
            () = sender.closed() => return,
            () = ending.requested() => return,
        };
        let Some(event) = event else { return };
        tokio::select! {
            sent = sender.send(Ok(event)) => if sent.is_err() { return },
            () = ending.requested() => return,
        }
    }
}

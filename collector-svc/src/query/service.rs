//! The RPCs.

use std::pin::Pin;

use prost::Message;
use rdmesh_proto::collector::v1::query_service_server::QueryService;
use rdmesh_proto::collector::v1::{
    AdviseRetryRequest, AdviseRetryResponse, DiagnoseRequest, DiagnoseResponse,
    GetHostProbesRequest, GetHostProbesResponse, GetTimelineRequest, GetTimelineResponse,
    ListAgentsRequest, ListAgentsResponse, ListFailuresRequest, ListFailuresResponse,
    WatchFailuresRequest, WatchFailuresResponse,
};
use rdmesh_proto::tracer::v1::ProbeReport;
use rdmesh_services::shutdown::Closing;
use rdmesh_store::query::FailureFilter;
use rdmesh_store::{Store, StoreError};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::backing::Backing;
use crate::baselines;
use crate::live::{FOLLOWERS_MAX, Live};
use crate::query::again::again;
use crate::query::{
    advise, agents, diagnose, failures, flight, follow, log, page, timeline, verdict,
};
use crate::{attempt, jobs, status, times};

/// Agents of a page unless asked for otherwise.
const AGENTS_DEFAULT: u32 = 1_000;
/// Agents of a page at most: some 3 MB.
const AGENTS_MAX: u32 = 10_000;
/// Size of a page of failures: gRPC clients take 4 MiB unless told otherwise. A thousand
/// usual failures have half a megabyte; rows with the longest texts make shorter pages.
const PAGE_MAX_BYTES: usize = 3 << 20;
/// Failures that come with a verdict: more than a person reads; ListFailures has all.
const FAILURES_WITH_VERDICT: usize = 200;
/// Totals that come with a verdict, the largest first.
const TOTALS_WITH_VERDICT: usize = 1_000;

type Watched = Pin<Box<dyn Stream<Item = Result<WatchFailuresResponse, Status>> + Send>>;

/// What people and programs ask.
#[derive(Debug)]
pub struct Queries {
    backing: Backing,
    live: Live,
    ending: Closing,
}

impl Queries {
    /// The service over `backing`; those who follow are told by `live`, until `ending`.
    #[must_use]
    pub fn new(backing: Backing, live: Live, ending: Closing) -> Self {
        Self {
            backing,
            live,
            ending,
        }
    }
}

/// Each read as it is made once.
impl Queries {
    async fn list_failures_once(
        &self,
        request: &ListFailuresRequest,
    ) -> Result<Response<ListFailuresResponse>, Status> {
        let filter = failures::filter(request).map_err(|e| status::from_bad_request(&e))?;
        let store = self.backing.store()?;
        let found = store
            .list_failures(&filter, PAGE_MAX_BYTES)
            .await
            .map_err(|e| status::from_store(&e))?;
        if found.failures.is_empty() && filter.after.is_none() {
            must_be_known(store, &filter).await?;
        }
        let next_page_token = match found.failures.last() {
            Some(last) if found.more => page::failures_token(&last.cursor),
            _ => String::new(),
        };
        let failures = found.failures.into_iter().map(failures::to_proto).collect();
        Ok(Response::new(ListFailuresResponse {
            failures,
            next_page_token,
        }))
    }

    async fn get_timeline_once(
        &self,
        request: &GetTimelineRequest,
    ) -> Result<Response<GetTimelineResponse>, Status> {
        let store = self.backing.store()?;
        let (found, _) =
            jobs::find(store, &request.job_id, request.requeue, request.restart).await?;
        let failed = |error: StoreError| status::from_store(&error);
        let placements = store.placements_of(&found.key).await.map_err(failed)?;
        let timeline = timeline::of_attempt(store, &found, &placements, self.backing.now());
        let timeline = timeline.await.map_err(failed)?;
        let job = jobs::with_placements(store, found).await?;
        Ok(Response::new(GetTimelineResponse {
            job: Some(job),
            ..timeline
        }))
    }

    async fn diagnose_once(
        &self,
        request: &DiagnoseRequest,
    ) -> Result<Response<DiagnoseResponse>, Status> {
        let store = self.backing.store()?;
        let (found, _) =
            jobs::find(store, &request.job_id, request.requeue, request.restart).await?;
        let now = self.backing.now();
        let routes = self.backing.site().routes();
        let mut diagnosed = diagnose::diagnose_attempt(store, &found, now, &routes)
            .await
            .map_err(|e| status::from_store(&e))?;
        let job = jobs::with_placements(store, found).await?;
        let failures = diagnosed.failures.into_iter().take(FAILURES_WITH_VERDICT);
        let totals = diagnosed.totals.into_iter().take(TOTALS_WITH_VERDICT);
        let share = PAGE_MAX_BYTES / 2;
        let log = diagnosed.verdict.log.take().map(log::to_proto);
        let verdict = diagnosed.kept.take();
        let verdict = verdict.unwrap_or_else(|| verdict::verdict_to_proto(diagnosed.verdict));
        Ok(Response::new(DiagnoseResponse {
            job: Some(job),
            verdict: Some(verdict),
            failures: page::fitting(failures.map(failures::to_proto), share),
            totals: page::fitting(totals.map(verdict::total_to_proto), share),
            unseen: diagnosed.unseen,
            log,
            flight: diagnosed.flight.iter().map(flight::to_proto).collect(),
            captured: diagnosed.fork.and_then(baselines::captured),
        }))
    }

    async fn advise_retry_once(
        &self,
        request: &AdviseRetryRequest,
    ) -> Result<Response<AdviseRetryResponse>, Status> {
        let store = self.backing.store()?;
        let (found, _) =
            jobs::find(store, &request.job_id, request.requeue, request.restart).await?;
        let routes = self.backing.site().routes();
        let advice = advise::on_attempt(store, &found, self.backing.now(), &routes).await;
        Ok(Response::new(advice.map_err(|e| status::from_store(&e))?))
    }

    async fn list_agents_once(
        &self,
        request: &ListAgentsRequest,
    ) -> Result<Response<ListAgentsResponse>, Status> {
        let size = page::size(request.page_size, AGENTS_DEFAULT, AGENTS_MAX)
            .map_err(|e| status::from_bad_request(&e))?;
        let offset = page::read_offset_token(&request.page_token)
            .map_err(|e| status::from_bad_request(&e))?;
        let store = self.backing.store()?;
        let now = self.backing.now();
        let all = store.agents().await.map_err(|e| status::from_store(&e))?;
        let mut agents: Vec<_> = all.into_iter().map(|a| agents::to_proto(a, now)).collect();
        agents::order(&mut agents);
        let end = offset.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
        let next_page_token = if end < agents.len() {
            page::offset_token(end)
        } else {
            String::new()
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let agents = agents.into_iter().skip(offset).take(size).collect();
        Ok(Response::new(ListAgentsResponse {
            agents,
            next_page_token,
        }))
    }

    async fn get_host_probes_once(
        &self,
        request: &GetHostProbesRequest,
    ) -> Result<Response<GetHostProbesResponse>, Status> {
        let host =
            attempt::host("host", &request.host).map_err(|e| status::from_bad_request(&e))?;
        let store = self.backing.store()?;
        let stored = store
            .last_probe_report(&host)
            .await
            .map_err(|e| status::from_store(&e))?;
        let Some(stored) = stored else {
            let known = store
                .host_is_known(&host)
                .await
                .map_err(|e| status::from_store(&e))?;
            return Err(if known {
                Status::not_found(format!(
                    "{host} has sent no probe report yet; is its tracer up to date?"
                ))
            } else {
                never_reported(&host)
            });
        };
        let mut report = ProbeReport::decode(stored.body.as_slice()).map_err(|error| {
            Status::internal(format!(
                "the stored probe report of {host} does not read: {error}"
            ))
        })?;
        let counts = store
            .probe_counts(&host, stored.run_id)
            .await
            .map_err(|e| status::from_store(&e))?;
        agents::count(&mut report, &counts);
        Ok(Response::new(GetHostProbesResponse {
            host,
            reported_at: Some(times::to_proto(stored.received_at)),
            report: Some(report),
            marks: stored.marks,
        }))
    }
}

#[tonic::async_trait]
impl QueryService for Queries {
    async fn list_failures(
        &self,
        request: Request<ListFailuresRequest>,
    ) -> Result<Response<ListFailuresResponse>, Status> {
        let request = request.into_inner();
        again(|| self.list_failures_once(&request)).await
    }

    type WatchFailuresStream = Watched;

    async fn watch_failures(
        &self,
        request: Request<WatchFailuresRequest>,
    ) -> Result<Response<Watched>, Status> {
        let filter = follow::filter(request.get_ref()).map_err(|e| status::from_bad_request(&e))?;
        let store = self.backing.store()?.clone();
        let following = self
            .live
            .follow(filter.host.clone(), filter.include_expected);
        let following = following.ok_or_else(|| {
            Status::resource_exhausted(format!(
                "{FOLLOWERS_MAX} follow failures already; try again when one has gone, or list them"
            ))
        })?;
        let (to, answers) = mpsc::channel(follow::STREAM_ANSWERS);
        let follower = follow::Follower {
            store,
            filter,
            following,
            ending: self.ending.clone(),
            to,
        };
        tokio::spawn(follower.run());
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn get_timeline(
        &self,
        request: Request<GetTimelineRequest>,
    ) -> Result<Response<GetTimelineResponse>, Status> {
        let request = request.into_inner();
        again(|| self.get_timeline_once(&request)).await
    }

    async fn diagnose(
        &self,
        request: Request<DiagnoseRequest>,
    ) -> Result<Response<DiagnoseResponse>, Status> {
        let request = request.into_inner();
        again(|| self.diagnose_once(&request)).await
    }

    async fn advise_retry(
        &self,
        request: Request<AdviseRetryRequest>,
    ) -> Result<Response<AdviseRetryResponse>, Status> {
        let request = request.into_inner();
        again(|| self.advise_retry_once(&request)).await
    }

    async fn list_agents(
        &self,
        request: Request<ListAgentsRequest>,
    ) -> Result<Response<ListAgentsResponse>, Status> {
        let request = request.into_inner();
        again(|| self.list_agents_once(&request)).await
    }

    async fn get_host_probes(
        &self,
        request: Request<GetHostProbesRequest>,
    ) -> Result<Response<GetHostProbesResponse>, Status> {
        let request = request.into_inner();
        again(|| self.get_host_probes_once(&request)).await
    }
}

/// Of a job or a host that nobody knows there are no failures to be none: a wrong letter must
/// not read as good news.
async fn must_be_known(store: &Store, filter: &FailureFilter) -> Result<(), Status> {
    if let Some(job_id) = &filter.job_id {
        jobs::find(store, job_id, filter.requeue, filter.restart).await?;
    }
    let Some(host) = &filter.host else {
        return Ok(());
    };
    let known = store.host_is_known(host).await;
    match known.map_err(|e| status::from_store(&e))? {
        true => Ok(()),
        false => Err(never_reported(host)),
    }
}

fn never_reported(host: &str) -> Status {
    Status::not_found(format!(
        "{host} has never reported; does its tracer run, and does it name itself like this? \
         `rdmesh fleet` lists all that reported"
    ))
}

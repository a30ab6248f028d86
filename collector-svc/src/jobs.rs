//! `rdmesh.collector.v1.JobService`: what schedulers tell of jobs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rdmesh_proto::collector::v1::job_service_server::JobService;
use rdmesh_proto::collector::v1::{
    EndJobRequest, EndJobResponse, GetJobRequest, GetJobResponse, Job, JobState,
    ListJobLogsRequest, ListJobLogsResponse, ListJobsRequest, ListJobsResponse, PlaceJobRequest,
    PlaceJobResponse, Placement, StartJobRequest, StartJobResponse, SubmitJobLogRequest,
    SubmitJobLogResponse,
};
use rdmesh_services::server::Caller;
use rdmesh_store::Store;
use rdmesh_store::jobs::{
    Attempt, AttemptKey, End, JobCursor, JobFilter, Placement as StoredPlacement, Start,
};
use tonic::{Request, Response, Status, Streaming};

use crate::attempt::{self, BadRequest};
use crate::backing::Backing;
use crate::logs::{Intake, kept};
use crate::query::page;
use crate::{names, rights, status, times};

/// Hosts of one attempt: larger than any cluster of today by ten.
const PLACEMENTS_MAX: usize = 200_000;
/// Ranks, devices and GPUs of a host.
const PER_HOST_MAX: usize = 4_096;
/// Labels of an attempt.
const LABELS_MAX: usize = 64;
/// Bytes of a name, a label, a device.
const NAME_MAX_BYTES: usize = 256;
/// Bytes of the reason of an end.
const REASON_MAX_BYTES: usize = 4_096;

/// What schedulers tell, and the list of it.
#[derive(Debug)]
pub struct Jobs {
    backing: Backing,
    intake: Intake,
}

impl Jobs {
    /// The service, which hands logs to `intake`.
    #[must_use]
    pub(crate) fn new(backing: Backing, intake: Intake) -> Self {
        Self { backing, intake }
    }
}

/// The attempt as it is known now.
async fn told(store: &Store, key: &AttemptKey) -> Result<Option<Job>, Status> {
    let attempt = store
        .attempt(key)
        .await
        .map_err(|e| status::from_store(&e))?;
    match attempt {
        Some(attempt) => Ok(Some(with_placements(store, attempt).await?)),
        None => Ok(None),
    }
}

/// An attempt with its placements, as the contract holds it.
pub(crate) async fn with_placements(store: &Store, attempt: Attempt) -> Result<Job, Status> {
    let placements = store
        .placements_of(&attempt.key)
        .await
        .map_err(|e| status::from_store(&e))?;
    let mut job = to_proto(attempt);
    job.placements = placements
        .into_iter()
        .map(|placement| Placement {
            host: placement.host,
            ranks: placement.ranks,
            devices: placement.devices,
            gpus: placement.gpus,
            virtual_functions: placement.virtual_functions,
        })
        .collect();
    Ok(job)
}

/// The attempt that a request names: the latest of the job where it names none.
pub(crate) async fn find(
    store: &Store,
    job_id: &str,
    requeue: Option<u32>,
    restart: Option<u32>,
) -> Result<(Attempt, Vec<Attempt>), Status> {
    let job_id = attempt::job_id("job_id", job_id).map_err(|e| status::from_bad_request(&e))?;
    let attempts = store
        .attempts_of(&job_id)
        .await
        .map_err(|e| status::from_store(&e))?;
    let wanted = |a: &&Attempt| {
        requeue.is_none_or(|n| n == a.key.requeue) && restart.is_none_or(|n| n == a.key.restart)
    };
    if let Some(found) = attempts.iter().rev().find(wanted) {
        return Ok((found.clone(), attempts));
    }
    // One that only failing tasks named is left out of the list, and can be asked for.
    if let Some(requeue) = requeue {
        let key = AttemptKey {
            job_id: job_id.clone(),
            requeue,
            restart: restart.unwrap_or(0),
        };
        let found = store
            .attempt(&key)
            .await
            .map_err(|e| status::from_store(&e))?;
        if let Some(found) = found {
            return Ok((found, attempts));
        }
    }
    let known: Vec<String> = attempts.iter().map(|a| attempt::written(&a.key)).collect();
    Err(Status::not_found(if known.is_empty() {
        format!(
            "no job {job_id}: no scheduler told of it and no failing task named it; \
             `rdmesh job list` shows what is known"
        )
    } else {
        format!(
            "job {job_id} has no such attempt; known are {}",
            known.join(", ")
        )
    }))
}

fn to_proto(attempt: Attempt) -> Job {
    let labels: HashMap<String, String> = serde_json::from_str(&attempt.labels).unwrap_or_default();
    Job {
        attempt: Some(attempt::to_proto(&attempt.key)),
        name: attempt.name,
        user: attempt.user,
        scheduler: attempt.scheduler,
        cluster: attempt.cluster,
        job_class: attempt.job_class,
        state: i32::from(attempt.state),
        started_at: attempt.started_at.map(times::to_proto),
        ended_at: attempt.ended_at.map(times::to_proto),
        exit_code: attempt.exit_code,
        exit_reason: attempt.exit_reason,
        placements: Vec::new(),
        marks: attempt.marks,
        labels,
        hosts_total: attempt.hosts_total,
        first_hosts: attempt.first_hosts,
    }
}

fn names(field: &str, texts: &[String]) -> Result<Vec<String>, BadRequest> {
    if texts.len() > PER_HOST_MAX {
        let problem = format!(
            "has {} entries; at most {PER_HOST_MAX} are allowed",
            texts.len()
        );
        return Err(BadRequest::new(field, problem));
    }
    texts
        .iter()
        .map(|text| attempt::text(field, text, NAME_MAX_BYTES))
        .collect()
}

fn placements(placements: &[Placement]) -> Result<Vec<StoredPlacement>, BadRequest> {
    if placements.len() > PLACEMENTS_MAX {
        let problem = format!(
            "has {} entries; at most {PLACEMENTS_MAX} are allowed",
            placements.len()
        );
        return Err(BadRequest::new("placements", problem));
    }
    let mut hosts = BTreeSet::new();
    placements
        .iter()
        .map(|placement| {
            if !hosts.insert(&placement.host) {
                let problem = format!("names {:?} twice; name each host once", placement.host);
                return Err(BadRequest::new("placements.host", problem));
            }
            if placement.ranks.len() > PER_HOST_MAX {
                let problem = format!(
                    "has {} entries; at most {PER_HOST_MAX} are allowed",
                    placement.ranks.len()
                );
                return Err(BadRequest::new("placements.ranks", problem));
            }
            let mut ranks = BTreeSet::new();
            if let Some(rank) = placement.ranks.iter().find(|rank| !ranks.insert(**rank)) {
                let problem = format!("names {rank} twice; name each rank once");
                return Err(BadRequest::new("placements.ranks", problem));
            }
            Ok(StoredPlacement {
                host: attempt::host("placements.host", &placement.host)?,
                ranks: placement.ranks.clone(),
                devices: names("placements.devices", &placement.devices)?,
                gpus: names("placements.gpus", &placement.gpus)?,
                virtual_functions: names(
                    "placements.virtual_functions",
                    &placement.virtual_functions,
                )?,
            })
        })
        .collect()
}

fn labels(labels: &HashMap<String, String>) -> Result<String, BadRequest> {
    if labels.len() > LABELS_MAX {
        let problem = format!(
            "has {} entries; at most {LABELS_MAX} are allowed",
            labels.len()
        );
        return Err(BadRequest::new("labels", problem));
    }
    let checked = labels
        .iter()
        .map(|(key, value)| {
            let key = attempt::text("labels", key, NAME_MAX_BYTES)?;
            Ok((key, attempt::text("labels", value, NAME_MAX_BYTES)?))
        })
        .collect::<Result<BTreeMap<_, _>, BadRequest>>()?;
    serde_json::to_string(&checked).map_err(|e| BadRequest::new("labels", e.to_string()))
}

impl TryFrom<&StartJobRequest> for ValidStart {
    type Error = BadRequest;

    fn try_from(request: &StartJobRequest) -> Result<Self, BadRequest> {
        let short = |field, text| attempt::text(field, text, NAME_MAX_BYTES);
        Ok(Self(Start {
            attempt: attempt::attempt(request.attempt.as_ref())?,
            name: short("name", &request.name)?,
            user: short("user", &request.user)?,
            scheduler: short("scheduler", &request.scheduler)?,
            cluster: short("cluster", &request.cluster)?,
            job_class: short("job_class", &request.job_class)?,
            started_at: times::optional("started_at", request.started_at.as_ref())?,
            placements: placements(&request.placements)?,
            labels: labels(&request.labels)?,
        }))
    }
}

/// A start that may be stored.
struct ValidStart(Start);

/// An end that may be stored.
struct ValidEnd(End);

impl TryFrom<&EndJobRequest> for ValidEnd {
    type Error = BadRequest;

    fn try_from(request: &EndJobRequest) -> Result<Self, BadRequest> {
        let state = match request.state() {
            JobState::Unspecified | JobState::Unknown | JobState::Running => {
                let problem = format!(
                    "is {}; an end is completed, failed, cancelled, timeout, out_of_memory or \
                     node_fail",
                    state_told(request.state)
                );
                return Err(BadRequest::new("state", problem));
            }
            state => i16::try_from(i32::from(state)).unwrap_or(0),
        };
        Ok(Self(End {
            attempt: attempt::attempt(request.attempt.as_ref())?,
            state,
            ended_at: times::optional("ended_at", request.ended_at.as_ref())?,
            exit_code: request.exit_code,
            exit_reason: attempt::text("exit_reason", &request.exit_reason, REASON_MAX_BYTES)?,
        }))
    }
}

/// A state as people know it; a number that the contract does not have as such.
fn state_told(state: i32) -> String {
    match JobState::try_from(state) {
        Ok(JobState::Unspecified) => "missing".to_owned(),
        Ok(state) => names::without(state.as_str_name(), "JOB_STATE_"),
        Err(_) => format!("{state}, which is none"),
    }
}

#[tonic::async_trait]
impl JobService for Jobs {
    async fn start_job(
        &self,
        request: Request<StartJobRequest>,
    ) -> Result<Response<StartJobResponse>, Status> {
        let caller = Caller::of(&request);
        let ValidStart(mut start) =
            ValidStart::try_from(request.get_ref()).map_err(|e| status::from_bad_request(&e))?;
        start.scheduler = rights::as_scheduler(&caller, start.scheduler)?;
        let store = self.backing.store()?;
        rights::changes_job(&caller, store, &start.attempt).await?;
        let now = self.backing.now();
        store
            .start_job(&start, now)
            .await
            .map_err(|e| status::from_store(&e))?;
        let job = told(store, &start.attempt).await?;
        Ok(Response::new(StartJobResponse { job }))
    }

    async fn place_job(
        &self,
        request: Request<PlaceJobRequest>,
    ) -> Result<Response<PlaceJobResponse>, Status> {
        let caller = Caller::of(&request);
        let request = request.into_inner();
        let key = attempt::attempt(request.attempt.as_ref());
        let key = key.map_err(|e| status::from_bad_request(&e))?;
        let places = placements(&request.placements).map_err(|e| status::from_bad_request(&e))?;
        let store = self.backing.store()?;
        rights::changes_job(&caller, store, &key).await?;
        let now = self.backing.now();
        store
            .place_job(&key, &places, now)
            .await
            .map_err(|e| status::from_store(&e))?;
        let job = told(store, &key).await?;
        Ok(Response::new(PlaceJobResponse { job }))
    }

    async fn end_job(
        &self,
        request: Request<EndJobRequest>,
    ) -> Result<Response<EndJobResponse>, Status> {
        let ValidEnd(end) =
            ValidEnd::try_from(request.get_ref()).map_err(|e| status::from_bad_request(&e))?;
        let store = self.backing.store()?;
        rights::changes_job(&Caller::of(&request), store, &end.attempt).await?;
        let now = self.backing.now();
        store
            .end_job(&end, now)
            .await
            .map_err(|e| status::from_store(&e))?;
        let job = told(store, &end.attempt).await?;
        Ok(Response::new(EndJobResponse { job }))
    }

    async fn get_job(
        &self,
        request: Request<GetJobRequest>,
    ) -> Result<Response<GetJobResponse>, Status> {
        let request = request.into_inner();
        let store = self.backing.store()?;
        let (found, attempts) =
            find(store, &request.job_id, request.requeue, request.restart).await?;
        let job = with_placements(store, found).await?;
        let attempts = attempts.into_iter().map(to_proto).collect();
        Ok(Response::new(GetJobResponse {
            job: Some(job),
            attempts,
        }))
    }

    async fn submit_job_log(
        &self,
        request: Request<Streaming<SubmitJobLogRequest>>,
    ) -> Result<Response<SubmitJobLogResponse>, Status> {
        let caller = Caller::of(&request);
        let taken = self.intake.take(&caller, request.into_inner()).await?;
        Ok(Response::new(taken))
    }

    async fn list_job_logs(
        &self,
        request: Request<ListJobLogsRequest>,
    ) -> Result<Response<ListJobLogsResponse>, Status> {
        let request = request.into_inner();
        let bad = |e: BadRequest| status::from_bad_request(&e);
        let size =
            page::size(request.page_size, page::ROWS_DEFAULT, page::ROWS_MAX).map_err(bad)?;
        let offset = page::read_offset_token(&request.page_token).map_err(bad)?;
        let store = self.backing.store()?;
        let (found, _) = find(store, &request.job_id, request.requeue, request.restart).await?;
        let from = i64::try_from(offset).unwrap_or(i64::MAX);
        let page = store.list_logs(&found.key, from, i64::from(size)).await;
        let page = page.map_err(|e| status::from_store(&e))?;
        let next = offset.saturating_add(page.logs.len());
        let total = u64::try_from(page.total).unwrap_or(0);
        let more = !page.logs.is_empty() && u64::try_from(next).is_ok_and(|next| next < total);
        Ok(Response::new(ListJobLogsResponse {
            logs: page.logs.iter().map(kept::listed).collect(),
            next_page_token: if more {
                page::offset_token(next)
            } else {
                String::new()
            },
            total,
        }))
    }

    async fn list_jobs(
        &self,
        request: Request<ListJobsRequest>,
    ) -> Result<Response<ListJobsResponse>, Status> {
        let filter = filter(request.get_ref()).map_err(|e| status::from_bad_request(&e))?;
        let store = self.backing.store()?;
        let mut found = store
            .list_jobs(&filter)
            .await
            .map_err(|e| status::from_store(&e))?;
        let more = page::cut(&mut found, filter.limit);
        let next_page_token = match found.last() {
            Some(last) if more => page::jobs_token(last),
            _ => String::new(),
        };
        let jobs = found.into_iter().map(to_proto).collect();
        Ok(Response::new(ListJobsResponse {
            jobs,
            next_page_token,
        }))
    }
}

fn filter(request: &ListJobsRequest) -> Result<JobFilter, BadRequest> {
    let some = |field: &str, text: &str| {
        let text = attempt::text(field, text, NAME_MAX_BYTES)?;
        Ok::<_, BadRequest>((!text.is_empty()).then_some(text))
    };
    let (from, to) = attempt::range(request.time.as_ref())?;
    let state = match request.state() {
        JobState::Unspecified if request.state == 0 => None,
        JobState::Unspecified => {
            let problem = format!("is {}; leave it out for any", state_told(request.state));
            return Err(BadRequest::new("state", problem));
        }
        state => i16::try_from(i32::from(state)).ok(),
    };
    let after: Option<JobCursor> = page::read_jobs_token(&request.page_token)?;
    Ok(JobFilter {
        user: some("user", &request.user)?,
        host: some("host", &request.host)?,
        state,
        from,
        to,
        after,
        // One more than asked for tells whether there is a next page.
        limit: page::size(request.page_size, page::ROWS_DEFAULT, page::ROWS_MAX)? + 1,
    })
}

//! What is said and asked about jobs.

use std::collections::BTreeMap;

use rdmesh_proto::collector::v1 as wire;
use rdmesh_proto::common::v1 as common;

use crate::attempt::{AttemptId, AttemptSelector};
use crate::client::Client;
use crate::error::{ClientError, Subject};
use crate::model::job::{Job, JobState};
use crate::model::present;
use crate::moment::Moment;
use crate::placement::Placement;

/// Rows that one page of a list holds at most, as the wire contract has it.
pub const MAX_PAGE_SIZE: u32 = 1_000;

/// An attempt that begins. Empty texts: not told.
#[derive(Clone, Debug)]
pub struct JobStart {
    /// Which attempt.
    pub attempt: AttemptId,
    /// Its name, for people.
    pub name: String,
    /// Who owns it.
    pub user: String,
    /// "slurm", "kubernetes", …
    pub scheduler: String,
    /// The cluster that it runs in.
    pub cluster: String,
    /// A class of the site's own: "training", "inference".
    pub job_class: String,
    /// Absent: when the request arrives.
    pub started_at: Option<Moment>,
    /// Where it runs, as far as known.
    pub placements: Vec<Placement>,
    /// Anything else.
    pub labels: BTreeMap<String, String>,
}

/// An attempt that ended.
#[derive(Clone, Debug)]
pub struct JobEnd {
    /// Which attempt.
    pub attempt: AttemptId,
    /// How it ended.
    pub state: JobState,
    /// Absent: when the request arrives.
    pub ended_at: Option<Moment>,
    /// Exit code of the job, if it has one.
    pub exit_code: Option<i32>,
    /// The scheduler's words.
    pub exit_reason: String,
}

/// Which jobs to list. Empty fields do not filter.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// Owner.
    pub user: String,
    /// A host that the attempt ran on.
    pub host: String,
    /// State.
    pub state: Option<JobState>,
    /// From this moment on.
    pub since: Option<Moment>,
    /// Before this moment.
    pub until: Option<Moment>,
}

/// A job with all its attempts.
#[derive(Clone, Debug, serde::Serialize)]
pub struct JobHistory {
    /// The attempt that was asked for.
    pub job: Job,
    /// All attempts, oldest first, without their placements.
    pub attempts: Vec<Job>,
}

/// A bounded list, and whether there is more.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// At most as many as were asked for.
    pub items: Vec<T>,
    /// Whether more of them exist.
    pub more: bool,
}

pub(crate) fn time_range(
    since: Option<Moment>,
    until: Option<Moment>,
) -> Option<common::TimeRange> {
    (since.is_some() || until.is_some()).then(|| common::TimeRange {
        from: since.map(Into::into),
        to: until.map(Into::into),
    })
}

/// How many rows to ask for when `missing` are still wanted.
pub(crate) fn page_size(missing: usize) -> u32 {
    u32::try_from(missing)
        .unwrap_or(MAX_PAGE_SIZE)
        .clamp(1, MAX_PAGE_SIZE)
}

impl Client {
    /// Says that an attempt began. Idempotent; asked once.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn start_job(&self, start: JobStart) -> Result<Job, ClientError> {
        let subject = Subject::job(&start.attempt);
        let request = wire::StartJobRequest {
            attempt: Some(start.attempt.into()),
            name: start.name,
            user: start.user,
            scheduler: start.scheduler,
            cluster: start.cluster,
            job_class: start.job_class,
            started_at: start.started_at.map(Into::into),
            placements: start.placements.into_iter().map(Into::into).collect(),
            labels: start.labels.into_iter().collect(),
        };
        let mut service = self.job_service();
        let answer = self.write(&subject, service.start_job(request)).await?;
        Ok(present("job", answer.job)?.into())
    }

    /// Says that an attempt runs on these hosts too. Idempotent; asked once.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn place_job(
        &self,
        attempt: AttemptId,
        placements: Vec<Placement>,
    ) -> Result<Job, ClientError> {
        let subject = Subject::job(&attempt);
        let request = wire::PlaceJobRequest {
            attempt: Some(attempt.into()),
            placements: placements.into_iter().map(Into::into).collect(),
        };
        let mut service = self.job_service();
        let answer = self.write(&subject, service.place_job(request)).await?;
        Ok(present("job", answer.job)?.into())
    }

    /// Says that an attempt ended. Idempotent; asked once.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn end_job(&self, end: JobEnd) -> Result<Job, ClientError> {
        let subject = Subject::job(&end.attempt);
        let request = wire::EndJobRequest {
            attempt: Some(end.attempt.into()),
            state: wire::JobState::from(end.state).into(),
            ended_at: end.ended_at.map(Into::into),
            exit_code: end.exit_code,
            exit_reason: end.exit_reason,
        };
        let mut service = self.job_service();
        let answer = self.write(&subject, service.end_job(request)).await?;
        Ok(present("job", answer.job)?.into())
    }

    /// One attempt of a job, and the list of its attempts.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when the collector never heard of it.
    pub async fn get_job(&self, selector: &AttemptSelector) -> Result<JobHistory, ClientError> {
        let request = wire::GetJobRequest {
            job_id: selector.job_id().to_owned(),
            requeue: selector.requeue,
            restart: selector.restart,
        };
        let ask = || {
            let (mut service, request) = (self.job_service(), request.clone());
            async move { service.get_job(request).await }
        };
        let answer = self.read(&Subject::job(selector).checked(), ask).await?;
        Ok(JobHistory {
            job: present("job", answer.job)?.into(),
            attempts: answer.attempts.into_iter().map(Job::from).collect(),
        })
    }

    /// The newest attempts that pass the filter, `limit` of them at most.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list_jobs(
        &self,
        filter: &JobFilter,
        limit: usize,
    ) -> Result<Page<Job>, ClientError> {
        let mut items: Vec<Job> = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = wire::ListJobsRequest {
                user: filter.user.clone(),
                host: filter.host.clone(),
                state: filter
                    .state
                    .map_or(0, |state| wire::JobState::from(state).into()),
                time: time_range(filter.since, filter.until),
                page_size: page_size(limit - items.len()),
                page_token,
            };
            let ask = || {
                let (mut service, request) = (self.job_service(), request.clone());
                async move { service.list_jobs(request).await }
            };
            let answer = self.read(&Subject::none(), ask).await?;
            let got = answer.jobs.len();
            items.extend(answer.jobs.into_iter().map(Job::from));
            page_token = answer.next_page_token;
            // An empty page with a token would go round for ever.
            if page_token.is_empty() || got == 0 || items.len() >= limit {
                let more = !page_token.is_empty() || items.len() > limit;
                items.truncate(limit);
                return Ok(Page { items, more });
            }
        }
    }
}

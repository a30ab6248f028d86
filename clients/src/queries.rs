//! What is asked about failures, verdicts, agents and probes.

use rdmesh_proto::collector::v1 as wire;

use crate::attempt::AttemptSelector;
use crate::client::Client;
use crate::errno::Errno;
use crate::error::{ClientError, Subject};
use crate::jobs::{Page, page_size, time_range};
use crate::model::agent::Agent;
use crate::model::failure::Failure;
use crate::model::probe::HostProbes;
use crate::model::timeline::Timeline;
use crate::model::verdict::Diagnosis;
use crate::moment::Moment;

/// Agents that one page holds at most, as the wire contract has it.
pub const MAX_AGENTS_PAGE: u32 = 10_000;

/// Which failures to list. Empty fields do not filter.
#[derive(Clone, Debug, Default)]
pub struct FailureFilter {
    /// Job, or one of its attempts.
    pub attempt: Option<AttemptSelector>,
    /// Host.
    pub host: String,
    /// RDMA device (`mlx5_0`).
    pub device: String,
    /// A kernel function of the chain.
    pub function: String,
    /// An error number of the chain.
    pub errno: Option<Errno>,
    /// From this moment on.
    pub since: Option<Moment>,
    /// Before this moment.
    pub until: Option<Moment>,
    /// Also those that a rule marks as part of normal work.
    pub include_expected: bool,
}

impl FailureFilter {
    fn request(&self, page_size: u32, page_token: String) -> wire::ListFailuresRequest {
        let attempt = self.attempt.as_ref();
        wire::ListFailuresRequest {
            job_id: attempt.map_or_else(String::new, |a| a.job_id().to_owned()),
            requeue: attempt.and_then(|a| a.requeue),
            restart: attempt.and_then(|a| a.restart),
            host: self.host.clone(),
            device: self.device.clone(),
            function: self.function.clone(),
            errno: self.errno.map_or(0, Errno::number),
            time: time_range(self.since, self.until),
            include_expected: self.include_expected,
            page_size,
            page_token,
        }
    }
}

impl Client {
    /// The newest failures that pass the filter, `limit` of them at most.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list_failures(
        &self,
        filter: &FailureFilter,
        limit: usize,
    ) -> Result<Page<Failure>, ClientError> {
        let subject = filter
            .attempt
            .as_ref()
            .map_or_else(Subject::none, Subject::job);
        let mut items: Vec<Failure> = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = filter.request(page_size(limit - items.len()), page_token);
            let ask = || {
                let (mut service, request) = (self.query_service(), request.clone());
                async move { service.list_failures(request).await }
            };
            let answer = self.read(&subject, ask).await?;
            let got = answer.failures.len();
            items.extend(answer.failures.into_iter().map(Failure::from));
            page_token = answer.next_page_token;
            // An empty page with a token would go round for ever.
            if page_token.is_empty() || got == 0 || items.len() >= limit {
                let more = !page_token.is_empty() || items.len() > limit;
                items.truncate(limit);
                return Ok(Page { items, more });
            }
        }
    }

    /// What broke an attempt.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when the collector never heard of it. A verdict
    /// of the class `cannot_tell` is an answer, not an error.
    pub async fn diagnose(&self, selector: &AttemptSelector) -> Result<Diagnosis, ClientError> {
        let request = wire::DiagnoseRequest {
            job_id: selector.job_id().to_owned(),
            requeue: selector.requeue,
            restart: selector.restart,
        };
        let ask = || {
            let (mut service, request) = (self.query_service(), request.clone());
            async move { service.diagnose(request).await }
        };
        self.read(&Subject::job(selector).checked(), ask)
            .await?
            .try_into()
    }

    /// What happened on the hosts of an attempt, in the order of time.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when the collector never heard of it.
    pub async fn timeline(&self, selector: &AttemptSelector) -> Result<Timeline, ClientError> {
        let request = wire::GetTimelineRequest {
            job_id: selector.job_id().to_owned(),
            requeue: selector.requeue,
            restart: selector.restart,
        };
        let ask = || {
            let (mut service, request) = (self.query_service(), request.clone());
            async move { service.get_timeline(request).await }
        };
        Ok(self
            .read(&Subject::job(selector).checked(), ask)
            .await?
            .into())
    }

    /// Every agent that ever reported, the unhealthy first.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list_agents(&self) -> Result<Vec<Agent>, ClientError> {
        let mut agents: Vec<Agent> = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = wire::ListAgentsRequest {
                page_size: MAX_AGENTS_PAGE,
                page_token,
            };
            let ask = || {
                let (mut service, request) = (self.query_service(), request.clone());
                async move { service.list_agents(request).await }
            };
            let answer = self.read(&Subject::none().checked(), ask).await?;
            let got = answer.agents.len();
            agents.extend(answer.agents.into_iter().map(Agent::from));
            page_token = answer.next_page_token;
            if page_token.is_empty() || got == 0 {
                return Ok(agents);
            }
        }
    }

    /// The probe report that a host sent last.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when no tracer of that name has reported.
    pub async fn host_probes(&self, host: &str) -> Result<HostProbes, ClientError> {
        let request = wire::GetHostProbesRequest {
            host: host.to_owned(),
        };
        let ask = || {
            let (mut service, request) = (self.query_service(), request.clone());
            async move { service.get_host_probes(request).await }
        };
        let answer = self.read(&Subject::host(host), ask).await?;
        answer.try_into()
    }
}

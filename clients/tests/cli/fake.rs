//! A collector in this process that answers from memory: for exit codes, the
//! command line and the terminal. What a real collector answers is tested in
//! the lab.

use std::sync::{Arc, Mutex, MutexGuard};

use rdmesh_proto::collector::v1 as wire;
use rdmesh_proto::collector::v1::job_service_server::{JobService, JobServiceServer};
use rdmesh_proto::collector::v1::query_service_server::{QueryService, QueryServiceServer};
use rdmesh_proto::collector::v1::statistics_service_server::StatisticsServiceServer;
use rdmesh_proto::collector::v1::wire_service_server::WireServiceServer;
use rdmesh_proto::common::v1 as common;
use rdmesh_proto::tracer::v1 as tracer;
use rdmesh_proto::tracer::v1::tracer_service_server::TracerServiceServer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status};

use crate::fake_answers::verdict;
pub(crate) use crate::fake_answers::{failed_job, failure};

/// What the fake knows and what it was asked.
#[derive(Default)]
pub(crate) struct State {
    /// Attempts, oldest first.
    pub(crate) jobs: Vec<wire::Job>,
    /// How many failures it has to list.
    pub(crate) failures: usize,
    /// The job id of every failure; empty: none is named.
    pub(crate) failing_job: String,
    /// Refuse that many calls before answering.
    pub(crate) refusals: u32,
    /// Calls seen, refused ones included.
    pub(crate) calls: u32,
    /// The last request for failures.
    pub(crate) last_failures: Option<wire::ListFailuresRequest>,
    /// The last request for jobs.
    pub(crate) last_jobs: Option<wire::ListJobsRequest>,
    /// Windows that a watcher gets at once; then nothing comes.
    pub(crate) windows: Vec<wire::WatchWiresResponse>,
    /// What a follower of failures gets at once, after the empty answer; then nothing comes.
    pub(crate) followed: Vec<wire::WatchFailuresResponse>,
    /// What happened on the hosts of any attempt.
    pub(crate) timeline: wire::GetTimelineResponse,
    /// No wire fits what a watcher asks for.
    pub(crate) no_wire: bool,
    /// The last log that came, its source first.
    pub(crate) last_log: Option<(wire::JobLogSource, Vec<u8>)>,
    /// Logs of any attempt.
    pub(crate) logs: Vec<wire::JobLog>,
    /// Where the tracer of gpu-01 can be dialled; empty: it does not say.
    pub(crate) tracer_address: String,
    /// The last time for which shares were asked.
    pub(crate) last_ended: Option<common::TimeRange>,
}

#[derive(Clone)]
pub(crate) struct Service(Arc<Mutex<State>>);

/// The running fake; stops when dropped.
pub(crate) struct Fake {
    pub(crate) address: String,
    state: Arc<Mutex<State>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Fake {
    pub(crate) fn start() -> Fake {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        Fake::serve(address, State::default(), || {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            TcpListenerStream::new(listener)
        })
    }

    /// At a socket of the file system.
    pub(crate) fn start_at(path: &std::path::Path) -> Fake {
        Fake::start_knowing(path, State::default())
    }

    /// The same, which knows from its first call on what `state` has.
    pub(crate) fn start_knowing(path: &std::path::Path, state: State) -> Fake {
        let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
        listener.set_nonblocking(true).unwrap();
        Fake::serve(format!("unix:{}", path.display()), state, || {
            let listener = tokio::net::UnixListener::from_std(listener).unwrap();
            UnixListenerStream::new(listener)
        })
    }

    /// `incoming` runs inside the runtime.
    pub(crate) fn serve<S, C>(
        address: String,
        state: State,
        incoming: impl FnOnce() -> S + Send + 'static,
    ) -> Fake
    where
        S: Stream<Item = std::io::Result<C>> + Send + Unpin,
        C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
    {
        let state = Arc::new(Mutex::new(state));
        let service = Service(Arc::clone(&state));
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async move {
                let (_reporter, health) = tonic_health::server::health_reporter();
                let server = tonic::transport::Server::builder()
                    .add_service(health)
                    .add_service(JobServiceServer::new(service.clone()))
                    .add_service(QueryServiceServer::new(service.clone()))
                    .add_service(StatisticsServiceServer::new(service.clone()))
                    .add_service(WireServiceServer::new(service.clone()))
                    .add_service(TracerServiceServer::new(service))
                    .serve_with_incoming(incoming());
                tokio::select! {
                    ended = server => ended.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        Fake {
            address,
            state,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.unwrap();
            }
        }
    }
}

impl Service {
    pub(crate) fn enter(&self) -> Result<MutexGuard<'_, State>, Status> {
        let mut state = self.0.lock().unwrap();
        state.calls += 1;
        if state.refusals > 0 {
            state.refusals -= 1;
            return Err(Status::unavailable("the database does not answer"));
        }
        Ok(state)
    }
}

pub(crate) type Answer<T> = Result<Response<T>, Status>;

fn find(
    state: &State,
    job_id: &str,
    requeue: Option<u32>,
    restart: Option<u32>,
) -> Result<wire::Job, Status> {
    let matches = |job: &&wire::Job| {
        job.attempt.as_ref().is_some_and(|a| {
            a.job_id == job_id
                && requeue.is_none_or(|n| n == a.requeue)
                && restart.is_none_or(|n| n == a.restart)
        })
    };
    let newest = state.jobs.iter().rev().find(matches);
    newest
        .cloned()
        .ok_or_else(|| Status::not_found(format!("no job {job_id}")))
}

fn entry(state: &mut State, attempt: Option<common::AttemptId>) -> &mut wire::Job {
    let known = state.jobs.iter().position(|job| job.attempt == attempt);
    let index = known.unwrap_or_else(|| {
        state.jobs.push(wire::Job {
            attempt,
            ..wire::Job::default()
        });
        state.jobs.len() - 1
    });
    &mut state.jobs[index]
}

#[tonic::async_trait]
impl JobService for Service {
    async fn start_job(
        &self,
        request: Request<wire::StartJobRequest>,
    ) -> Answer<wire::StartJobResponse> {
        let mut state = self.enter()?;
        let request = request.into_inner();
        if request.placements.iter().any(|p| p.host == "bad") {
            return Err(Status::invalid_argument(
                "placements[0].host: \u{1b}[31mbad",
            ));
        }
        let job = entry(&mut state, request.attempt);
        job.name = request.name;
        job.user = request.user;
        job.scheduler = request.scheduler;
        job.cluster = request.cluster;
        job.job_class = request.job_class;
        job.state = wire::JobState::Running.into();
        job.started_at = request.started_at;
        job.placements = request.placements;
        job.labels = request.labels;
        Ok(Response::new(wire::StartJobResponse {
            job: Some(job.clone()),
        }))
    }

    async fn place_job(
        &self,
        request: Request<wire::PlaceJobRequest>,
    ) -> Answer<wire::PlaceJobResponse> {
        let mut state = self.enter()?;
        let request = request.into_inner();
        let job = entry(&mut state, request.attempt);
        job.placements.extend(request.placements);
        Ok(Response::new(wire::PlaceJobResponse {
            job: Some(job.clone()),
        }))
    }

    async fn end_job(&self, request: Request<wire::EndJobRequest>) -> Answer<wire::EndJobResponse> {
        let mut state = self.enter()?;
        let request = request.into_inner();
        let job = entry(&mut state, request.attempt);
        job.state = request.state;
        job.ended_at = request.ended_at;
        job.exit_code = request.exit_code;
        job.exit_reason = request.exit_reason;
        Ok(Response::new(wire::EndJobResponse {
            job: Some(job.clone()),
        }))
    }

    async fn get_job(&self, request: Request<wire::GetJobRequest>) -> Answer<wire::GetJobResponse> {
        let state = self.enter()?;
        let request = request.into_inner();
        let job = find(&state, &request.job_id, request.requeue, request.restart)?;
        Ok(Response::new(wire::GetJobResponse {
            job: Some(job),
            attempts: state.jobs.clone(),
        }))
    }

    async fn submit_job_log(
        &self,
        request: Request<tonic::Streaming<wire::SubmitJobLogRequest>>,
    ) -> Answer<wire::SubmitJobLogResponse> {
        use wire::submit_job_log_request::Item;
        let mut messages = request.into_inner();
        let (mut source, mut bytes) = (wire::JobLogSource::default(), Vec::new());
        while let Some(message) = messages.message().await? {
            match message.item {
                Some(Item::Source(told)) => source = told,
                Some(Item::Data(data)) => bytes.extend_from_slice(&data),
                None => {}
            }
        }
        let log = wire::JobLog {
            attempt: source.attempt.clone(),
            name: source.name.clone(),
            bytes: u64::try_from(bytes.len()).unwrap(),
            class: wire::LogClass::CannotTell.into(),
            ..wire::JobLog::default()
        };
        self.enter()?.last_log = Some((source, bytes));
        Ok(Response::new(wire::SubmitJobLogResponse {
            log: Some(log),
            repeated: false,
        }))
    }

    async fn list_job_logs(
        &self,
        request: Request<wire::ListJobLogsRequest>,
    ) -> Answer<wire::ListJobLogsResponse> {
        let request = request.into_inner();
        let state = self.enter()?;
        find(&state, &request.job_id, request.requeue, request.restart)?;
        let logs = state.logs.clone();
        Ok(Response::new(wire::ListJobLogsResponse {
            total: u64::try_from(logs.len()).unwrap(),
            logs,
            next_page_token: String::new(),
        }))
    }

    async fn list_jobs(
        &self,
        request: Request<wire::ListJobsRequest>,
    ) -> Answer<wire::ListJobsResponse> {
        let mut state = self.enter()?;
        state.last_jobs = Some(request.into_inner());
        let jobs = state.jobs.iter().rev().cloned().collect();
        Ok(Response::new(wire::ListJobsResponse {
            jobs,
            next_page_token: String::new(),
        }))
    }
}

#[tonic::async_trait]
impl QueryService for Service {
    async fn list_failures(
        &self,
        request: Request<wire::ListFailuresRequest>,
    ) -> Answer<wire::ListFailuresResponse> {
        let mut state = self.enter()?;
        let request = request.into_inner();
        let start: usize = request.page_token.parse().unwrap_or(0);
        let size = usize::try_from(request.page_size).unwrap();
        let end = state.failures.min(start + size);
        state.last_failures = Some(request);
        let attempt = (!state.failing_job.is_empty()).then(|| common::AttemptId {
            job_id: state.failing_job.clone(),
            ..common::AttemptId::default()
        });
        let failures = (start..end).map(|index| wire::Failure {
            attempt: attempt.clone(),
            ..failure(index)
        });
        let failures = failures.collect();
        let next_page_token = if end < state.failures {
            end.to_string()
        } else {
            String::new()
        };
        Ok(Response::new(wire::ListFailuresResponse {
            failures,
            next_page_token,
        }))
    }

    async fn diagnose(
        &self,
        request: Request<wire::DiagnoseRequest>,
    ) -> Answer<wire::DiagnoseResponse> {
        let request = request.into_inner();
        if request.job_id == "slow" {
            std::future::pending::<()>().await;
        }
        let state = self.enter()?;
        if request.job_id == "overflowing" {
            return Err(Status::invalid_argument("bigint out of range"));
        }
        if request.job_id == "broken" {
            return Ok(Response::new(wire::DiagnoseResponse::default()));
        }
        let job = find(&state, &request.job_id, request.requeue, request.restart)?;
        let verdict = if job.state == i32::from(wire::JobState::Failed) {
            verdict()
        } else {
            wire::Verdict {
                class: wire::VerdictClass::CannotTell.into(),
                ..wire::Verdict::default()
            }
        };
        Ok(Response::new(wire::DiagnoseResponse {
            job: Some(job),
            verdict: Some(verdict),
            failures: vec![failure(0)],
            ..wire::DiagnoseResponse::default()
        }))
    }

    type WatchFailuresStream = Followed;

    async fn watch_failures(
        &self,
        _request: Request<wire::WatchFailuresRequest>,
    ) -> Answer<Self::WatchFailuresStream> {
        let state = self.enter()?;
        let begun = [wire::WatchFailuresResponse::default()];
        let answers = begun.into_iter().chain(state.followed.clone());
        let stream = tokio_stream::iter(answers.collect::<Vec<_>>()).map(Ok);
        Ok(Response::new(Box::pin(
            stream.chain(tokio_stream::pending()),
        )))
    }

    async fn get_timeline(
        &self,
        request: Request<wire::GetTimelineRequest>,
    ) -> Answer<wire::GetTimelineResponse> {
        let request = request.into_inner();
        let state = self.enter()?;
        let job = find(&state, &request.job_id, request.requeue, request.restart)?;
        Ok(Response::new(wire::GetTimelineResponse {
            job: Some(job),
            ..state.timeline.clone()
        }))
    }

    async fn advise_retry(
        &self,
        request: Request<wire::AdviseRetryRequest>,
    ) -> Answer<wire::AdviseRetryResponse> {
        let request = request.into_inner();
        let state = self.enter()?;
        let job = find(&state, &request.job_id, request.requeue, request.restart)?;
        Ok(Response::new(wire::AdviseRetryResponse {
            attempt: job.attempt,
            advice: wire::RetryAdvice::RetryWithoutHosts.into(),
            hosts: vec!["gpu-01".into()],
            reason: "the cause sits on gpu-01".into(),
            ..wire::AdviseRetryResponse::default()
        }))
    }

    async fn list_agents(
        &self,
        _request: Request<wire::ListAgentsRequest>,
    ) -> Answer<wire::ListAgentsResponse> {
        let state = self.enter()?;
        let agent = |host: &str, health: wire::AgentHealth, address: &str| wire::Agent {
            host: host.into(),
            kind: common::AgentKind::Tracer.into(),
            health: health.into(),
            address: address.into(),
            ..wire::Agent::default()
        };
        let agents = vec![
            agent("gpu-01", wire::AgentHealth::Healthy, &state.tracer_address),
            agent("gpu-02", wire::AgentHealth::Silent, ""),
        ];
        Ok(Response::new(wire::ListAgentsResponse {
            agents,
            next_page_token: String::new(),
        }))
    }

    async fn get_host_probes(
        &self,
        request: Request<wire::GetHostProbesRequest>,
    ) -> Answer<wire::GetHostProbesResponse> {
        let _state = self.enter()?;
        let host = request.into_inner().host;
        if host != "gpu-01" {
            return Err(Status::not_found("no tracer of that name has reported"));
        }
        let report = Some(tracer::ProbeReport::default());
        Ok(Response::new(wire::GetHostProbesResponse {
            host,
            report,
            ..wire::GetHostProbesResponse::default()
        }))
    }
}

type Followed = std::pin::Pin<
    Box<dyn Stream<Item = Result<wire::WatchFailuresResponse, Status>> + Send + 'static>,
>;

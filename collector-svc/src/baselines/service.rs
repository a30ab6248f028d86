//! The two calls.

use rdmesh_proto::collector::v1::baseline_service_server::BaselineService;
use rdmesh_proto::collector::v1::lease_window_response::Answer;
use rdmesh_proto::collector::v1::{
    FinishWindowRequest, FinishWindowResponse, LeaseWindowRequest, LeaseWindowResponse,
};
use rdmesh_services::server::Caller;
use rdmesh_store::baselines::LeaseBounds;
use time::Duration;
use tonic::{Request, Response, Status};

use super::{asked, told};
use crate::backing::Backing;
use crate::config::BaselineConfig;
use crate::status;

/// What a window takes beside its time: following the calls through the module files may
/// take 60 s, attaching the functions one by one some tens, taking them off half a minute.
const BESIDE: Duration = Duration::minutes(3);

/// Leases windows, and keeps what comes of them.
#[derive(Debug)]
pub struct Baselines {
    backing: Backing,
    config: BaselineConfig,
}

impl Baselines {
    /// The service over `backing`.
    #[must_use]
    pub fn new(backing: Backing, config: BaselineConfig) -> Self {
        Self { backing, config }
    }
}

#[tonic::async_trait]
impl BaselineService for Baselines {
    async fn lease_window(
        &self,
        request: Request<LeaseWindowRequest>,
    ) -> Result<Response<LeaseWindowResponse>, Status> {
        let ask = asked::lease(request.get_ref()).map_err(|e| status::from_bad_request(&e))?;
        Caller::of(&request).may_report_for(&ask.host)?;
        if self.config.hosts_at_once == 0 {
            return Ok(answer(Answer::Refusal(told::off())));
        }
        let seconds = self.config.window_seconds;
        let bounds = LeaseBounds {
            hosts_at_once: self.config.hosts_at_once,
            lasts: Duration::seconds(i64::from(seconds)) + BESIDE,
        };
        let store = self.backing.store()?;
        let granted = store
            .lease_window(&ask, bounds, self.backing.now())
            .await
            .map_err(|e| status::from_store(&e))?;
        Ok(answer(match granted {
            Ok(lease) => {
                tracing::info!(
                    host = %ask.host, lease_id = %lease.id, driver = %ask.driver,
                    verbs = %lease.verbs.join(","), purpose = ?request.get_ref().purpose(),
                    "window leased"
                );
                Answer::Lease(told::lease(lease, seconds))
            }
            Err(why) => Answer::Refusal(told::no_lease(why)),
        }))
    }

    async fn finish_window(
        &self,
        request: Request<FinishWindowRequest>,
    ) -> Result<Response<FinishWindowResponse>, Status> {
        let finished =
            asked::finished(request.get_ref()).map_err(|e| status::from_bad_request(&e))?;
        Caller::of(&request).may_report_for(&finished.host)?;
        let store = self.backing.store()?;
        let known = store
            .finish_window(&finished, self.backing.now())
            .await
            .map_err(|e| status::from_store(&e))?;
        if !known {
            return Err(Status::not_found(format!(
                "{} has no open lease {}: it ended, or another one took its place",
                finished.host, finished.lease_id
            )));
        }
        tracing::info!(
            host = %finished.host, lease_id = %finished.lease_id,
            baselines = finished.baselines.len(), fork = finished.fork.is_some(),
            failure = %finished.failure, "window finished"
        );
        Ok(Response::new(FinishWindowResponse {}))
    }
}

fn answer(answer: Answer) -> Response<LeaseWindowResponse> {
    Response::new(LeaseWindowResponse {
        answer: Some(answer),
    })
}

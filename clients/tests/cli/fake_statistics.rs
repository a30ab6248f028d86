//! The fake's shares: one number for each answer.

use rdmesh_proto::collector::v1 as wire;
use rdmesh_proto::collector::v1::statistics_service_server::StatisticsService;
use tonic::{Request, Response, Status};

use crate::fake::Service;

fn quarter() -> Option<wire::Share> {
    Some(wire::Share {
        attempts: 1,
        gpu_hours: 8.0,
        of_attempts: Some(0.25),
        of_gpu_hours: Some(0.5),
        unmeasured: 0,
    })
}

#[tonic::async_trait]
impl StatisticsService for Service {
    async fn get_misattribution(
        &self,
        request: Request<wire::GetMisattributionRequest>,
    ) -> Result<Response<wire::GetMisattributionResponse>, Status> {
        self.enter()?.last_ended = request.into_inner().time;
        Ok(Response::new(wire::GetMisattributionResponse {
            with_log: quarter(),
            misattributed: quarter(),
            ..wire::GetMisattributionResponse::default()
        }))
    }

    async fn get_coverage(
        &self,
        request: Request<wire::GetCoverageRequest>,
    ) -> Result<Response<wire::GetCoverageResponse>, Status> {
        self.enter()?.last_ended = request.into_inner().time;
        Ok(Response::new(wire::GetCoverageResponse {
            counted: quarter(),
            covered: quarter(),
            ..wire::GetCoverageResponse::default()
        }))
    }

    async fn get_silent_failures(
        &self,
        request: Request<wire::GetSilentFailuresRequest>,
    ) -> Result<Response<wire::GetSilentFailuresResponse>, Status> {
        self.enter()?.last_ended = request.into_inner().time;
        Ok(Response::new(wire::GetSilentFailuresResponse {
            counted: quarter(),
            silent: quarter(),
            ..wire::GetSilentFailuresResponse::default()
        }))
    }

    async fn get_lost_hours(
        &self,
        request: Request<wire::GetLostHoursRequest>,
    ) -> Result<Response<wire::GetLostHoursResponse>, Status> {
        self.enter()?.last_ended = request.into_inner().time;
        Ok(Response::new(wire::GetLostHoursResponse {
            counted: quarter(),
            covered: quarter(),
            ..wire::GetLostHoursResponse::default()
        }))
    }

    async fn get_classes(
        &self,
        request: Request<wire::GetClassesRequest>,
    ) -> Result<Response<wire::GetClassesResponse>, Status> {
        self.enter()?.last_ended = request.into_inner().time;
        let trend = wire::ClassTrend {
            class: "driver".into(),
            trend: wire::Trend::Rises.into(),
            ..wire::ClassTrend::default()
        };
        let row = wire::ClassRow {
            step_at: None,
            class: "driver".into(),
            share: quarter(),
        };
        Ok(Response::new(wire::GetClassesResponse {
            rows: vec![row],
            trends: vec![trend],
            undiagnosed: 0,
        }))
    }

    async fn get_incidents(
        &self,
        request: Request<wire::GetIncidentsRequest>,
    ) -> Result<Response<wire::GetIncidentsResponse>, Status> {
        self.enter()?.last_ended = request.into_inner().time;
        let incident = wire::Incident {
            function: "ib_umem_get".into(),
            errno: 14,
            hosts: 2_000,
            ..wire::Incident::default()
        };
        Ok(Response::new(wire::GetIncidentsResponse {
            incidents: vec![incident],
        }))
    }

    async fn get_precursors(
        &self,
        request: Request<wire::GetPrecursorsRequest>,
    ) -> Result<Response<wire::GetPrecursorsResponse>, Status> {
        self.enter()?.last_ended = request.into_inner().time;
        Ok(Response::new(wire::GetPrecursorsResponse::default()))
    }
}

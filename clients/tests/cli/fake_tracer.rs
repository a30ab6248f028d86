//! The fake's tracer: it lets mlx5_ib go and takes it back, and knows no other module.

use rdmesh_proto::tracer::v1 as tracer;
use rdmesh_proto::tracer::v1::tracer_service_server::TracerService;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::fake::{Answer, Service};

type Watched = std::pin::Pin<
    Box<dyn Stream<Item = Result<tracer::WatchFailuresResponse, Status>> + Send + 'static>,
>;

fn report(attached: u32) -> Option<tracer::ProbeReport> {
    Some(tracer::ProbeReport {
        logical_attached: attached,
        logical_total: 13,
        ..tracer::ProbeReport::default()
    })
}

fn known(module: &str) -> Result<(), Status> {
    match module {
        "" | "mlx5_ib" => Ok(()),
        "stuck" => Err(Status::failed_precondition("the kernel refused it")),
        _ => Err(Status::not_found(format!(
            "no probe is in module {module}; there are some in mlx5_ib"
        ))),
    }
}

#[tonic::async_trait]
impl TracerService for Service {
    type WatchFailuresStream = Watched;

    async fn get_probe_report(
        &self,
        _request: Request<tracer::GetProbeReportRequest>,
    ) -> Answer<tracer::GetProbeReportResponse> {
        Err(Status::unimplemented("not part of the fake"))
    }

    async fn detach_probes(
        &self,
        request: Request<tracer::DetachProbesRequest>,
    ) -> Answer<tracer::DetachProbesResponse> {
        let _state = self.enter()?;
        let module = request.into_inner().module;
        known(&module)?;
        let all = module.is_empty();
        Ok(Response::new(tracer::DetachProbesResponse {
            detached: if all { 40 } else { 7 },
            report: report(if all { 0 } else { 8 }),
        }))
    }

    async fn attach_probes(
        &self,
        request: Request<tracer::AttachProbesRequest>,
    ) -> Answer<tracer::AttachProbesResponse> {
        let _state = self.enter()?;
        known(&request.into_inner().module)?;
        Ok(Response::new(tracer::AttachProbesResponse {
            attached: 1,
            report: report(13),
        }))
    }

    async fn watch_failures(
        &self,
        _request: Request<tracer::WatchFailuresRequest>,
    ) -> Answer<Self::WatchFailuresStream> {
        Err(Status::unimplemented("not part of the fake"))
    }
}

//! The fake's wires: windows that a watcher gets, and nothing else.

use rdmesh_proto::collector::v1 as wire;
use rdmesh_proto::collector::v1::wire_service_server::WireService;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use crate::fake::{Answer, Service};

type Watched = std::pin::Pin<
    Box<dyn Stream<Item = Result<wire::WatchWiresResponse, Status>> + Send + 'static>,
>;

#[tonic::async_trait]
impl WireService for Service {
    type WatchWiresStream = Watched;

    async fn watch_wires(
        &self,
        _request: Request<wire::WatchWiresRequest>,
    ) -> Answer<Self::WatchWiresStream> {
        let state = self.enter()?;
        if state.no_wire {
            return Err(Status::not_found("no wire fits"));
        }
        let windows = tokio_stream::iter(state.windows.clone()).map(Ok);
        let stream = windows.chain(tokio_stream::pending());
        Ok(Response::new(Box::pin(stream)))
    }

    async fn list_wires(
        &self,
        _request: Request<wire::ListWiresRequest>,
    ) -> Answer<wire::ListWiresResponse> {
        Err(Status::unimplemented("not part of the fake"))
    }

    async fn set_rate(
        &self,
        _request: Request<wire::SetRateRequest>,
    ) -> Answer<wire::SetRateResponse> {
        Err(Status::unimplemented("not part of the fake"))
    }

    async fn reset_wires(
        &self,
        _request: Request<wire::ResetWiresRequest>,
    ) -> Answer<wire::ResetWiresResponse> {
        Err(Status::unimplemented("not part of the fake"))
    }

    async fn set_bypass(
        &self,
        _request: Request<wire::SetBypassRequest>,
    ) -> Answer<wire::SetBypassResponse> {
        Err(Status::unimplemented("not part of the fake"))
    }

    async fn compare_wires(
        &self,
        _request: Request<wire::CompareWiresRequest>,
    ) -> Answer<wire::CompareWiresResponse> {
        Err(Status::unimplemented("not part of the fake"))
    }
}

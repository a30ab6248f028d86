//! `rdmesh.shaper.v1.ShaperService`: generated types stop here.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rdmesh_proto::shaper::v1 as proto;
use rdmesh_proto::shaper::v1::shaper_service_server::ShaperService;
use rdmesh_services::shutdown::Closing;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request as Call, Response, Status};

use super::control::{Change, Done, Refused, Request};
use super::ledger::{ApplyError, Caller};
use super::shared::Shared;

/// Metadata key under which a client says who asks.
pub const USER_KEY: &str = "rdmesh-user";

/// Longest name of a user, bytes.
const MAX_USER_BYTES: usize = 128;

/// Windows on their way to one watcher: flow control does the rest.
const STREAM_WINDOWS: usize = 16;

/// Most names that a watcher can give: far more than there are wires.
const MAX_WATCHED: usize = 64;

/// The service.
#[derive(Clone, Debug)]
pub struct Shaper {
    shared: Arc<Shared>,
    ending: Closing,
}

impl Shaper {
    /// A service whose streams end with `ending`.
    #[must_use]
    pub fn new(shared: Arc<Shared>, ending: Closing) -> Self {
        Self { shared, ending }
    }

    async fn apply(&self, request: Request, caller: Caller) -> Result<Done, Status> {
        let shared = Arc::clone(&self.shared);
        // Two writes to disk: off the runtime's thread.
        let applied = tokio::task::spawn_blocking(move || {
            let done = shared
                .ledger()
                .apply(&request, &caller, SystemTime::now())?;
            if let Change::Bypass { bypass, .. } = request.change {
                done.wires
                    .iter()
                    .for_each(|&wire| shared.bypass_in_hardware(wire, bypass));
            }
            Ok(done)
        });
        let done = applied
            .await
            .map_err(|_| Status::internal("the change failed half-way; see the log"))?;
        done.map_err(|error| status(&error))
    }

    fn one(&self, done: &Done) -> Option<proto::Wire> {
        let index = *done.wires.first()?;
        self.shared.wires().into_iter().nth(index)
    }
}

/// One place maps errors to gRPC status.
fn status(error: &ApplyError) -> Status {
    let message = error.to_string();
    match error {
        ApplyError::Refused(Refused::UnknownWire { .. }) => Status::not_found(message),
        ApplyError::Refused(Refused::Field { .. }) => Status::invalid_argument(message),
        ApplyError::Refused(Refused::IdReused { .. }) => Status::already_exists(message),
        ApplyError::Refused(Refused::AboveDrain { .. }) => Status::failed_precondition(message),
        ApplyError::NotInForce => Status::unavailable(message),
        ApplyError::NotKept(_) => {
            tracing::error!(%error, "a change was taken back");
            Status::internal(message)
        }
    }
}

fn caller<T>(call: &Call<T>) -> Caller {
    let user = call
        .metadata()
        .get(USER_KEY)
        .and_then(|value| value.to_str().ok());
    Caller {
        peer: call
            .remote_addr()
            .map(|peer| peer.to_string())
            .unwrap_or_default(),
        user: user
            .unwrap_or_default()
            .chars()
            .take(MAX_USER_BYTES)
            .collect(),
    }
}

fn expires_after(asked: Option<prost_types::Duration>) -> Result<Option<Duration>, Status> {
    let Some(asked) = asked else { return Ok(None) };
    Duration::try_from(asked).map(Some).map_err(|_| {
        Status::invalid_argument(format!(
            "`expires_after` is {}.{:09} s, which is not allowed: above zero, at most 30 days",
            asked.seconds, asked.nanos
        ))
    })
}

type Watched = Pin<Box<dyn Stream<Item = Result<proto::WatchWiresResponse, Status>> + Send>>;

#[tonic::async_trait]
impl ShaperService for Shaper {
    async fn list_wires(
        &self,
        _: Call<proto::ListWiresRequest>,
    ) -> Result<Response<proto::ListWiresResponse>, Status> {
        Ok(Response::new(proto::ListWiresResponse {
            wires: self.shared.wires(),
            shaper_host: self.shared.name().to_owned(),
        }))
    }

    type WatchWiresStream = Watched;

    async fn watch_wires(
        &self,
        call: Call<proto::WatchWiresRequest>,
    ) -> Result<Response<Watched>, Status> {
        let names = call.into_inner().wires;
        if names.len() > MAX_WATCHED {
            let message = format!(
                "`wires` has {} names; give at most {MAX_WATCHED}",
                names.len()
            );
            return Err(Status::invalid_argument(message));
        }
        let known = self.shared.wires();
        for name in &names {
            if !known.iter().any(|wire| wire.name == *name) {
                let known: Vec<_> = known.iter().map(|wire| wire.name.as_str()).collect();
                let refused = Refused::UnknownWire {
                    wire: name.clone(),
                    known: known.join(", "),
                };
                return Err(status(&refused.into()));
            }
        }
        let (mut windows, ending) = (self.shared.watch(), self.ending.clone());
        let (sender, receiver) = mpsc::channel(STREAM_WINDOWS);
        tokio::spawn(async move {
            loop {
                let window = tokio::select! {
                    () = ending.requested() => break,
                    () = sender.closed() => break,
                    window = windows.recv() => window,
                };
                let window = match window {
                    Ok(window) => window,
                    // The watcher is slow; the next windows are what it wants.
                    Err(RecvError::Lagged(_)) => continue,
                    Err(RecvError::Closed) => break,
                };
                let wanted = names.is_empty() || names.contains(&window.wire);
                let response = proto::WatchWiresResponse {
                    window: Some(window),
                };
                if wanted && sender.send(Ok(response)).await.is_err() {
                    break;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn set_rate(
        &self,
        call: Call<proto::SetRateRequest>,
    ) -> Result<Response<proto::SetRateResponse>, Status> {
        let arrived_at = Instant::now();
        let caller = caller(&call);
        let asked = call.into_inner();
        let change = Change::Rate {
            wire: asked.wire,
            rate_bps: asked.rate_bps,
            expires_after: expires_after(asked.expires_after)?,
            force: asked.force,
        };
        let request = Request {
            id: asked.request_id,
            reason: asked.reason,
            change,
        };
        let done = self.apply(request, caller).await?;
        let in_force_after = done.in_force_at.map(|at| at.duration_since(arrived_at));
        Ok(Response::new(proto::SetRateResponse {
            wire: self.one(&done),
            in_force_after_ns: in_force_after.map_or(0, |after| {
                u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)
            }),
        }))
    }

    async fn reset_wires(
        &self,
        call: Call<proto::ResetWiresRequest>,
    ) -> Result<Response<proto::ResetWiresResponse>, Status> {
        use proto::reset_wires_request::Which;
        let caller = caller(&call);
        let asked = call.into_inner();
        let wire = match asked.which {
            Some(Which::Wire(wire)) => Some(wire),
            Some(Which::All(true)) => None,
            Some(Which::All(false)) | None => {
                return Err(Status::invalid_argument(
                    "give `wire`, or set `all` to true",
                ));
            }
        };
        let change = Change::Reset { wire };
        let request = Request {
            id: asked.request_id,
            reason: asked.reason,
            change,
        };
        let reset = self.apply(request, caller).await?.wires;
        let wires = self.shared.wires().into_iter().enumerate();
        let wires = wires
            .filter(|(index, _)| reset.contains(index))
            .map(|(_, wire)| wire);
        Ok(Response::new(proto::ResetWiresResponse {
            wires: wires.collect(),
        }))
    }

    async fn set_bypass(
        &self,
        call: Call<proto::SetBypassRequest>,
    ) -> Result<Response<proto::SetBypassResponse>, Status> {
        let caller = caller(&call);
        let asked = call.into_inner();
        let change = Change::Bypass {
            wire: asked.wire,
            bypass: asked.bypass,
        };
        let request = Request {
            id: asked.request_id,
            reason: asked.reason,
            change,
        };
        let done = self.apply(request, caller).await?;
        Ok(Response::new(proto::SetBypassResponse {
            wire: self.one(&done),
        }))
    }

    async fn get_data_path_report(
        &self,
        _: Call<proto::GetDataPathReportRequest>,
    ) -> Result<Response<proto::GetDataPathReportResponse>, Status> {
        let shared = Arc::clone(&self.shared);
        let report = tokio::task::spawn_blocking(move || shared.report()).await;
        let report = report.map_err(|_| Status::internal("the report failed; see the log"))?;
        Ok(Response::new(report))
    }
}

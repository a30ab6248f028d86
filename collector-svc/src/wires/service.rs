//! The RPCs.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rdmesh_proto::collector::v1::reset_wires_request::Which;
use rdmesh_proto::collector::v1::wire_service_server::WireService;
use rdmesh_proto::collector::v1::{
    CompareWiresRequest, CompareWiresResponse, ListWiresRequest, ListWiresResponse,
    ResetWiresRequest, ResetWiresResponse, SetBypassRequest, SetBypassResponse, SetRateRequest,
    SetRateResponse, ShapedWire, ShaperFailure, WatchWiresRequest, WatchWiresResponse,
};
use rdmesh_proto::shaper::v1 as shaper;
use rdmesh_services::server;
use rdmesh_services::shutdown::Closing;
use rdmesh_store::StoreError;
use rdmesh_store::query::{Shaper, WireFilter};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};

use super::ask::{self, Caller, Dialer, on_behalf};
use super::watch::Watcher;
use super::{compare, list, select};
use crate::attempt::BadRequest;
use crate::backing::Backing;
use crate::query::page;
use crate::{rights, status};

/// Wires of a page unless asked for otherwise.
const WIRES_DEFAULT: u32 = 1_000;
/// Wires of a page at most: some 8 MB.
const WIRES_MAX: u32 = 10_000;

/// Watchers at once: each asks the store twice a second.
const WATCHERS_MAX: usize = 64;

/// Windows on their way to one watcher: flow control does the rest.
const STREAM_WINDOWS: usize = 64;

/// Shapers that `reset --all` speaks to: one that has been silent for longer is no part of
/// the fleet any more.
const SHAPERS_WITHIN: Duration = Duration::from_secs(24 * 3600);

/// Every shaped wire of the fleet.
#[derive(Debug)]
pub struct Wires {
    backing: Backing,
    dialer: Dialer,
    ending: Closing,
    watchers: Arc<Semaphore>,
}

impl Wires {
    /// The service over `backing`, whose streams end with `ending`.
    #[must_use]
    pub(crate) fn new(backing: Backing, dialer: Dialer, ending: Closing) -> Self {
        Self {
            backing,
            dialer,
            ending,
            watchers: Arc::new(Semaphore::new(WATCHERS_MAX)),
        }
    }

    async fn shapers(&self) -> Result<Vec<Shaper>, Status> {
        let shapers = self.backing.store()?.shapers().await;
        shapers.map_err(|e| status::from_store(&e))
    }

    /// Every wire of every shaper, shapers at the same time.
    async fn reset_all(
        &self,
        caller: &Caller,
        request_id: String,
        reason: String,
    ) -> Result<ResetWiresResponse, Status> {
        let alive_since = self.backing.now() - SHAPERS_WITHIN;
        let mut asking = JoinSet::new();
        for shaper in self.shapers().await? {
            if shaper.last_seen_at < alive_since {
                continue;
            }
            let message = shaper::ResetWiresRequest {
                which: Some(shaper::reset_wires_request::Which::All(true)),
                request_id: request_id.clone(),
                reason: reason.clone(),
            };
            let (caller, dialer) = (caller.clone(), self.dialer.clone());
            asking.spawn(async move {
                let answer = reset(&dialer, &shaper, &caller, message).await;
                (shaper.host, answer)
            });
        }
        if asking.is_empty() {
            return Err(Status::not_found(
                "no shaper has reported within a day; `rdmesh fleet` shows every agent",
            ));
        }
        let mut answers = asking.join_all().await;
        answers.sort_by(|a, b| a.0.cmp(&b.0));
        let mut response = ResetWiresResponse::default();
        for (host, answer) in answers {
            match answer {
                Ok(wires) => response
                    .wires
                    .extend(wires.into_iter().map(|wire| ShapedWire {
                        shaper_host: host.clone(),
                        wire: Some(wire),
                    })),
                Err(refused) => response.failures.push(ShaperFailure {
                    shaper_host: host,
                    code: u32::try_from(i32::from(refused.code())).unwrap_or(2),
                    message: refused.message().to_owned(),
                }),
            }
        }
        if response.wires.is_empty()
            && let Some(first) = response.failures.first()
        {
            let messages: Vec<&str> = response.failures.iter().map(|f| &*f.message).collect();
            let code = Code::from_i32(i32::try_from(first.code).unwrap_or(2));
            return Err(Status::new(code, messages.join("; ")));
        }
        Ok(response)
    }
}

async fn reset(
    dialer: &Dialer,
    shaper: &Shaper,
    caller: &Caller,
    message: shaper::ResetWiresRequest,
) -> Result<Vec<shaper::Wire>, Status> {
    let asked = dialer.dial(shaper).await?;
    let mut client = asked.client.clone();
    let call = client.reset_wires(on_behalf(caller, message));
    Ok(asked.answer(call).await?.wires)
}

fn listed(host: &str, wire: &str) -> Result<WireFilter, BadRequest> {
    Ok(WireFilter {
        host: select::host("host", host)?,
        wire: select::name("wire", wire)?,
        ..WireFilter::default()
    })
}

type Watched = Pin<Box<dyn Stream<Item = Result<WatchWiresResponse, Status>> + Send>>;

#[tonic::async_trait]
impl WireService for Wires {
    async fn list_wires(
        &self,
        call: Request<ListWiresRequest>,
    ) -> Result<Response<ListWiresResponse>, Status> {
        let request = call.into_inner();
        let bad = |e: BadRequest| status::from_bad_request(&e);
        let failed = |e: StoreError| status::from_store(&e);
        let filter = listed(&request.host, &request.wire).map_err(bad)?;
        let size = page::size(request.page_size, WIRES_DEFAULT, WIRES_MAX).map_err(bad)?;
        let offset = page::read_offset_token(&request.page_token).map_err(bad)?;
        let (store, now) = (self.backing.store()?, self.backing.now());
        let from = u32::try_from(offset).unwrap_or(u32::MAX);
        let found = store.wires(&filter, now, from, size + 1).await;
        let mut found = found.map_err(failed)?;
        let more = page::cut(&mut found, size + 1);
        let shapers = self.shapers().await?;
        let mut of_page = shapers.clone();
        of_page.retain(|shaper| found.iter().any(|wire| wire.host == shaper.host));
        let answers = if request.stored_only {
            list::Answers::new()
        } else {
            list::ask_all(&self.dialer, of_page).await
        };
        let next = offset.saturating_add(found.len());
        let wires = found.into_iter().map(|wire| {
            let shaper = shapers.iter().find(|shaper| shaper.host == wire.host);
            let answer = answers.get(&wire.host);
            list::row(wire, shaper, answer, now)
        });
        Ok(Response::new(ListWiresResponse {
            wires: wires.collect(),
            next_page_token: if more {
                page::offset_token(next)
            } else {
                String::new()
            },
        }))
    }

    type WatchWiresStream = Watched;

    async fn watch_wires(
        &self,
        call: Request<WatchWiresRequest>,
    ) -> Result<Response<Watched>, Status> {
        let request = call.into_inner();
        let filter =
            listed(&request.host, &request.wire).map_err(|e| status::from_bad_request(&e))?;
        let store = self.backing.store()?;
        let place = Arc::clone(&self.watchers).try_acquire_owned();
        let place = place.map_err(|_| {
            Status::resource_exhausted(format!(
                "{WATCHERS_MAX} watchers are here already; try again when one has gone, or read \
                 rdmesh.wire_windows"
            ))
        })?;
        if filter != WireFilter::default() {
            let fits = store.wires(&filter, self.backing.now(), 0, 1).await;
            if fits.map_err(|e| status::from_store(&e))?.is_empty() {
                return Err(Status::not_found(
                    "no wire fits; `rdmesh wire list` shows all",
                ));
            }
        }
        let (to, windows) = mpsc::channel(STREAM_WINDOWS);
        let watcher = Watcher {
            store: store.clone(),
            filter,
            now: self.backing.clock(),
            ending: self.ending.clone(),
            to,
            _place: place,
        };
        tokio::spawn(watcher.run());
        Ok(Response::new(Box::pin(ReceiverStream::new(windows))))
    }

    async fn set_rate(
        &self,
        call: Request<SetRateRequest>,
    ) -> Result<Response<SetRateResponse>, Status> {
        let (caller, known) = (Caller::of(&call), server::Caller::of(&call));
        let request = call.into_inner();
        let (store, now) = (self.backing.store()?, self.backing.now());
        let target = select::target(store, request.wire.as_ref(), now).await?;
        rights::changes_wire(&known, store, &target.wire, &target.users).await?;
        let message = shaper::SetRateRequest {
            wire: target.wire,
            rate_bps: request.rate_bps,
            expires_after: request.expires_after,
            request_id: request.request_id,
            reason: request.reason,
            force: request.force,
        };
        let asked = self.dialer.dial(&target.shaper).await?;
        let mut client = asked.client.clone();
        let answer = asked
            .answer(client.set_rate(on_behalf(&caller, message)))
            .await?;
        Ok(Response::new(SetRateResponse {
            shaper_host: target.shaper.host.clone(),
            wire: answer.wire,
            in_force_after_ns: answer.in_force_after_ns,
        }))
    }

    async fn reset_wires(
        &self,
        call: Request<ResetWiresRequest>,
    ) -> Result<Response<ResetWiresResponse>, Status> {
        let (caller, known) = (Caller::of(&call), server::Caller::of(&call));
        let request = call.into_inner();
        let (store, now) = (self.backing.store()?, self.backing.now());
        let selector = match request.which {
            Some(Which::All(true)) => {
                rights::changes_every_wire(&known)?;
                let all = self.reset_all(&caller, request.request_id, request.reason);
                return Ok(Response::new(all.await?));
            }
            Some(Which::Wire(selector)) => selector,
            Some(Which::All(false)) | None => {
                return Err(Status::invalid_argument(
                    "give `wire`, or set `all` to true",
                ));
            }
        };
        let target = select::target(store, Some(&selector), now).await?;
        rights::changes_wire(&known, store, &target.wire, &target.users).await?;
        let message = shaper::ResetWiresRequest {
            which: Some(shaper::reset_wires_request::Which::Wire(target.wire)),
            request_id: request.request_id,
            reason: request.reason,
        };
        let wires = reset(&self.dialer, &target.shaper, &caller, message).await?;
        let wires = wires.into_iter().map(|wire| ShapedWire {
            shaper_host: target.shaper.host.clone(),
            wire: Some(wire),
        });
        Ok(Response::new(ResetWiresResponse {
            wires: wires.collect(),
            failures: Vec::new(),
        }))
    }

    async fn set_bypass(
        &self,
        call: Request<SetBypassRequest>,
    ) -> Result<Response<SetBypassResponse>, Status> {
        let (caller, known) = (Caller::of(&call), server::Caller::of(&call));
        let request = call.into_inner();
        let (store, now) = (self.backing.store()?, self.backing.now());
        let target = select::target(store, request.wire.as_ref(), now).await?;
        rights::changes_wire(&known, store, &target.wire, &target.users).await?;
        let message = shaper::SetBypassRequest {
            wire: target.wire,
            bypass: request.bypass,
            request_id: request.request_id,
            reason: request.reason,
        };
        let asked = self.dialer.dial(&target.shaper).await?;
        let mut client = asked.client.clone();
        let answer = asked
            .answer(client.set_bypass(ask::on_behalf(&caller, message)))
            .await?;
        Ok(Response::new(SetBypassResponse {
            shaper_host: target.shaper.host.clone(),
            wire: answer.wire,
        }))
    }

    async fn compare_wires(
        &self,
        call: Request<CompareWiresRequest>,
    ) -> Result<Response<CompareWiresResponse>, Status> {
        let request = call.into_inner();
        let (store, now) = (self.backing.store()?, self.backing.now());
        let target = select::target(store, request.wire.as_ref(), now).await?;
        let a = compare::span(store, "a", request.a.as_ref(), now).await?;
        let b = compare::span(store, "b", request.b.as_ref(), now).await?;
        let host = target.shaper.host;
        let both = store.compare_wire(&host, &target.wire, a, b).await;
        let both = both.map_err(|e| compare::refused(&e))?;
        Ok(Response::new(CompareWiresResponse {
            shaper_host: host,
            wire: target.wire,
            engine_version: both.a.engine_version.clone(),
            configuration_hash: both.a.configuration_hash.clone(),
            a: Some(compare::to_proto(&both.a)),
            b: Some(compare::to_proto(&both.b)),
        }))
    }
}

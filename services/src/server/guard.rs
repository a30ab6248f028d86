//! Who calls, what that one may call, and how much of it: in front of every service.
//!
//! On a link without TLS nobody has a name; everything is allowed and nothing is counted.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use opentelemetry::KeyValue;
use opentelemetry::metrics::Counter;
use rdmesh_tls::rights::{self, Verdict};
use rdmesh_tls::{Peer, now};
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::allowance::{Allowances, Limits};
use super::secured::SecuredInfo;

/// Who makes a call, for services that look closer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Caller {
    /// The link has no TLS: anybody who reaches it, with every right.
    #[default]
    Anybody,
    /// Somebody whose certificate was verified and whose role may make the call.
    Known(Arc<Peer>),
}

impl Caller {
    /// Who makes `call`.
    #[must_use]
    pub fn of<T>(call: &tonic::Request<T>) -> Self {
        call.extensions().get().cloned().unwrap_or_default()
    }

    /// Its certificate's identity, where it has one.
    #[must_use]
    pub fn peer(&self) -> Option<&Peer> {
        match self {
            Self::Anybody => None,
            Self::Known(peer) => Some(peer),
        }
    }

    /// Whether it may say what happens on `host`: an agent of it, or an operator.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, with the hosts for which it may speak.
    pub fn may_report_for(&self, host: &str) -> Result<(), Status> {
        let Some(peer) = self.peer() else {
            return Ok(());
        };
        if peer.identity.role == rdmesh_tls::Role::Operator || peer.speaks_for(host) {
            return Ok(());
        }
        Err(Status::permission_denied(format!(
            "{} reports for {} alone, and not for {host:?}; set `host` in its configuration to \
             the name in its certificate, or issue one that names this host (`rdmesh certs issue \
             agent NAME --for HOST`)",
            peer.identity,
            peer.hosts.join(", ")
        )))
    }
}

/// The layer.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    own: Option<Arc<str>>,
    allowances: Arc<Allowances>,
    refused: Counter<u64>,
}

impl Guard {
    pub(super) fn new(own: Option<&str>, limits: Limits) -> Self {
        Self {
            own: own.map(Arc::from),
            allowances: Arc::new(Allowances::new(limits)),
            refused: opentelemetry::global::meter("rdmesh.tls")
                .u64_counter("rdmesh.tls.calls.refused")
                .with_description("Calls that were refused for who made them, by code")
                .build(),
        }
    }

    /// Whether the call may be made, and by whom.
    fn look(&self, info: Option<&SecuredInfo>, path: &str) -> Result<Caller, Status> {
        let Some(info) = info else {
            return Ok(Caller::Anybody);
        };
        let peer = match &info.peer {
            Ok(peer) => peer,
            Err(why) => return Err(Status::unauthenticated(why.to_string())),
        };
        if now() >= peer.not_after {
            return Err(Status::unauthenticated(format!(
                "the certificate of {} has expired since this connection was made; connect again \
                 with a new one",
                peer.identity
            )));
        }
        match rights::verdict(peer, path, self.own.as_deref()) {
            Verdict::Allowed => Ok(Caller::Known(Arc::clone(peer))),
            Verdict::Forbidden => Err(Status::permission_denied(format!(
                "{} may not call {}; allowed: {}",
                peer.identity,
                path.trim_start_matches('/'),
                rights::allowed_roles(path)
            ))),
            Verdict::NoSuchMethod => Err(Status::unimplemented(
                "this server has no such method; is the client of another version?",
            )),
        }
    }
}

impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded {
            guard: self.clone(),
            inner,
        }
    }
}

/// A service behind the guard.
#[derive(Clone, Debug)]
pub(super) struct Guarded<S> {
    guard: Guard,
    inner: S,
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<S> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Answering {
        let guard = &self.guard;
        let info = request.extensions_mut().remove::<SecuredInfo>();
        let path = request.uri().path();
        let counted = guard.look(info.as_ref(), path).and_then(|caller| {
            let counted = match &caller {
                Caller::Anybody => None,
                Caller::Known(peer) => Some(guard.allowances.enter(peer).ok_or_else(|| {
                    let mut status = Status::resource_exhausted(format!(
                        "{} has as many calls open as it may; end some, or raise \
                         server.streams_per_identity",
                        peer.identity
                    ));
                    let metadata = status.metadata_mut();
                    metadata.insert("retry-after", MetadataValue::from(1));
                    status
                })?),
            };
            Ok((caller, counted))
        });
        let (caller, counted) = match counted {
            Ok(passed) => passed,
            Err(status) => {
                tell(&guard.refused, &status, path);
                return Box::pin(std::future::ready(Ok(status.into_http())));
            }
        };
        if let Some(info) = info {
            // So that services see where a call comes from, with TLS or without.
            request.extensions_mut().insert(info.tcp);
        }
        request.extensions_mut().insert(caller);
        match counted {
            None => Box::pin(self.inner.call(request)),
            Some(counted) => {
                let request = request.map(|body| counted.slow_down(body));
                let answer = self.inner.call(request);
                Box::pin(async move {
                    let response = answer.await?;
                    Ok(response.map(|body| counted.hold(body)))
                })
            }
        }
    }
}

/// Refusals are for the operator to see, and tell nothing of what was sent.
fn tell(refused: &Counter<u64>, status: &Status, path: &str) {
    let code = match status.code() {
        Code::Unauthenticated => "unauthenticated",
        Code::PermissionDenied => "permission_denied",
        Code::ResourceExhausted => "resource_exhausted",
        _ => "other",
    };
    refused.add(1, &[KeyValue::new("code", code)]);
    tracing::info!(
        code,
        path = %path.chars().take(100).collect::<String>().escape_debug(),
        why = status.message(),
        "call refused"
    );
}

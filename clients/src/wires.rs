//! What is asked about shaped wires, and what changes them: of the fleet by its
//! collector, or of one shaper on its own.

mod name;

use std::time::Duration;

use rdmesh_proto::collector::v1 as wire;
use rdmesh_proto::shaper::v1 as shaper;
use tonic::metadata::MetadataValue;
use tonic::{Request, Streaming};

use crate::attempt::AttemptId;
use crate::client::Client;
use crate::error::{ClientError, Subject, from_status};
use crate::jobs::time_range;
use crate::model::present;
use crate::model::wire::{FleetWire, SeenWindow, ShapedWire, ShaperFailure, WireComparison};
use crate::moment::Moment;
use crate::shaper::{ShaperClient, ShaperError};

pub use name::WireName;
use name::{data_path_down, own, own_name};

/// Metadata key under which a client says who asks.
const USER_KEY: &str = "rdmesh-user";

/// Wires that one page holds at most, as the wire contract has it.
const MAX_WIRES_PAGE: u32 = 10_000;

/// Why a question about wires has no answer.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The collector's.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The shaper's own.
    #[error(transparent)]
    Shaper(#[from] ShaperError),
}

impl WireError {
    /// Whether whoever was asked is away or busy, so that the same question may have an
    /// answer a moment later.
    pub fn is_passing(&self) -> bool {
        match self {
            WireError::Client(error) => error.is_outage(),
            WireError::Shaper(error) => error.is_outage(),
        }
    }
}

/// What goes with every change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// Two changes with the same id are one. A UUID in text form.
    pub request_id: String,
    /// Why, for the audit record.
    pub reason: String,
    /// Who, for the audit record.
    pub user: String,
}

impl Note {
    fn on<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if !self.user.is_empty()
            && let Ok(user) = MetadataValue::try_from(&self.user)
        {
            request.metadata_mut().insert(USER_KEY, user);
        }
        request
    }
}

/// A rate and how long it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewRate {
    /// Line rate, overhead included, bit/s.
    pub rate_bps: u64,
    /// Back to the configured rate after this.
    pub expires_after: Option<Duration>,
    /// Also a rate that the measured drain cannot keep.
    pub force: bool,
}

/// What a change of a rate came to.
#[derive(Clone, Debug, PartialEq)]
pub struct RateSet {
    /// The wire as it is now.
    pub shaped: ShapedWire,
    /// From the request's arrival at the shaper to the first frame boundary with the
    /// new rate; absent for a request that was done before.
    pub in_force_after_ns: Option<u64>,
}

/// What a reset came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reset {
    /// Wires that are back at their configured rate.
    pub wires: Vec<ShapedWire>,
    /// Shapers that did not do it.
    pub failures: Vec<ShaperFailure>,
}

/// A stretch of time to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// The life of an attempt.
    Attempt(AttemptId),
    /// From here to there; until now where no end is told.
    Time(Moment, Option<Moment>),
}

impl Stretch {
    fn message(&self) -> wire::WireStretch {
        use wire::wire_stretch::Of;
        let of = match self.clone() {
            Stretch::Attempt(id) => Of::Attempt(id.into()),
            Stretch::Time(from, to) => Of::Time(time_range(Some(from), to).unwrap_or_default()),
        };
        wire::WireStretch { of: Some(of) }
    }
}

/// Who is asked about wires.
#[derive(Clone, Debug)]
pub enum Wires {
    /// The collector, for the whole fleet.
    Fleet(Client),
    /// One shaper, for its own.
    Shaper(ShaperClient),
}

impl Wires {
    /// Every wire of `host` (shaper or shaped) and of that name; empty: of any.
    ///
    /// # Errors
    /// See [`WireError`].
    pub async fn list(
        &self,
        host: &str,
        name: &str,
        stored_only: bool,
    ) -> Result<Vec<FleetWire>, WireError> {
        match self {
            Wires::Fleet(client) => Ok(client.list_wires(host, name, stored_only).await?),
            Wires::Shaper(client) => {
                let own = own(client).await?;
                let of_all = host.is_empty() || own.shaper_host == host;
                let fits = |w: &shaper::Wire| {
                    (of_all || w.host == host) && (name.is_empty() || w.name == name)
                };
                let wires = own.wires.into_iter().filter(fits);
                let mut wires: Vec<FleetWire> = wires.map(FleetWire::from).collect();
                if let Some(mark) = data_path_down(client).await? {
                    wires
                        .iter_mut()
                        .for_each(|wire| wire.marks.push(mark.clone()));
                }
                Ok(wires)
            }
        }
    }

    /// Sets a rate.
    ///
    /// # Errors
    /// See [`WireError`].
    pub async fn set_rate(
        &self,
        which: &WireName,
        rate: NewRate,
        note: &Note,
    ) -> Result<RateSet, WireError> {
        // At most 30 days: a shaper refuses more with the allowed range.
        let expires_after = rate.expires_after.map(|after| prost_types::Duration {
            seconds: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(after.subsec_nanos()).unwrap_or(0),
        });
        let (shaper_host, wire, after) = match self {
            Wires::Fleet(client) => {
                let message = wire::SetRateRequest {
                    wire: Some(which.selector()),
                    rate_bps: rate.rate_bps,
                    expires_after,
                    request_id: note.request_id.clone(),
                    reason: note.reason.clone(),
                    force: rate.force,
                };
                let mut service = client.wire_service();
                let call = service.set_rate(note.on(message));
                let answer = client.write(&Subject::wire(which), call).await?;
                (answer.shaper_host, answer.wire, answer.in_force_after_ns)
            }
            Wires::Shaper(client) => {
                let message = shaper::SetRateRequest {
                    wire: own_name(client, which).await?,
                    rate_bps: rate.rate_bps,
                    expires_after,
                    request_id: note.request_id.clone(),
                    reason: note.reason.clone(),
                    force: rate.force,
                };
                let mut service = client.service();
                let answer = client.ask(service.set_rate(note.on(message))).await?;
                (String::new(), answer.wire, answer.in_force_after_ns)
            }
        };
        Ok(RateSet {
            shaped: ShapedWire::told(shaper_host, wire),
            in_force_after_ns: (after > 0).then_some(after),
        })
    }

    /// Back to the configured rate: one wire, or all where none is named.
    ///
    /// # Errors
    /// See [`WireError`]. Of several shapers some may fail: that is part of the answer.
    pub async fn reset(&self, which: Option<&WireName>, note: &Note) -> Result<Reset, WireError> {
        match self {
            Wires::Fleet(client) => {
                use wire::reset_wires_request::Which;
                let message = wire::ResetWiresRequest {
                    which: Some(which.map_or(Which::All(true), |w| Which::Wire(w.selector()))),
                    request_id: note.request_id.clone(),
                    reason: note.reason.clone(),
                };
                let mut service = client.wire_service();
                let call = service.reset_wires(note.on(message));
                let subject = which.map_or_else(Subject::wires, Subject::wire);
                let answer = client.write(&subject, call).await?;
                let wires = answer.wires.into_iter();
                let failures = answer.failures.into_iter().map(|failure| ShaperFailure {
                    shaper_host: failure.shaper_host,
                    code: failure.code,
                    message: failure.message,
                });
                Ok(Reset {
                    wires: wires
                        .map(|w| ShapedWire::told(w.shaper_host, w.wire))
                        .collect(),
                    failures: failures.collect(),
                })
            }
            Wires::Shaper(client) => {
                use shaper::reset_wires_request::Which;
                let which = match which {
                    None => Which::All(true),
                    Some(which) => Which::Wire(own_name(client, which).await?),
                };
                let message = shaper::ResetWiresRequest {
                    which: Some(which),
                    request_id: note.request_id.clone(),
                    reason: note.reason.clone(),
                };
                let mut service = client.service();
                let answer = client.ask(service.reset_wires(note.on(message))).await?;
                let wires = answer.wires.into_iter();
                Ok(Reset {
                    wires: wires
                        .map(|wire| ShapedWire::told(String::new(), Some(wire)))
                        .collect(),
                    failures: Vec::new(),
                })
            }
        }
    }

    /// Around the shaper, or through it again.
    ///
    /// # Errors
    /// See [`WireError`].
    pub async fn set_bypass(
        &self,
        which: &WireName,
        bypass: bool,
        note: &Note,
    ) -> Result<ShapedWire, WireError> {
        match self {
            Wires::Fleet(client) => {
                let message = wire::SetBypassRequest {
                    wire: Some(which.selector()),
                    bypass,
                    request_id: note.request_id.clone(),
                    reason: note.reason.clone(),
                };
                let mut service = client.wire_service();
                let call = service.set_bypass(note.on(message));
                let answer = client.write(&Subject::wire(which), call).await?;
                Ok(ShapedWire::told(answer.shaper_host, answer.wire))
            }
            Wires::Shaper(client) => {
                let message = shaper::SetBypassRequest {
                    wire: own_name(client, which).await?,
                    bypass,
                    request_id: note.request_id.clone(),
                    reason: note.reason.clone(),
                };
                let mut service = client.service();
                let answer = client.ask(service.set_bypass(note.on(message))).await?;
                Ok(ShapedWire::told(String::new(), answer.wire))
            }
        }
    }

    /// Windows from now on, of the wires that fit.
    ///
    /// # Errors
    /// See [`WireError`].
    pub async fn watch(&self, host: &str, name: &str) -> Result<Windows, WireError> {
        match self {
            Wires::Fleet(client) => {
                let message = wire::WatchWiresRequest {
                    host: host.to_owned(),
                    wire: name.to_owned(),
                };
                let mut service = client.wire_service();
                let call = service.watch_wires(message);
                let stream = client.write(&Subject::watched(), call).await?;
                Ok(Windows::Fleet(client.clone(), stream))
            }
            Wires::Shaper(client) => {
                let wires = if host.is_empty() && name.is_empty() {
                    Vec::new()
                } else {
                    let fits = self.list(host, name, false).await?;
                    let names = fits.into_iter().filter_map(|w| w.wire).map(|w| w.name);
                    let names: Vec<String> = names.collect();
                    if names.is_empty() {
                        let why = "no wire of this shaper fits; rdmesh wire list shows all";
                        return Err(ShaperError::Wire(why.to_owned()).into());
                    }
                    names
                };
                let mut service = client.service();
                let call = service.watch_wires(shaper::WatchWiresRequest { wires });
                let stream = client.ask(call).await?;
                Ok(Windows::Shaper(client.clone(), stream))
            }
        }
    }
}

/// Windows as they come.
#[derive(Debug)]
pub enum Windows {
    /// By the collector.
    Fleet(Client, Streaming<wire::WatchWiresResponse>),
    /// Of one shaper.
    Shaper(ShaperClient, Streaming<shaper::WatchWiresResponse>),
}

impl Windows {
    /// The next window; `None`: whoever was asked ends.
    ///
    /// # Errors
    /// See [`WireError`].
    pub async fn next(&mut self) -> Result<Option<SeenWindow>, WireError> {
        loop {
            let (shaper_host, window, marks) = match self {
                Windows::Fleet(client, stream) => {
                    let next = stream.message().await.map_err(|status| {
                        from_status(&status, client.address(), &Subject::watched())
                    })?;
                    let Some(next) = next else { return Ok(None) };
                    (next.shaper_host, next.window, next.marks)
                }
                Windows::Shaper(client, stream) => {
                    let next = stream.message().await.map_err(|s| client.refused(&s))?;
                    let Some(next) = next else { return Ok(None) };
                    (String::new(), next.window, Vec::new())
                }
            };
            if let Some(window) = window {
                return Ok(Some(SeenWindow::told(shaper_host, window, marks)));
            }
        }
    }
}

impl Client {
    /// Wires of the fleet, by shaper and name.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list_wires(
        &self,
        host: &str,
        name: &str,
        stored_only: bool,
    ) -> Result<Vec<FleetWire>, ClientError> {
        let mut wires: Vec<FleetWire> = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = wire::ListWiresRequest {
                host: host.to_owned(),
                wire: name.to_owned(),
                stored_only,
                page_size: MAX_WIRES_PAGE,
                page_token,
            };
            let ask = || {
                let (mut service, request) = (self.wire_service(), request.clone());
                async move { service.list_wires(request).await }
            };
            let answer = self.read(&Subject::wires(), ask).await?;
            let got = answer.wires.len();
            wires.extend(answer.wires.into_iter().map(FleetWire::from));
            page_token = answer.next_page_token;
            if page_token.is_empty() || got == 0 {
                return Ok(wires);
            }
        }
    }

    /// Two stretches of time of one wire.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when they are not comparable; else see [`ClientError`].
    pub async fn compare_wires(
        &self,
        which: &WireName,
        a: &Stretch,
        b: &Stretch,
    ) -> Result<WireComparison, ClientError> {
        let request = wire::CompareWiresRequest {
            wire: Some(which.selector()),
            a: Some(a.message()),
            b: Some(b.message()),
        };
        let ask = || {
            let (mut service, request) = (self.wire_service(), request.clone());
            async move { service.compare_wires(request).await }
        };
        let answer = self.read(&Subject::wire(which), ask).await?;
        Ok(WireComparison {
            shaper_host: answer.shaper_host,
            wire: answer.wire,
            engine_version: answer.engine_version,
            configuration_hash: answer.configuration_hash,
            a: present("a", answer.a)?.into(),
            b: present("b", answer.b)?.into(),
        })
    }
}

//! Calls of a shaper's own service.

use std::error::Error as _;
use std::time::Duration;

use rdmesh_proto::shaper::v1::shaper_service_client::ShaperServiceClient;
use rdmesh_services::server;
use rdmesh_services::tls::{Expected, Tls};
use rdmesh_services::uplink::CollectorAddress;
use rdmesh_store::query::Shaper;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

/// How long a connection may take: a shaper of the same site answers in milliseconds, and
/// a person waits for it.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// How long a change may take. A shaper has it in force within a millisecond and writes
/// two small files.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Metadata key under which a client says who asks; shapers know it too.
const USER_KEY: &str = "rdmesh-user";

/// Longest name of a user that is passed on, bytes: what shapers keep.
const USER_MAX_BYTES: usize = 128;

/// Who asked for a change, for the shaper's audit record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Caller(String);

impl Caller {
    /// The name that the client gives itself, and where it calls from: `ada at 10.0.0.5`.
    pub(crate) fn of<T>(call: &Request<T>) -> Self {
        let user = call.metadata().get(USER_KEY).and_then(|u| u.to_str().ok());
        // What a certificate says stands above what a client says of itself.
        let known = server::Caller::of(call);
        let known = known
            .peer()
            .map(|peer| format!("{}/{}", peer.identity.role, peer.identity.name));
        let user = known.as_deref().or(user);
        let peer = call
            .remote_addr()
            .map_or_else(|| "a local socket".to_owned(), |peer| peer.ip().to_string());
        let mut text = format!("{} at {peer}", user.unwrap_or("somebody"));
        // What arrived as metadata is ASCII.
        text.truncate(USER_MAX_BYTES);
        Self(text)
    }
}

/// A shaper that answers.
pub(super) struct Asked<'a> {
    shaper: &'a Shaper,
    pub(super) client: ShaperServiceClient<Channel>,
}

/// Why a shaper cannot be asked. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
pub(super) enum Away {
    /// It listens on a Unix socket, or its configuration does not say where.
    #[error("the shaper of {host} names no address at which the collector could dial it")]
    NoAddress {
        /// Its host.
        host: String,
    },
    /// Nothing answers there.
    #[error("the shaper of {host} does not answer at {address} ({why})")]
    NoAnswer {
        /// Its host.
        host: String,
        /// Where it was dialled.
        address: String,
        /// The innermost cause.
        why: String,
    },
}

impl From<Away> for Status {
    fn from(away: Away) -> Self {
        match away {
            Away::NoAddress { .. } => Self::failed_precondition(format!(
                "{away}: let it listen on one ([server] listen in its shaper.toml), or ask it on \
                 its own machine with --shaper unix:/PATH; nothing was changed"
            )),
            Away::NoAnswer { .. } => Self::unavailable(format!(
                "{away}: does shaper-svc run there, and may the collector reach that port? \
                 `rdmesh fleet` shows when it reported last; nothing was changed"
            )),
        }
    }
}

/// How shapers are dialled. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dialer {
    tls: Tls,
    /// Other machines without TLS, too.
    insecure: bool,
}

impl Dialer {
    pub(crate) fn new(tls: Tls, insecure: bool) -> Self {
        Self { tls, insecure }
    }

    /// Connects to a shaper.
    ///
    /// # Errors
    /// When it names no address, or nothing answers there, or somebody else does.
    pub(super) async fn dial<'a>(&self, shaper: &'a Shaper) -> Result<Asked<'a>, Away> {
        let host = shaper.host.clone();
        if shaper.address.is_empty() {
            return Err(Away::NoAddress { host });
        }
        let no_answer = |why: String| Away::NoAnswer {
            host,
            address: shaper.address.clone(),
            why,
        };
        let endpoint = match Endpoint::from_shared(format!("http://{}", shaper.address)) {
            Ok(endpoint) => endpoint.tcp_nodelay(true),
            Err(error) => return Err(no_answer(error.to_string())),
        };
        let is_local = shaper
            .address
            .parse::<CollectorAddress>()
            .is_ok_and(|address| address.is_local());
        if !is_local && !self.insecure && !self.tls.is_on() {
            let why = "it is on another machine, and this collector has no certificates in [tls] \
                       and no tls.insecure_dial";
            return Err(no_answer(why.to_owned()));
        }
        let expected = Expected::AgentOf(shaper.host.clone());
        let connecting = self
            .tls
            .connect_by_name(endpoint, &shaper.address, expected);
        match tokio::time::timeout(CONNECT_WITHIN, connecting).await {
            Ok(Ok(channel)) => Ok(Asked {
                shaper,
                client: ShaperServiceClient::new(channel),
            }),
            Ok(Err(error)) => {
                let mut cause: &dyn std::error::Error = &error;
                while let Some(deeper) = cause.source() {
                    cause = deeper;
                }
                Err(no_answer(cause.to_string()))
            }
            Err(_) => Err(no_answer(format!(
                "no connection within {CONNECT_WITHIN:?}"
            ))),
        }
    }
}

impl Asked<'_> {
    /// The answer, or the shaper's own code and words with its name before them.
    pub(super) async fn answer<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Status> {
        match tokio::time::timeout(ANSWER_WITHIN, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.named(&status)),
            Err(_) => Err(Status::deadline_exceeded(format!(
                "the shaper of {} at {} did not answer within {ANSWER_WITHIN:?}; whether the \
                 change is in force is not known: repeat it with the same request id",
                self.shaper.host, self.shaper.address
            ))),
        }
    }

    fn named(&self, status: &Status) -> Status {
        let Shaper { host, address, .. } = self.shaper;
        if status.source().is_some() {
            // The connection broke: these are no words of the shaper.
            return Status::new(
                Code::Unavailable,
                format!(
                    "the connection to the shaper of {host} at {address} broke ({}); whether \
                     the change is in force is not known: repeat it with the same request id",
                    status.message()
                ),
            );
        }
        Status::new(
            status.code(),
            format!("the shaper of {host} refuses: {}", status.message()),
        )
    }
}

/// A request that says who asked.
pub(super) fn on_behalf<T>(caller: &Caller, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if let Ok(user) = MetadataValue::try_from(&caller.0) {
        request.metadata_mut().insert(USER_KEY, user);
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::OffsetDateTime;

    #[test]
    fn who_asks_is_told_with_the_place_and_kept_short() {
        let mut call = Request::new(());
        assert_eq!(Caller::of(&call).0, "somebody at a local socket");
        call.metadata_mut().insert(USER_KEY, "ada".parse().unwrap());
        assert_eq!(Caller::of(&call).0, "ada at a local socket");
        let long = "x".repeat(4_000);
        call.metadata_mut().insert(USER_KEY, long.parse().unwrap());
        assert_eq!(Caller::of(&call).0.len(), USER_MAX_BYTES);
        let passed = on_behalf(&Caller("ada at ::1".into()), ());
        assert_eq!(passed.metadata().get(USER_KEY).unwrap(), "ada at ::1");
    }

    #[tokio::test]
    async fn a_shaper_that_cannot_be_dialled_is_named_with_what_to_do() {
        let shaper = |address: &str| Shaper {
            host: "gpu-01".into(),
            address: address.into(),
            last_seen_at: OffsetDateTime::UNIX_EPOCH,
        };
        for (address, code, words) in [
            ("", Code::FailedPrecondition, "[server] listen"),
            ("127.0.0.1:1", Code::Unavailable, "127.0.0.1:1"),
            ("no address", Code::Unavailable, "no address"),
            ("10.0.0.1:7402", Code::Unavailable, "[tls]"),
        ] {
            let dialled = Dialer::default().dial(&shaper(address)).await.map(drop);
            let Err(away) = dialled else {
                panic!("{address} answers");
            };
            let refused = Status::from(away);
            assert_eq!(refused.code(), code, "{refused}");
            let message = refused.message();
            assert!(
                message.contains(words) && message.contains("gpu-01"),
                "{message}"
            );
        }
    }
}

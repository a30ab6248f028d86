//! How much one identity may take: calls at a time are refused above the limit, messages and
//! bytes are read no faster than it. Who is slowed down feels it by flow control, and nobody
//! else does.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body as HttpBody, Frame, SizeHint};
use opentelemetry::metrics::Counter;
use rdmesh_tls::{Identity, Peer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;

/// What may come at once after a silence: so many seconds' worth.
const BURST_SECONDS: f64 = 2.0;

/// Bytes before each message of gRPC: a flag and a length.
const PREFIX_BYTES: usize = 5;

/// Identities in the table before those that have gone are looked for.
const SWEEP_ABOVE: usize = 1_024;

/// What one identity may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Calls and streams at the same time.
    pub streams: u32,
    /// Messages a second.
    pub messages_per_second: u32,
    /// Bytes of messages a second.
    pub bytes_per_second: u64,
}

/// What each identity has taken.
#[derive(Debug)]
pub(super) struct Allowances {
    limits: Limits,
    known: Mutex<HashMap<Identity, Weak<Allowance>>>,
    slowed: Counter<u64>,
}

#[derive(Debug)]
struct Allowance {
    streams: Arc<Semaphore>,
    bucket: Mutex<Bucket>,
    slowed: Counter<u64>,
}

/// Two counts that fill up with time; one below zero is a debt to wait for.
#[derive(Debug)]
struct Bucket {
    limits: Limits,
    messages: f64,
    bytes: f64,
    at: Instant,
}

impl Bucket {
    fn new(limits: Limits, now: Instant) -> Self {
        Self {
            limits,
            messages: f64::from(limits.messages_per_second) * BURST_SECONDS,
            bytes: per_second(limits.bytes_per_second) * BURST_SECONDS,
            at: now,
        }
    }

    /// Takes what has come, and says until when no more may.
    fn take(&mut self, messages: u32, bytes: usize, now: Instant) -> Option<Instant> {
        let messages_rate = f64::from(self.limits.messages_per_second);
        let bytes_rate = per_second(self.limits.bytes_per_second);
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        let fill = |level: f64, rate: f64| (level + passed * rate).min(rate * BURST_SECONDS);
        self.messages = fill(self.messages, messages_rate) - f64::from(messages);
        self.bytes = fill(self.bytes, bytes_rate) - per_second(bytes as u64);
        let debt = (-self.messages / messages_rate).max(-self.bytes / bytes_rate);
        // A debt of a message of the largest size at the smallest rate is seconds.
        (debt > 0.0).then(|| now + Duration::from_secs_f64(debt.min(60.0)))
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a rate below 2^53 bytes a second"
)]
fn per_second(bytes: u64) -> f64 {
    bytes as f64
}

impl Allowances {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            known: Mutex::new(HashMap::new()),
            slowed: opentelemetry::global::meter("rdmesh.tls")
                .u64_counter("rdmesh.tls.calls.slowed")
                .with_description("Times that an identity was made to wait for its rate")
                .build(),
        }
    }

    /// A place for one call of `peer`, if it has one left.
    pub(super) fn enter(&self, peer: &Peer) -> Option<Counted> {
        let allowance = self.of(&peer.identity);
        let place = Arc::clone(&allowance.streams).try_acquire_owned().ok()?;
        Some(Counted { allowance, place })
    }

    fn of(&self, identity: &Identity) -> Arc<Allowance> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(identity).and_then(Weak::upgrade) {
            return found;
        }
        if known.len() > SWEEP_ABOVE {
            known.retain(|_, allowance| allowance.strong_count() > 0);
        }
        let allowance = Arc::new(Allowance {
            streams: Arc::new(Semaphore::new(
                usize::try_from(self.limits.streams).unwrap_or(Semaphore::MAX_PERMITS),
            )),
            bucket: Mutex::new(Bucket::new(self.limits, Instant::now())),
            slowed: self.slowed.clone(),
        });
        known.insert(identity.clone(), Arc::downgrade(&allowance));
        allowance
    }
}

/// A call that is counted.
#[derive(Debug)]
pub(super) struct Counted {
    allowance: Arc<Allowance>,
    place: OwnedSemaphorePermit,
}

impl Counted {
    /// A request's body that is read no faster than its sender may send.
    pub(super) fn slow_down(&self, body: Body) -> Body {
        Body::new(Slowed {
            inner: body,
            allowance: Arc::clone(&self.allowance),
            messages: Messages::default(),
            wait: None,
        })
    }

    /// An answer's body that keeps the place until it has been sent.
    pub(super) fn hold(self, body: Body) -> Body {
        Body::new(Held {
            inner: body,
            _place: self.place,
            _allowance: self.allowance,
        })
    }
}

/// Finds where messages begin in the bytes of a body.
#[derive(Debug, Default)]
struct Messages {
    prefix: [u8; PREFIX_BYTES],
    have: usize,
    left: usize,
}

impl Messages {
    /// How many begin in `bytes`.
    fn count(&mut self, mut bytes: &[u8]) -> u32 {
        let mut begun = 0;
        while !bytes.is_empty() {
            if self.left > 0 {
                let skipped = self.left.min(bytes.len());
                self.left -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let taken = (PREFIX_BYTES - self.have).min(bytes.len());
            self.prefix[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken;
            bytes = &bytes[taken..];
            if self.have == PREFIX_BYTES {
                let [_, a, b, c, d] = self.prefix;
                self.left = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
                self.have = 0;
                begun += 1;
            }
        }
        begun
    }
}

struct Slowed {
    inner: Body,
    allowance: Arc<Allowance>,
    messages: Messages,
    wait: Option<Pin<Box<Sleep>>>,
}

impl HttpBody for Slowed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(wait) = &mut self.wait {
            std::task::ready!(wait.as_mut().poll(cx));
            self.wait = None;
        }
        let frame = std::task::ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let messages = self.messages.count(data);
            let until = {
                let bucket = self.allowance.bucket.lock();
                let mut bucket = bucket.unwrap_or_else(PoisonError::into_inner);
                bucket.take(messages, data.len(), Instant::now())
            };
            if let Some(until) = until {
                self.allowance.slowed.add(1, &[]);
                self.wait = Some(Box::pin(sleep_until(until)));
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

struct Held {
    inner: Body,
    _place: OwnedSemaphorePermit,
    /// Who was slowed down stays so until its last call has ended.
    _allowance: Arc<Allowance>,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        streams: 2,
        messages_per_second: 10,
        bytes_per_second: 1_000,
    };

    fn message(bytes: u32) -> Vec<u8> {
        let mut framed = vec![0];
        framed.extend(bytes.to_be_bytes());
        framed.resize(PREFIX_BYTES + bytes as usize, 0);
        framed
    }

    #[test]
    fn messages_are_counted_wherever_the_bytes_are_cut() {
        let sent: Vec<u8> = [0, 7, 300, 1].into_iter().flat_map(message).collect();
        for size in 1..sent.len() {
            let mut messages = Messages::default();
            let counted: u32 = sent.chunks(size).map(|part| messages.count(part)).sum();
            assert_eq!(counted, 4, "in parts of {size}");
        }
    }

    #[test]
    fn a_burst_is_free_and_what_is_more_waits_as_long_as_it_must() {
        let start = Instant::now();
        let mut bucket = Bucket::new(LIMITS, start);
        assert_eq!(bucket.take(20, 0, start), None);
        let until = bucket.take(5, 0, start).unwrap();
        assert_eq!((until - start).as_millis(), 500);
        // Bytes have their own count.
        let mut bucket = Bucket::new(LIMITS, start);
        assert_eq!(bucket.take(1, 2_000, start), None);
        assert_eq!((bucket.take(1, 3_000, start).unwrap() - start).as_secs(), 3);
        // Silence fills it up to the burst and no further.
        let later = start + Duration::from_secs(3_600);
        assert_eq!(bucket.take(20, 2_000, later), None);
        assert!(bucket.take(1, 0, later).is_some());
    }

    #[test]
    fn each_identity_has_its_own_places_and_gives_them_back() {
        let peer = |name: &str| Peer {
            identity: format!("rdmesh://s/agent/{name}").parse().unwrap(),
            hosts: vec![name.to_owned()],
            not_after: i64::MAX,
        };
        let allowances = Allowances::new(LIMITS);
        let first = allowances.enter(&peer("a")).unwrap();
        let second = allowances.enter(&peer("a")).unwrap();
        assert!(allowances.enter(&peer("a")).is_none());
        assert!(allowances.enter(&peer("b")).is_some());
        // One that has something to send: an empty answer is over at once.
        let held = first.hold(Body::new("answer".to_owned()));
        assert!(allowances.enter(&peer("a")).is_none());
        drop(held);
        assert!(allowances.enter(&peer("a")).is_some());
        drop(second);
    }
}

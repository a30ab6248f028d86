//! The reading end of the two rings.
#![expect(
    unsafe_code,
    reason = "tokio asks for a promise about the descriptor of a ring"
)]

use std::io;

use aya::maps::{Map, MapData, MapError, RingBuf};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::record::{DecodeError, Event, Identity, Record};

/// The reading end of the rings. It works on after the probes are detached, so
/// that what is in the rings is not lost.
pub struct Events {
    identities: Ring,
    records: Ring,
}

/// A ring is registered with the reactor at the first wait, because the tracer
/// is started outside of it.
enum Ring {
    Plain(RingBuf<MapData>),
    Waiting(AsyncFd<RingBuf<MapData>>),
    /// Only while the state changes.
    Moving,
}

impl Events {
    pub(super) fn new(identities: MapData, records: MapData) -> Result<Self, MapError> {
        Ok(Self {
            identities: Ring::Plain(RingBuf::try_from(Map::RingBuf(identities))?),
            records: Ring::Plain(RingBuf::try_from(Map::RingBuf(records))?),
        })
    }

    /// Waits until the kernel wakes the reader: the first failure of a process,
    /// or a ring more than half full. Other records wait for the next
    /// [`Events::next`], so call that from the snapshot timer too.
    ///
    /// Cancel safe. Call it inside a tokio runtime with I/O.
    ///
    /// # Errors
    /// The reactor refused a ring's descriptor.
    pub async fn ready(&mut self) -> io::Result<()> {
        self.identities.register()?;
        self.records.register()?;
        let (Ring::Waiting(identities), Ring::Waiting(records)) =
            (&mut self.identities, &mut self.records)
        else {
            return Err(io::Error::other("a ring is not registered"));
        };
        // Readiness is cleared right away: what is in the rings is taken by
        // `next` until they are empty, and the kernel's wake-ups are edges.
        tokio::select! {
            guard = identities.readable_mut() => guard?.clear_ready(),
            guard = records.readable_mut() => guard?.clear_ready(),
        }
        Ok(())
    }

    /// The next event, identities before records. Never blocks.
    ///
    /// # Errors
    /// The kernel sent something that is no event; the next call goes on behind it.
    #[expect(
        clippy::should_implement_trait,
        reason = "an empty ring is not its end"
    )]
    pub fn next(&mut self) -> Option<Result<Event, DecodeError>> {
        if let Some(bytes) = self.identities.buffer()?.next() {
            return Some(Identity::decode(&bytes).map(|i| Event::Identity(Box::new(i))));
        }
        let bytes = self.records.buffer()?.next()?;
        Some(Record::decode(&bytes).map(Event::Record))
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Ring {
    fn register(&mut self) -> io::Result<()> {
        match std::mem::replace(self, Self::Moving) {
            Self::Plain(ring) => {
                // SAFETY: a ring owns its descriptor and answers with the same one
                // until it is dropped.
                let ring = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) };
                *self = Self::Waiting(ring?);
            }
            other => *self = other,
        }
        Ok(())
    }

    /// None only after the reactor refused the descriptor.
    fn buffer(&mut self) -> Option<&mut RingBuf<MapData>> {
        match self {
            Self::Plain(ring) => Some(ring),
            Self::Waiting(ring) => Some(ring.get_mut()),
            Self::Moving => None,
        }
    }
}

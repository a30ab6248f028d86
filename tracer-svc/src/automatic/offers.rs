//! From the pipeline to whoever asks for windows.

use rdmesh_proto::common::v1::Verb;
use rdmesh_proto::tracer::v1::ChainStep;
use tokio::sync::mpsc;

/// Kinds of failing calls on their way. One that finds no room comes again with the next
/// snapshot, if it goes on.
const WAITING: usize = 64;

/// A kind of failing call.
#[derive(Clone, Debug, PartialEq)]
pub struct Failing {
    /// Module of the RDMA driver.
    pub driver: String,
    /// The verb, as baselines name it.
    pub verb: String,
    /// The same as the contract numbers it.
    pub number: Verb,
    /// Its failing functions, innermost first.
    pub chain: Vec<ChainStep>,
}

/// Takes what the pipeline sees; without a receiver it takes nothing.
#[derive(Clone, Debug, Default)]
pub struct Offers(Option<mpsc::Sender<Failing>>);

/// What comes of it.
pub type Sightings = mpsc::Receiver<Failing>;

/// Both ends.
#[must_use]
pub fn offers() -> (Offers, Sightings) {
    let (sender, sightings) = mpsc::channel(WAITING);
    (Offers(Some(sender)), sightings)
}

impl Offers {
    /// Whether anybody takes more now. Never waits.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let sender = self.0.as_ref();
        sender.is_some_and(|sender| sender.capacity() > 0 && !sender.is_closed())
    }

    /// Offers a kind of failing call. Never waits.
    pub fn offer(&self, failing: Failing) {
        if let Some(sender) = &self.0 {
            // Full or gone: see WAITING.
            let _ = sender.try_send(failing);
        }
    }
}

#[cfg(test)]
impl Offers {
    /// Whether all that was offered was taken.
    pub(super) fn are_taken(&self) -> bool {
        let sender = self.0.as_ref();
        sender.is_some_and(|sender| sender.capacity() == sender.max_capacity())
    }
}

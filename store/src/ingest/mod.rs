//! What agents send, as rows, and its one way into the store.
//!
//! The effect of an item is exactly-once: its sequence is added to its run's set of
//! sequences in the transaction that stores its rows, and an item whose sequence is
//! in the set already leaves nothing. Order and repetition do not matter, and the set
//! is one range as long as nothing is missing.

mod groups;
mod hours;
mod progress;
mod rows;
mod runs;
mod small;
mod tables;
mod wires;
mod words;
mod write;

pub use rows::{
    Chain, CoSignal, Content, Count, DropKind, Dropped, Heartbeat, Identity, Interval,
    InventoryReport, Item, NO_SEQUENCE, PortAddress, Probe, ProbeReport, RunKey, Snapshot, Step,
    WireWindow,
};
pub use runs::{ClockEstimate, Hello};
pub(crate) use words::{KnownWords, Signature};
pub use write::Progress;

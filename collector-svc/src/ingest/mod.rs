//! The agents' stream: Hello, then items, each validated by itself; batches of many
//! agents in one transaction; acknowledgements after commit alone.
//!
//! ```text
//! stream task (one an agent) ──queue──▶ writer (few) ──▶ Postgres
//!        ▲                                  │
//!        └──────────── ledger ◀─────────────┘  committed through, rejected, failed
//! ```
//!
//! Memory is bounded: the queue counts what its items take (`queue_mib`), rows are made when
//! a batch is written, and a writer holds the rows of one batch (`limits::BATCH_MAX_BYTES`)
//! or of one item (`limits::ITEM_MAX_BYTES`). Agents take turns, see `queue`.
//!
//! An agent's items stay in the order in which they came: each stream belongs to one
//! writer. A bad item becomes a rejection that is committed like any other item.

mod arguments;
mod chains;
mod columns;
mod counters;
mod exact;
mod hello;
mod item;
mod ledger;
mod limits;
pub(crate) mod marks;
mod queue;
mod reports;
mod samples;
mod service;
mod snapshot;
mod stream;
mod tables;
mod timeline;
mod weight;
pub(crate) mod windows;
mod writer;

pub use exact::restore;
pub use limits::{ACK_EVERY, HELLO_WITHIN, UNACKNOWLEDGED_MAX};
pub use queue::{Queue, QueueEnd, Queued};
pub use service::Ingest;
pub use writer::{Writer, WriterPace};

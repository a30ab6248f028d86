//! Snapshots: all that the host saw fail in one interval, coalesced and bounded.
//!
//! Pure: chains, counters and a clock reading go in, a message comes out.

mod aggregate;
mod arguments;
mod async_event;
mod builder;
mod counters;
mod exit;
mod hidden;
mod strings;
mod tables;
mod words;

#[cfg(test)]
mod expand;
#[cfg(test)]
mod tests;

pub use aggregate::{Aggregate, CHAIN_BYTES, CO_SIGNALS, SAMPLES};
pub use arguments::arguments;
pub use async_event::{CoSignal, co_signal};
pub use builder::{Interval, Made, Maker, Surroundings};
pub use counters::Reported;
pub use exit::exit_signal;
pub use words::{layer, module, object, source, verb};

//! Automatic mode: the tracer opens windows by itself, when the collector says that it is
//! this host's turn.
//!
//! The pipeline offers each kind of failing call that it sees, and never waits for that.
//! [`Plan`] says what to ask for and when, [`Keeper`] asks the collector, opens the
//! window and hands in what comes of it. Off unless configured; nothing that goes wrong
//! here touches the tracing of failures.

mod keeper;
mod offers;
mod plan;

pub use keeper::{Keeper, Pace, Surroundings};
pub use offers::{Failing, Offers, Sightings, offers};
pub use plan::{Answer, Plan, Wish};

#[cfg(test)]
mod tests;

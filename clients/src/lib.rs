//! The typed client of the collector: finds it, asks it, and hands back checked
//! types that print and serialise under the names of the wire contract.
//!
//! It never decides anything about a job: verdicts, totals and health are the
//! collector's, and this crate only carries them. What it does judge is the machine on which
//! it runs, by [`doctor`].

pub mod attempt;
pub mod baselines;
pub mod client;
mod direct;
pub mod doctor;
pub mod endpoint;
pub mod errno;
pub mod error;
pub mod follow;
pub mod incidents;
pub mod jobs;
pub mod links;
pub mod logs;
pub mod model;
pub mod moment;
pub mod placement;
pub mod queries;
pub mod shaper;
pub mod statistics;
pub mod tracer;
pub mod wires;

pub use attempt::{AttemptId, AttemptSelector};
pub use client::Client;
pub use endpoint::CollectorAddress;
pub use error::ClientError;
pub use links::Links;
pub use moment::Moment;
pub use placement::Placement;

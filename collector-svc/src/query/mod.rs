//! `rdmesh.collector.v1.QueryService`: what people and programs ask.

mod advise;
mod again;
mod agents;
mod asked;
mod counted;
mod diagnose;
mod failures;
mod fleet;
mod flight;
mod follow;
mod log;
pub(crate) mod page;
mod service;
mod statistics;
mod timeline;
mod verdict;

pub use diagnose::{Diagnosed, diagnose_attempt};
pub use service::Queries;
pub use statistics::Statistics;

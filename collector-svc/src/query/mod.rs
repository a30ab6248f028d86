//! `rdmesh.collector.v1.QueryService`: what people and programs ask.

mod agents;
mod asked;
mod diagnose;
mod failures;
pub(crate) mod page;
mod service;

pub use diagnose::{Diagnosed, diagnose_attempt};
pub use service::Queries;

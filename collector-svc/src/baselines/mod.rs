//! `rdmesh.collector.v1.BaselineService`: windows of automatic mode, leased to tracers.
//!
//! A tracer that sees a new kind of failing call, or that has no baseline, asks before it
//! opens a window; the store grants few at a time. It never decides what a failure means:
//! where failing calls leave good ones is shown beside the verdict.

mod asked;
mod service;
mod told;

pub use service::Baselines;
pub(crate) use told::captured;

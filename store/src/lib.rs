//! The store: the schema in Postgres, ingest with exactly-once effect, job metadata,
//! and every query that a service or a person runs.
//!
//! All SQL of rdmesh stands in this crate. It never decides what a failure means:
//! it keeps what was reported, joins it with what was told of jobs, and gives it back.
//!
//! | module | what it does |
//! |---|---|
//! | [`Store`] | connects, migrates, makes the reader role |
//! | [`baselines`] | automatic mode: windows leased to tracers, what came of them |
//! | [`ingest`] | runs of agents and what they send |
//! | [`jobs`] | attempts and placements |
//! | [`logs`] | what is kept of jobs' own logs |
//! | [`query`] | failures, agents, probes |
//! | [`evidence`] | all that a diagnosis looks at |
//! | [`verdicts`] | what came of it, also of earlier attempts |
//! | [`timeline`] | what a timeline shows beside them |
//! | [`fleet`] | incidents, precursors, classes over time |
//! | [`statistics`] | shares over the attempts that ended badly |
//! | [`text`] | text that Postgres can hold |

#![forbid(unsafe_code)]

pub mod baselines;
mod connect;
mod copy;
mod error;
pub mod evidence;
pub mod fleet;
pub mod ingest;
pub mod jobs;
pub mod logs;
mod partitions;
pub mod query;
mod reader;
pub mod statistics;
pub mod text;
pub mod timeline;
pub mod verdicts;

pub use connect::{Store, StoreOptions};
pub use error::StoreError;
pub use partitions::{Ages, FURTHEST_AHEAD, FURTHEST_BACK, Keep, Retained, week_of};
pub use rdmesh_proto::errno;
pub use reader::{READER_ROLE, ReaderRole};

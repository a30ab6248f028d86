//! collector-svc: takes what agents report and what schedulers tell, stores it, and
//! says what broke a job, at which layer, and whom to call.
//!
//! It never acknowledges what Postgres has not committed, and it never runs SQL of
//! its own: that is the store's.
//!
//! | module | what it does |
//! |---|---|
//! | [`config`] | the collector's configuration |
//! | [`baselines`] | windows of automatic mode: whose turn it is, what came of them |
//! | [`ingest`] | the agents' stream: validation, batches, acknowledgements |
//! | [`jobs`] | what schedulers tell |
//! | `logs` | jobs' own logs: read once, kept but for what they say |
//! | [`live`] | who follows failures as they are stored |
//! | [`query`] | what people and programs ask |
//! | [`wires`] | the fleet's shaped wires, and what their shapers are told |
//! | [`diagnosis`] | rules: evidence in, verdict out; no clock, no I/O |
//! | [`site`] | what a site says for itself: teams, rules for logs |
//! | `rights` | what a caller may do beyond its role: own hosts, own jobs, their wires |
//! | [`upkeep`] | migration, partitions, retention, health |
//! | [`service`] | all of it put together |

#![forbid(unsafe_code)]

mod attempt;
pub mod backing;
pub mod baselines;
pub mod clock;
pub mod config;
pub mod diagnosis;
pub mod ingest;
pub mod jobs;
pub mod live;
mod logs;
mod metrics;
mod names;
pub mod query;
mod rights;
pub mod service;
pub mod site;
mod status;
mod times;
pub mod upkeep;
pub mod wires;

//! The store's behaviour on a real Postgres: every query, and what ingest promises.

#![allow(clippy::unwrap_used)]

mod baselines;
mod bounds;
mod citus;
mod fleet;
mod ingest;
mod jobs;
mod logs;
mod made;
mod partitions;
mod plans;
mod reports;
mod schema;
mod statistics;
mod upgrade;
mod whose;
mod wires;

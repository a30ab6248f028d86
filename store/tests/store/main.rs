//! The store's behaviour on a real Postgres: every query, and what ingest promises.

#![allow(clippy::unwrap_used)]

mod ingest;
mod jobs;
mod made;
mod schema;

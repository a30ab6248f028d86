//! The collector over a real socket with a real Postgres.

#![allow(clippy::unwrap_used)]

mod bad_input;
mod baselines;
mod bounds;
mod clocks;
mod drills;
mod exact;
mod flight;
mod follow;
mod ingest;
mod jobs;
mod load;
mod logs;
mod made;
mod many;
mod odd_values;
mod outage;
mod program;
mod queries;
mod refusals;
mod rights;
mod running;
mod secured;
mod several;
mod wires;

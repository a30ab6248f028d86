//! Simulated host agents: the real uplink with its spool, and snapshots that are made up.
//! Each writes down what it made before it hands it over, so that a test can tell what
//! must be in the store.
//!
//! It never talks to a kernel and never looks into the store.
#![forbid(unsafe_code)]

pub mod agent;
pub mod journal;
pub mod snapshot;

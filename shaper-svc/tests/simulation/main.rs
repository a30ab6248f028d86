//! A host, its card, a shaper and the far end, in virtual time: what the shaper before
//! this one taught, each lesson with its numbers.
//!
//! Everything follows from a seed, which is printed; `SIMULATION_SEED=<n>` runs a chosen
//! one.
#![allow(clippy::unwrap_used)]

mod lessons;
mod qp;
mod shapers;
mod world;

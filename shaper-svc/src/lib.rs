//! The shaper: moves every transmitted frame of a virtual function through a virtual
//! wire of a given rate.
//!
//! It never drops a frame: what does not fit stays with the port that received it.
//!
//! | module | what it does |
//! |---|---|
//! | [`engine`] | the wire: when which frame may leave; pure |
//! | [`rate`] | line rates and their text |
#![forbid(unsafe_code)]

pub mod engine;
pub mod rate;

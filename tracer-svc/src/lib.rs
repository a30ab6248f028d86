//! The tracer: hooks a small set of kernel functions of the RDMA control path,
//! takes one record of each failing return, and sends what it saw every five
//! seconds.
//!
//! It never changes what a hooked call does, and never leaves anything in the
//! kernel when it ends, however it ends.

pub mod arguments;
pub mod automatic;
pub mod baseline;
pub mod btf;
pub mod catalogue;
pub mod chain;
pub mod cli;
pub mod config;
pub mod control;
pub mod cost;
pub mod counters;
pub mod host;
pub mod identity;
pub mod inspect;
pub mod launch;
pub mod loader;
pub mod record;
pub mod resolve;
pub mod select;
pub mod service;
pub mod signals;
pub mod snapshot;
pub mod window;

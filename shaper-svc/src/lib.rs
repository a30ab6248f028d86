//! The shaper: moves every transmitted frame of a virtual function through a virtual
//! wire of a given rate.
//!
//! It never drops a frame: what does not fit stays with the port that received it.
//!
//! | module | what it does |
//! |---|---|
//! | [`engine`] | the wire: when which frame may leave; pure |
//! | [`classify`] | whose turn a frame takes, from its header; pure |
//! | [`port`] | ports, in memory and of DPDK (`dpdk`) |
//! | [`datapath`] | the loop that moves frames between ports through wires |
//! | [`capture`] | capture files, read and written |
//! | [`replay`], [`inspect`] | a captured stream through a wire, or against one |
//! | [`meter`] | how far frames run ahead of an ideal wire |
//! | [`tools`] | the commands that need no service |
//! | [`bench`] | what the engine costs on this machine |
//! | [`config`], [`service`] | the service around the data path |
//! | [`rate`], [`text`] | line rates (the contract's), times and their text |

pub mod bench;
pub mod capture;
pub mod classify;
pub mod cli;
pub mod config;
pub mod datapath;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod engine;
pub mod inspect;
pub mod meter;
pub mod port;
pub mod replay;
pub mod service;
pub mod text;
pub mod tools;

pub use rdmesh_proto::rate;

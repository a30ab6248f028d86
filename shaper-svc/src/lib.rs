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
//! | [`bench`] | what the engine costs on this machine |
//! | [`rate`] | line rates and their text |

pub mod bench;
pub mod classify;
pub mod datapath;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod engine;
pub mod port;
pub mod rate;

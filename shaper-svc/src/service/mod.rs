//! The service around the data path: who may ask for which rate, what is remembered,
//! and what is reported.
//!
//! | module | what it does |
//! |---|---|
//! | [`control`] | requests in, orders out; pure, time is an argument |
//! | [`state`] | what survives a restart, in a file written atomically |
//! | [`audit`] | who changed what |
//! | [`windows`] | from the poll loop's counts to reported windows |
//! | [`watch`] | notices a poll loop that failed or stands still |
//! | [`grpc`] | `rdmesh.shaper.v1.ShaperService` |
//! | [`start`] | memory, devices, the poll thread |
//! | [`run`] | the sequence from start to end |

pub mod audit;
pub mod control;
pub mod state;

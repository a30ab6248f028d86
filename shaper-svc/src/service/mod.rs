//! The service around the data path: who may ask for which rate, what is remembered,
//! and what is reported.
//!
//! | module | what it does |
//! |---|---|
//! | [`control`] | requests in, orders out; pure, time is an argument |
//! | [`state`] | what survives a restart, in a file written atomically |
//! | [`audit`] | who changed what |
//! | [`ledger`] | a request in force, on disk and in the record, or none of it |
//! | [`windows`] | from the poll loop's counts to reported windows |
//! | [`watch`] | notices a poll loop that failed or stands still |
//! | [`locks`] | one service per device |
//! | [`handle`] | a running data path, on whatever ports |
//! | [`advertise`] | where the collector can dial the service |
//! | [`figures`] | metrics for an exporter |
//! | [`grpc`] | `rdmesh.shaper.v1.ShaperService` |
//! | [`preflight`] | what `shaper-svc check` looks at |
//! | [`run`] | the sequence from start to end |
//! | [`start`] | memory, devices, the poll thread |

pub mod advertise;
pub mod audit;
pub mod control;
pub mod figures;
pub mod grpc;
pub mod handle;
pub mod ledger;
pub mod locks;
pub mod preflight;
pub mod run;
pub mod shared;
pub mod start;
pub mod state;
pub mod watch;
pub mod windows;

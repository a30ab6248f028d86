//! The `rdmesh` program, run as scripts and people run it.

// What goes wrong in a helper of a test is a failed test.
#![allow(clippy::unwrap_used)]

mod answers;
mod baseline;
mod certs;
mod classify_log;
mod doctor;
mod fake;
mod fake_answers;
mod fake_statistics;
mod fake_tls;
mod fake_tracer;
mod fake_wires;
mod follow;
mod logs;
mod probes;
mod process;
mod report;
mod run;
mod secured;
mod watch;

//! The `rdmesh` program, run as scripts and people run it.

// What goes wrong in a helper of a test is a failed test.
#![allow(clippy::unwrap_used)]

mod answers;
mod classify_log;
mod fake;
mod fake_statistics;
mod logs;
mod process;
mod run;
mod watch;

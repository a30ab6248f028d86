//! The lab: QEMU hosts that run stock Debian kernels with soft-RoCE and the tracer,
//! a private Postgres and a collector. Tests, the bench and the demo use the same.
//!
//! It never touches anything outside its cache and its scratch directory: no system
//! database cluster, no installed kernel, no fixed port.

pub mod cache;
pub mod chains;
pub mod children;
pub mod collector;
pub mod control;
pub mod faults;
pub mod forks;
pub mod host;
pub mod initramfs;
pub mod kernels;
pub mod lab;
pub mod latency;
pub mod programs;
pub mod progress;
pub mod qemu;
pub mod rows;
pub mod scratch;
pub mod sql;
pub mod until;
pub mod verbs;

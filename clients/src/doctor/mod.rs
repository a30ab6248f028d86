//! Whether this machine is fit for what runs on it: a GPU host with its tracer, a DPU with its
//! shaper, a collector's machine.
//!
//! [`gather`] looks: at files below a root that tests replace, at what programs of the machine
//! say, and at the addresses in the configurations. [`rules`] judges what was found and is pure.
//! Nothing is started, changed or written, and nothing that does not answer is waited for
//! without end.

pub mod facts;
pub mod gather;
pub mod rules;

use serde::Serialize;

pub use facts::{Facts, Service};
pub use rules::examine;

/// How a check ended, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Something does not work, or will not.
    Problem,
    /// It works, and less well or less long than it could.
    Warning,
    /// It could not be told.
    CouldNotLook,
    /// As it should be.
    Ok,
}

impl Status {
    /// All of them, the worst first.
    pub const ALL: [Status; 4] = [
        Status::Problem,
        Status::Warning,
        Status::CouldNotLook,
        Status::Ok,
    ];
}

/// What a check is about, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    /// Version, types, lockdown.
    Kernel,
    /// What processes may do.
    Capabilities,
    /// RDMA devices and their ports.
    Rdma,
    /// Memory that may be locked, files that may be open.
    Limits,
    /// What jobs on this host say to NCCL.
    Nccl,
    /// The services: their configuration, and whether they run.
    Services,
    /// Addresses that services listen on, and those that they dial.
    Ports,
    /// Certificates.
    Certificates,
    /// The clock.
    Time,
    /// Where agents keep what is not acknowledged.
    Spool,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What it is about.
    pub topic: Topic,
    /// What was looked at, in a few words that stay the same from run to run.
    pub name: String,
    /// How it ended.
    pub status: Status,
    /// What was found, or why nothing was.
    pub found: String,
    /// What to do; absent where there is nothing to do.
    pub next: Option<String>,
}

//! The rules, in the order in which they are asked. The first that applies decides.
//!
//! A new kind of evidence (co-signals, log lines, wire windows) gets a file of its own
//! and a line in [`TABLE`].

mod connect;
mod driver;
mod entry;
mod firmware;
mod known;
mod memory;
mod swallowed;

use rdmesh_proto::collector::v1::{Confidence, VerdictClass};

use crate::diagnosis::Case;
use crate::diagnosis::select::Deciding;

/// errno values that rules look at.
pub(crate) mod errno {
    pub(crate) const EPERM: i32 = 1;
    pub(crate) const ENOENT: i32 = 2;
    pub(crate) const EINTR: i32 = 4;
    pub(crate) const EIO: i32 = 5;
    pub(crate) const ENXIO: i32 = 6;
    pub(crate) const EBADF: i32 = 9;
    pub(crate) const EAGAIN: i32 = 11;
    pub(crate) const ENOMEM: i32 = 12;
    pub(crate) const EACCES: i32 = 13;
    pub(crate) const EFAULT: i32 = 14;
    pub(crate) const ENODEV: i32 = 19;
    pub(crate) const EINVAL: i32 = 22;
    pub(crate) const ENOSPC: i32 = 28;
    pub(crate) const ENODATA: i32 = 61;
    pub(crate) const EOVERFLOW: i32 = 75;
    pub(crate) const EOPNOTSUPP: i32 = 95;
    pub(crate) const ENETUNREACH: i32 = 101;
    pub(crate) const ETIMEDOUT: i32 = 110;
    pub(crate) const EHOSTUNREACH: i32 = 113;
    /// The kernel's own: a signal came.
    pub(crate) const ERESTARTSYS: i32 = 512;
    pub(crate) const ERESTARTNOINTR: i32 = 513;
    /// Kernel-internal, and yet some drivers return it to applications.
    pub(crate) const ENOTSUPP: i32 = 524;
}

/// What a rule makes of the deciding failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) class: VerdictClass,
    pub(crate) confidence: Confidence,
    pub(crate) evidence: Vec<String>,
    pub(crate) against: Vec<String>,
}

impl Finding {
    fn new(class: VerdictClass, confidence: Confidence) -> Self {
        Self {
            class,
            confidence,
            evidence: Vec::new(),
            against: Vec::new(),
        }
    }

    fn because(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }

    fn though(mut self, against: impl Into<String>) -> Self {
        self.against.push(against.into());
        self
    }
}

/// A rule: looks at the deciding failure and says what it is, or nothing.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    applies: fn(&Deciding<'_>, &Case) -> Option<Finding>,
}

/// Order matters: an error that a command of the firmware explains is not the driver's,
/// and so on outward.
pub(crate) const TABLE: &[Rule] = &[
    Rule {
        name: "swallowed-error-before-failure",
        applies: swallowed::before_failure,
    },
    Rule {
        name: "firmware-command-failed",
        applies: firmware::command_failed,
    },
    Rule {
        name: "interrupted-by-a-signal",
        applies: known::interrupted,
    },
    Rule {
        name: "length-cut-to-32-bits",
        applies: known::length_cut,
    },
    Rule {
        name: "huge-pages-with-gpu-driver",
        applies: known::huge_pages,
    },
    Rule {
        name: "driver-forbids-dmabuf",
        applies: known::dmabuf_not_allowed,
    },
    Rule {
        name: "only-across-rails",
        applies: connect::across_rails,
    },
    Rule {
        name: "neighbour-not-resolved",
        applies: connect::neighbour,
    },
    Rule {
        name: "gid-slot-empty",
        applies: connect::gid,
    },
    Rule {
        name: "memory-dmabuf",
        applies: memory::dmabuf,
    },
    Rule {
        name: "memory-bad-address",
        applies: memory::bad_address,
    },
    Rule {
        name: "memory-limits",
        applies: memory::limits,
    },
    Rule {
        name: "memory-other",
        applies: memory::other,
    },
    Rule {
        name: "device-gone",
        applies: driver::device_gone,
    },
    Rule {
        name: "driver-refused-arguments",
        applies: driver::arguments,
    },
    Rule {
        name: "driver-other-errno",
        applies: driver::other,
    },
    Rule {
        name: "kernel-entry-refused",
        applies: entry::refused,
    },
];

/// The first rule that applies, with what it found.
pub(crate) fn first(deciding: &Deciding<'_>, case: &Case) -> Option<(&'static str, Finding)> {
    TABLE
        .iter()
        .find_map(|rule| Some((rule.name, (rule.applies)(deciding, case)?)))
}

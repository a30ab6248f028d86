//! Chains: the records of one failing call of one thread, innermost first.
//!
//! Pure: records and times go in, chains come out; no clock, no I/O. Joining
//! never relies on time alone.

mod assembler;
mod place;
mod stack;

pub use assembler::{Assembler, GAP_NS, NEIGHBOUR_GAP_NS, OPEN_CHAINS, PROVEN_GAP_NS};
pub use place::{Place, Places};

use crate::catalogue::{Layer, Verb};
use crate::record::Record;

/// The records of one failing call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Innermost first; never empty.
    pub records: Vec<Record>,
    /// Verb of the outermost record that has one of its own; [`Verb::Any`] when
    /// only functions that serve several verbs failed.
    pub verb: Verb,
    /// The layer furthest from user space that failed.
    pub deepest: Layer,
    /// What is particular about it.
    pub marks: Marks,
}

impl Chain {
    /// Time of the first failing return, boot clock.
    #[must_use]
    pub fn first_boot_ns(&self) -> u64 {
        self.records.first().map_or(0, |r| r.boot_ns)
    }

    /// Time of the last failing return, boot clock.
    #[must_use]
    pub fn last_boot_ns(&self) -> u64 {
        self.records.last().map_or(0, |r| r.boot_ns)
    }

    /// Errno of the outermost record: what user space got, unless swallowed.
    #[must_use]
    pub fn errno(&self) -> u16 {
        self.records.last().map_or(0, |r| r.errno)
    }

    /// Name of the RDMA device, from whichever record knows it; empty: none does.
    #[must_use]
    pub fn device(&self) -> &[u8] {
        self.records
            .iter()
            .map(Record::device_name)
            .find(|name| !name.is_empty())
            .unwrap_or_default()
    }
}

/// What is particular about a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Marks {
    /// A rule says that this failure is part of normal work.
    pub expected: bool,
    /// No record at depth 0 closed it: the error did not reach user space.
    pub swallowed: bool,
    /// Records were lost while it grew, or it was given up for want of room.
    pub incomplete: bool,
}

#[cfg(test)]
mod tests;

//! Loads and attaches the probes.

mod error;

use std::io;

pub use error::LoadError;

use crate::catalogue::Catalogue;
use crate::counters::Counters;
use crate::record::{DecodeError, Event, ProbeId};
use crate::resolve::Report;

/// Sizes of what the kernel holds for the tracer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of the ring of records; a power of two, at least 64 KiB. 1 MiB holds
    /// about 3,000 records: a rank that retries `modify_qp` 34 times through five
    /// layers leaves 170, so that every rank of a 16-rank host fits.
    pub ring_bytes: u32,
    /// Entries of the map by (probe, errno). 70 probes rarely see more than ten
    /// errnos each.
    pub errno_entries: u32,
    /// Entries of the map by (probe, errno, cgroup).
    pub cgroup_entries: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ring_bytes: 1 << 20,
            errno_entries: 4096,
            cgroup_entries: 16384,
        }
    }
}

/// The attached probes. Dropping it takes them off; nothing is pinned, so that
/// the kernel takes them off too when the process dies.
///
/// All methods block (loading takes up to seconds on a slow machine): call them
/// off the async threads.
#[derive(Debug)]
pub struct Tracer {
    report: Report,
}

impl Tracer {
    /// Checks what the kernel allows, makes the maps, and attaches what the
    /// loaded modules have. With no RDMA module loaded it succeeds with nothing
    /// attached: call [`Tracer::refresh`] when a module appears.
    ///
    /// # Errors
    /// What the running kernel or this process lacks; see [`LoadError`]. A hook
    /// that cannot be attached is no error: it is in the report.
    pub fn start(_catalogue: Catalogue, _options: &Options) -> Result<(Self, Events), LoadError> {
        Err(LoadError::NoBtf)
    }

    /// Looks again at the loaded modules and attaches what is new. Cheap when
    /// nothing has changed.
    ///
    /// # Errors
    /// As [`Tracer::start`].
    pub fn refresh(&mut self) -> Result<Vec<ProbeId>, LoadError> {
        Ok(Vec::new())
    }

    /// Takes the probes off one module, or off all with `None`, so that it can
    /// be unloaded. They stay off until the module was gone and came back, or
    /// [`Tracer::allow`]. Returns the probes taken off.
    pub fn detach(&mut self, _module: Option<&str>) -> Vec<ProbeId> {
        Vec::new()
    }

    /// Undoes [`Tracer::detach`]; the next [`Tracer::refresh`] attaches again.
    pub fn allow(&mut self, _module: Option<&str>) {}

    /// What is attached and why the rest is not.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// All counters.
    ///
    /// # Errors
    /// The kernel refused to read a map.
    pub fn counters(&self) -> Result<Counters, LoadError> {
        Ok(Counters::default())
    }
}

/// The reading end of the rings.
#[derive(Debug)]
pub struct Events {
    _private: (),
}

impl Events {
    /// Waits until the kernel wakes the reader: the first failure of a process,
    /// or a ring more than half full. Other records wait for the next
    /// [`Events::next`], so call that from the snapshot timer too.
    ///
    /// # Errors
    /// The reactor refused the ring's descriptor.
    pub async fn ready(&mut self) -> io::Result<()> {
        std::future::pending().await
    }

    /// The next event, identities before records. Never blocks.
    pub fn next(&mut self) -> Option<Result<Event, DecodeError>> {
        None
    }
}

//! What is not acknowledged, on disk.
//!
//! ```text
//! <directory>/lock                       held by the agent that runs
//! <directory>/0000000012-<run id>/       one directory for each run of it
//!     hello                              who reported
//!     acked                              how far the collector had acknowledged
//!     00000000000000000001.seg           records, appended; named by their first sequence
//! ```
//!
//! * Every item is appended as soon as it is handed over, whether a collector is there or
//!   not. A killed agent loses what it handed over in the moment before. Files are synced
//!   in the background, each sync begun when the one before has ended: a power cut loses
//!   what came in the last tens of milliseconds, and never more than one interval of a
//!   disk that works. Waiting for the sync would gain nothing: the item of this interval
//!   is in flight to the collector meanwhile.
//! * Segments that are acknowledged are deleted. Bounded by bytes and age; the oldest
//!   reports go first, and are counted as given up. States that later items refer to go
//!   last.
//! * A disk that takes nothing (full, read-only, gone) costs nothing but safety: items wait
//!   in memory as they do without a spool, until it takes them again.
//! * What earlier runs left is sent under their own run ids, oldest run first, on a
//!   connection of its own beside the live one. The collector recognises repeats.
//! * Damage is stepped over: each record has checksums, see [`record`].

pub mod notes;
pub mod record;

mod earlier;
mod keeper;
mod place;
mod run;
mod sync;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::{Check, Invalid, Validate};
use crate::host;
use record::Stamp;

pub(crate) use earlier::send_earlier;
pub(crate) use keeper::{Keeper, Waker};
pub use place::SpoolError;
use place::{Claim, EarlierRun};
pub(crate) use run::SegmentLimits;

/// Mebibytes that the spool may take by default: three days of snapshots of 200 records
/// (4.4 KB each) take 230.
const DEFAULT_MAX_MIB: u32 = 256;

/// Hours that items are kept by default: a weekend without a collector.
const DEFAULT_MAX_HOURS: u32 = 72;

/// The store takes what is at most 35 days old.
const MAX_HOURS: u32 = 35 * 24;

/// Bytes of a segment: what is read back at once, and how coarse the bounds are.
const SEGMENT_BYTES: u64 = 1 << 20;

/// Parts of the longest age that a segment spans at most: the age is kept to that.
const SEGMENT_AGE_PARTS: u32 = 24;

/// Section `[uplink.spool]`: what is not acknowledged, on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpoolConfig {
    /// Where; made when it is missing. Empty: `spool` in the service's state directory,
    /// where there is one; else items wait in memory alone.
    pub directory: PathBuf,
    /// Mebibytes at most; 0: no spool, items wait in memory alone.
    pub max_mib: u32,
    /// Hours after which what is not acknowledged is dropped.
    pub max_hours: u32,
}

impl Default for SpoolConfig {
    fn default() -> Self {
        Self {
            directory: PathBuf::new(),
            max_mib: DEFAULT_MAX_MIB,
            max_hours: DEFAULT_MAX_HOURS,
        }
    }
}

impl Validate for SpoolConfig {
    fn validate(&self) -> Result<(), Invalid> {
        if !self.directory.as_os_str().is_empty() && !self.directory.is_absolute() {
            let shown = self.directory.display().to_string();
            return Err(Invalid::new(
                "directory",
                shown,
                "an absolute path, or empty for the service's state directory",
            ));
        }
        if self.max_mib != 0 {
            // Below, a segment more or less would be a large part of it.
            Check::range("max_mib", self.max_mib, 8..=65_536).map_err(|e| {
                Invalid::new(
                    "max_mib",
                    self.max_mib,
                    format!("{}, or 0 for none", e.allowed),
                )
            })?;
        }
        Check::range("max_hours", self.max_hours, 1..=MAX_HOURS)
    }
}

/// Bounds of a spool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) bytes: u64,
    pub(crate) age: Duration,
    pub(crate) segment: SegmentLimits,
}

/// The clocks of this machine, and which boot it is.
#[derive(Clone)]
pub(crate) struct Clocks {
    pub(crate) boot_id: String,
    pub(crate) now: Arc<dyn Fn() -> Stamp + Send + Sync>,
}

impl fmt::Debug for Clocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clocks")
            .field("boot_id", &self.boot_id)
            .finish_non_exhaustive()
    }
}

impl Clocks {
    fn real() -> Self {
        let now = || {
            let pair = host::clock_pair();
            Stamp {
                boot_ns: pair.boottime_ns,
                real_ns: pair.realtime_ns,
            }
        };
        Self {
            // Without one, every run counts as one of another boot.
            boot_id: host::boot_id().unwrap_or_default(),
            now: Arc::new(now),
        }
    }

    fn is_this_boot(&self, boot_id: &str) -> bool {
        !boot_id.is_empty() && self.boot_id == boot_id
    }
}

/// A spool that an uplink is to use, and nobody else may.
#[derive(Debug)]
pub struct Spool {
    pub(crate) directory: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) clocks: Clocks,
    claimed: Result<(Claim, Vec<EarlierRun>), SpoolError>,
}

impl Spool {
    /// Opens the spool that a service is to use; none where the configuration says so, or
    /// where it names no directory and `state_directory` is not there.
    ///
    /// # Errors
    /// [`SpoolError::Taken`] when another process uses it. One that cannot be used for
    /// another reason is tried again while the agent runs, which goes on in memory.
    pub fn open(config: &SpoolConfig, state_directory: &Path) -> Result<Option<Self>, SpoolError> {
        if config.max_mib == 0 {
            return Ok(None);
        }
        let directory = if !config.directory.as_os_str().is_empty() {
            config.directory.clone()
        } else if state_directory.is_dir() {
            state_directory.join("spool")
        } else {
            tracing::info!(
                directory = %state_directory.display(),
                "no state directory: what is not acknowledged waits in memory alone; make it, or \
                 set uplink.spool.directory, to keep it over restarts"
            );
            return Ok(None);
        };
        let max_age = Duration::from_secs(u64::from(config.max_hours) * 3600);
        let limits = Limits {
            bytes: u64::from(config.max_mib) << 20,
            age: max_age,
            segment: SegmentLimits {
                bytes: SEGMENT_BYTES,
                items: usize::MAX,
                age: max_age / SEGMENT_AGE_PARTS,
            },
        };
        Self::open_with(directory, limits, Clocks::real()).map(Some)
    }

    pub(crate) fn open_with(
        directory: PathBuf,
        limits: Limits,
        clocks: Clocks,
    ) -> Result<Self, SpoolError> {
        let claimed = match Claim::take(&directory) {
            Err(taken @ SpoolError::Taken { .. }) => return Err(taken),
            claimed => claimed,
        };
        Ok(Self {
            directory,
            limits,
            clocks,
            claimed,
        })
    }
}

/// How a spool fares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpoolStatus {
    /// Whether the disk took what came last.
    pub usable: bool,
    /// Everything of this run up to this sequence is on disk.
    pub written_through: u64,
    /// Items of this run and of the earlier one that is being sent, not acknowledged.
    pub items: u64,
    /// Bytes on disk, of all runs.
    pub bytes: u64,
    /// Age of the oldest item that is not acknowledged; 0: there is none.
    pub oldest: Duration,
    /// Items that were dropped because the spool is bounded, since this run began.
    pub dropped: u64,
    /// Items that could not be read back, at least.
    pub damaged: u64,
    /// Runs of earlier processes that still have something to send.
    pub earlier_runs: u64,
}

#[cfg(test)]
mod tests;

//! The exact counters, read from the kernel's maps.

use crate::record::ProbeId;

/// Failures of one probe with one errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ErrorCount {
    /// Which probe.
    pub probe: ProbeId,
    /// Positive errno; 0 for asynchronous events.
    pub errno: u16,
    /// Since the tracer's start.
    pub count: u64,
}

/// Failures of one probe with one errno in one cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CgroupCount {
    /// Which probe.
    pub probe: ProbeId,
    /// Positive errno.
    pub errno: u16,
    /// As [`crate::record::Record::cgroup_id`].
    pub cgroup_id: u64,
    /// Since the tracer's start.
    pub count: u64,
}

/// What could not be kept in detail for one probe. All since the tracer's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProbeLosses {
    /// Records that found no room in the ring. They are counted all the same.
    pub records_dropped: u64,
    /// Identities that found no room; the process is tried again at its next failure.
    pub identities_dropped: u64,
    /// Failures that are in no [`ErrorCount`], because its map was full.
    pub overflow: u64,
    /// Failures that are in no [`CgroupCount`], because its map was full.
    pub cgroup_overflow: u64,
    /// Calls for which the kernel did not run the program, because another task
    /// was preempted inside it on the same processor; failed or not, nobody
    /// knows. Only preemptible kernels do that, on a processor that several
    /// failing tasks share.
    pub unseen: u64,
}

/// What the kernel measured of one probe's program while statistics were on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunTime {
    /// Runs.
    pub runs: u64,
    /// Time of all of them, nanoseconds.
    pub ns: u64,
}

impl RunTime {
    /// Mean time of a run, nanoseconds; none without a run.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a mean, for people")]
    pub fn mean_ns(self) -> Option<f64> {
        (self.runs > 0).then(|| self.ns as f64 / self.runs as f64)
    }
}

/// All counters at one moment. A failure that happens during the read may be in
/// one part and not yet in another; at rest the parts agree to the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sorted.
    pub by_errno: Vec<ErrorCount>,
    /// Sorted.
    pub by_cgroup: Vec<CgroupCount>,
    /// By [`ProbeId::index`], one for each probe of the plan.
    pub losses: Vec<ProbeLosses>,
    /// By [`ProbeId::index`]. A probe that is attached anew begins at zero.
    pub run_times: Vec<RunTime>,
}

impl Counters {
    /// All failures of a probe, to the last one: also those of a full map.
    #[must_use]
    pub fn total(&self, probe: ProbeId) -> u64 {
        let counted: u64 = self
            .by_errno
            .iter()
            .filter(|c| c.probe == probe)
            .map(|c| c.count)
            .sum();
        counted + self.losses.get(probe.index()).map_or(0, |l| l.overflow)
    }

    /// All records dropped, of every probe.
    #[must_use]
    pub fn records_dropped(&self) -> u64 {
        self.losses.iter().map(|l| l.records_dropped).sum()
    }
}

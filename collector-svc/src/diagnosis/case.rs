//! All that a diagnosis looks at.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use rdmesh_proto::collector::v1::JobState;
use rdmesh_proto::common::v1::{Layer, Verb};
use rdmesh_proto::tracer::v1::{CoSignalKind, MissingReason};
use time::OffsetDateTime;

use crate::diagnosis::rules::errno::EBADF;
use crate::diagnosis::{Arguments, FlightEvidence, Incident, LogEvidence, Past};

/// One attempt and everything that is known around it.
#[derive(Debug, Clone, Default)]
pub struct Case {
    /// JOB/REQUEUE, for sentences.
    pub attempt: String,
    /// How it stands.
    pub state: JobState,
    /// Whether a scheduler told of it.
    pub told: bool,
    /// When it started; none: nobody told.
    pub started_at: Option<OffsetDateTime>,
    /// When it ended.
    pub ended_at: Option<OffsetDateTime>,
    /// Hosts that it was placed on.
    pub placed_on: Vec<String>,
    /// Failing calls, oldest first.
    pub chains: Vec<Chain>,
    /// Failing calls beyond these, which came later and are not looked at.
    pub chains_left_out: u64,
    /// Whether there are more of them than were counted.
    pub more_left_out: bool,
    /// Failing returns by host, function and errno: exact but for what the kernel did not
    /// show to the probes.
    pub totals: Vec<Total>,
    /// What was watched on each host that has to do with it.
    pub hosts: Vec<HostWatch>,
    /// Failures on its hosts that may be its own or another attempt's.
    pub ambiguous: Vec<Ambiguous>,
    /// What else failed on those hosts, oldest first.
    pub signals: Vec<Signal>,
    /// Shaping of those hosts.
    pub shaping: Vec<Shaping>,
    /// What its own logs say; none: none came.
    pub log: Option<LogEvidence>,
    /// What the Flight Recorder's dumps say, the group in which the wait began first.
    pub flight: Vec<FlightEvidence>,
    /// The job's other attempts before it, oldest first.
    pub past: Vec<Past>,
    /// Ports by their address, for the destinations of failing connections.
    pub owners: BTreeMap<Ipv6Addr, Vec<Owner>>,
    /// The same failure on many hosts; none: it is on few, or nobody looked.
    pub incident: Option<Incident>,
    /// Since when failures are kept, where the attempt ran before.
    pub kept_from: Option<OffsetDateTime>,
}

impl Case {
    /// Whether counts are lower bounds, because a kernel did not show every call.
    pub fn counts_are_lower_bounds(&self) -> bool {
        self.hosts.iter().any(|watch| watch.unseen > 0)
    }

    /// Start and end as they were told, where the end lies before the start: when the
    /// attempt ran is then not known.
    pub fn contradicting_times(&self) -> Option<(OffsetDateTime, OffsetDateTime)> {
        match (self.started_at, self.ended_at) {
            (Some(start), Some(end)) if end < start => Some((start, end)),
            _ => None,
        }
    }
}

/// A port, by its host and device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The host.
    pub host: String,
    /// RDMA device.
    pub device: String,
}

/// A failing call, coalesced over its repeats within one snapshot.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    /// The host.
    pub host: String,
    /// First call, collector time.
    pub first_at: OffsetDateTime,
    /// Last call.
    pub last_at: OffsetDateTime,
    /// How many calls.
    pub count: u64,
    /// What the application asked for.
    pub verb: Verb,
    /// Innermost first, at least one.
    pub steps: Vec<Step>,
    /// Module of the RDMA driver; empty: not known.
    pub driver: String,
    /// RDMA device; empty: not known.
    pub device: String,
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// Name of the thread.
    pub comm: String,
    /// RANK.
    pub rank: Option<i32>,
    /// What a rule of the tracer or the assembler says of it.
    pub flags: ChainFlags,
    /// Why it may be another attempt's; empty: nothing speaks against this one.
    pub doubts: Vec<String>,
    /// Why its times may be wrong; empty: nothing speaks against them.
    pub time_doubts: Vec<String>,
    /// What else is odd about the clocks it was told by; its times hold.
    pub clock_notes: Vec<String>,
    /// What the arguments of one such call said.
    pub arguments: Arguments,
}

/// Marks of a chain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChainFlags {
    /// Part of normal work.
    pub expected: bool,
    /// It did not reach user space.
    pub swallowed: bool,
    /// Records were dropped while it grew.
    pub incomplete: bool,
}

/// A step of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Step {
    /// Kernel function.
    pub function: String,
    /// Its module; empty: built in.
    pub module: String,
    /// Its layer.
    pub layer: Layer,
    /// Positive.
    pub errno: i32,
}

impl Chain {
    /// Where a connection was to lead.
    pub fn destination(&self) -> Option<Ipv6Addr> {
        self.arguments.destination_gid.as_deref()?.parse().ok()
    }

    /// Where the error came into being. A chain has at least one step; the store and
    /// the ingest hold that.
    pub fn deepest(&self) -> &Step {
        static NOWHERE: Step = Step {
            function: String::new(),
            module: String::new(),
            layer: Layer::Unspecified,
            errno: 0,
        };
        self.steps.first().unwrap_or(&NOWHERE)
    }

    /// Whether its times or its attempt may be wrong.
    pub fn is_doubted(&self) -> bool {
        !self.doubts.is_empty() || !self.time_doubts.is_empty()
    }

    /// Whether it is part of normal work: a rule of its tracer says so, or it is the probe by
    /// which NCCL learns whether a device can register a dmabuf (ncclIbDmaBufSupport of
    /// net_ib.cc asks with the descriptor -1).
    pub fn is_expected(&self) -> bool {
        let is_probe = self.verb == Verb::RegDmabufMr
            && self.deepest().errno == EBADF
            && self.arguments.dmabuf_fd == Some(-1);
        self.flags.expected || is_probe
    }

    /// Whether any step is of `layer`.
    pub fn reaches(&self, layer: Layer) -> bool {
        self.steps.iter().any(|step| step.layer == layer)
    }

    /// Whether any step is the function `name`.
    pub fn passes(&self, name: &str) -> bool {
        self.steps.iter().any(|step| step.function == name)
    }

    /// Whether both are the same failure but for task, device and time.
    pub fn same_signature(&self, other: &Self) -> bool {
        self.driver == other.driver && self.steps == other.steps
    }
}

/// Exact failing returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Total {
    /// The host.
    pub host: String,
    /// Kernel function.
    pub function: String,
    /// Its layer.
    pub layer: Layer,
    /// Positive.
    pub errno: i32,
    /// How many.
    pub count: u64,
}

/// Failures that nobody named on a host where several attempts were placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ambiguous {
    /// The host.
    pub host: String,
    /// How many calls.
    pub calls: u64,
    /// The other attempts, for sentences.
    pub others: Vec<String>,
}

/// What was watched on a host while the attempt ran.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostWatch {
    /// The host.
    pub host: String,
    /// Whether any agent of it ever reported.
    pub known: bool,
    /// Its probes; none: no report came.
    pub probes: Option<Probes>,
    /// What it is; none: no inventory came.
    pub world: Option<HostWorld>,
    /// Seconds of the attempt that its tracer reported on.
    pub watched_seconds: f64,
    /// Seconds of the attempt; 0: how long it ran is not known.
    pub attempt_seconds: f64,
    /// Whether everything of its time that its tracer will ever report has come.
    pub settled: bool,
    /// Records that its ring dropped.
    pub drops: u64,
    /// Failing returns that its counters hold without errno or cgroup.
    pub counter_overflow: u64,
    /// Calls that its kernel did not show to the probes, failed or not.
    pub unseen: u64,
}

/// Probes of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Probes {
    /// What keeps all of them away; empty: nothing.
    pub obstacle: String,
    /// Each of them.
    pub probes: Vec<WatchedProbe>,
}

/// One hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedProbe {
    /// Name in the catalogue.
    pub hook: String,
    /// Its layer.
    pub layer: Layer,
    /// Its verb.
    pub verb: Verb,
    /// One of the thirteen.
    pub logical: bool,
    /// Whether it watches.
    pub state: ProbeState,
    /// Why it does not; empty: not told.
    pub missing_because: Vec<MissingReason>,
}

impl WatchedProbe {
    /// Whether there is nothing to watch: the driver does not have the operation, and no
    /// other reason keeps the probe away.
    pub fn is_void(&self) -> bool {
        self.missing_because == [MissingReason::DriverHasNoOperation]
    }
}

/// Whether a hook watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeState {
    /// It does.
    Attached,
    /// It does not.
    Missing,
    /// Another one does in its place.
    Replaced,
    /// It was let go on request.
    Detached,
}

/// What a host is, as far as rules look at it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostWorld {
    /// RLIMIT_MEMLOCK that services inherit, bytes; none: unlimited or not told.
    pub memlock_bytes: Option<u64>,
    /// Whether the inventory told limits at all.
    pub limits_told: bool,
    /// Peer-memory modules that are loaded.
    pub peer_modules: Vec<String>,
    /// Whether the kernel's umem helpers know dmabuf.
    pub dmabuf: bool,
    /// GPU driver; empty: none.
    pub gpu_driver: String,
}

/// Anything else that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signal {
    /// The host.
    pub host: String,
    /// When, collector time.
    pub at: OffsetDateTime,
    /// Its kind.
    pub kind: CoSignalKind,
    /// Whether it can be a cause.
    pub independent: bool,
    /// What it is.
    pub name: String,
    /// In words.
    pub detail: String,
    /// RDMA device; empty: none.
    pub device: String,
}

/// Shaping of a host while the attempt ran.
#[derive(Debug, Clone, PartialEq)]
pub struct Shaping {
    /// The shaped host.
    pub host: String,
    /// Name of the wire.
    pub wire: String,
    /// Lowest rate in force, bit/s; 0: it was never shaped.
    pub rate_bps: u64,
    /// Windows with a rate in force.
    pub windows: u64,
    /// Windows that show an outage or a loss of the shaper.
    pub invalid: u64,
    /// Seconds for which the shaper said nothing of the wire.
    pub silent_seconds: f64,
}

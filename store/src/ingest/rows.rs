//! Items of agents' streams, validated by whoever received them.
//!
//! Numbers of layers, verbs, agents and the like are those of the wire contract.

use std::sync::Arc;

use sqlx::types::Uuid;
use time::OffsetDateTime;

use crate::ingest::ClockEstimate;

/// A process of an agent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunKey {
    /// The host, as schedulers name it.
    pub host: String,
    /// Kind of agent, as the contract numbers it.
    pub agent: i16,
    /// The run.
    pub run_id: Uuid,
}

/// Sequence of an item that is refused because its own is none. It is counted as often as
/// it comes.
pub const NO_SEQUENCE: i64 = 0;

/// One item of a run.
#[derive(Debug, Clone)]
pub struct Item {
    /// The run that sent it.
    pub run: Arc<RunKey>,
    /// Its sequence within the run, from 1; [`NO_SEQUENCE`] where it has none.
    pub sequence: i64,
    /// When it came.
    pub received_at: OffsetDateTime,
    /// What is known of the host's clock at this item.
    pub clock: Option<ClockEstimate>,
    /// What it says.
    pub content: Content,
}

/// What an item says.
#[derive(Debug, Clone)]
pub enum Content {
    /// Failures of an interval.
    Snapshot(Box<Snapshot>),
    /// An interval without failures.
    Heartbeat(Heartbeat),
    /// The probes of the host.
    ProbeReport(Box<ProbeReport>),
    /// What the host is.
    Inventory(Box<InventoryReport>),
    /// An interval of a wire.
    WireWindow(Box<WireWindow>),
    /// An item that was refused on receipt, with the reason. Its sequence counts as done.
    Rejected(String),
}

/// A half-open interval on a host's boot clock, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// Begin.
    pub from_boot_ns: i64,
    /// End.
    pub to_boot_ns: i64,
}

/// An interval without failures.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    /// The interval.
    pub interval: Interval,
    /// The inventory in force.
    pub inventory_id: String,
    /// Snapshots that the run gave up so far.
    pub given_up: i64,
}

/// Failures of an interval.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The interval.
    pub interval: Interval,
    /// Begin of the interval, collector time.
    pub started_at: OffsetDateTime,
    /// End of the interval, collector time.
    pub ended_at: OffsetDateTime,
    /// The inventory in force.
    pub inventory_id: String,
    /// Snapshots that the run gave up so far.
    pub given_up: i64,
    /// Chains beyond the snapshot's limit.
    pub chains_left_out: i64,
    /// What is odd about it.
    pub marks: Vec<String>,
    /// Failing calls.
    pub chains: Vec<Chain>,
    /// Exact counters.
    pub counts: Vec<Count>,
    /// What the host could not keep.
    pub drops: Vec<Dropped>,
    /// What else failed.
    pub co_signals: Vec<CoSignal>,
    /// The exact message, compressed.
    pub body: Vec<u8>,
    /// The snapshot of the same run, stored before, that it is compressed against; none: it
    /// stands by itself.
    pub reference_seq: Option<i64>,
}

/// Which job a task or a cgroup belongs to, as its host tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The job; none: not known.
    pub job_id: Option<String>,
    /// How often the job had been requeued.
    pub requeue: i64,
    /// How often its workers had been restarted.
    pub restart: i64,
    /// How it is known.
    pub source: i16,
}

/// A step of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Step {
    /// Kernel function.
    pub function: String,
    /// Its module; empty: built in.
    pub module: String,
    /// Its layer.
    pub layer: i16,
    /// Positive.
    pub errno: i32,
}

/// A coalesced failing call.
#[derive(Debug, Clone)]
pub struct Chain {
    /// First call, collector time.
    pub first_at: OffsetDateTime,
    /// Last call, collector time.
    pub last_at: OffsetDateTime,
    /// First call, the host's own time.
    pub host_first_at: OffsetDateTime,
    /// Last call, the host's own time.
    pub host_last_at: OffsetDateTime,
    /// How many calls.
    pub count: i64,
    /// What the application asked for.
    pub verb: i16,
    /// Innermost first, at least one.
    pub steps: Vec<Step>,
    /// Module of the RDMA driver.
    pub driver: String,
    /// RDMA device.
    pub device: String,
    /// Its network interface.
    pub netdev: String,
    /// Its PCI address.
    pub pci_address: String,
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// Name of the thread.
    pub comm: String,
    /// Path of its cgroup.
    pub cgroup_path: String,
    /// Whose it is.
    pub identity: Identity,
    /// RANK.
    pub rank: Option<i32>,
    /// LOCAL_RANK.
    pub local_rank: Option<i32>,
    /// Part of normal work.
    pub expected: bool,
    /// It did not reach user space.
    pub swallowed: bool,
    /// Records were dropped while it grew.
    pub incomplete: bool,
    /// What is odd about the row.
    pub marks: Vec<String>,
    /// What the arguments of one such call said, as a JSON object.
    pub arguments: Option<String>,
}

/// An exact counter's growth in an interval.
#[derive(Debug, Clone)]
pub struct Count {
    /// Kernel function.
    pub function: String,
    /// Its module.
    pub module: String,
    /// Its layer.
    pub layer: i16,
    /// Positive.
    pub errno: i32,
    /// The cgroup's path and job; none: the counter of the whole host.
    pub cgroup: Option<(String, Identity)>,
    /// In this interval.
    pub delta: i64,
    /// Since the run began.
    pub total: i64,
}

/// What a host could not keep or see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropKind {
    /// Records in the ring.
    Ring,
    /// Failing returns in the finer counters.
    CounterMap,
    /// Calls that the kernel did not show to the probe, failed or not.
    Unseen,
}

/// Something that a host could not keep or see.
#[derive(Debug, Clone)]
pub struct Dropped {
    /// What it was.
    pub kind: DropKind,
    /// Kernel function.
    pub function: String,
    /// Its module.
    pub module: String,
    /// Its layer.
    pub layer: i16,
    /// In this interval.
    pub delta: i64,
    /// Since the run began.
    pub total: i64,
}

/// Anything else that failed near a failure.
#[derive(Debug, Clone)]
pub struct CoSignal {
    /// When, collector time.
    pub at: OffsetDateTime,
    /// Its kind.
    pub kind: i16,
    /// Whether it can be a cause.
    pub independent: bool,
    /// What it is.
    pub name: String,
    /// In words.
    pub detail: String,
    /// RDMA device; empty: none.
    pub device: String,
    /// The process that it is about, and whose it is.
    pub task: Option<(u32, Identity)>,
    /// What is odd about it.
    pub marks: Vec<String>,
}

/// The probes of a host.
#[derive(Debug, Clone)]
pub struct ProbeReport {
    /// Kernel release.
    pub kernel_release: String,
    /// Logical hooks that are served.
    pub logical_attached: i32,
    /// Logical hooks in all.
    pub logical_total: i32,
    /// What keeps all of them away; empty: nothing.
    pub obstacle: String,
    /// Each probe.
    pub probes: Vec<Probe>,
    /// What is odd about it.
    pub marks: Vec<String>,
    /// The message, encoded.
    pub body: Vec<u8>,
}

/// One hooked function.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Probe {
    /// Name in the catalogue.
    pub hook: String,
    /// Kernel function.
    pub function: String,
    /// Its module.
    pub module: String,
    /// Its layer.
    pub layer: i16,
    /// Its verb.
    pub verb: i16,
    /// One of the thirteen.
    pub logical: bool,
    /// Attached, missing, replaced, detached.
    pub state: i16,
    /// How it is attached.
    pub attached_by: i16,
    /// Why it is not.
    pub reason: String,
    /// Failing returns so far.
    pub failures: i64,
    /// Records dropped so far.
    pub drops: i64,
    /// Calls that the kernel did not show to it so far.
    pub unseen: i64,
    /// How its place was found.
    pub found_by: String,
    /// Why it is missing, as the contract numbers it.
    pub missing_because: Vec<i16>,
}

/// What a host is.
#[derive(Debug, Clone)]
pub struct InventoryReport {
    /// Digest of the content.
    pub id: String,
    /// From when on, the host's own time.
    pub seen_at: OffsetDateTime,
    /// Kernel release.
    pub kernel_release: String,
    /// Out-of-tree stack; empty: none.
    pub ofed_version: String,
    /// Name and version; empty: none.
    pub gpu_driver: String,
    /// What SQL users see of it, as a JSON object.
    pub summary: String,
    /// What is odd about it.
    pub marks: Vec<String>,
    /// GIDs of its ports.
    pub addresses: Vec<PortAddress>,
    /// The message, encoded.
    pub body: Vec<u8>,
}

/// A GID of a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortAddress {
    /// Its 16 bytes.
    pub gid: [u8; 16],
    /// RDMA device.
    pub device: String,
    /// Port of the device.
    pub port: i64,
}

/// An interval of a wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireWindow {
    /// Begin, collector time.
    pub from_at: OffsetDateTime,
    /// End, collector time.
    pub to_at: OffsetDateTime,
    /// Name of the wire.
    pub wire: String,
    /// Host whose virtual function is shaped.
    pub shaped_host: String,
    /// The virtual function.
    pub virtual_function: String,
    /// Line rate, bit/s; 0: not shaped.
    pub rate_bps: i64,
    /// The rate that a reset goes back to, bit/s.
    pub configured_rate_bps: i64,
    /// When the rate goes back to it by itself, time of the shaper.
    pub expires_at: Option<OffsetDateTime>,
    /// Grows with each change of the wire.
    pub policy_generation: i64,
    /// Frames sent.
    pub sent_frames: i64,
    /// Bits sent, overhead included.
    pub sent_bits: i64,
    /// Frames that wait at the end.
    pub queue_frames_now: i64,
    /// Frames that wait, median.
    pub queue_frames_p50: i64,
    /// Frames that wait, 99th percentile.
    pub queue_frames_p99: i64,
    /// Frames that wait, most.
    pub queue_frames_max: i64,
    /// Time that a frame waited, median, nanoseconds.
    pub waited_ns_p50: i64,
    /// 99th percentile.
    pub waited_ns_p99: i64,
    /// Longest.
    pub waited_ns_max: i64,
    /// Wire time that late polls took from the catch-up, picoseconds.
    pub catch_up_used_ps: i64,
    /// Wire time lost to poll gaps, picoseconds.
    pub lost_ps: i64,
    /// Frames marked Congestion Experienced.
    pub ce_marks: i64,
    /// Frames dropped by the port for want of descriptors.
    pub imissed: i64,
    /// Frames dropped by the port for want of buffers.
    pub rx_nombuf: i64,
    /// Frames that the sending port did not take at once.
    pub tx_not_accepted: i64,
    /// Polls at which the wire was full.
    pub full_polls: i64,
    /// Longest time between polls, nanoseconds.
    pub longest_poll_gap_ns: i64,
    /// Poll gaps by powers of two, nanoseconds.
    pub poll_gap_buckets: Vec<i64>,
    /// Frames that a sender sent again.
    pub repeated_frames: i64,
    /// Bytes of these frames.
    pub repeated_bytes: i64,
    /// Windows that the run gave up so far.
    pub windows_given_up: i64,
    /// Causes why it is invalid, as the contract numbers them.
    pub invalid: Vec<i16>,
    /// Traffic went around the shaper.
    pub bypass: bool,
    /// Version of the engine.
    pub engine_version: String,
    /// Digest of the configuration.
    pub configuration_hash: String,
    /// What is odd about it.
    pub marks: Vec<String>,
    /// The message, encoded.
    pub body: Vec<u8>,
}

//! Failures and their chains.

use rdmesh_proto::collector::v1 as wire;
use rdmesh_proto::tracer::v1 as tracer;
use serde::Serialize;

use super::arguments::CallArguments;
use super::{Layer, Verb, moment_or_mark, text, wire_enum};
use crate::attempt::AttemptId;
use crate::errno;
use crate::moment::Moment;

wire_enum! {
    /// How it is known which job a task belongs to, best first.
    IdentitySource from rdmesh_proto::common::v1::IdentitySource {
        Environment => "environment",
        Cgroup => "cgroup",
        Placement => "placement",
        None => "none",
    }
}

/// One failing function of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChainStep {
    /// Kernel function.
    pub function: String,
    /// Its module; absent: built into the kernel.
    pub module: Option<String>,
    /// Where it stands.
    pub layer: Layer,
    /// Positive.
    pub errno: u32,
    /// `EFAULT`; absent when the number has no name.
    pub errno_name: Option<String>,
}

impl From<tracer::ChainStep> for ChainStep {
    fn from(step: tracer::ChainStep) -> ChainStep {
        ChainStep {
            function: step.function,
            module: text(step.module),
            layer: step.layer.into(),
            errno: step.errno,
            errno_name: errno_name(step.errno, step.errno_name),
        }
    }
}

/// The name that the wire gives, else the one of the local table.
pub(crate) fn errno_name(number: u32, told: String) -> Option<String> {
    text(told).or_else(|| errno::name_of(number).map(str::to_owned))
}

/// A chain, coalesced by signature and task within one snapshot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failure {
    /// Where it happened.
    pub host: String,
    /// First time, on the collector's clock.
    pub first_at: Option<Moment>,
    /// Last time, on the collector's clock.
    pub last_at: Option<Moment>,
    /// How often.
    pub count: u64,
    /// What was asked for.
    pub verb: Verb,
    /// Innermost first.
    pub steps: Vec<ChainStep>,
    /// Kernel module of the device.
    pub driver: Option<String>,
    /// RDMA device.
    pub device: Option<String>,
    /// Its network device.
    pub netdev: Option<String>,
    /// Its place on the PCI bus.
    pub pci_address: Option<String>,
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// The process's own name for itself: not to be trusted.
    pub comm: Option<String>,
    /// Its cgroup.
    pub cgroup_path: Option<String>,
    /// `RANK`.
    pub rank: Option<i32>,
    /// `LOCAL_RANK`.
    pub local_rank: Option<i32>,
    /// Absent: no attempt could be named.
    pub attempt: Option<AttemptId>,
    /// How the attempt is known.
    pub source: IdentitySource,
    /// Part of normal work, by rule.
    pub expected: bool,
    /// The error did not reach user space.
    pub swallowed: bool,
    /// Records were dropped meanwhile.
    pub incomplete: bool,
    /// What one such call was asked to do; absent: no probe read it.
    pub arguments: Option<CallArguments>,
    /// What is odd about the row.
    pub marks: Vec<String>,
    /// First time on the host's own clock: to find the moment in its logs.
    pub host_first_at: Option<Moment>,
    /// Which snapshot brought it: the agent's run.
    pub run_id: Option<String>,
    /// Its number in that run.
    pub sequence: u64,
    /// The failure's place in it.
    pub ordinal: u32,
}

impl From<wire::Failure> for Failure {
    /// A field that breaks the contract leaves a mark on this row and keeps no
    /// other row from being shown.
    fn from(f: wire::Failure) -> Failure {
        let mut marks = f.marks;
        let attempt = f.attempt.map(|id| AttemptId::told(id, &mut marks));
        Failure {
            host: f.host,
            first_at: moment_or_mark(&mut marks, "first_at", f.first_at),
            last_at: moment_or_mark(&mut marks, "last_at", f.last_at),
            count: f.count,
            verb: f.verb.into(),
            steps: f.steps.into_iter().map(Into::into).collect(),
            driver: text(f.driver),
            device: text(f.device),
            netdev: text(f.netdev),
            pci_address: text(f.pci_address),
            tgid: f.tgid,
            tid: f.tid,
            comm: text(f.comm),
            cgroup_path: text(f.cgroup_path),
            rank: f.rank,
            local_rank: f.local_rank,
            attempt,
            source: f.source.into(),
            expected: f.expected,
            swallowed: f.swallowed,
            incomplete: f.incomplete,
            arguments: f.arguments.map(Into::into),
            host_first_at: f
                .host_first_at
                .and_then(|at| moment_or_mark(&mut marks, "host_first_at", Some(at))),
            marks,
            run_id: text(f.run_id),
            sequence: f.sequence,
            ordinal: f.ordinal,
        }
    }
}

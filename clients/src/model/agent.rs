//! Agents.

use rdmesh_proto::collector::v1 as wire;
use serde::Serialize;

use super::{moment_or_mark, text, wire_enum};
use crate::moment::Moment;

wire_enum! {
    /// What an agent does.
    AgentKind from rdmesh_proto::common::v1::AgentKind {
        Tracer => "tracer",
        Shaper => "shaper",
    }
}

wire_enum! {
    /// How an agent does, the worst first.
    AgentHealth from rdmesh_proto::collector::v1::AgentHealth {
        Silent => "silent",
        Degraded => "degraded",
        Healthy => "healthy",
    }
}

/// One agent on one host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Agent {
    /// Where it runs.
    pub host: String,
    /// What it does.
    pub kind: AgentKind,
    /// How it does.
    pub health: AgentHealth,
    /// Why it is not healthy.
    pub reasons: Vec<String>,
    /// Its version.
    pub version: Option<String>,
    /// Kernel of its host.
    pub kernel_release: Option<String>,
    /// Where its own service can be dialled.
    pub address: Option<String>,
    /// When it last reported.
    pub last_seen_at: Option<Moment>,
    /// Host clock minus collector clock, nanoseconds.
    pub clock_offset_ns: Option<i64>,
    /// Logical hooks with an attached probe.
    pub logical_attached: u32,
    /// Logical hooks in all.
    pub logical_total: u32,
    /// Failing returns since its run began.
    pub failures: u64,
    /// Records dropped since its run began.
    pub drops: u64,
    /// Calls that the kernel hid from its probes since its run began: whether they
    /// failed is not known.
    pub unseen: u64,
    /// Snapshots stored.
    pub snapshots: u64,
    /// Snapshots that never came.
    pub snapshots_missing: u64,
    /// Its run.
    pub run_id: Option<String>,
    /// Its host's boot.
    pub boot_id: Option<String>,
    /// When the certificate ends that it showed last; absent: it showed none.
    pub certificate_ends_at: Option<Moment>,
    /// How old what it told last was when it came, seconds.
    pub lag_seconds: Option<f64>,
}

impl From<wire::Agent> for Agent {
    /// A field that breaks the contract is told among the reasons and keeps no
    /// other row from being shown.
    fn from(a: wire::Agent) -> Agent {
        let mut reasons = a.reasons;
        Agent {
            host: a.host,
            kind: a.kind.into(),
            health: a.health.into(),
            version: text(a.version),
            kernel_release: text(a.kernel_release),
            address: text(a.address),
            last_seen_at: moment_or_mark(&mut reasons, "last_seen_at", a.last_seen_at),
            clock_offset_ns: a.clock_offset_ns,
            logical_attached: a.logical_attached,
            logical_total: a.logical_total,
            failures: a.failures,
            drops: a.drops,
            unseen: a.unseen,
            snapshots: a.snapshots,
            snapshots_missing: a.snapshots_missing,
            run_id: text(a.run_id),
            boot_id: text(a.boot_id),
            certificate_ends_at: moment_or_mark(
                &mut reasons,
                "certificate_ends_at",
                a.certificate_ends_at,
            ),
            lag_seconds: a.lag_seconds,
            reasons,
        }
    }
}

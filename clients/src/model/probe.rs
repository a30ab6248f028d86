//! Probe reports.

use rdmesh_proto::collector::v1 as wire;
use rdmesh_proto::tracer::v1 as tracer;
use serde::Serialize;

use super::{Layer, Verb, moment, present, text, wire_enum};
use crate::error::ClientError;
use crate::moment::Moment;

wire_enum! {
    /// The verbs object that a call makes or changes.
    ObjectType from rdmesh_proto::common::v1::ObjectType {
        Pd => "pd",
        Mr => "mr",
        Cq => "cq",
        Qp => "qp",
        Ah => "ah",
        Devx => "devx",
        Umem => "umem",
        Device => "device",
    }
}

wire_enum! {
    /// How a probe stands.
    ProbeState from rdmesh_proto::tracer::v1::ProbeState {
        Attached => "attached",
        Missing => "missing",
        Replaced => "replaced",
        Detached => "detached",
    }
}

wire_enum! {
    /// By which means of the kernel.
    AttachKind from rdmesh_proto::tracer::v1::AttachKind {
        Fexit => "fexit",
        Kretprobe => "kretprobe",
        KretprobeMulti => "kretprobe_multi",
    }
}

wire_enum! {
    /// Why a probe is missing.
    MissingReason from rdmesh_proto::tracer::v1::MissingReason {
        ModuleNotLoaded => "module_not_loaded",
        NoDriver => "no_driver",
        NoSuchFunction => "no_such_function",
        ChangedByCompiler => "changed_by_compiler",
        NotDescribed => "not_described",
        NoBtf => "no_btf",
        NotTraceable => "not_traceable",
        DriverHasNoOperation => "driver_has_no_operation",
        NoReturnValue => "no_return_value",
        RefusedByKernel => "refused_by_kernel",
        Detached => "detached",
        BudgetPassed => "budget_passed",
        Ambiguous => "ambiguous",
    }
}

impl MissingReason {
    /// Nothing is there that could be watched, now or at all.
    #[must_use]
    pub fn is_absence(self) -> bool {
        matches!(
            self,
            MissingReason::ModuleNotLoaded
                | MissingReason::NoDriver
                | MissingReason::DriverHasNoOperation
        )
    }
}

/// One hook of the catalogue on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// Name in the catalogue.
    pub hook: String,
    /// Kernel function; absent: none was found.
    pub function: Option<String>,
    /// Its module.
    pub module: Option<String>,
    /// Where it stands.
    pub layer: Layer,
    /// What it serves.
    pub verb: Verb,
    /// Which object.
    pub object: ObjectType,
    /// One of the thirteen logical hooks.
    pub logical: bool,
    /// How it stands.
    pub state: ProbeState,
    /// By which means.
    pub attached_by: Option<AttachKind>,
    /// Why it is missing, what replaced it, or why it is not attached by fexit.
    pub reason: Option<String>,
    /// Why it is missing, for programs.
    pub missing_because: Vec<MissingReason>,
    /// Failing returns since the run began.
    pub failures: u64,
    /// Records dropped since the run began.
    pub drops: u64,
    /// Calls that the kernel hid from the probe since the run began: whether they
    /// failed is not known.
    pub unseen: u64,
    /// How its place was found.
    pub found_by: Option<String>,
    /// What its records tell of the call: `qp_number`, `gid_index`.
    pub arguments: Vec<String>,
    /// What they should tell and cannot on this kernel, with the reason.
    pub arguments_absent: Vec<String>,
    /// Runs that the kernel timed since the probe was attached.
    pub runs_timed: u64,
    /// Time of all of them, nanoseconds.
    pub run_time_ns: u64,
}

impl Probe {
    /// Mean time of a run, nanoseconds; none where none was timed.
    #[must_use]
    pub fn mean_run_ns(&self) -> Option<u64> {
        self.run_time_ns.checked_div(self.runs_timed)
    }
}

/// What a tracer takes of its host, as shares of one CPU: 0.01 is one percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TracerCost {
    /// Of its process, over the last minute or what its budget is set to.
    pub process_cpu_share: f64,
    /// Of its programs in the kernel, in the last interval that the kernel timed.
    pub probes_cpu_share: Option<f64>,
}

/// The probes of one host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostProbes {
    /// Which host.
    pub host: String,
    /// When its report came.
    pub reported_at: Option<Moment>,
    /// When its probes were resolved.
    pub resolved_at: Option<Moment>,
    /// Its kernel.
    pub kernel_release: Option<String>,
    /// Its RDMA drivers.
    pub drivers: Vec<String>,
    /// Logical hooks with an attached probe.
    pub logical_attached: u32,
    /// Logical hooks in all.
    pub logical_total: u32,
    /// What keeps all probes away.
    pub obstacle: Option<String>,
    /// How the catalogue was fitted to a kernel that it was not checked on.
    pub resolution: Option<String>,
    /// What the tracer costs there; absent: it did not say.
    pub cost: Option<TracerCost>,
    /// What is odd about the report.
    pub marks: Vec<String>,
    /// Every hook of the catalogue.
    pub probes: Vec<Probe>,
}

impl From<tracer::Probe> for Probe {
    fn from(p: tracer::Probe) -> Probe {
        let attached_by = AttachKind::from(p.attached_by);
        Probe {
            hook: p.hook,
            function: text(p.function),
            module: text(p.module),
            layer: p.layer.into(),
            verb: p.verb.into(),
            object: p.object.into(),
            logical: p.logical,
            state: p.state.into(),
            attached_by: (attached_by != AttachKind::Unspecified).then_some(attached_by),
            reason: text(p.reason),
            missing_because: p.missing_because.into_iter().map(Into::into).collect(),
            failures: p.failures,
            drops: p.drops,
            unseen: p.unseen,
            found_by: text(p.found_by),
            arguments: p.arguments,
            arguments_absent: p.arguments_absent,
            runs_timed: p.runs_timed,
            run_time_ns: p.run_time_ns,
        }
    }
}

impl From<tracer::TracerCost> for TracerCost {
    fn from(cost: tracer::TracerCost) -> TracerCost {
        TracerCost {
            process_cpu_share: cost.process_cpu_share,
            probes_cpu_share: cost.probes_cpu_share,
        }
    }
}

impl TryFrom<wire::GetHostProbesResponse> for HostProbes {
    type Error = ClientError;

    fn try_from(answer: wire::GetHostProbesResponse) -> Result<HostProbes, ClientError> {
        let report = present("report", answer.report)?;
        Ok(HostProbes {
            host: answer.host,
            reported_at: moment("reported_at", answer.reported_at)?,
            resolved_at: moment("report.resolved_at", report.resolved_at)?,
            kernel_release: text(report.kernel_release),
            drivers: report.drivers,
            logical_attached: report.logical_attached,
            logical_total: report.logical_total,
            obstacle: text(report.obstacle),
            resolution: text(report.resolution),
            cost: report.cost.map(Into::into),
            marks: answer.marks,
            probes: report.probes.into_iter().map(Into::into).collect(),
        })
    }
}

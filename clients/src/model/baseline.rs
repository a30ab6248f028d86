//! Baselines of good calls, and where failing ones part from them.

use rdmesh_proto::collector::v1::CapturedFork as WireCaptured;
use rdmesh_proto::tracer::v1 as wire;
use serde::Serialize;

use super::{moment, moment_or_mark, text, wire_enum};
use crate::error::ClientError;
use crate::moment::Moment;
use crate::tracer::TracerError;

wire_enum! {
    /// What a window does.
    WindowPhase from rdmesh_proto::tracer::v1::WindowPhase {
        Finding => "finding",
        Attaching => "attaching",
        Watching => "watching",
        Ended => "ended",
    }
}

/// How a window stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WindowProgress {
    /// What it does.
    pub phase: WindowPhase,
    /// Of its time, rounded up.
    pub seconds_left: u32,
    /// The driver whose functions are watched; absent while it is not known.
    pub driver: Option<String>,
    /// Functions that are watched.
    pub functions: u32,
    /// Reached, and cannot be watched.
    pub unwatchable: u32,
    /// Reached, and left out because the kernel takes functions one by one.
    pub beyond_bound: u32,
    /// Calls that succeeded within 50 ms.
    pub good_calls: u64,
    /// Calls that succeeded and took longer.
    pub slow_calls: u64,
    /// Calls that failed.
    pub failed_calls: u64,
    /// Calls that could not be followed.
    pub lost_calls: u64,
    /// Kinds of failing calls that were told.
    pub kinds: u32,
}

/// How often a function returned so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReturnCount {
    /// `good`, or the errno's name.
    pub outcome: String,
    /// How often.
    pub count: u64,
}

/// A function at one place of a baseline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BaselineNode {
    /// Calls from the entry point; 0 is one.
    pub depth: u32,
    /// The kernel function.
    pub function: String,
    /// Good calls that came here.
    pub calls: u64,
    /// What it returned.
    pub returns: Vec<ReturnCount>,
}

/// What good calls of a verb do on one kernel with one driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Baseline {
    /// `uname -r`.
    pub kernel_release: String,
    /// The NIC's driver.
    pub driver: String,
    /// The verb.
    pub verb: String,
    /// When the last window ended.
    pub recorded_at: Option<Moment>,
    /// Good calls in it.
    pub good_calls: u64,
    /// Functions that were watched.
    pub functions: u64,
    /// Each below the last one before it whose depth is less by one; empty when only
    /// the list was asked for.
    pub nodes: Vec<BaselineNode>,
}

/// The baselines of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Baselines {
    /// By kernel, driver and verb.
    pub baselines: Vec<Baseline>,
    /// Files that held none and were set aside, and why.
    pub damaged: Vec<String>,
}

/// One call of a failing trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceStep {
    /// Calls from the entry point.
    pub depth: u32,
    /// The kernel function.
    pub function: String,
    /// What it returned: a positive errno; 0: no error.
    pub errno: u32,
}

/// Where a failing call parts from good ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fork {
    /// Its verb.
    pub verb: String,
    /// When it returned.
    pub at: Option<Moment>,
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// How the call failed.
    pub call_errno: u32,
    /// Its name.
    pub call_errno_name: String,
    /// Where: the last of `path`.
    pub function: String,
    /// Calls from the entry point.
    pub depth: u32,
    /// From the entry point to the function, both included.
    pub path: Vec<String>,
    /// What the function returned.
    pub errno: u32,
    /// Its name.
    pub errno_name: String,
    /// What it returns in good calls at this place; empty: they do not call it there.
    pub usual: Vec<ReturnCount>,
    /// Good calls of the entry point.
    pub good_calls: u64,
    /// The first function that it called and good calls do not call there.
    pub called_newly: Option<String>,
    /// Functions that it calls in every good call and did not call here.
    pub not_reached: Vec<String>,
    /// The failing call.
    pub trace: Vec<TraceStep>,
}

/// Where a call like the one that decided leaves good ones, as automatic mode captured it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CapturedFork {
    /// What was seen.
    #[serde(flatten)]
    pub fork: Fork,
    /// Where it was captured: not always a host of the attempt.
    pub host: String,
    /// Its kernel.
    pub kernel_release: String,
    /// Module of the RDMA driver.
    pub driver: String,
    /// The host that recorded the good calls.
    pub baseline_host: String,
    /// When.
    pub baseline_recorded_at: Option<Moment>,
}

impl CapturedFork {
    /// What the collector told; `odd` gets a mark where it cannot be read.
    pub(crate) fn told(told: WireCaptured, odd: &mut Vec<String>) -> Option<CapturedFork> {
        let at = told.baseline_recorded_at;
        let recorded_at = moment_or_mark(odd, "captured.baseline_recorded_at", at);
        match told.fork.map(Fork::try_from)? {
            Ok(fork) => Some(CapturedFork {
                fork,
                host: told.host,
                kernel_release: told.kernel_release,
                driver: told.driver,
                baseline_host: told.baseline_host,
                baseline_recorded_at: recorded_at,
            }),
            Err(error) => {
                odd.push(format!("captured: {error}"));
                None
            }
        }
    }
}

impl From<wire::WindowProgress> for WindowProgress {
    fn from(p: wire::WindowProgress) -> WindowProgress {
        WindowProgress {
            phase: p.phase.into(),
            seconds_left: p.seconds_left,
            driver: text(p.driver),
            functions: p.functions,
            unwatchable: p.unwatchable,
            beyond_bound: p.beyond_bound,
            good_calls: p.good_calls,
            slow_calls: p.slow_calls,
            failed_calls: p.failed_calls,
            lost_calls: p.lost_calls,
            kinds: p.kinds,
        }
    }
}

fn returns(counts: Vec<wire::ReturnCount>) -> Vec<ReturnCount> {
    let count = |c: wire::ReturnCount| ReturnCount {
        outcome: c.outcome,
        count: c.count,
    };
    counts.into_iter().map(count).collect()
}

fn told(error: ClientError) -> TracerError {
    match error {
        ClientError::BadAnswer { field, reason } => TracerError::BadAnswer { field, reason },
        other => TracerError::BadAnswer {
            field: "answer",
            reason: other.to_string(),
        },
    }
}

impl TryFrom<wire::Baseline> for Baseline {
    type Error = TracerError;

    fn try_from(b: wire::Baseline) -> Result<Baseline, TracerError> {
        let node = |n: wire::BaselineNode| BaselineNode {
            depth: n.depth,
            function: n.function,
            calls: n.calls,
            returns: returns(n.returns),
        };
        Ok(Baseline {
            recorded_at: moment("baseline.recorded_at", b.recorded_at).map_err(told)?,
            kernel_release: b.kernel_release,
            driver: b.driver,
            verb: b.verb,
            good_calls: b.good_calls,
            functions: b.functions,
            nodes: b.nodes.into_iter().map(node).collect(),
        })
    }
}

impl TryFrom<wire::ListBaselinesResponse> for Baselines {
    type Error = TracerError;

    fn try_from(answer: wire::ListBaselinesResponse) -> Result<Baselines, TracerError> {
        let baselines = answer.baselines.into_iter().map(Baseline::try_from);
        Ok(Baselines {
            baselines: baselines.collect::<Result<_, _>>()?,
            damaged: answer.damaged,
        })
    }
}

impl TryFrom<wire::Fork> for Fork {
    type Error = TracerError;

    fn try_from(f: wire::Fork) -> Result<Fork, TracerError> {
        let function = f.path.last().cloned();
        let step = |s: wire::TraceStep| TraceStep {
            depth: s.depth,
            function: s.function,
            errno: s.errno,
        };
        Ok(Fork {
            at: moment("fork.at", f.at).map_err(told)?,
            function: function.ok_or_else(|| TracerError::BadAnswer {
                field: "fork.path",
                reason: "it is empty".to_owned(),
            })?,
            depth: u32::try_from(f.path.len() - 1).unwrap_or(u32::MAX),
            verb: f.verb,
            tgid: f.tgid,
            tid: f.tid,
            call_errno: f.call_errno,
            call_errno_name: f.call_errno_name,
            path: f.path,
            errno: f.errno,
            errno_name: f.errno_name,
            usual: returns(f.usual),
            good_calls: f.good_calls,
            called_newly: text(f.called_newly),
            not_reached: f.not_reached,
            trace: f.trace.into_iter().map(step).collect(),
        })
    }
}

//! Verdicts.

use rdmesh_proto::collector::v1 as wire;
use serde::Serialize;

use super::baseline::CapturedFork;
use super::failure::{ChainStep, Failure, errno_name};
use super::job::Job;
use super::log::{FlightFinding, LogVerdict};
use super::{Layer, Verb, moment_or_mark, present, text, wire_enum};
use crate::error::ClientError;
use crate::moment::Moment;

wire_enum! {
    /// What kind of cause.
    VerdictClass from rdmesh_proto::collector::v1::VerdictClass {
        ApplicationArguments => "application_arguments",
        GpuPeerMemory => "gpu_peer_memory",
        MemoryLimits => "memory_limits",
        MemoryPinning => "memory_pinning",
        Driver => "driver",
        Firmware => "firmware",
        Reachability => "reachability",
        Configuration => "configuration",
        SwallowedError => "swallowed_error",
        Network => "network",
        Device => "device",
        Host => "host",
        Process => "process",
        InjectedStraggler => "injected_straggler",
        CannotTell => "cannot_tell",
    }
}

wire_enum! {
    /// How sure the collector is.
    Confidence from rdmesh_proto::collector::v1::Confidence {
        Low => "low",
        Medium => "medium",
        High => "high",
    }
}

/// What broke an attempt.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// What kind of cause.
    pub class: VerdictClass,
    /// Where the error came into being; absent: no failure decided.
    pub layer: Option<Layer>,
    /// The deepest failing function.
    pub function: Option<String>,
    /// Its module.
    pub module: Option<String>,
    /// Positive; absent: no errno decided.
    pub errno: Option<u32>,
    /// `EFAULT`.
    pub errno_name: Option<String>,
    /// Where.
    pub hosts: Vec<String>,
    /// On which RDMA devices.
    pub devices: Vec<String>,
    /// When it was first seen.
    pub first_at: Option<Moment>,
    /// How sure.
    pub confidence: Confidence,
    /// Whom to call.
    pub route_to: Option<String>,
    /// The rule that decided.
    pub rule: Option<String>,
    /// What speaks for it.
    pub evidence: Vec<String>,
    /// What speaks against it.
    pub against: Vec<String>,
    /// What could have been seen and was not watched.
    pub unwatched: Vec<String>,
    /// One sentence for a person.
    pub summary: Option<String>,
    /// What it means.
    pub meaning: Option<String>,
    /// What to check next.
    pub next_steps: Vec<String>,
    /// What was asked for.
    pub verb: Option<Verb>,
    /// The deciding chain, innermost first.
    pub chain: Vec<ChainStep>,
    /// Rows of failures that were looked at, the first of the attempt.
    pub failures_looked_at: u64,
    /// Rows of failures that the attempt has.
    pub failures_total: u64,
    /// Earlier attempts of the job with the same failure, oldest first.
    pub same_failure: Vec<String>,
    /// When it was decided, where details have aged out since; absent: just now.
    pub decided_at: Option<Moment>,
}

/// Failing returns of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailureTotal {
    /// Where.
    pub host: String,
    /// Kernel function.
    pub function: String,
    /// Its module.
    pub module: Option<String>,
    /// Where it stands.
    pub layer: Layer,
    /// Positive.
    pub errno: u32,
    /// `EFAULT`.
    pub errno_name: Option<String>,
    /// How often.
    pub count: u64,
}

/// Failures that the collector sends with a verdict at most; the answer of one that
/// does not say how many there are may have left some out when it holds as many.
pub const MAX_VERDICT_FAILURES: usize = 200;

/// A verdict with the job and the failures that it looked at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The verdict; in JSON its fields stand at the top.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Ranks whose failures decided, in order of their first failure.
    pub ranks: Vec<i32>,
    /// Whether the collector may have left failures out of this answer, so that
    /// `ranks` and `failures` are not all.
    pub ranks_cut: bool,
    /// The attempt.
    pub job: Job,
    /// First to last, bounded.
    pub failures: Vec<Failure>,
    /// Failing returns: exact where `unseen` is 0, else at least so many.
    pub totals: Vec<FailureTotal>,
    /// Calls on the attempt's hosts, while it ran, that the kernel hid from the
    /// probes.
    pub unseen: u64,
    /// What the job's own logs say beside the verdict; absent: none came.
    pub log: Option<LogVerdict>,
    /// What the Flight Recorder's dumps say, the group in which the wait began first.
    pub flight: Vec<FlightFinding>,
    /// Where such a failing call leaves good ones; absent: none was captured.
    pub captured: Option<CapturedFork>,
}

impl Verdict {
    /// What the collector told; `odd` gets a mark for what cannot be read.
    fn told(v: wire::Verdict, odd: &mut Vec<String>) -> Verdict {
        let layer = Layer::from(v.layer);
        let verb = Verb::from(v.verb);
        Verdict {
            class: v.class.into(),
            layer: (layer != Layer::Unspecified).then_some(layer),
            function: text(v.function),
            module: text(v.module),
            errno: (v.errno != 0).then_some(v.errno),
            errno_name: errno_name(v.errno, v.errno_name),
            hosts: v.hosts,
            devices: v.devices,
            first_at: moment_or_mark(odd, "verdict.first_at", v.first_at),
            confidence: v.confidence.into(),
            route_to: text(v.route_to),
            rule: text(v.rule),
            evidence: v.evidence,
            against: v.against,
            unwatched: v.unwatched,
            summary: text(v.summary),
            meaning: text(v.meaning),
            next_steps: v.next_steps,
            verb: (verb != Verb::Unspecified).then_some(verb),
            chain: v.chain.into_iter().map(Into::into).collect(),
            failures_looked_at: v.failures_looked_at,
            failures_total: v.failures_total,
            same_failure: v.same_failure,
            decided_at: moment_or_mark(odd, "verdict.decided_at", v.decided_at),
        }
    }
}

impl From<wire::FailureTotal> for FailureTotal {
    fn from(t: wire::FailureTotal) -> FailureTotal {
        FailureTotal {
            host: t.host,
            function: t.function,
            module: text(t.module),
            layer: t.layer.into(),
            errno: t.errno,
            errno_name: errno_name(t.errno, t.errno_name),
            count: t.count,
        }
    }
}

impl TryFrom<wire::DiagnoseResponse> for Diagnosis {
    type Error = ClientError;

    fn try_from(answer: wire::DiagnoseResponse) -> Result<Diagnosis, ClientError> {
        let mut odd = Vec::new();
        let verdict = Verdict::told(present("verdict", answer.verdict)?, &mut odd);
        let failures: Vec<Failure> = answer.failures.into_iter().map(Failure::from).collect();
        let captured = answer.captured;
        let captured = captured.and_then(|fork| CapturedFork::told(fork, &mut odd));
        let mut job = Job::from(present("job", answer.job)?);
        job.marks.append(&mut odd);
        Ok(Diagnosis {
            ranks: deciding_ranks(&verdict, &failures),
            ranks_cut: match usize::try_from(verdict.failures_total) {
                Ok(0) => failures.len() >= MAX_VERDICT_FAILURES,
                total => total.is_ok_and(|total| failures.len() < total) || total.is_err(),
            },
            verdict,
            job,
            failures,
            totals: answer.totals.into_iter().map(Into::into).collect(),
            unseen: answer.unseen,
            log: answer.log.map(Into::into),
            flight: answer.flight.into_iter().map(Into::into).collect(),
            captured,
        })
    }
}

/// The ranks of the failures that hold the deciding function with its errno, on
/// the verdict's hosts.
fn deciding_ranks(verdict: &Verdict, failures: &[Failure]) -> Vec<i32> {
    let decides = |step: &ChainStep| {
        verdict.function.as_ref() == Some(&step.function) && verdict.errno == Some(step.errno)
    };
    let mut deciding: Vec<&Failure> = failures
        .iter()
        .filter(|f| !f.expected && verdict.hosts.contains(&f.host) && f.steps.iter().any(decides))
        .collect();
    deciding.sort_by_key(|f| f.first_at);
    let mut ranks = Vec::new();
    for rank in deciding.into_iter().filter_map(|f| f.rank) {
        if !ranks.contains(&rank) {
            ranks.push(rank);
        }
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_that_says_nothing_leaves_a_mark_and_the_verdict() {
        let answer = wire::DiagnoseResponse {
            job: Some(wire::Job {
                attempt: Some(rdmesh_proto::common::v1::AttemptId {
                    job_id: "7".to_owned(),
                    requeue: 0,
                    restart: 0,
                }),
                ..wire::Job::default()
            }),
            verdict: Some(wire::Verdict::default()),
            captured: Some(wire::CapturedFork {
                fork: Some(rdmesh_proto::tracer::v1::Fork::default()),
                ..wire::CapturedFork::default()
            }),
            ..wire::DiagnoseResponse::default()
        };
        let diagnosis = Diagnosis::try_from(answer).unwrap();
        assert_eq!(diagnosis.captured, None);
        let marks = &diagnosis.job.marks;
        assert!(marks.iter().any(|m| m.contains("fork.path")), "{marks:?}");
    }
}

//! A verdict, as it is kept and as the contract holds it.

use prost::Message;
use rdmesh_proto::collector::v1::{
    Confidence, FailureTotal, Verdict as VerdictMessage, VerdictClass,
};
use rdmesh_proto::tracer::v1::ChainStep;
use rdmesh_store::errno;
use rdmesh_store::evidence::Total as StoredTotal;
use rdmesh_store::verdicts::{Counted, KeptVerdict, StoredVerdict};

use crate::diagnosis::{LogOpinion, Step, Verdict};
use crate::{names, times};

fn class_name(class: VerdictClass) -> String {
    names::without(class.as_str_name(), "VERDICT_CLASS_")
}

fn small(value: i32) -> i16 {
    i16::try_from(value).unwrap_or(0)
}

pub(super) fn stored(
    verdict: &Verdict,
    signature_id: Option<i64>,
    counted: Counted,
) -> StoredVerdict {
    StoredVerdict {
        class: class_name(verdict.class),
        layer: small(verdict.layer.into()),
        verb: small(verdict.verb.into()),
        function: verdict.function.clone(),
        module: verdict.module.clone(),
        errno: verdict.errno,
        errno_name: verdict.errno_name.clone(),
        hosts: verdict.hosts.clone(),
        devices: verdict.devices.clone(),
        first_at: verdict.first_at,
        confidence: confidence_name(verdict.confidence),
        route_to: verdict.route_to.clone(),
        rule: verdict.rule.to_owned(),
        evidence: verdict.evidence.clone(),
        against: verdict.against.clone(),
        unwatched: verdict.unwatched.clone(),
        summary: verdict.summary.clone(),
        meaning: verdict.meaning.clone(),
        next_steps: verdict.next_steps.clone(),
        failures_looked_at: signed(verdict.failures_looked_at),
        failures_total: signed(verdict.failures_total),
        same_failure: verdict.same_failure.clone(),
        counted,
        body: verdict_to_proto(verdict.clone()).encode_to_vec(),
        signature_id,
    }
}

/// A verdict of a time when the details were there that have aged out since, as it was told;
/// none where it was not kept in full, or by a later version that this one cannot read.
pub(super) fn kept(kept: &KeptVerdict) -> Option<VerdictMessage> {
    let told = VerdictMessage::decode(kept.body.as_deref()?).ok()?;
    Some(VerdictMessage {
        decided_at: Some(times::to_proto(kept.diagnosed_at)),
        ..told
    })
}

/// What advice looks at of such a verdict; `log` is what the logs say today, which outlast it.
pub(super) fn as_decided(told: &VerdictMessage, log: Option<LogOpinion>) -> Verdict {
    let steps = told.chain.iter().map(|step| Step {
        function: step.function.clone(),
        module: step.module.clone(),
        layer: step.layer(),
        errno: i32::try_from(step.errno).unwrap_or(0),
    });
    Verdict {
        class: told.class(),
        layer: told.layer(),
        verb: told.verb(),
        function: told.function.clone(),
        module: told.module.clone(),
        errno: i32::try_from(told.errno).unwrap_or(0),
        errno_name: told.errno_name.clone(),
        hosts: told.hosts.clone(),
        devices: told.devices.clone(),
        first_at: told
            .first_at
            .and_then(|at| times::from_proto("first_at", &at).ok()),
        confidence: told.confidence(),
        route_to: told.route_to.clone(),
        // Of another version, maybe: its name is in what is told.
        rule: "",
        evidence: told.evidence.clone(),
        against: told.against.clone(),
        unwatched: told.unwatched.clone(),
        summary: told.summary.clone(),
        meaning: told.meaning.clone(),
        next_steps: told.next_steps.clone(),
        chain: steps.collect(),
        failures_looked_at: told.failures_looked_at,
        failures_total: told.failures_total,
        log,
        same_failure: told.same_failure.clone(),
    }
}

fn confidence_name(confidence: Confidence) -> String {
    names::without(confidence.as_str_name(), "CONFIDENCE_")
}

/// As the contract holds it.
pub(crate) fn verdict_to_proto(verdict: Verdict) -> VerdictMessage {
    VerdictMessage {
        class: verdict.class.into(),
        layer: verdict.layer.into(),
        function: verdict.function,
        module: verdict.module,
        errno: u32::try_from(verdict.errno).unwrap_or(0),
        errno_name: verdict.errno_name,
        hosts: verdict.hosts,
        devices: verdict.devices,
        first_at: verdict.first_at.map(times::to_proto),
        confidence: verdict.confidence.into(),
        route_to: verdict.route_to,
        rule: verdict.rule.to_owned(),
        evidence: verdict.evidence,
        against: verdict.against,
        unwatched: verdict.unwatched,
        summary: verdict.summary,
        meaning: verdict.meaning,
        next_steps: verdict.next_steps,
        verb: verdict.verb.into(),
        chain: verdict
            .chain
            .into_iter()
            .map(|step| ChainStep {
                errno_name: errno::name(step.errno),
                errno: u32::try_from(step.errno).unwrap_or(0),
                function: step.function,
                module: step.module,
                layer: step.layer.into(),
            })
            .collect(),
        failures_looked_at: verdict.failures_looked_at,
        failures_total: verdict.failures_total,
        same_failure: verdict.same_failure,
        decided_at: None,
    }
}

/// As the contract holds it.
pub(crate) fn total_to_proto(total: StoredTotal) -> FailureTotal {
    FailureTotal {
        errno_name: errno::name(total.errno),
        errno: u32::try_from(total.errno).unwrap_or(0),
        host: total.host,
        function: total.function,
        module: total.module,
        layer: i32::from(total.layer),
        count: u64::try_from(total.count).unwrap_or(0),
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

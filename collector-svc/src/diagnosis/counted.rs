//! What the shares count of an attempt: decided with its verdict, so that they hold when
//! its details have aged out.

use rdmesh_joblog::Class;
use rdmesh_proto::collector::v1::{LogCoverage, ToldBy, VerdictClass};

use crate::diagnosis::Verdict;
use crate::diagnosis::meanings::class_name;

/// What told the cause, and the class under which the attempt's hours count.
pub fn told_by(verdict: &Verdict) -> (ToldBy, String) {
    let class = class_name(verdict.class);
    if !verdict.function.is_empty() {
        return (ToldBy::Kernel, class);
    }
    if !matches!(
        verdict.class,
        VerdictClass::CannotTell | VerdictClass::Unspecified
    ) {
        return (ToldBy::CoSignal, class);
    }
    let Some(log) = &verdict.log else {
        return (ToldBy::Nothing, class);
    };
    match (log.evidence.class, log.coverage) {
        (told, _) if told.is_root() => (ToldBy::Log, told.name().to_owned()),
        // Left out on purpose: no hours.
        (Class::CannotTell, LogCoverage::Cleanup) => (ToldBy::Log, "cleanup".to_owned()),
        (Class::CannotTell, LogCoverage::ReadOnly) => (ToldBy::Log, "read_only".to_owned()),
        _ => (ToldBy::Nothing, class),
    }
}

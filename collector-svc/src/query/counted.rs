//! What is kept beside a verdict for the shares.

use rdmesh_proto::collector::v1::{LogAgreement, LogCoverage, ToldBy};
use rdmesh_proto::tracer::v1::CoSignalKind;
use rdmesh_store::verdicts::Counted;

use crate::diagnosis::{Signal, Verdict, told_by};
use crate::names;

/// What the shares count of an attempt; `signals` were seen near it. That its ranks ended is
/// no second sign of what went wrong: every failed attempt ends so.
pub(crate) fn of(verdict: &Verdict, signals: &[Signal]) -> Counted {
    let (told_by, lost_class) = told_by(verdict);
    let says_more = |signal: &&Signal| signal.independent || signal.kind != CoSignalKind::Process;
    let co_signals = signals.iter().filter(says_more).count();
    let counted = Counted {
        co_signals: i64::try_from(co_signals).unwrap_or(i64::MAX),
        told_by: told_by_name(told_by),
        lost_class,
        ..Counted::default()
    };
    let Some(log) = &verdict.log else {
        return counted;
    };
    let line = log.evidence.line.clone();
    let text = |of: fn(&crate::diagnosis::LoggedLine) -> &String| {
        line.as_ref()
            .map(|line| of(line).clone())
            .unwrap_or_default()
    };
    Counted {
        logs: i64::try_from(log.evidence.logs).unwrap_or(i64::MAX),
        log_class: log.evidence.class.name().to_owned(),
        log_verb: text(|line| &line.verb),
        log_errno_name: text(|line| &line.errno_name),
        log_text: text(|line| &line.text),
        log_agreement: agreement_name(log.agreement),
        log_coverage: coverage_name(log.coverage),
        misattributed: log.misattributed,
        ..counted
    }
}

/// As SQL has it; empty where there is none.
fn told(name: String) -> String {
    if name == "unknown" {
        String::new()
    } else {
        name
    }
}

fn told_by_name(told_by: ToldBy) -> String {
    told(names::without(told_by.as_str_name(), "TOLD_BY_"))
}

fn coverage_name(coverage: LogCoverage) -> String {
    told(names::without(coverage.as_str_name(), "LOG_COVERAGE_"))
}

fn agreement_name(agreement: LogAgreement) -> String {
    told(names::without(agreement.as_str_name(), "LOG_AGREEMENT_"))
}

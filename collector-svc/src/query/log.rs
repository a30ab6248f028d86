//! The logs of an attempt, as a diagnosis takes them and as the contract holds them.

use rdmesh_joblog::Class;
use rdmesh_proto::collector::v1::{LogLine, LogVerdict};
use rdmesh_proto::common::v1::Verb;
use rdmesh_store::logs::{LogDecision, Logs, StoredLog};

use crate::diagnosis::{LogEvidence, LogOpinion, LoggedLine};
use crate::logs::kept;

/// The weight of a line that decides nothing.
const NOTHING: i16 = 0;

/// What the logs say together; none where none came.
pub(crate) fn evidence(logs: &Logs) -> Option<LogEvidence> {
    let heaviest = heaviest(&logs.heaviest)?;
    let decision = &heaviest.decision;
    let class = match decision.weight {
        NOTHING => Class::CannotTell,
        _ => class_of(&decision.class),
    };
    Some(LogEvidence {
        logs: u64::try_from(logs.total).unwrap_or(0),
        class,
        line: (decision.line > 0).then(|| line(heaviest)),
    })
}

/// The log whose line decides among all. As within one log: of those whose lines weigh
/// most the earliest by its time; where no time decides, what broke goes before an answer
/// that did not come, and that before what waited.
fn heaviest(logs: &[StoredLog]) -> Option<&StoredLog> {
    let most = logs.iter().map(|log| log.decision.weight).max()?;
    let candidates = || logs.iter().filter(|log| log.decision.weight == most);
    if most == NOTHING {
        return candidates().min_by_key(|log| telling(&log.decision));
    }
    let timed = candidates()
        .filter(|log| log.decision.written_at.is_some())
        .min_by_key(|log| (log.decision.written_at, log.decision.turn));
    let untimed = candidates()
        .filter(|log| log.decision.written_at.is_none())
        .min_by_key(|log| log.decision.turn);
    timed
        .into_iter()
        .chain(untimed)
        .min_by_key(|log| log.decision.turn)
}

/// A call that is left out on purpose tells more than a consequence, and that more than
/// nothing.
fn telling(decision: &LogDecision) -> u8 {
    match (decision.kind.as_str(), decision.class.as_str()) {
        ("cleanup" | "read_only", _) | (_, "cleanup") => 0,
        (_, "") => 2,
        _ => 1,
    }
}

/// A class that a later version wrote counts as none.
fn class_of(name: &str) -> Class {
    name.parse().unwrap_or(Class::CannotTell)
}

pub(super) fn line(log: &StoredLog) -> LoggedLine {
    let decision = &log.decision;
    let number = |value: i64| u64::try_from(value).unwrap_or(0);
    let rank = decision.rank.and_then(|rank| u32::try_from(rank).ok());
    LoggedLine {
        log: log.key.name.clone(),
        line: number(decision.line),
        count: number(decision.same_lines),
        class: class_of(&decision.class),
        verb: decision.verb.clone(),
        kind: decision.kind.clone(),
        kernel_verb: Verb::try_from(i32::from(decision.kernel_verb)).unwrap_or_default(),
        errno_name: decision.errno_name.clone(),
        status: decision.status.clone(),
        device: decision.device.clone(),
        peer: decision.peer.clone(),
        rank: rank.or(log.key.rank),
        host: match decision.host.as_str() {
            "" => log.key.host.clone(),
            host => host.to_owned(),
        },
        rule: decision.rule.clone(),
        text: decision.text.clone(),
    }
}

/// As the contract holds it.
pub(crate) fn to_proto(opinion: LogOpinion) -> LogVerdict {
    let LogEvidence { logs, class, line } = opinion.evidence;
    let log_name = line.as_ref().map(|line| line.log.clone());
    LogVerdict {
        class: kept::class(class).into(),
        logs,
        decision: line.map(line_to_proto),
        log_name: log_name.unwrap_or_default(),
        agreement: opinion.agreement.into(),
        coverage: opinion.coverage.into(),
        misattributed: opinion.misattributed,
        statement: opinion.statement,
    }
}

pub(super) fn line_to_proto(line: LoggedLine) -> LogLine {
    LogLine {
        line: line.line,
        class: kept::class(line.class).into(),
        verb: line.verb,
        errno_name: line.errno_name,
        status: line.status,
        device: line.device,
        peer: line.peer,
        rank: line.rank,
        host: line.host,
        rule: line.rule,
        text: line.text,
        count: line.count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmesh_store::jobs::AttemptKey;
    use rdmesh_store::logs::LogKey;
    use time::OffsetDateTime;
    use time::macros::datetime;

    const T0: OffsetDateTime = datetime!(2026-11-25 12:00 UTC);

    fn log(rank: u32, class: &str, weight: i16, turn: i16, at: Option<i64>) -> StoredLog {
        StoredLog {
            key: LogKey {
                attempt: AttemptKey {
                    job_id: "7".into(),
                    requeue: 0,
                    restart: 0,
                },
                host: "gpu-01".into(),
                rank: Some(rank),
                name: String::new(),
            },
            received_at: T0,
            digest: Vec::new(),
            bytes: 1,
            lines: 1,
            matched: 1,
            rules: String::new(),
            class: class.into(),
            decision: LogDecision {
                weight,
                turn,
                written_at: at.map(|seconds| T0 + time::Duration::seconds(seconds)),
                line: 1,
                class: class.into(),
                ..LogDecision::default()
            },
            details: "{}".into(),
            flight: None,
        }
    }

    fn decides(logs: Vec<StoredLog>) -> (Class, Option<u32>) {
        let logs = Logs {
            total: i64::try_from(logs.len()).unwrap(),
            heaviest: logs,
        };
        let evidence = evidence(&logs).unwrap();
        (evidence.class, evidence.line.unwrap().rank)
    }

    #[test]
    fn the_earliest_cause_decides_among_logs() {
        let logs = vec![
            log(0, "hang", 2, 2, Some(0)),
            log(1, "syscall", 2, 0, Some(-9)),
            log(2, "network", 1, 0, Some(-99)),
        ];
        assert_eq!(decides(logs), (Class::Syscall, Some(1)));
    }

    #[test]
    fn without_times_what_broke_goes_before_what_waited() {
        let waited = || log(0, "hang", 2, 2, Some(0));
        assert_eq!(
            decides(vec![waited(), log(1, "gpu", 2, 0, None)]),
            (Class::Gpu, Some(1))
        );
        assert_eq!(decides(vec![waited()]), (Class::Hang, Some(0)));
    }

    #[test]
    fn what_decides_nothing_is_shown_and_is_no_class() {
        let mut cleanup = log(3, "cleanup", 0, 0, None);
        cleanup.decision.kind = "cleanup".into();
        let logs = vec![log(0, "follow_on", 0, 0, None), cleanup];
        assert_eq!(decides(logs), (Class::CannotTell, Some(3)));
        assert_eq!(evidence(&Logs::default()), None);
    }
}

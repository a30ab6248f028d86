//! What is stored of a log, and what the contract has of it.

use rdmesh_joblog::class::Turn;
use rdmesh_joblog::flight::Dump;
use rdmesh_joblog::moment::Clock;
use rdmesh_joblog::summary::Group;
use rdmesh_joblog::{Class, Decision, LineReport, Summary, Weight};
use rdmesh_proto::collector::v1::{FlightDump, JobLog, LogClass, LogCount, LogLine};
use rdmesh_store::logs::{LogDecision, LogKey, StoredLog};
use rdmesh_store::text::storable;
use serde_json::json;
use time::OffsetDateTime;

use super::reading::Read;
use crate::diagnosis::kernel_verb;
use crate::{attempt, times};

/// Bytes that are kept of a line.
const TEXT_MAX_BYTES: usize = 512;
/// Bytes of a verb, a device, a host.
const NAME_MAX_BYTES: usize = 128;
/// Further causes that are kept: what a person reads.
const CAUSES_MAX: usize = 16;

/// A log in both forms.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) stored: StoredLog,
    pub(super) told: JobLog,
}

/// What is kept of a log that came at `received_at`.
pub(super) fn of(key: LogKey, read: Read, received_at: OffsetDateTime) -> Log {
    let received_at = in_microseconds(received_at);
    let summary = read.summary;
    let same = summary.causes.first().map_or(0, |group| group.count);
    let decision = summary.decision.as_ref();
    let told = JobLog {
        attempt: Some(attempt::to_proto(&key.attempt)),
        host: key.host.clone(),
        rank: key.rank,
        name: key.name.clone(),
        received_at: Some(times::to_proto(received_at)),
        bytes: read.bytes,
        lines: summary.lines,
        matched: summary.matched,
        class: class(summary.class).into(),
        decision: decision.map(|decision| line(decision, same)),
        causes: causes(&summary),
        causes_left_out: left_out(&summary),
        counts: counts(&summary),
        rules: short(&summary.rules),
        digest: hexadecimal(&read.digest),
        excluded: summary.first_excluded.as_ref().map(|d| line(d, 1)),
        consequence: summary.first_consequence.as_ref().map(|d| line(d, 1)),
        flight: read.flight.as_ref().map(|dump| FlightDump {
            version: short(&dump.version),
            version_known: dump.version_known,
            entries: u64::try_from(dump.entries.len()).unwrap_or(u64::MAX),
        }),
    };
    // Of numbers and storable texts: it serialises.
    let flight = read.flight.map(storable_dump);
    let flight = flight.and_then(|dump| serde_json::to_string(&dump).ok());
    let most = decision
        .or(summary.first_excluded.as_ref())
        .or(summary.first_consequence.as_ref());
    let stored = StoredLog {
        received_at,
        digest: read.digest,
        bytes: signed(read.bytes),
        lines: signed(summary.lines),
        matched: signed(summary.matched),
        rules: told.rules.clone(),
        class: summary.class.name().to_owned(),
        decision: most.map_or_else(LogDecision::default, |most| {
            decided(most, if decision.is_some() { same } else { 1 })
        }),
        details: details(&told, &summary),
        flight,
        key,
    };
    Log { stored, told }
}

/// The same with another time of receipt.
pub(super) fn received_at(log: JobLog, at: OffsetDateTime) -> JobLog {
    JobLog {
        received_at: Some(times::to_proto(at)),
        ..log
    }
}

/// As Postgres keeps it.
fn in_microseconds(at: OffsetDateTime) -> OffsetDateTime {
    const NANOS: u32 = 1_000;
    let whole = at.nanosecond() / NANOS * NANOS;
    at.replace_nanosecond(whole).unwrap_or(at)
}

/// The class in the contract.
pub(crate) fn class(class: Class) -> LogClass {
    match class {
        Class::Syscall => LogClass::Syscall,
        Class::Cleanup => LogClass::Cleanup,
        Class::Network => LogClass::Network,
        Class::MemoryAccess => LogClass::MemoryAccess,
        Class::Device => LogClass::Device,
        Class::Gpu => LogClass::Gpu,
        Class::Oom => LogClass::Oom,
        Class::Config => LogClass::Config,
        Class::Hang => LogClass::Hang,
        Class::FollowOn => LogClass::FollowOn,
        Class::CannotTell => LogClass::CannotTell,
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The same with texts that Postgres can hold.
fn storable_dump(dump: Dump) -> Dump {
    let mut dump = dump;
    dump.version = short(&dump.version);
    for entry in &mut dump.entries {
        entry.group = short(&entry.group);
        entry.operation = short(&entry.operation);
    }
    let groups = std::mem::take(&mut dump.groups).into_iter();
    dump.groups = groups
        .map(|(name, mut config)| {
            config.description = short(&config.description);
            (short(&name), config)
        })
        .collect();
    let last = std::mem::take(&mut dump.last_enqueued).into_iter();
    dump.last_enqueued = last.map(|(name, at)| (short(&name), at)).collect();
    dump
}

/// A log as it was kept, for a list.
pub(crate) fn listed(log: &StoredLog) -> JobLog {
    let decision = &log.decision;
    let unsigned = |value: i64| u64::try_from(value).unwrap_or(0);
    let class = LogClass::from_str_name(&format!("LOG_CLASS_{}", log.class.to_uppercase()));
    let version = |dump: &Dump| FlightDump {
        version: dump.version.clone(),
        version_known: dump.version_known,
        entries: u64::try_from(dump.entries.len()).unwrap_or(u64::MAX),
    };
    let dump: Option<Dump> = log
        .flight
        .as_deref()
        .and_then(|json| serde_json::from_str(json).ok());
    JobLog {
        attempt: Some(attempt::to_proto(&log.key.attempt)),
        host: log.key.host.clone(),
        rank: log.key.rank,
        name: log.key.name.clone(),
        received_at: Some(times::to_proto(log.received_at)),
        bytes: unsigned(log.bytes),
        lines: unsigned(log.lines),
        matched: unsigned(log.matched),
        class: class.unwrap_or_default().into(),
        decision: (decision.weight > 0).then(|| told_line(decision)),
        rules: log.rules.clone(),
        digest: hexadecimal(&log.digest),
        flight: dump.as_ref().map(version),
        ..JobLog::default()
    }
}

/// The line that decides, as it was kept.
fn told_line(decision: &LogDecision) -> LogLine {
    let unsigned = |value: i64| u64::try_from(value).unwrap_or(0);
    let class = LogClass::from_str_name(&format!("LOG_CLASS_{}", decision.class.to_uppercase()));
    LogLine {
        line: unsigned(decision.line),
        class: class.unwrap_or_default().into(),
        verb: decision.verb.clone(),
        errno_name: decision.errno_name.clone(),
        status: decision.status.clone(),
        device: decision.device.clone(),
        peer: decision.peer.clone(),
        rank: decision.rank.and_then(|rank| u32::try_from(rank).ok()),
        host: decision.host.clone(),
        rule: decision.rule.clone(),
        text: decision.text.clone(),
        count: unsigned(decision.same_lines),
    }
}

/// A name out of a log: it may be anything.
fn short(text: &str) -> String {
    storable(text.as_bytes(), NAME_MAX_BYTES).text
}

fn optional(text: Option<&String>) -> String {
    text.map(|text| short(text)).unwrap_or_default()
}

fn excerpt(text: &str) -> String {
    storable(text.as_bytes(), TEXT_MAX_BYTES).text
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn line(decision: &Decision, count: u64) -> LogLine {
    let report = &decision.report;
    LogLine {
        line: report.line,
        class: class(report.class).into(),
        verb: optional(report.verb.as_ref()),
        errno_name: optional(report.errno.as_ref()),
        status: optional(report.status.as_ref()),
        device: optional(report.device.as_ref()),
        peer: optional(report.peer.as_ref()),
        rank: report.rank,
        host: optional(report.host.as_ref()),
        rule: report.rule.as_deref().map(short).unwrap_or_default(),
        text: excerpt(&decision.text),
        count,
    }
}

/// Groups beside the one that decides, which stands first among them.
fn further(summary: &Summary) -> &[Group] {
    let first = usize::from(summary.decision.is_some());
    summary.causes.get(first..).unwrap_or_default()
}

fn causes(summary: &Summary) -> Vec<LogLine> {
    further(summary)
        .iter()
        .take(CAUSES_MAX)
        .map(|group| LogLine {
            line: group.first_line,
            class: class(group.class).into(),
            verb: optional(group.verb.as_ref()),
            errno_name: optional(group.errno.as_ref()),
            status: optional(group.status.as_ref()),
            device: optional(group.devices.first()),
            peer: String::new(),
            rank: group.ranks.first().copied(),
            host: optional(group.hosts.first()),
            rule: short(&group.rule),
            text: excerpt(&group.text),
            count: group.count,
        })
        .collect()
}

fn left_out(summary: &Summary) -> u64 {
    let more = further(summary).len().saturating_sub(CAUSES_MAX);
    u64::try_from(more)
        .unwrap_or(u64::MAX)
        .saturating_add(summary.groups_left_out)
}

fn counts(summary: &Summary) -> Vec<LogCount> {
    Class::ALL
        .into_iter()
        .filter_map(|of| {
            Some(LogCount {
                class: class(of).into(),
                lines: *summary.counts.get(of.name())?,
            })
        })
        .collect()
}

fn decided(decision: &Decision, same_lines: u64) -> LogDecision {
    let report = &decision.report;
    let kind = report.kind.map(|kind| kind.name().to_owned());
    let line = line(decision, same_lines);
    LogDecision {
        weight: match report.weight {
            Weight::Never => 0,
            Weight::Weak => 1,
            Weight::Root => 2,
        },
        turn: match Turn::of(report.class, report.verb.as_deref()) {
            Turn::Broke => 0,
            Turn::NoAnswer => 1,
            Turn::Waited => 2,
        },
        written_at: written_at(report),
        line: signed(line.line),
        class: report.class.name().to_owned(),
        kind: kind.unwrap_or_default(),
        kernel_verb: i16::try_from(i32::from(kernel_verb(&line.verb))).unwrap_or(0),
        verb: line.verb,
        errno_name: line.errno_name,
        status: line.status,
        device: line.device,
        peer: line.peer,
        rank: line.rank.map(i64::from),
        host: line.host,
        rule: line.rule,
        text: line.text,
        same_lines: signed(same_lines),
    }
}

/// A time with a date; syslog's and the kernel's are of no use beside other logs.
fn written_at(report: &LineReport) -> Option<OffsetDateTime> {
    let moment = report.moment.filter(|m| m.clock == Clock::Wall)?;
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(moment.ns)).ok()
}

/// What has no column of its own.
fn details(told: &JobLog, summary: &Summary) -> String {
    let line = |line: &LogLine| {
        json!({
            "line": line.line,
            "class": LogClass::try_from(line.class).map_or(String::new(), class_name),
            "verb": line.verb,
            "errno_name": line.errno_name,
            "status": line.status,
            "device": line.device,
            "rank": line.rank,
            "host": line.host,
            "rule": line.rule,
            "text": line.text,
            "lines": line.count,
        })
    };
    json!({
        "causes": told.causes.iter().map(line).collect::<Vec<_>>(),
        "causes_left_out": told.causes_left_out,
        "counts": summary.counts,
        "excluded": told.excluded.as_ref().map(line),
        "consequence": told.consequence.as_ref().map(line),
    })
    .to_string()
}

fn class_name(class: LogClass) -> String {
    crate::names::without(class.as_str_name(), "LOG_CLASS_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmesh_joblog::summary::Summarizer;
    use rdmesh_joblog::{Classifier, RuleSet};
    use rdmesh_store::jobs::AttemptKey;

    fn log(text: &str) -> Log {
        let classifier = Classifier::new(RuleSet::builtin().unwrap());
        let mut summarizer = Summarizer::new();
        for (number, line) in (1_u64..).zip(text.lines()) {
            summarizer.observe(None, &classifier.classify(number, line.as_bytes()));
        }
        let key = LogKey {
            attempt: AttemptKey {
                job_id: "7".into(),
                requeue: 0,
                restart: 0,
            },
            host: String::new(),
            rank: None,
            name: String::new(),
        };
        let read = Read {
            summary: summarizer.finish("1"),
            flight: None,
            bytes: 9,
            digest: vec![0xab],
        };
        of(key, read, OffsetDateTime::UNIX_EPOCH)
    }

    const REG_MR: &str = "[rank3]: NCCL WARN Call to ibv_reg_mr failed with error Bad address";

    #[test]
    fn the_deciding_line_has_columns_and_the_others_are_details() {
        let log = log(&format!(
            "{REG_MR}\n{REG_MR}\nNCCL WARN NET/IB : mlx5_1:1 Got async event : port error\n"
        ));
        let decision = &log.stored.decision;
        assert_eq!(
            (
                decision.verb.as_str(),
                decision.errno_name.as_str(),
                decision.same_lines
            ),
            ("ibv_reg_mr", "EFAULT", 2)
        );
        assert_eq!(
            (decision.weight, decision.rank, decision.kernel_verb),
            (2, Some(3), 2)
        );
        assert_eq!(log.told.decision.unwrap().text, decision.text);
        let details: serde_json::Value = serde_json::from_str(&log.stored.details).unwrap();
        assert_eq!(details["counts"]["syscall"], 2);
        assert_eq!(
            details["causes"].as_array().unwrap().len(),
            log.told.causes.len()
        );
        assert_eq!(log.told.digest, "ab");
    }

    #[test]
    fn a_call_that_is_left_out_on_purpose_is_told_where_nothing_decides() {
        let log = log("NCCL WARN Call to ibv_dereg_mr failed with error Invalid argument\n");
        assert_eq!(log.stored.class, "cannot_tell");
        assert_eq!(log.stored.decision.weight, 0);
        assert_eq!(log.stored.decision.kind, "cleanup");
        assert_eq!(log.told.excluded.unwrap().verb, "ibv_dereg_mr");
    }

    #[test]
    fn hostile_text_is_bounded_and_storable() {
        let text = format!("{REG_MR} \0\u{1b}[31m{}", "x".repeat(100_000));
        let log = log(&text);
        assert!(log.stored.decision.text.len() <= TEXT_MAX_BYTES);
        assert!(!log.stored.decision.text.contains(char::is_control));
        assert!(log.stored.details.len() < 64 << 10);
    }
}

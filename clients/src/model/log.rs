//! Jobs' own logs, and what they say beside a verdict.

use rdmesh_proto::collector::v1 as wire;
use serde::Serialize;

use super::{moment_or_mark, present, text, wire_enum};
use crate::attempt::AttemptId;
use crate::error::ClientError;
use crate::moment::Moment;

wire_enum! {
    /// What a line, or a whole log, is evidence of.
    LogClass from rdmesh_proto::collector::v1::LogClass {
        Syscall => "syscall",
        Cleanup => "cleanup",
        Network => "network",
        MemoryAccess => "memory_access",
        Device => "device",
        Gpu => "gpu",
        Oom => "oom",
        Config => "config",
        Hang => "hang",
        FollowOn => "follow_on",
        CannotTell => "cannot_tell",
    }
}

wire_enum! {
    /// Whether the failing call that a log tells is one that probes could show.
    LogCoverage from rdmesh_proto::collector::v1::LogCoverage {
        Covered => "covered",
        Cleanup => "cleanup",
        ReadOnly => "read_only",
        DataPath => "data_path",
        NoHook => "no_hook",
        NoProbe => "no_probe",
        NotWatched => "not_watched",
    }
}

wire_enum! {
    /// How the log stands to the verdict.
    LogAgreement from rdmesh_proto::collector::v1::LogAgreement {
        Agrees => "agrees",
        Consequence => "consequence",
        Disagrees => "disagrees",
        Silent => "silent",
        Alone => "alone",
    }
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogLine {
    /// Its number; of the first where `count` say the same.
    pub line: u64,
    /// What it is evidence of.
    pub class: LogClass,
    /// Verb or event.
    pub verb: Option<String>,
    /// Errno.
    pub errno_name: Option<String>,
    /// Completion status or event.
    pub status: Option<String>,
    /// RDMA device.
    pub device: Option<String>,
    /// The other end.
    pub peer: Option<String>,
    /// Rank that wrote it.
    pub rank: Option<u32>,
    /// Host that wrote it.
    pub host: Option<String>,
    /// The rule that read it.
    pub rule: Option<String>,
    /// The text around the message.
    pub text: String,
    /// Lines that say the same.
    pub count: u64,
}

impl From<wire::LogLine> for LogLine {
    fn from(line: wire::LogLine) -> LogLine {
        LogLine {
            line: line.line,
            class: line.class.into(),
            verb: text(line.verb),
            errno_name: text(line.errno_name),
            status: text(line.status),
            device: text(line.device),
            peer: text(line.peer),
            rank: line.rank,
            host: text(line.host),
            rule: text(line.rule),
            text: line.text,
            count: line.count,
        }
    }
}

/// What the logs of an attempt say beside its verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogVerdict {
    /// What they are evidence of together.
    pub class: LogClass,
    /// Logs that came.
    pub logs: u64,
    /// The line that decides among them.
    pub decision: Option<LogLine>,
    /// The log in which it stands.
    pub log_name: Option<String>,
    /// How they stand to the verdict.
    pub agreement: LogAgreement,
    /// Whether a probe could show the failing call that they tell; absent: they tell none.
    pub coverage: Option<LogCoverage>,
    /// They file the attempt under the network, and the kernel shows another cause.
    pub misattributed: bool,
    /// The same for a person.
    pub statement: String,
}

impl From<wire::LogVerdict> for LogVerdict {
    fn from(log: wire::LogVerdict) -> LogVerdict {
        let coverage = LogCoverage::from(log.coverage);
        LogVerdict {
            class: log.class.into(),
            logs: log.logs,
            decision: log.decision.map(Into::into),
            log_name: text(log.log_name),
            agreement: log.agreement.into(),
            coverage: (coverage != LogCoverage::Unspecified).then_some(coverage),
            misattributed: log.misattributed,
            statement: log.statement,
        }
    }
}

/// Lines of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LogCount {
    /// Which.
    pub class: LogClass,
    /// How many.
    pub lines: u64,
}

/// A rank's dump of PyTorch's Flight Recorder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlightDump {
    /// As the dump says it.
    pub version: String,
    /// False: read as the newest that is known.
    pub version_known: bool,
    /// Operations that are kept of it.
    pub entries: u64,
}

/// What all dumps of an attempt say of one process group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlightFinding {
    /// Name of the group.
    pub group: String,
    /// What people call it.
    pub description: Option<String>,
    /// `not_entered`, `not_completed` or `mismatch`.
    pub verdict: String,
    /// Number of the collective in its group.
    pub sequence: u64,
    /// What it is.
    pub operation: Option<String>,
    /// Ranks that never entered it, the first 64.
    pub never_entered: Vec<u32>,
    /// How many they are.
    pub never_entered_total: u32,
    /// Ranks on which it did not complete, the first 64.
    pub not_completed: Vec<u32>,
    /// How many they are.
    pub not_completed_total: u32,
    /// Members without a dump, the first 64.
    pub no_dump: Vec<u32>,
    /// How many they are.
    pub no_dump_total: u32,
    /// Hosts of the ranks that never entered it.
    pub hosts: Vec<String>,
    /// The same for a person.
    pub statement: String,
}

impl From<wire::FlightFinding> for FlightFinding {
    fn from(finding: wire::FlightFinding) -> FlightFinding {
        FlightFinding {
            group: finding.group,
            description: text(finding.description),
            verdict: finding.verdict,
            sequence: finding.sequence,
            operation: text(finding.operation),
            never_entered: finding.never_entered,
            never_entered_total: finding.never_entered_total,
            not_completed: finding.not_completed,
            not_completed_total: finding.not_completed_total,
            no_dump: finding.no_dump,
            no_dump_total: finding.no_dump_total,
            hosts: finding.hosts,
            statement: finding.statement,
        }
    }
}

/// Logs and dumps that are kept of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JobLogs {
    /// By host, rank and name.
    pub logs: Vec<SubmittedLog>,
    /// How many there are.
    pub total: u64,
}

/// What the collector keeps of a log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SubmittedLog {
    /// Whose it is.
    pub attempt: AttemptId,
    /// Host that wrote it.
    pub host: Option<String>,
    /// Rank that wrote it.
    pub rank: Option<u32>,
    /// Its name.
    pub name: Option<String>,
    /// When it came, the first time.
    pub received_at: Option<Moment>,
    /// Whether the same bytes had come before: nothing changed.
    pub repeated: bool,
    /// What it is evidence of.
    pub class: LogClass,
    /// The line that decides.
    pub decision: Option<LogLine>,
    /// Further causes.
    pub causes: Vec<LogLine>,
    /// Causes beyond these.
    pub causes_left_out: u64,
    /// Where nothing decides: the first failing call that is left out on purpose.
    pub excluded: Option<LogLine>,
    /// Where nothing decides: the first line that tells a consequence.
    pub consequence: Option<LogLine>,
    /// Matched lines by class.
    pub counts: Vec<LogCount>,
    /// Lines.
    pub lines: u64,
    /// Lines in which a rule found something.
    pub matched: u64,
    /// Bytes.
    pub bytes: u64,
    /// SHA-256, hexadecimal.
    pub digest: String,
    /// The rules that were applied.
    pub rules: String,
    /// It is a dump of the Flight Recorder; absent: it is a log.
    pub flight: Option<FlightDump>,
    /// What is odd about the answer.
    pub marks: Vec<String>,
}

impl TryFrom<wire::SubmitJobLogResponse> for SubmittedLog {
    type Error = ClientError;

    fn try_from(answer: wire::SubmitJobLogResponse) -> Result<SubmittedLog, ClientError> {
        SubmittedLog::told(present("log", answer.log)?, answer.repeated)
    }
}

impl SubmittedLog {
    /// What the collector told.
    pub(crate) fn told(log: wire::JobLog, repeated: bool) -> Result<SubmittedLog, ClientError> {
        let mut marks = Vec::new();
        let count = |count: wire::LogCount| LogCount {
            class: count.class.into(),
            lines: count.lines,
        };
        Ok(SubmittedLog {
            attempt: AttemptId::told(present("log.attempt", log.attempt)?, &mut marks),
            host: text(log.host),
            rank: log.rank,
            name: text(log.name),
            received_at: moment_or_mark(&mut marks, "log.received_at", log.received_at),
            repeated,
            class: log.class.into(),
            decision: log.decision.map(Into::into),
            causes: log.causes.into_iter().map(Into::into).collect(),
            causes_left_out: log.causes_left_out,
            excluded: log.excluded.map(Into::into),
            consequence: log.consequence.map(Into::into),
            counts: log.counts.into_iter().map(count).collect(),
            lines: log.lines,
            matched: log.matched,
            bytes: log.bytes,
            digest: log.digest,
            rules: log.rules,
            flight: log.flight.map(|dump| FlightDump {
                version: dump.version,
                version_known: dump.version_known,
                entries: dump.entries,
            }),
            marks,
        })
    }
}

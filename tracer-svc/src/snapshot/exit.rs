//! Processes that a signal ended, as co-signals.

use std::borrow::Cow;

use rdmesh_proto::tracer::v1::CoSignalKind;

use super::async_event::CoSignal;
use crate::identity::Who;
use crate::record::{ArgsKind, Record};

/// Signals of Linux (signal(7); the same on amd64 and arm64): number, name, whether it can be
/// a cause. What a process does wrong itself, and a limit that it passes, is one. What others
/// send, and what a program sends itself to give up, follows from something else: a scheduler
/// that clears up, a watchdog that saw a call fail.
const SIGNALS: [(u64, &str, bool); 19] = [
    (1, "SIGHUP", false),
    (2, "SIGINT", false),
    (3, "SIGQUIT", false),
    (4, "SIGILL", true),
    (5, "SIGTRAP", false),
    (6, "SIGABRT", false),
    (7, "SIGBUS", true),
    (8, "SIGFPE", true),
    (9, "SIGKILL", false),
    (10, "SIGUSR1", false),
    (11, "SIGSEGV", true),
    (12, "SIGUSR2", false),
    (13, "SIGPIPE", false),
    (14, "SIGALRM", false),
    (15, "SIGTERM", false),
    (16, "SIGSTKFLT", false),
    (24, "SIGXCPU", true),
    (25, "SIGXFSZ", true),
    (31, "SIGSYS", true),
];

/// What such a record says of a task of a job; none for a task of no job, whose end is
/// nobody's concern here, and for other records.
#[must_use]
pub fn exit_signal(record: &Record, who: &Who) -> Option<CoSignal> {
    if record.args_kind != ArgsKind::Exit {
        return None;
    }
    who.attempt.as_ref()?;
    let [signal, core, ..] = record.args;
    let known = SIGNALS.iter().find(|(number, ..)| *number == signal);
    let (name, independent) = match known {
        Some((_, name, independent)) => (Cow::Borrowed(*name), *independent),
        None => (Cow::Owned(format!("signal {signal}")), false),
    };
    let comm = String::from_utf8_lossy(record.comm_name());
    let rank = who
        .rank
        .map_or(String::new(), |rank| format!(" of rank {rank}"));
    let core = if core == 1 { ", core dumped" } else { "" };
    Some(CoSignal {
        boot_ns: record.boot_ns,
        kind: CoSignalKind::Process,
        independent,
        name,
        detail: format!("ended process {} ({comm}){rank}{core}", record.tgid),
        device: Vec::new(),
    })
}

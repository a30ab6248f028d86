//! What `/proc` and the clocks say.

use anyhow::{Context, Result};
use rdmesh_guest::{Clocks, ProcessStat};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::fs;

/// Reads both clocks, boottime first.
pub(crate) fn clocks() -> Clocks {
    Clocks {
        boottime_ns: nanoseconds(clock_gettime(ClockId::Boottime)),
        realtime_ns: nanoseconds(clock_gettime(ClockId::Realtime)),
    }
}

/// Nanoseconds of a time after the epoch of its clock; earlier times read as zero.
pub(crate) fn nanoseconds(time: Timespec) -> u64 {
    let total = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    u64::try_from(total.max(0)).unwrap_or(u64::MAX)
}

/// Memory of the process and context switches of all its threads.
pub(crate) fn process_stat(pid: i32) -> Result<ProcessStat> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("no process {pid}"))?;
    let mut stat = ProcessStat {
        rss_kb: field(&status, "VmRSS"),
        peak_rss_kb: field(&status, "VmHWM"),
        ..ProcessStat::default()
    };
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that ended meanwhile takes its counts with it.
        let Ok(status) = fs::read_to_string(task?.path().join("status")) else {
            continue;
        };
        stat.threads += 1;
        stat.voluntary_switches += field(&status, "voluntary_ctxt_switches");
        stat.involuntary_switches += field(&status, "nonvoluntary_ctxt_switches");
    }
    Ok(stat)
}

/// The number after `name:`, or zero where the kernel does not print the line.
fn field(status: &str, name: &str) -> u64 {
    status
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| *key == name)
        .and_then(|(_, value)| value.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_match_whole_names() {
        let status =
            "VmRSS:\t  120 kB\nnonvoluntary_ctxt_switches:\t3\nvoluntary_ctxt_switches:\t9\n";
        assert_eq!(field(status, "VmRSS"), 120);
        assert_eq!(field(status, "voluntary_ctxt_switches"), 9);
        assert_eq!(field(status, "VmHWM"), 0);
    }

    #[test]
    fn this_process_has_memory_and_threads() {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let stat = process_stat(pid).unwrap();
        assert!(stat.rss_kb > 0 && stat.peak_rss_kb >= stat.rss_kb && stat.threads > 0);
    }
}

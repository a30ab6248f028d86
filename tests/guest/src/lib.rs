//! The words that the lab and a QEMU host speak: JSON, one object a line, over a
//! virtio-serial port. The lab links this library; the host's PID 1
//! (`rdmesh-guest-init`) links it too, so both sides agree by construction.
//!
//! It never starts anything by itself: every process in the guest, apart from the
//! set-up of RDMA and the network, is one that the lab asked for.

mod text;

pub use text::Text;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the virtio-serial port, as QEMU is told and as sysfs shows it in the guest.
pub const CONTROL_PORT: &str = "rdmesh.control";

/// Kernel command line keys that PID 1 reads. A dot in the name keeps the kernel
/// from handing them to PID 1 as environment.
pub mod cmdline {
    /// Host name: `rdmesh.host=gpu-01`.
    pub const HOST: &str = "rdmesh.host";
    /// Control group hierarchy: `rdmesh.cgroup=v1` or `v2` (default).
    pub const CGROUP: &str = "rdmesh.cgroup";
}

/// Where the initramfs lists its modules (a [`ModuleList`] in JSON).
pub const MODULE_LIST: &str = "/etc/rdmesh-lab/modules.json";

/// Longest request line, bytes. The largest request writes a configuration file.
pub const MAX_REQUEST_BYTES: usize = 1 << 20;

/// Most bytes of one stream (stdout, stderr, a file) in one answer; the rest is cut
/// and the true length reported. The largest expected output is a tracer's log.
pub const MAX_OUTPUT_BYTES: u64 = 256 * 1024;

/// Kernel modules in the initramfs; paths are in load order, dependencies first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModuleList {
    /// Loaded by PID 1 before it reports ready.
    pub boot: Vec<String>,
    /// Loaded by [`Command::LoadModule`]: name to its paths in load order.
    pub on_request: BTreeMap<String, Vec<String>>,
}

/// A request, one line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Chosen by the lab, given back in the answer.
    pub id: u64,
    /// What to do.
    pub command: Command,
}

/// What a host can be asked to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Start a process and answer with its [`Exit`].
    Run {
        /// What to start.
        exec: Exec,
        /// Killed with SIGKILL after this many milliseconds; the answer says so.
        timeout_ms: u64,
    },
    /// Start a process and answer with its pid at once.
    Spawn {
        /// What to start.
        exec: Exec,
    },
    /// Wait for a spawned process and answer with its [`Exit`].
    Wait {
        /// As answered by `spawn`.
        pid: i32,
        /// An error is answered when the process still runs after this long.
        timeout_ms: u64,
    },
    /// Read what a spawned process has written so far: standard output, then
    /// standard error.
    ReadOutput {
        /// As answered by `spawn`; it has not been waited for.
        pid: i32,
    },
    /// Send a signal to a process.
    Kill {
        /// Any process of the guest.
        pid: i32,
        /// Signal number, e.g. 15 for SIGTERM.
        signal: i32,
    },
    /// Write a file, its directories made as needed.
    WriteFile {
        /// Absolute path.
        path: String,
        /// Contents.
        data: Text,
        /// Permission bits, e.g. `0o644`.
        mode: u32,
    },
    /// Read a file (also of proc and sysfs).
    ReadFile {
        /// Absolute path.
        path: String,
    },
    /// Memory and context switches of a process, over all its threads.
    ProcessStat {
        /// Any process of the guest.
        pid: i32,
    },
    /// Load a module of the initramfs with its dependencies.
    LoadModule {
        /// Name as in [`ModuleList::on_request`].
        name: String,
    },
    /// Unload a module; the kernel's refusal (EAGAIN while pinned) is an error.
    UnloadModule {
        /// Name as `lsmod` shows it.
        name: String,
    },
    /// Move the realtime clock by so many milliseconds, backwards too.
    JumpClock {
        /// Added to CLOCK_REALTIME.
        by_ms: i64,
    },
    /// Set a network link up or down.
    Link {
        /// Interface, e.g. `dummy0`.
        name: String,
        /// Up or down.
        up: bool,
    },
    /// Read both clocks.
    Clocks,
    /// Power the machine off; no answer follows.
    Poweroff,
}

/// A process to start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    /// Program (absolute, or looked up in `PATH`) and its arguments.
    pub argv: Vec<String>,
    /// The whole environment, apart from a `PATH` when none is given.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Control group below the root of each mounted hierarchy, made as needed and
    /// entered before the program starts; need not be UTF-8.
    #[serde(default)]
    pub cgroup: Option<Text>,
    /// User to become; capabilities go with it.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Group to become.
    #[serde(default)]
    pub gid: Option<u32>,
    /// RLIMIT_MEMLOCK, bytes, soft and hard.
    #[serde(default)]
    pub memlock_bytes: Option<u64>,
    /// RLIMIT_NOFILE, soft and hard.
    #[serde(default)]
    pub open_files: Option<u64>,
}

/// How a process ended and what it wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Process id in the guest.
    pub pid: i32,
    /// Exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether the time limit ended it.
    pub timed_out: bool,
    /// Standard output, at most [`MAX_OUTPUT_BYTES`].
    pub stdout: Text,
    /// Standard error, at most [`MAX_OUTPUT_BYTES`].
    pub stderr: Text,
    /// True length of both streams, bytes.
    pub output_bytes: u64,
    /// Just before the process was made.
    pub started: Clocks,
    /// Just after it was reaped.
    pub ended: Clocks,
}

/// Both clocks, read one after the other, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    /// CLOCK_BOOTTIME.
    pub boottime_ns: u64,
    /// CLOCK_REALTIME.
    pub realtime_ns: u64,
}

/// What `/proc/PID` says, summed over the threads where that makes sense.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStat {
    /// Resident set now, KiB (`VmRSS`).
    pub rss_kb: u64,
    /// Largest resident set so far, KiB (`VmHWM`).
    pub peak_rss_kb: u64,
    /// Threads now.
    pub threads: u64,
    /// Voluntary context switches (a thread woke up and slept again).
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
}

/// A line from the guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// First line: RDMA and the network are up.
    Ready {
        /// `uname -r`.
        release: String,
        /// RDMA devices, e.g. `rxe0`.
        devices: Vec<String>,
    },
    /// First line instead of `ready`: set-up failed, the machine powers off.
    Failed {
        /// What failed.
        message: String,
    },
    /// The answer to a request.
    Reply {
        /// Of the request.
        id: u64,
        /// What it asked for.
        reply: Reply,
    },
    /// A request that could not be done or not be read.
    Error {
        /// Of the request; none when the line was not understood.
        id: Option<u64>,
        /// Why.
        message: String,
    },
}

/// Answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Done, nothing to say.
    Done,
    /// To `spawn`.
    Spawned {
        /// Process id in the guest.
        pid: i32,
    },
    /// To `run` and `wait`.
    Exit(Exit),
    /// To `read_file` and `read_output`.
    File {
        /// At most [`MAX_OUTPUT_BYTES`] from the end of the file.
        data: Text,
        /// True length, bytes.
        bytes: u64,
    },
    /// To `process_stat`.
    ProcessStat(ProcessStat),
    /// To `clocks`.
    Clocks(Clocks),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reads_back_as_it_was_written() {
        let request = Request {
            id: 7,
            command: Command::Run {
                exec: Exec {
                    argv: vec!["/usr/bin/rdmesh-verbs".into(), "ok".into()],
                    cgroup: Some(Text::from(b"job\xff".to_vec())),
                    ..Exec::default()
                },
                timeout_ms: 1000,
            },
        };
        let line = serde_json::to_string(&request).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), request);
    }

    #[test]
    fn unknown_commands_and_fields_are_refused() {
        for line in [
            r#"{"id":1,"command":{"format_disk":{}}}"#,
            r#"{"id":1,"command":"clocks","more":1}"#,
            r#"{"id":1,"command":{"kill":{"pid":1,"signal":15,"force":true}}}"#,
            r#"{"command":"clocks"}"#,
        ] {
            assert!(serde_json::from_str::<Request>(line).is_err(), "{line}");
        }
    }
}

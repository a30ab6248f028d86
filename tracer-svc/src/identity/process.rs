//! The environment and cgroups of a live process, from /proc.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use super::environment::{EnvironmentReader, FromEnvironment};

/// Most bytes of an environment that are read: the kernel's own bound on
/// arguments and environment together (3/4 of an 8 MiB stack).
const ENVIRONMENT_BYTES: u64 = 6 << 20;
/// Most bytes of /proc/PID/cgroup: a dozen lines of at most 4 KiB.
const CGROUP_BYTES: u64 = 64 << 10;
/// Most bytes of /proc/PID/stat: 52 numbers and a name.
const STAT_BYTES: u64 = 4 << 10;

/// What /proc says about a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FromProcess {
    pub(super) environment: FromEnvironment,
    /// Its cgroup paths, the unified hierarchy's first.
    pub(super) cgroup_paths: Vec<Vec<u8>>,
}

/// Reads processes below a root that tests replace.
#[derive(Clone, Debug)]
pub struct ProcessReader {
    proc_root: PathBuf,
    ticks_per_second: u64,
}

/// Why a process cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadProcessError {
    /// It has ended, or its files are not readable.
    #[error("process {tgid} cannot be read: {error}")]
    Unreadable {
        /// Process id.
        tgid: u32,
        /// What the kernel said.
        error: io::Error,
    },
    /// Another process has its number now.
    #[error("process id {tgid} was used again")]
    Reused {
        /// Process id.
        tgid: u32,
    },
}

impl Default for ProcessReader {
    fn default() -> Self {
        Self::at("/proc", rustix::param::clock_ticks_per_second())
    }
}

impl ProcessReader {
    /// Reads below `proc_root`; `ticks_per_second` is the unit of its start times.
    #[must_use]
    pub fn at(proc_root: impl Into<PathBuf>, ticks_per_second: u64) -> Self {
        Self {
            proc_root: proc_root.into(),
            ticks_per_second: ticks_per_second.max(1),
        }
    }

    /// Reads a process that is named by its number and start time.
    pub(super) fn read(
        &self,
        tgid: u32,
        start_boot_ns: u64,
    ) -> Result<FromProcess, ReadProcessError> {
        let unreadable = |error| ReadProcessError::Unreadable { tgid, error };
        self.check_start(tgid, start_boot_ns)?;
        let environment = self.environment(tgid).map_err(unreadable)?;
        let cgroup = self
            .bytes(tgid, "cgroup", CGROUP_BYTES)
            .map_err(unreadable)?;
        // The number may have changed hands between the files.
        self.check_start(tgid, start_boot_ns)?;
        Ok(FromProcess {
            environment,
            cgroup_paths: cgroup_paths(&cgroup),
        })
    }

    fn check_start(&self, tgid: u32, start_boot_ns: u64) -> Result<(), ReadProcessError> {
        let stat = self
            .bytes(tgid, "stat", STAT_BYTES)
            .map_err(|error| ReadProcessError::Unreadable { tgid, error })?;
        let tick_ns = 1_000_000_000 / self.ticks_per_second;
        match start_ticks(&stat) {
            Some(ticks) if ticks == start_boot_ns / tick_ns => Ok(()),
            _ => Err(ReadProcessError::Reused { tgid }),
        }
    }

    fn environment(&self, tgid: u32) -> io::Result<FromEnvironment> {
        let mut file = self.open(tgid, "environ")?.take(ENVIRONMENT_BYTES);
        let mut reader = EnvironmentReader::default();
        let mut buffer = [0; 8192];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(reader.finish()),
                got => reader.feed(&buffer[..got]),
            }
        }
    }

    fn bytes(&self, tgid: u32, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(tgid, name)?.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn open(&self, tgid: u32, name: &str) -> io::Result<File> {
        File::open(self.proc_root.join(tgid.to_string()).join(name))
    }
}

/// Field 22 of /proc/PID/stat. The name in field 2 may hold anything, also ')'.
fn start_ticks(stat: &[u8]) -> Option<u64> {
    let after_name = stat.iter().rposition(|b| *b == b')')? + 1;
    let text = std::str::from_utf8(&stat[after_name..]).ok()?;
    text.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn cgroup_paths(file: &[u8]) -> Vec<Vec<u8>> {
    let mut paths = Vec::new();
    for line in file.split(|b| *b == b'\n') {
        let mut fields = line.splitn(3, |b| *b == b':');
        if let (Some(number), Some(_), Some(path)) = (fields.next(), fields.next(), fields.next()) {
            let at = if number == b"0" { 0 } else { paths.len() };
            paths.insert(at, path.to_vec());
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn proc_with(tgid: u32, start_ticks: u64, environ: &[u8]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join(tgid.to_string());
        fs::create_dir(&dir).unwrap();
        let zeros = "0 ".repeat(18);
        fs::write(
            dir.join("stat"),
            format!("{tgid} (a) b) c) S {zeros}{start_ticks} 0 0\n"),
        )
        .unwrap();
        fs::write(dir.join("environ"), environ).unwrap();
        fs::write(
            dir.join("cgroup"),
            "5:memory:/slurm/job_3/step_0\n0::/unified\n",
        )
        .unwrap();
        root
    }

    #[test]
    fn a_process_is_read_by_number_and_start() {
        let root = proc_with(9, 123, b"HOME=/root\0SLURM_JOB_ID=3\0");
        let reader = ProcessReader::at(root.path(), 100);
        let process = reader.read(9, 1_234_567_890).unwrap();
        assert_eq!(process.environment.attempt.unwrap().to_string(), "3/0");
        assert_eq!(
            process.cgroup_paths,
            [b"/unified".to_vec(), b"/slurm/job_3/step_0".to_vec()]
        );
    }

    #[test]
    fn a_number_that_was_used_again_is_not_believed() {
        let root = proc_with(9, 124, b"SLURM_JOB_ID=3\0");
        let reader = ProcessReader::at(root.path(), 100);
        let error = reader.read(9, 1_234_567_890).unwrap_err();
        assert!(matches!(error, ReadProcessError::Reused { tgid: 9 }));
    }

    #[test]
    fn a_process_that_ended_is_unreadable() {
        let root = tempfile::tempdir().unwrap();
        let error = ProcessReader::at(root.path(), 100).read(9, 0).unwrap_err();
        assert!(matches!(error, ReadProcessError::Unreadable { .. }));
    }

    #[test]
    fn this_very_process_can_be_read() {
        let reader = ProcessReader::default();
        let pid = std::process::id();
        let stat = reader.bytes(pid, "stat", STAT_BYTES).unwrap();
        let start = start_ticks(&stat).unwrap() * (1_000_000_000 / reader.ticks_per_second);
        assert!(reader.read(pid, start).is_ok());
        assert!(reader.read(pid, start + 5_000_000_000).is_err());
    }
}

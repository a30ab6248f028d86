//! Who each failing process is, remembered.

use super::attempt::{Attempt, RefusedValue, Source};
use super::cgroup_path::job_id_of_cgroup_path;
use super::cgroups::{CgroupInfo, Cgroups};
use super::environment::FromEnvironment;
use super::lru::Lru;
use super::process::ProcessReader;
use crate::record::{Identity, Record};

/// Processes that are remembered: all ranks and helpers of many jobs, at about
/// 200 bytes each.
const KNOWN_PROCESSES: usize = 8192;

/// Who a process is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Who {
    /// Its run of a job.
    pub attempt: Option<Attempt>,
    /// Where that comes from.
    pub source: Source,
    /// Rank in the job.
    pub rank: Option<i32>,
    /// Rank on the host.
    pub local_rank: Option<i32>,
    /// A value that named a job and was not taken.
    pub refused: Option<RefusedValue>,
    /// The job id of the environment that was not taken, cut.
    pub refused_job: Vec<u8>,
}

impl Who {
    fn nobody() -> Self {
        Self {
            attempt: None,
            source: Source::None,
            rank: None,
            local_rank: None,
            refused: None,
            refused_job: Vec::new(),
        }
    }

    /// The job id that is told of it: its attempt's, else the one that was not taken, so
    /// that its failures are not given to another job without a doubt. Empty: it named none.
    #[must_use]
    pub fn told_job(&self) -> &[u8] {
        match &self.attempt {
            Some(attempt) => attempt.job_id().as_bytes(),
            None => &self.refused_job,
        }
    }

    fn new(environment: FromEnvironment, cgroup_paths: &[Vec<u8>]) -> Self {
        let mut who = Self {
            attempt: environment.attempt,
            source: Source::Environment,
            rank: environment.rank,
            local_rank: environment.local_rank,
            refused: environment.refused,
            refused_job: environment.refused_job,
        };
        if who.attempt.is_some() {
            return who;
        }
        who.source = Source::None;
        // The environment named a job that cannot be taken: the cgroup may
        // still tell it, for it is the scheduler's word and not the user's.
        for path in cgroup_paths {
            let job = job_id_of_cgroup_path(path);
            let attempt = job.and_then(|id| {
                id.map(|id| Attempt::new(id.as_bytes(), environment.requeue, environment.restart))
                    .transpose()
            });
            match attempt {
                Ok(Some(attempt)) => {
                    who.attempt = Some(attempt);
                    who.source = Source::Cgroup;
                    return who;
                }
                Ok(None) => {}
                Err(why) => who.refused = who.refused.or(Some(why)),
            }
        }
        who
    }
}

/// A process for good: a number with its start time.
type Process = (u32, u64);

/// Who the failing processes are, and what their cgroups are.
#[derive(Debug)]
pub struct Registry {
    processes: ProcessReader,
    cgroups: Cgroups,
    known: Lru<Process, Who>,
    refusals: Refusals,
}

/// Values that named a job and were not taken, since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Processes that had one.
    pub processes: u64,
    /// The last of them: its number, and why.
    pub last: Option<(u32, RefusedValue)>,
}

impl Registry {
    /// Knows nobody yet.
    #[must_use]
    pub fn new(processes: ProcessReader, cgroups: Cgroups) -> Self {
        Self {
            processes,
            cgroups,
            known: Lru::new(KNOWN_PROCESSES),
            refusals: Refusals::default(),
        }
    }

    /// Takes what the kernel copied at a process's first failure. What the
    /// allow-list does not name is gone when this returns.
    pub fn take(&mut self, identity: &Identity) {
        let paths = [identity.cgroup_path.clone()];
        let mut who = Who::new(FromEnvironment::read(&identity.environ), &paths);
        // The part that was cut may hold what is wanted; the process may still
        // be there to ask.
        let weak = identity.environ_cut && who.source != Source::Environment;
        if weak && let Ok(process) = self.processes.read(identity.tgid, identity.start_boot_ns) {
            who = Who::new(process.environment, &process.cgroup_paths);
        }
        if !identity.cgroup_cut {
            self.cgroups
                .learn_path(identity.cgroup_id, &identity.cgroup_path);
        }
        let known = !identity.environ_cut || who.attempt.is_some();
        self.remember(
            (identity.tgid, identity.start_boot_ns),
            identity.cgroup_id,
            who,
            known,
        );
    }

    /// Who failed. A process that the kernel told nothing about is read from
    /// /proc, or known by its cgroup alone.
    pub fn who(&mut self, record: &Record) -> Who {
        let process = (record.tgid, record.start_boot_ns);
        if let Some(who) = self.known.get(&process) {
            return who.clone();
        }
        let (who, known) = match self.processes.read(record.tgid, record.start_boot_ns) {
            Ok(read) => (Who::new(read.environment, &read.cgroup_paths), true),
            Err(_) => (self.by_cgroup(record.cgroup_id), false),
        };
        self.remember(process, record.cgroup_id, who.clone(), known);
        who
    }

    /// What is known of a cgroup.
    pub fn cgroup(&mut self, id: u64) -> CgroupInfo {
        self.cgroups.info(id)
    }

    /// Looks for the paths of cgroups; see [`Cgroups::search`].
    pub fn search_cgroups(&mut self, ids: impl IntoIterator<Item = u64>) {
        self.cgroups.search(ids);
    }

    /// Values that were not taken.
    #[must_use]
    pub fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// Processes that are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether nobody is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.len() == 0
    }

    fn by_cgroup(&mut self, cgroup_id: u64) -> Who {
        self.cgroups.search([cgroup_id]);
        let path = self.cgroups.info(cgroup_id).path;
        Who::new(FromEnvironment::default(), &[path])
    }

    fn remember(&mut self, process: Process, cgroup_id: u64, who: Who, known: bool) {
        if let Some(why) = who.refused {
            self.refusals.processes += 1;
            self.refusals.last = Some((process.0, why));
        }
        match (&who.attempt, known) {
            (Some(attempt), _) => self
                .cgroups
                .learn_member(cgroup_id, Some((attempt, who.source))),
            (None, true) => self.cgroups.learn_member(cgroup_id, None),
            // Nothing could be read: that says nothing about the others.
            (None, false) => {}
        }
        self.known.insert(process, who);
    }
}

impl Default for Who {
    fn default() -> Self {
        Self::nobody()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{ARG_WORDS, ArgsKind, COMM_BYTES, DEVICE_BYTES, ProbeId, STACK_DEPTH};

    fn registry(root: &std::path::Path) -> Registry {
        Registry::new(ProcessReader::at(root, 100), Cgroups::new(Vec::new()))
    }

    fn identity(environ: &[u8], cgroup_path: &[u8]) -> Identity {
        Identity {
            boot_ns: 1,
            tgid: 9,
            start_boot_ns: 5,
            comm: [0; COMM_BYTES],
            cgroup_id: 44,
            environ: environ.to_vec(),
            environ_cut: false,
            cgroup_path: cgroup_path.to_vec(),
            cgroup_cut: false,
        }
    }

    fn record() -> Record {
        Record {
            boot_ns: 2,
            probe: ProbeId(0),
            errno: 14,
            tgid: 9,
            tid: 10,
            start_boot_ns: 5,
            comm: [0; COMM_BYTES],
            cgroup_id: 44,
            device: [0; DEVICE_BYTES],
            object: 0,
            entry: 0,
            sleeps: 0,
            drops_so_far: 0,
            stack: [0; STACK_DEPTH],
            args_kind: ArgsKind::None,
            args: [0; ARG_WORDS],
        }
    }

    #[test]
    fn a_process_that_is_gone_is_known_by_the_kernels_copy() {
        let empty = tempfile::tempdir().unwrap();
        let mut registry = registry(empty.path());
        registry.take(&identity(b"RDMESH_JOB_ID=j\0RANK=3\0", b"/a"));
        let who = registry.who(&record());
        assert_eq!(who.attempt.as_ref().unwrap().to_string(), "j/0");
        assert_eq!((who.source, who.rank), (Source::Environment, Some(3)));
        assert_eq!(registry.cgroup(44).attempt.unwrap().1, Source::Environment);
    }

    #[test]
    fn the_path_names_the_job_and_the_environment_its_requeue() {
        let empty = tempfile::tempdir().unwrap();
        let mut registry = registry(empty.path());
        registry.take(&identity(
            b"SLURM_RESTART_COUNT=2\0RDMESH_JOB_ID=a/b\0",
            b"/slurm/uid_0/job_6/step_0",
        ));
        let who = registry.who(&record());
        assert_eq!(who.attempt.as_ref().unwrap().to_string(), "6/2");
        assert_eq!(who.source, Source::Cgroup);
        assert_eq!(who.refused, Some(RefusedValue::Forbidden));
        let refusals = registry.refusals();
        assert_eq!(refusals.processes, 1);
        assert_eq!(refusals.last, Some((9, RefusedValue::Forbidden)));
    }

    #[test]
    fn nothing_readable_is_none_and_says_nothing_about_the_cgroup() {
        let empty = tempfile::tempdir().unwrap();
        let mut registry = registry(empty.path());
        assert_eq!(registry.who(&record()), Who::default());
        registry.take(&Identity {
            tgid: 11,
            ..identity(b"RDMESH_JOB_ID=j\0", b"/a")
        });
        assert!(registry.cgroup(44).attempt.is_some());
        // The kernel's copy, when it comes later, replaces what was not known.
        registry.take(&identity(b"RDMESH_JOB_ID=j\0", b"/a"));
        assert!(registry.who(&record()).attempt.is_some());
    }

    #[test]
    fn another_process_with_the_same_number_is_another_process() {
        let empty = tempfile::tempdir().unwrap();
        let mut registry = registry(empty.path());
        registry.take(&identity(b"RDMESH_JOB_ID=j\0", b"/a"));
        let later = Record {
            start_boot_ns: 6,
            ..record()
        };
        assert_eq!(registry.who(&later).attempt, None);
        assert_eq!(registry.len(), 2);
    }
}

//! The directory of the spool: one agent's at a time, with a directory for each run.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::run::{remove_directory, segment_files};

/// Held by the agent that uses the directory; the kernel lets go of it with the process.
const LOCK_FILE: &str = "lock";

/// Digits of a run's number, which orders runs whatever the clock did between them.
const NUMBER_DIGITS: usize = 10;

/// Runs that are kept. An agent that crashes every few seconds leaves a directory each
/// time: a thousand of them are more than an hour, and listing them is a matter of
/// milliseconds.
const RUNS_MAX: usize = 1_024;

/// Foreign names that a warning lists.
const FOREIGN_NAMES_MAX: usize = 3;

/// Why a spool cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// Another process uses it.
    #[error(
        "the spool {directory} is in use by another agent: stop that one, or give each its own \
         `uplink.spool.directory` (`fuser {directory}/lock` tells who it is)"
    )]
    Taken {
        /// Where.
        directory: String,
    },
    /// The system refuses.
    #[error("the spool {directory} cannot be used: {source}")]
    Io {
        /// Where.
        directory: String,
        /// What the system said.
        source: io::Error,
    },
}

/// A directory that is ours.
#[derive(Debug)]
pub(super) struct Claim {
    directory: PathBuf,
    _lock: File,
    next_number: u64,
}

/// A run that an earlier process left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EarlierRun {
    pub(super) directory: PathBuf,
    pub(super) run_id: String,
    /// Bytes of its segments.
    pub(super) bytes: u64,
}

impl Claim {
    /// Makes the directory, locks it, and lists the runs in it, oldest first.
    pub(super) fn take(directory: &Path) -> Result<(Self, Vec<EarlierRun>), SpoolError> {
        let shown = directory.display().to_string();
        let refused = |source| SpoolError::Io {
            directory: shown.clone(),
            source,
        };
        DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(directory)
            .map_err(refused)?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(directory.join(LOCK_FILE))
            .map_err(refused)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(SpoolError::Taken { directory: shown });
            }
            locked => locked.map_err(|errno| refused(errno.into()))?,
        }
        let (runs, next_number) = list(directory).map_err(refused)?;
        let claim = Self {
            directory: directory.to_owned(),
            _lock: lock,
            next_number,
        };
        Ok((claim, runs))
    }

    /// Where the segments of a new run go. Its number is higher than all before.
    pub(super) fn new_run(&mut self, run_id: &str) -> PathBuf {
        let number = self.next_number;
        self.next_number += 1;
        let name = format!("{number:0width$}-{run_id}", width = NUMBER_DIGITS);
        self.directory.join(name)
    }
}

fn list(directory: &Path) -> io::Result<(Vec<EarlierRun>, u64)> {
    let (mut found, mut foreign) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        match number_and_run(&name) {
            Some((number, run_id)) if entry.file_type()?.is_dir() => {
                found.push((number, run_id.to_owned(), entry.path()));
            }
            _ if name != LOCK_FILE => foreign.push(name),
            _ => {}
        }
    }
    if !foreign.is_empty() {
        foreign.sort();
        let files = foreign.len();
        foreign.truncate(FOREIGN_NAMES_MAX);
        tracing::warn!(
            directory = %directory.display(), files, some = ?foreign,
            "the spool has files that are not ours; they are left alone"
        );
    }
    found.sort();
    let next = found.last().map_or(1, |(number, ..)| number + 1);
    let mut runs = Vec::new();
    for (_, run_id, path) in found {
        let bytes = bytes_of(&path).unwrap_or(0);
        if bytes == 0 {
            clear(&path);
            continue;
        }
        runs.push(EarlierRun {
            directory: path,
            run_id,
            bytes,
        });
    }
    let too_many = runs.len().saturating_sub(RUNS_MAX);
    for run in runs.drain(..too_many) {
        tracing::warn!(directory = %run.directory.display(), "too many runs in the spool; the oldest is dropped");
        clear(&run.directory);
    }
    Ok((runs, next))
}

/// `0000000012-6f1f4e4e-…`.
fn number_and_run(name: &str) -> Option<(u64, &str)> {
    let (number, run_id) = name.split_once('-')?;
    let digits = number.len() == NUMBER_DIGITS && number.bytes().all(|b| b.is_ascii_digit());
    let is_run = uuid::Uuid::parse_str(run_id).is_ok();
    (digits && is_run).then(|| Some((number.parse().ok()?, run_id)))?
}

fn bytes_of(run: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for path in segment_files(run)? {
        bytes += fs::metadata(path)?.len();
    }
    Ok(bytes)
}

/// Removes what is ours in a run's directory, and the directory when nothing else is left.
fn clear(run: &Path) {
    let notes = [super::notes::HELLO_FILE, super::notes::ACKED_FILE];
    let ours = segment_files(run).unwrap_or_default();
    for path in ours.into_iter().chain(notes.map(|name| run.join(name))) {
        // What cannot be removed keeps the directory, which says so.
        let _ = fs::remove_file(path);
    }
    remove_directory(run);
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "6f1f4e4e-8a52-4b53-9c0a-0a0f9a6d7c11";

    #[test]
    fn a_directory_has_one_agent_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("state/spool");
        let (held, runs) = Claim::take(&directory).unwrap();
        assert_eq!(runs, []);
        let refused = Claim::take(&directory).unwrap_err();
        assert!(matches!(refused, SpoolError::Taken { .. }), "{refused}");
        let text = refused.to_string();
        assert!(text.contains("uplink.spool.directory"), "{text}");
        drop(held);
        assert!(Claim::take(&directory).is_ok());
    }

    #[test]
    fn runs_are_listed_by_their_numbers_and_foreign_files_stay() {
        let place = tempfile::tempdir().unwrap();
        for name in [
            format!("0000000012-{RUN}"),
            format!("0000000009-{RUN}"),
            format!("0000000003-{RUN}"),
        ] {
            let run = place.path().join(name);
            fs::create_dir(&run).unwrap();
            fs::write(run.join("00000000000000000001.seg"), "x").unwrap();
        }
        for empty in ["0000000015", "0000000002"] {
            fs::create_dir(place.path().join(format!("{empty}-{RUN}"))).unwrap();
        }
        for foreign in ["README", "12-x", "0000000001-notarun", "lost+found"] {
            fs::create_dir(place.path().join(foreign)).unwrap();
        }
        let (mut claim, runs) = Claim::take(place.path()).unwrap();
        let directories: Vec<_> = runs.iter().map(|r| r.directory.clone()).collect();
        let expected = [3, 9, 12].map(|n| place.path().join(format!("{n:010}-{RUN}")));
        assert_eq!(directories, expected);
        assert!(claim.new_run(RUN).ends_with(format!("0000000016-{RUN}")));
        assert!(place.path().join("README").exists());
        assert!(!place.path().join(format!("0000000002-{RUN}")).exists());
    }

    #[test]
    fn what_is_no_directory_says_what_is_wrong() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        let refused = Claim::take(&file.join("spool")).unwrap_err();
        assert!(matches!(refused, SpoolError::Io { .. }), "{refused}");
    }
}

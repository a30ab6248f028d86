//! Scratch directories: short paths (Unix sockets end at 107 bytes) that vanish when
//! they are dropped, when the process is interrupted, and, if it was killed outright,
//! when the next run starts.

use crate::cache::Lock;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// All live scratch directories of this process, for the interrupt handler.
static LIVE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A server that is being stopped may still write a file while its directory goes.
const REMOVE_ATTEMPTS: u32 = 20;
const REMOVE_PAUSE: Duration = Duration::from_millis(50);

/// A directory that is removed on drop.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    _lock: Lock,
}

impl Scratch {
    /// Makes a fresh directory. Its path is short, and other users may pass through
    /// it (a database that drops root's privileges has to).
    pub fn new() -> Result<Self> {
        let parent = parent()?;
        // One at a time: a directory whose lock is not taken yet looks like one that a
        // killed run left.
        let _turn = Lock::wait(&parent.join("turn"))?;
        sweep(&parent);
        let path = tempfile::Builder::new()
            .prefix("r")
            .rand_bytes(6)
            .tempdir_in(&parent)
            .with_context(|| format!("cannot make a directory in {}", parent.display()))?
            .keep();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        let lock = Lock::wait(&lock_file(&path))?;
        live().insert(path.clone());
        Ok(Self { path, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.path);
        live().remove(&self.path);
    }
}

/// Removes every scratch directory of this process; for the interrupt handler.
pub(crate) fn remove_all() {
    for path in std::mem::take(&mut *live()) {
        remove(&path);
    }
}

fn live() -> std::sync::MutexGuard<'static, BTreeSet<PathBuf>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parent() -> Result<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let parent = Path::new("/tmp").join(format!("rdmesh-lab-{uid}"));
    fs::create_dir_all(&parent).with_context(|| format!("cannot make {}", parent.display()))?;
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::symlink_metadata(&parent)?);
    anyhow::ensure!(owner == uid, "{} belongs to another user", parent.display());
    fs::set_permissions(&parent, fs::Permissions::from_mode(0o755))?;
    Ok(parent)
}

/// The lock lies beside the directory, so that a removal takes it last.
fn lock_file(path: &Path) -> PathBuf {
    path.with_extension("lock")
}

fn remove(path: &Path) {
    for _ in 0..REMOVE_ATTEMPTS {
        if fs::remove_dir_all(path).is_ok() || !path.exists() {
            break;
        }
        std::thread::sleep(REMOVE_PAUSE);
    }
    // What is left, if anything, is swept by the next run.
    if !path.exists() {
        let _ = fs::remove_file(lock_file(path));
    }
}

/// Removes what killed runs left: directories whose lock nobody holds.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_lock = path
            .extension()
            .is_some_and(|extension| extension == "lock");
        if is_lock && let Ok(Some(_lock)) = Lock::try_take(&path) {
            remove(&path.with_extension(""));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_vanishes_with_its_lock_and_its_contents() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_path_buf();
        fs::create_dir_all(path.join("a/b")).unwrap();
        assert!(
            path.as_os_str().len() < 40,
            "sockets below need short paths"
        );
        drop(scratch);
        assert!(!path.exists() && !lock_file(&path).exists());
    }

    #[test]
    fn what_a_killed_run_left_is_swept() {
        let left = parent().unwrap().join("rkilled");
        fs::create_dir_all(&left).unwrap();
        fs::write(lock_file(&left), "").unwrap();
        let scratch = Scratch::new().unwrap();
        assert!(!left.exists() && scratch.path().exists());
    }

    #[test]
    fn regression_a_fresh_directory_is_not_swept_by_another_run() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..40 {
                        let scratch = Scratch::new().unwrap();
                        fs::write(scratch.path().join("file"), "kept").unwrap();
                    }
                });
            }
        });
    }
}

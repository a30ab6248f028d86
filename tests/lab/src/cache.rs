//! The cache directory: what outlives a run of the lab (kernels, package lists) and
//! the locks that runs on the same machine share.

use anyhow::{Context, Result, ensure};
use rustix::fs::{Access, FlockOperation, access, flock, statvfs};
use rustix::io::Errno;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Environment variable that names the cache directory.
pub const CACHE_VARIABLE: &str = "RDMESH_CACHE";

/// The cache directory: `$RDMESH_CACHE`, else `$XDG_CACHE_HOME/rdmesh`, else
/// `~/.cache/rdmesh`. Made when it is missing.
pub fn directory() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let path = variable(CACHE_VARIABLE)
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&variable("XDG_CACHE_HOME")?).join("rdmesh")))
        .or_else(|| Some(Path::new(&variable("HOME")?).join(".cache/rdmesh")))
        .with_context(|| format!("no home directory: set {CACHE_VARIABLE}"))?;
    usable(&path)
}

fn usable(path: &Path) -> Result<PathBuf> {
    let shown = path.display();
    let remedy = format!(
        "let this user write there, or name another directory: {CACHE_VARIABLE}=/path/of/yours"
    );
    fs::create_dir_all(path)
        .with_context(|| format!("cannot make the cache directory {shown}; {remedy}"))?;
    let path = path
        .canonicalize()
        .with_context(|| format!("cannot use the cache directory {shown}"))?;
    access(&path, Access::WRITE_OK | Access::EXEC_OK)
        .with_context(|| format!("cannot write into the cache directory {shown}; {remedy}"))?;
    Ok(path)
}

/// Bytes that a user may still write into the file system of `path`.
pub(crate) fn room(path: &Path) -> Result<u64> {
    let system =
        statvfs(path).with_context(|| format!("cannot ask for room in {}", path.display()))?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}

/// Refuses to begin something that needs `bytes` below `path` where they are not there.
pub(crate) fn need_room(path: &Path, bytes: u64, what: &str) -> Result<()> {
    let there = room(path)?;
    ensure!(
        there >= bytes,
        "no space left in {}: {what} needs {} MiB, and {} MiB are free; free some, or name \
         another directory: {CACHE_VARIABLE}=/path",
        path.display(),
        bytes >> 20,
        there >> 20
    );
    Ok(())
}

/// A lock on a file, held until dropped; the kernel frees it when the process dies.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Waits until the lock is free.
    pub fn wait(path: &Path) -> Result<Self> {
        let file = open(path)?;
        flock(&file, FlockOperation::LockExclusive)
            .with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(Self { _file: file })
    }

    /// Takes the lock if it is free.
    pub fn try_take(path: &Path) -> Result<Option<Self>> {
        let file = open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
        }
    }
}

fn open(path: &Path) -> Result<File> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path);
    file.with_context(|| format!("cannot open {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_a_cache_that_cannot_be_used_is_named_with_the_remedy() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let below = file.path().join("cache");
        let message = format!("{:#}", usable(&below).unwrap_err());
        for part in [below.to_str().unwrap(), CACHE_VARIABLE, "Not a directory"] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }

    #[test]
    fn a_full_disk_is_named() {
        let directory = tempfile::tempdir().unwrap();
        need_room(directory.path(), 1, "a byte").unwrap();
        let refused = need_room(directory.path(), u64::MAX, "all the world").unwrap_err();
        let message = refused.to_string();
        for part in ["no space left", directory.path().to_str().unwrap()] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}

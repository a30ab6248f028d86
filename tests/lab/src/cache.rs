//! The cache directory: what outlives a run of the lab (kernels, package lists) and
//! the locks that runs on the same machine share.

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
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
    fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    path.canonicalize()
        .with_context(|| format!("cannot use {}", path.display()))
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

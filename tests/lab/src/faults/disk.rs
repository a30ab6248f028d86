//! A small disk that can be filled.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::network::run;

/// Room on each: a thousand times what is left unacknowledged during a fault.
const SIZE: &str = "size=24m";

/// A tmpfs; unmounted when it is dropped.
#[derive(Debug)]
pub(super) struct Disk {
    at: PathBuf,
}

impl Disk {
    pub(super) fn mount(at: PathBuf) -> Result<Self> {
        fs::create_dir_all(&at)?;
        run(
            "mount",
            &[
                "-t",
                "tmpfs",
                "-o",
                SIZE,
                "rdmesh-faults",
                &at.to_string_lossy(),
            ],
        )?;
        Ok(Self { at })
    }

    pub(super) fn path(&self) -> &Path {
        &self.at
    }

    fn filler(&self) -> PathBuf {
        self.at.join("filler")
    }

    /// Leaves no byte of it free.
    pub(super) fn fill(&self) -> Result<()> {
        let zeros = vec![0; 1 << 20];
        let mut file = fs::File::create(self.filler())?;
        loop {
            use std::io::Write as _;
            match file.write(&zeros) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn free(&self) -> Result<()> {
        Ok(fs::remove_file(self.filler())?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a process that still ends may hold a file.
        let _ = run("umount", &["-l", &self.at.to_string_lossy()]);
    }
}

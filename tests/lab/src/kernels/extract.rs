//! Extracting a kernel package into the cache. The directory appears by one rename
//! when everything in it is complete.

use super::apt::{Apt, Package, run};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Begins the names of directories that are being filled.
const PARTIAL: &str = "partial-";

/// Module directories that no lab host needs; they are most of a kernel's size.
const NOT_KEPT: [&str; 12] = [
    "sound",
    "drivers/gpu",
    "drivers/media",
    "drivers/staging",
    "drivers/iio",
    "drivers/usb",
    "drivers/scsi",
    "drivers/hid",
    "drivers/input",
    "drivers/hwmon",
    "drivers/mtd",
    "drivers/net/wireless",
];

/// Downloads and extracts a package, makes `modules.dep`, and puts the result at
/// `directory/RELEASE`.
pub(super) fn package(apt: &Apt, package: &Package, directory: &Path) -> Result<()> {
    let work = tempfile::Builder::new()
        .prefix(PARTIAL)
        .tempdir_in(directory)?;
    let (debs, tree) = (work.path().join("debs"), work.path().join("tree"));
    fs::create_dir(&debs)?;
    apt.download(package, &debs)?;
    for deb in list(&debs)? {
        run(Command::new("dpkg").arg("-x").args([&deb, &tree]))?;
    }
    let release = package.release();
    let root = work.path().join("root");
    let modules = root.join("lib/modules").join(release);
    fs::create_dir_all(root.join("lib/modules"))?;
    gather_modules(&tree, release, &modules)?;
    // The split packages keep the kernel with its modules.
    let places = [
        modules.join("vmlinuz"),
        tree.join("boot").join(format!("vmlinuz-{release}")),
    ];
    let vmlinuz = places.iter().find(|path| path.exists());
    let vmlinuz = vmlinuz.with_context(|| format!("no vmlinuz in {}", package.name))?;
    fs::rename(vmlinuz, root.join("vmlinuz"))?;
    for below in NOT_KEPT {
        let path = modules.join("kernel").join(below);
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
    }
    // In /usr/sbin, which is not in the search path of every user.
    run(Command::new("/usr/sbin/depmod")
        .arg("-b")
        .arg(&root)
        .arg(release))
    .context("modules.dep (depmod is in the package kmod)")?;
    fs::write(root.join("version"), &package.version)?;
    let target = directory.join(release);
    if target.exists() {
        fs::remove_dir_all(&target)?;
    }
    fs::rename(&root, &target).with_context(|| format!("cannot make {}", target.display()))
}

/// Older packages have `/lib/modules`, newer ones `/usr/lib/modules`.
fn gather_modules(tree: &Path, release: &str, to: &Path) -> Result<()> {
    let places = ["usr/lib/modules", "lib/modules"].map(|at| tree.join(at).join(release));
    let from = places.iter().find(|path| path.exists());
    let from = from.with_context(|| format!("no lib/modules/{release} in the package"))?;
    fs::rename(from, to).context("cannot move the modules")
}

/// Removes what an interrupted fetch left. The caller holds the lock.
pub(super) fn remove_partial(directory: &Path) -> Result<()> {
    for path in list(directory)? {
        let name = path.file_name().unwrap_or_default();
        if name.to_string_lossy().starts_with(PARTIAL) {
            fs::remove_dir_all(&path)?;
        }
    }
    Ok(())
}

/// Writes a file so that a reader sees the old one or the new one.
pub(super) fn write_whole(path: &Path, data: &[u8]) -> Result<()> {
    let parent = path.parent().context("a file in a directory")?;
    let file = tempfile::NamedTempFile::new_in(parent)?;
    fs::write(file.path(), data)?;
    file.persist(path)?;
    Ok(())
}

fn list(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        paths.push(entry?.path());
    }
    paths.sort();
    Ok(paths)
}

//! Small files of /proc and /sys.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Most bytes of one file: no file of these has more than a few pages.
const FILE_BYTES: u64 = 64 << 10;
/// Most entries of one directory. The largest, /sys/bus/pci/devices, has a few
/// thousand on hosts with many virtual functions.
const DIRECTORY_ENTRIES: usize = 16_384;

/// Where /proc and /sys are.
#[derive(Clone, Debug)]
pub struct Roots {
    /// `/proc`
    pub proc: PathBuf,
    /// `/sys`
    pub sys: PathBuf,
    /// `/dev/kmsg`
    pub kernel_log: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self {
            proc: "/proc".into(),
            sys: "/sys".into(),
            kernel_log: "/dev/kmsg".into(),
        }
    }
}

/// The text of a file without white space at its ends; empty when it cannot be
/// read: a fact that the kernel does not tell is left empty in the inventory.
pub(crate) fn text(path: &Path) -> String {
    bytes(path).map_or_else(String::new, |b| {
        String::from_utf8_lossy(&b).trim().to_owned()
    })
}

pub(super) fn bytes(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)
        .ok()?
        .take(FILE_BYTES)
        .read_to_end(&mut bytes)
        .ok()?;
    Some(bytes)
}

/// The number that a file holds.
pub(crate) fn number<N: std::str::FromStr>(path: &Path) -> Option<N> {
    text(path).parse().ok()
}

/// Names in a directory, sorted; none when it is not there.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .take(DIRECTORY_ENTRIES)
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// Last part of what a link points to.
pub(super) fn link_name(path: &Path) -> Option<String> {
    let target = std::fs::read_link(path).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

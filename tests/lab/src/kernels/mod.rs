//! Stock Debian kernels: the newest of each series, fetched through a private apt
//! configuration (so apt checks signatures and checksums), extracted, never
//! installed, and kept in the cache.

mod apt;
mod extract;
mod watched;

use crate::cache::{self, Lock};
use crate::progress::Progress;
use anyhow::{Context, Result};
use apt::{Apt, Package};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long an answer to "which is the newest" holds. Debian publishes a kernel of a
/// series every week or two.
const NEWEST_HOLDS: Duration = Duration::from_secs(24 * 3600);

/// A kernel series that rdmesh is tested on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub enum Kernel {
    /// Debian 12 (bookworm).
    #[value(name = "6.1")]
    V6_1,
    /// Debian 13 (trixie).
    #[value(name = "6.12")]
    V6_12,
    /// Debian 13 backports.
    #[value(name = "7.3")]
    V7_3,
}

impl Kernel {
    /// All of them, oldest first.
    pub const ALL: [Kernel; 3] = [Kernel::V6_1, Kernel::V6_12, Kernel::V7_3];

    /// As in package names, e.g. `6.12`.
    pub fn series(self) -> &'static str {
        match self {
            Kernel::V6_1 => "6.1",
            Kernel::V6_12 => "6.12",
            Kernel::V7_3 => "7.3",
        }
    }
}

/// The processor that a kernel is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Machine {
    /// x86-64: what the lab boots.
    Amd64,
    /// 64-bit ARM: fetched for reading alone, never booted.
    Arm64,
}

impl Machine {
    /// Debian's name.
    pub fn debian(self) -> &'static str {
        match self {
            Machine::Amd64 => "amd64",
            Machine::Arm64 => "arm64",
        }
    }

    /// A folder of the cache for this processor.
    fn folder(self, name: &str) -> String {
        match self {
            Machine::Amd64 => name.to_owned(),
            Machine::Arm64 => format!("{name}-arm64"),
        }
    }
}

/// An extracted kernel.
#[derive(Debug, Clone)]
pub struct Image {
    /// Debian's version of the package, e.g. `6.12.118-1`.
    pub version: String,
    /// `uname -r`, e.g. `6.12.118+deb13-amd64`.
    pub release: String,
    /// The bootable kernel.
    pub vmlinuz: PathBuf,
    /// `lib/modules/RELEASE`, with `modules.dep`.
    pub modules: PathBuf,
}

/// Which package is the newest of each series, and since when that is known.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Newest {
    checked_unix_s: u64,
    by_series: BTreeMap<String, Package>,
}

/// The newest kernel of a series, from the cache or fetched. Without a network the
/// newest one in the cache is taken. Runs one at a time on a machine.
pub fn fetch(kernel: Kernel, progress: Progress) -> Result<Image> {
    fetch_for(kernel, Machine::Amd64, progress)
}

/// As [`fetch`], for any processor.
pub fn fetch_for(kernel: Kernel, machine: Machine, progress: Progress) -> Result<Image> {
    fetch_if(kernel, machine, progress, NEWEST_HOLDS)
}

/// The newest kernels of all series, asking the mirror in any case.
pub fn refresh(progress: Progress) -> Result<Vec<(Kernel, Image)>> {
    let mut images = Vec::new();
    // One question to the mirror answers for all series.
    let mut holds = Duration::ZERO;
    for kernel in Kernel::ALL {
        let image = fetch_if(kernel, Machine::Amd64, progress, holds)?;
        images.push((kernel, image));
        holds = NEWEST_HOLDS;
    }
    Ok(images)
}

fn fetch_if(
    kernel: Kernel,
    machine: Machine,
    progress: Progress,
    holds: Duration,
) -> Result<Image> {
    let directory = cache::directory()?.join(machine.folder("kernels"));
    fs::create_dir_all(&directory)?;
    let _lock = Lock::wait(&directory.join("lock"))?;
    extract::remove_partial(&directory)?;
    let newest = read_newest(&directory);
    let known = newest.by_series.get(kernel.series());
    if let Some(image) = known.and_then(|package| extracted(&directory, package))
        && now_unix_s().saturating_sub(newest.checked_unix_s) < holds.as_secs()
    {
        return Ok(image);
    }
    match fetch_newest(kernel, machine, &directory, progress) {
        Ok(image) => Ok(image),
        Err(error) => {
            let cached = known.and_then(|package| extracted(&directory, package));
            let Some(image) = cached else {
                return Err(error.context(format!("no Debian {} kernel", kernel.series())));
            };
            progress.note(&format!(
                "using {} from the cache: {error:#}",
                image.version
            ));
            Ok(image)
        }
    }
}

fn fetch_newest(
    kernel: Kernel,
    machine: Machine,
    directory: &Path,
    progress: Progress,
) -> Result<Image> {
    let apt = Apt::private(machine)?;
    let step = progress.step("asking Debian for its newest kernels");
    apt.update()?;
    let mut newest = Newest {
        checked_unix_s: now_unix_s(),
        ..Newest::default()
    };
    for each in Kernel::ALL {
        newest
            .by_series
            .insert(each.series().to_owned(), apt.newest_kernel(each.series())?);
    }
    step.done();
    let package = &newest.by_series[kernel.series()];
    let image = match extracted(directory, package) {
        Some(image) => image,
        None => {
            let step = progress.step(format!("fetching Debian {}", package.version));
            extract::package(&apt, package, directory)?;
            step.done();
            extracted(directory, package)
                .with_context(|| format!("{} has no kernel or modules in it", package.name))?
        }
    };
    let text = serde_json::to_vec_pretty(&newest)?;
    extract::write_whole(&directory.join("newest.json"), &text)?;
    Ok(image)
}

fn read_newest(directory: &Path) -> Newest {
    let text = fs::read(directory.join("newest.json")).unwrap_or_default();
    // Absent or of another version: ask again.
    serde_json::from_slice(&text).unwrap_or_default()
}

fn extracted(directory: &Path, package: &Package) -> Option<Image> {
    let release = package.release();
    let root = directory.join(release);
    let image = Image {
        version: package.version.clone(),
        release: release.to_owned(),
        vmlinuz: root.join("vmlinuz"),
        modules: root.join("lib/modules").join(release),
    };
    let same = fs::read_to_string(root.join("version")).ok()? == package.version;
    let whole = image.vmlinuz.is_file() && image.modules.join("modules.dep").is_file();
    (same && whole).then_some(image)
}

fn now_unix_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

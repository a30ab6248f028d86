//! A private apt: its own lists and cache, the Debian suites that hold the kernels,
//! the system's mirror, keyring and proxy settings.

use super::Machine;
use super::watched::{self, Limits};
use crate::cache;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// Environment variable that names a Debian mirror, e.g. `http://mirror/debian`.
pub(crate) const MIRROR_VARIABLE: &str = "RDMESH_DEBIAN_MIRROR";

/// Debian's own address, for machines whose apt has no Debian source.
const DEFAULT_MIRROR: &str = "http://deb.debian.org/debian";

/// The package lists of [`SUITES`] have 35 MiB, unpacked and indexed 100.
const LISTS_BYTES: u64 = 128 << 20;

/// A kernel's package has 110 MiB, unpacked up to 400.
const KERNEL_BYTES: u64 = 512 << 20;

/// Lists come in seconds, a kernel in a minute; a slow line is given its time.
const UPDATE_LIMIT: Duration = Duration::from_secs(600);
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(1800);

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Suites that hold the kernels of [`super::Kernel::ALL`]; the bool marks those of
/// the security archive.
const SUITES: [(&str, bool); 5] = [
    ("bookworm", false),
    ("bookworm-security", true),
    ("trixie", false),
    ("trixie-security", true),
    ("trixie-backports", false),
];

/// A kernel package and what it consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Package {
    /// E.g. `linux-image-6.12.118+deb13-amd64`.
    pub(crate) name: String,
    /// E.g. `6.12.118-1`.
    pub(crate) version: String,
    /// Packages of the same kernel that it is split into (from 7.0 on).
    pub(crate) parts: Vec<String>,
}

impl Package {
    /// `uname -r` of this kernel.
    pub(crate) fn release(&self) -> &str {
        self.name.strip_prefix("linux-image-").unwrap_or(&self.name)
    }
}

/// The private apt configuration.
#[derive(Debug)]
pub(crate) struct Apt {
    directory: PathBuf,
    machine: Machine,
}

impl Apt {
    /// Writes the configuration below the cache directory.
    pub(crate) fn private(machine: Machine) -> Result<Self> {
        let directory = cache::directory()?.join(machine.folder("apt"));
        for below in ["state/lists/partial", "cache/archives/partial"] {
            let below = directory.join(below);
            fs::create_dir_all(&below)
                .with_context(|| format!("cannot make {}", below.display()))?;
        }
        ensure!(
            Path::new(KEYRING).exists(),
            "no {KEYRING}: install debian-archive-keyring"
        );
        let (main, security) = mirrors();
        let mut sources = String::new();
        for (suite, is_security) in SUITES {
            let mirror = if is_security { &security } else { &main };
            writeln!(
                sources,
                "deb [arch={} signed-by={KEYRING}] {mirror} {suite} main",
                machine.debian()
            )?;
        }
        for (name, text) in [("sources.list", sources.as_str()), ("status", "")] {
            let file = directory.join(name);
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(Self { directory, machine })
    }

    fn command(&self, program: &str) -> Command {
        let within = |below: &str| self.directory.join(below).display().to_string();
        let mut command = Command::new(program);
        let options = [
            format!("Dir::State={}", within("state")),
            format!("Dir::State::status={}", within("status")),
            format!("Dir::Cache={}", within("cache")),
            "Dir::Cache::pkgcache=pkgcache.bin".to_owned(),
            "Dir::Cache::srcpkgcache=".to_owned(),
            format!("Dir::Etc::SourceList={}", within("sources.list")),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            format!("APT::Architecture={}", self.machine.debian()),
            format!("APT::Architectures={}", self.machine.debian()),
            // Root's private directories are not readable for apt's own user.
            "APT::Sandbox::User=".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
        ];
        for option in options {
            command.args(["-o", &option]);
        }
        command.env("LC_ALL", "C");
        command
    }

    /// Renews the package lists.
    pub(crate) fn update(&self) -> Result<()> {
        let mut update = self.command("apt-get");
        // Without this, apt-get is content with old lists when a mirror is away.
        update.args(["update", "-q", "--error-on=any"]);
        cache::need_room(&self.directory, LISTS_BYTES, "a list of Debian's packages")?;
        watched::run(&mut update, &Limits::of(&self.directory, UPDATE_LIMIT))
    }

    /// The newest kernel of a series.
    pub(crate) fn newest_kernel(&self, series: &str) -> Result<Package> {
        let prefix = format!("linux-image-{series}.");
        let names = run(self.command("apt-cache").args(["pkgnames", &prefix]))?;
        let names = String::from_utf8_lossy(&names.stdout).into_owned();
        let names: Vec<&str> = names
            .lines()
            .filter(|name| is_stock(name, self.machine))
            .collect();
        ensure!(
            !names.is_empty(),
            "the mirror has no {prefix}*-{}",
            self.machine.debian()
        );
        let shown = run(self.command("apt-cache").arg("show").args(names))?;
        let mut newest: Option<Package> = None;
        for package in parse_stanzas(&String::from_utf8_lossy(&shown.stdout)) {
            match &newest {
                Some(old) if !is_newer(&package.version, &old.version)? => {}
                _ => newest = Some(package),
            }
        }
        newest.with_context(|| format!("apt-cache shows nothing for {prefix}*"))
    }

    /// Downloads a package and its parts into `to`; apt checks the checksums.
    pub(crate) fn download(&self, package: &Package, to: &Path) -> Result<()> {
        let mut download = self.command("apt-get");
        download.current_dir(to).args(["download", "-q"]);
        for name in package.parts.iter().chain([&package.name]) {
            download.arg(format!("{name}={}", package.version));
        }
        cache::need_room(to, KERNEL_BYTES, "a kernel")?;
        watched::run(&mut download, &Limits::of(to, DOWNLOAD_LIMIT))
    }
}

/// Runs a program to its end; its error output becomes the error.
pub(crate) fn run(command: &mut Command) -> Result<Output> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{program}: {}: {}", output.status, said.trim_end());
    }
    Ok(output)
}

fn is_newer(version: &str, than: &str) -> Result<bool> {
    let compare = Command::new("dpkg")
        .args(["--compare-versions", version, "gt", than])
        .status()
        .context("cannot start dpkg")?;
    Ok(compare.success())
}

/// Whether a name is a plain kernel's: `linux-image-6.1.0-57-amd64`, and no `rt`,
/// `cloud`, `dbg` or `unsigned` one.
fn is_stock(name: &str, machine: Machine) -> bool {
    let middle = name
        .strip_prefix("linux-image-")
        .and_then(|rest| rest.strip_suffix(machine.debian()))
        .and_then(|rest| rest.strip_suffix('-'));
    middle.is_some_and(|version| {
        let version = version.replacen("+deb", "", 1);
        version
            .chars()
            .all(|letter| letter.is_ascii_digit() || letter == '.' || letter == '-')
    })
}

fn parse_stanzas(text: &str) -> Vec<Package> {
    text.split("\n\n").filter_map(parse_stanza).collect()
}

fn parse_stanza(stanza: &str) -> Option<Package> {
    let field = |name: &str| {
        let lines = stanza.lines().filter_map(|line| line.split_once(": "));
        lines
            .filter(|(key, _)| *key == name)
            .map(|(_, value)| value)
            .next()
    };
    let name = field("Package")?.to_owned();
    let release = name.strip_prefix("linux-image-")?;
    let parts = field("Depends")
        .unwrap_or_default()
        .split(", ")
        .filter_map(|dependency| dependency.split(' ').next())
        .filter(|part| part.ends_with(release))
        .map(str::to_owned)
        .collect();
    Some(Package {
        version: field("Version")?.to_owned(),
        parts,
        name,
    })
}

/// The mirror for Debian and the one for its security archive.
fn mirrors() -> (String, String) {
    let named = std::env::var(MIRROR_VARIABLE)
        .ok()
        .filter(|mirror| !mirror.is_empty());
    let system = system_uris();
    let ending = |end: &str| {
        let uri = system
            .iter()
            .find(|uri| uri.trim_end_matches('/').ends_with(end));
        uri.map(|uri| uri.trim_end_matches('/').to_owned())
    };
    let main = named.clone().or_else(|| ending("/debian"));
    let main = main.unwrap_or_else(|| DEFAULT_MIRROR.to_owned());
    let security = if named.is_some() {
        None
    } else {
        ending("/debian-security")
    };
    let security = security.unwrap_or_else(|| format!("{main}-security"));
    (main, security)
}

/// Every URI of the system's apt sources, in both formats.
fn system_uris() -> Vec<String> {
    let parts = fs::read_dir("/etc/apt/sources.list.d")
        .into_iter()
        .flatten()
        .flatten();
    let mut files: Vec<PathBuf> = parts.map(|entry| entry.path()).collect();
    files.sort();
    files.insert(0, PathBuf::from("/etc/apt/sources.list"));
    let texts = files
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok());
    texts.flat_map(|text| uris(&text)).collect()
}

fn uris(sources: &str) -> Vec<String> {
    let lines = sources.lines().map(str::trim);
    let lines = lines.filter(|line| line.starts_with("deb ") || line.starts_with("URIs:"));
    let words = lines.flat_map(str::split_whitespace);
    words
        .filter(|word| word.contains("://"))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_kernels_are_stock() {
        for name in [
            "linux-image-6.1.0-57-amd64",
            "linux-image-6.12.115+deb13.1-amd64",
        ] {
            assert!(is_stock(name, Machine::Amd64), "{name}");
            assert!(!is_stock(name, Machine::Arm64), "{name}");
        }
        for name in [
            "linux-image-6.1.0-57-rt-amd64",
            "linux-image-6.12.118+deb13-cloud-amd64",
            "linux-image-6.12.118+deb13-amd64-dbg",
            "linux-image-6.12.118+deb13-amd64-unsigned",
            "linux-image-amd64",
        ] {
            assert!(!is_stock(name, Machine::Amd64), "{name}");
        }
    }

    #[test]
    fn a_split_kernel_names_its_parts() {
        let stanza = "Package: linux-image-7.3.4+deb13-amd64\nVersion: 7.3.4-1~bpo13+1\n\
            Depends: dracut | initramfs-tools (>= 0.120), linux-base-7.3.4+deb13-amd64 \
            (= 7.3.4-1~bpo13+1), linux-modules-7.3.4+deb13-amd64 (= 7.3.4-1~bpo13+1)\n";
        let package = parse_stanza(stanza).unwrap();
        assert_eq!(package.release(), "7.3.4+deb13-amd64");
        assert_eq!(
            package.parts,
            [
                "linux-base-7.3.4+deb13-amd64",
                "linux-modules-7.3.4+deb13-amd64"
            ]
        );
        let whole = "Package: linux-image-6.1.0-57-amd64\nVersion: 6.1.192-3\n\
            Depends: kmod, linux-base (>= 4.3~), initramfs-tools";
        assert_eq!(parse_stanza(whole).unwrap().parts, Vec::<String>::new());
    }

    #[test]
    fn both_source_formats_give_their_uris() {
        let old = "# deb http://no/debian x main\ndeb [arch=amd64] http://a/debian bookworm main\n";
        assert_eq!(uris(old), ["http://a/debian"]);
        let new = "Types: deb\nURIs: http://b/debian http://c/debian\nSuites: trixie\n";
        assert_eq!(uris(new), ["http://b/debian", "http://c/debian"]);
    }

    #[test]
    fn versions_compare_as_debian_compares_them() {
        assert!(is_newer("6.12.118-1", "6.12.96-1").unwrap());
        assert!(!is_newer("7.3.4-1~bpo13+1", "7.3.4-1").unwrap());
    }
}

//! What the running kernel shows of itself in /proc and /sys.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::catalogue::Catalogue;
use crate::resolve::Symbols;

use super::LoadError;

/// Bit of `CAP_SYS_ADMIN`, which the kernel asks for to name a module's BTF.
const CAP_SYS_ADMIN: u32 = 21;
/// Bits of `CAP_PERFMON` and `CAP_BPF`, which `CAP_SYS_ADMIN` includes.
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// The module that every RDMA module uses.
const CORE_MODULE: &str = "ib_core";

pub(super) const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

fn read_error(path: &str) -> impl FnOnce(io::Error) -> LoadError + '_ {
    move |error| LoadError::Read {
        path: path.to_owned(),
        error,
    }
}

/// Checks, before anything is loaded, what makes loading impossible.
pub(super) fn check() -> Result<(), LoadError> {
    let status = "/proc/self/status";
    let text = fs::read_to_string(status).map_err(read_error(status))?;
    if let Some(missing) = missing_capabilities(&text) {
        return Err(LoadError::Capability { missing });
    }
    if !Path::new(KERNEL_BTF).exists() {
        return Err(LoadError::NoBtf);
    }
    // The file is absent where securityfs is not mounted; then the kernel says no
    // later, when a program asks to read its memory.
    let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    if lockdown.contains("[confidentiality]") {
        return Err(LoadError::Lockdown {
            mode: "confidentiality".to_owned(),
        });
    }
    Ok(())
}

/// Names what /proc/self/status does not show as effective.
fn missing_capabilities(status: &str) -> Option<String> {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    let effective = u64::from_str_radix(line.trim(), 16).ok()?;
    let has = |bit: u32| effective >> bit & 1 == 1;
    if has(CAP_SYS_ADMIN) {
        return None;
    }
    let others = [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON")];
    let mut names = vec!["CAP_SYS_ADMIN"];
    names.extend(
        others
            .iter()
            .filter(|(bit, _)| !has(*bit))
            .map(|(_, name)| *name),
    );
    Some(names.join(", "))
}

/// Loaded modules that matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Modules {
    /// Named by the catalogue, or perhaps drivers.
    pub(super) names: BTreeSet<String>,
    /// The drivers among them, as far as /proc/modules tells.
    pub(super) may_be_drivers: BTreeSet<String>,
    /// A number that a module gets when it is loaded: another one says that it went
    /// and came back between two looks.
    pub(super) identities: BTreeMap<String, u64>,
}

impl Modules {
    pub(super) fn read(catalogue: &Catalogue) -> Result<Self, LoadError> {
        let path = "/proc/modules";
        let text = fs::read_to_string(path).map_err(read_error(path))?;
        let mut modules = Self::parse(&text, catalogue);
        modules.identities = modules
            .names
            .iter()
            .filter_map(|name| {
                // sysfs numbers its directories one after the other.
                let directory = fs::metadata(format!("/sys/module/{name}")).ok()?;
                Some((name.clone(), directory.ino()))
            })
            .collect();
        Ok(modules)
    }

    /// Whether a module is loaded and matters.
    pub(super) fn loaded(&self, module: &str) -> bool {
        self.names.contains(module)
    }

    /// The number of a loaded module; none where sysfs tells none.
    pub(super) fn identity(&self, module: &str) -> Option<u64> {
        self.identities.get(module).copied()
    }

    /// Lines of /proc/modules: name, size, references, users, state, address.
    fn parse(text: &str, catalogue: &Catalogue) -> Self {
        let rows: Vec<(&str, &str)> = text
            .lines()
            .filter_map(|line| {
                let mut parts = line.split_ascii_whitespace();
                Some((parts.next()?, parts.nth(2)?))
            })
            .collect();
        let loaded: BTreeSet<&str> = rows.iter().map(|(name, _)| *name).collect();
        let users = rows
            .iter()
            .find(|(name, _)| *name == CORE_MODULE)
            .map_or("", |(_, users)| *users);
        let may_be_drivers: BTreeSet<String> = users
            .split(',')
            .filter(|name| loaded.contains(name))
            .filter(|name| !catalogue.not_drivers.iter().any(|n| n == name))
            .map(ToOwned::to_owned)
            .collect();
        let mut names: BTreeSet<String> = catalogue
            .modules()
            .filter(|name| loaded.contains(name))
            .map(ToOwned::to_owned)
            .collect();
        names.extend(may_be_drivers.iter().cloned());
        Self {
            names,
            may_be_drivers,
            identities: BTreeMap::new(),
        }
    }
}

/// Symbols of the modules. Empty where the file cannot be read.
pub(super) fn symbols(modules: &Modules) -> Symbols {
    File::open("/proc/kallsyms")
        .and_then(|file| Symbols::read(BufReader::new(file), &modules.names))
        .unwrap_or_default()
}

/// What ftrace can hook in the modules; none where tracefs is not mounted or
/// not readable. It is not mounted for this: a tracer leaves the host as it is.
pub(super) fn traceable(modules: &Modules) -> Option<BTreeSet<(String, String)>> {
    let places = [
        "/sys/kernel/tracing/available_filter_functions",
        "/sys/kernel/debug/tracing/available_filter_functions",
    ];
    let file = places.iter().find_map(|path| File::open(path).ok())?;
    parse_traceable(BufReader::new(file), modules).ok()
}

fn parse_traceable(
    mut from: impl BufRead,
    modules: &Modules,
) -> io::Result<BTreeSet<(String, String)>> {
    let mut out = BTreeSet::new();
    let mut line = String::new();
    loop {
        line.clear();
        if from.read_line(&mut line)? == 0 {
            return Ok(out);
        }
        let mut parts = line.split_ascii_whitespace();
        let (Some(function), Some(module)) = (parts.next(), parts.next()) else {
            continue;
        };
        let module = module.trim_start_matches('[').trim_end_matches(']');
        if modules.names.contains(module) {
            out.insert((module.to_owned(), function.to_owned()));
        }
    }
}

/// Whether an administrator lets the kernel time every program.
pub(super) fn programs_are_timed() -> bool {
    fs::read("/proc/sys/kernel/bpf_stats_enabled").is_ok_and(|text| text.starts_with(b"1"))
}

/// Types of a module as bytes; none when it has no BTF.
pub(super) fn module_btf(module: &str) -> Result<Option<Vec<u8>>, LoadError> {
    let path = format!("/sys/kernel/btf/{module}");
    match fs::read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LoadError::Read { path, error }),
    }
}

/// Types of the kernel as bytes.
pub(super) fn kernel_btf() -> Result<Vec<u8>, LoadError> {
    fs::read(KERNEL_BTF).map_err(read_error(KERNEL_BTF))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULES: &str = "\
mlx5_ib 544768 0 - Live 0x0
dummy 16384 0 - Live 0x0
rdma_rxe 217088 0 - Live 0x0
ib_uverbs 176128 2 mlx5_ib,rdma_rxe, Live 0x0
ib_core 626688 4 mlx5_ib,rdma_rxe,ib_uverbs,ib_ipoib, Live 0x0
";

    #[test]
    fn drivers_are_the_users_of_ib_core_that_are_nothing_else() {
        let catalogue = Catalogue::built_in().unwrap();
        let modules = Modules::parse(MODULES, &catalogue);
        let drivers: Vec<&str> = modules.may_be_drivers.iter().map(String::as_str).collect();
        assert_eq!(drivers, ["mlx5_ib", "rdma_rxe"]);
        assert!(modules.names.contains("ib_uverbs"));
        assert!(!modules.names.contains("dummy"));
    }

    #[test]
    fn missing_capabilities_are_named() {
        assert_eq!(missing_capabilities("CapEff:\t000001ffffffffff\n"), None);
        assert_eq!(
            missing_capabilities("CapEff:\t0000000000000000\n").as_deref(),
            Some("CAP_SYS_ADMIN, CAP_BPF, CAP_PERFMON")
        );
        assert_eq!(
            missing_capabilities("CapEff:\t000000c000000000\n").as_deref(),
            Some("CAP_SYS_ADMIN")
        );
    }

    #[test]
    fn traceable_functions_are_kept_by_module() {
        let modules = Modules {
            names: BTreeSet::from(["rdma_rxe".to_owned()]),
            ..Modules::default()
        };
        let text = "vfs_read\nrxe_create_qp [rdma_rxe]\nf [dummy]\n";
        let all = parse_traceable(text.as_bytes(), &modules).unwrap();
        assert_eq!(all.len(), 1);
        assert!(all.contains(&("rdma_rxe".to_owned(), "rxe_create_qp".to_owned())));
    }
}

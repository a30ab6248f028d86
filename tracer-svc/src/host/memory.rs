//! Huge pages, limits, IOMMU and cgroups.

use rdmesh_proto::tracer::v1::{CgroupSetup, HugePages, Iommu, Limits, RdmaDevice};

use super::acs;
use super::devices::{count, iommu_type};
use super::roots::{Roots, names, text};
use crate::identity::Hierarchy;

pub(super) fn huge_pages(roots: &Roots) -> HugePages {
    let meminfo = text(&roots.proc.join("meminfo"));
    let field = |name: &str| -> u64 {
        let line = meminfo
            .lines()
            .find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|l| l.split_whitespace().next()?.parse().ok())
            .unwrap_or(0)
    };
    let transparent = text(&roots.sys.join("kernel/mm/transparent_hugepage/enabled"));
    HugePages {
        page_size_bytes: field("Hugepagesize").saturating_mul(1024),
        total: field("HugePages_Total"),
        free: field("HugePages_Free"),
        transparent: chosen(&transparent),
    }
}

/// "always [madvise] never" → "madvise".
fn chosen(text: &str) -> String {
    let inside = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(word, _)| word).to_owned()
}

pub(super) fn limits(roots: &Roots) -> Limits {
    let limits = text(&roots.proc.join("1/limits"));
    let soft = |name: &str| -> Option<String> {
        let line = limits.lines().find_map(|l| l.strip_prefix(name))?;
        Some(line.split_whitespace().next()?.to_owned())
    };
    Limits {
        memlock_bytes: soft("Max locked memory").and_then(|v| v.parse().ok()),
        open_files: soft("Max open files")
            .and_then(|v| v.parse().ok())
            .unwrap_or(0),
        max_map_count: count(&roots.proc.join("sys/vm/max_map_count")),
    }
}

/// The IOMMU as the RDMA devices meet it; any group's where there is none.
pub(super) fn iommu(roots: &Roots, devices: &[RdmaDevice]) -> Iommu {
    let enabled = !names(&roots.sys.join("class/iommu")).is_empty();
    let of_device = devices
        .iter()
        .find_map(|d| iommu_type(roots, &d.pci_address));
    let groups = roots.sys.join("kernel/iommu_groups");
    let of_any = || {
        let first = names(&groups).into_iter().next()?;
        Some(text(&groups.join(first).join("type"))).filter(|t| !t.is_empty())
    };
    let mode = match of_device.or_else(of_any).as_deref() {
        Some("identity") => "passthrough",
        Some(_) => "translated",
        None => "",
    };
    Iommu {
        enabled,
        mode: mode.to_owned(),
        acs_bridges: acs::bridges(roots),
    }
}

/// The version that the tracer's records speak of.
pub(super) fn cgroup(roots: &Roots) -> CgroupSetup {
    let mounted = Hierarchy::mounted(&roots.proc);
    // A hybrid host places tasks by its v1 controllers.
    let v1 = mounted.iter().find(|h| !h.controller.is_empty());
    match v1 {
        Some(hierarchy) => CgroupSetup {
            version: 1,
            controller: hierarchy.controller.to_owned(),
        },
        None => CgroupSetup {
            version: if mounted.is_empty() { 0 } else { 2 },
            controller: String::new(),
        },
    }
}

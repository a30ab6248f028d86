//! Kernel, GPU driver and out-of-tree stacks.

use rdmesh_proto::common::v1::ClockPair;
use rdmesh_proto::tracer::v1::{GpuDriver, Kernel, PeerMemory};

use super::roots::{Roots, names, text};

/// Modules that let a NIC reach the memory of a GPU through peer-memory clients.
const PEER_MEMORY_MODULES: [&str; 5] = [
    "nvidia_peermem",
    "nv_peer_mem",
    "amdp2p",
    "habanalabs_ib",
    "ib_peer_mem",
];

/// GPU drivers, most telling first.
const GPU_MODULES: [&str; 4] = ["nvidia", "amdgpu", "habanalabs", "xe"];

/// First kernel whose umem helpers know dmabuf (commit 368c0159d492, 5.12).
const DMABUF_SINCE: (u32, u32) = (5, 12);

pub(super) fn kernel(roots: &Roots, clock: &ClockPair) -> Kernel {
    let sys_kernel = roots.proc.join("sys/kernel");
    let booted_ns = clock.realtime_ns.saturating_sub(clock.boottime_ns);
    Kernel {
        release: text(&sys_kernel.join("osrelease")),
        version: text(&sys_kernel.join("version")),
        machine: std::env::consts::ARCH.to_owned(),
        command_line: text(&roots.proc.join("cmdline")),
        booted_at: Some(timestamp(booted_ns)),
    }
}

/// The loaded GPU driver; none on a host without one.
pub(super) fn gpu(roots: &Roots) -> Option<GpuDriver> {
    let modules = roots.sys.join("module");
    let name = GPU_MODULES.iter().find(|m| modules.join(m).is_dir())?;
    let version = text(&modules.join(name).join("version"));
    let version = if version.is_empty() {
        text(&modules.join(name).join("srcversion"))
    } else {
        version
    };
    Some(GpuDriver {
        name: (*name).to_owned(),
        version,
    })
}

/// Version of an out-of-tree OFED; empty without one. `mlx_compat` is the module
/// that every such stack loads below its own drivers.
pub(super) fn ofed_version(roots: &Roots) -> String {
    let modules = roots.sys.join("module");
    if !modules.join("mlx_compat").is_dir() {
        return String::new();
    }
    let told = ["mlx_compat", "mlx5_core", "mlx5_ib", "ib_core"]
        .iter()
        .map(|m| text(&modules.join(m).join("version")))
        .find(|v| !v.is_empty());
    told.unwrap_or_else(|| "present, version not told".to_owned())
}

pub(super) fn peer_memory(roots: &Roots, release: &str) -> PeerMemory {
    let loaded = names(&roots.sys.join("module"));
    let is_loaded = |m: &&str| loaded.iter().any(|l| l == m);
    PeerMemory {
        modules: PEER_MEMORY_MODULES
            .iter()
            .filter(|m| is_loaded(m))
            .map(|m| (*m).to_owned())
            .collect(),
        dmabuf: is_loaded(&"ib_uverbs") && version_of(release).is_some_and(|v| v >= DMABUF_SINCE),
    }
}

/// "6.1.0-41-amd64" → (6, 1).
fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(['.', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// A moment of CLOCK_REALTIME as the contract writes it.
pub(super) fn timestamp(realtime_ns: u64) -> prost_types::Timestamp {
    let second = 1_000_000_000;
    prost_types::Timestamp {
        seconds: i64::try_from(realtime_ns / second).unwrap_or(i64::MAX),
        nanos: i32::try_from(realtime_ns % second).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_distributions() {
        assert_eq!(version_of("6.1.0-41-amd64"), Some((6, 1)));
        assert_eq!(version_of("5.14-rt"), Some((5, 14)));
        assert_eq!(version_of("next"), None);
    }
}

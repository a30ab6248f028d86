use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rdmesh_proto::common::v1::ClockPair;

use super::*;

/// Files of a host: path and text.
const HOST: &[(&str, &str)] = &[
    ("proc/sys/kernel/osrelease", "6.1.0-41-amd64\n"),
    ("proc/sys/kernel/version", "#1 SMP Debian 6.1.158-1\n"),
    ("proc/cmdline", "quiet iommu=pt\n"),
    (
        "proc/meminfo",
        "MemTotal: 1 kB\nHugePages_Total:      16\nHugePages_Free:       12\nHugepagesize:       2048 kB\n",
    ),
    (
        "proc/1/limits",
        "Limit                     Soft Limit           Hard Limit           Units\nMax open files            1024                 4096                 files\nMax locked memory         8388608              8388608              bytes\n",
    ),
    ("proc/sys/vm/max_map_count", "65530\n"),
    (
        "proc/self/mounts",
        "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
    ),
    (
        "sys/kernel/mm/transparent_hugepage/enabled",
        "always [madvise] never\n",
    ),
    ("sys/module/ib_uverbs/initstate", "live\n"),
    ("sys/module/nvidia_peermem/version", "570.1\n"),
    ("sys/module/nvidia/version", "570.1\n"),
    ("sys/module/mlx_compat/version", "24.10-1.1.4\n"),
    ("sys/module/mlx5_ib/srcversion", "ABCDEF\n"),
    ("sys/class/iommu/dmar0/x", ""),
    ("sys/devices/pci0000:3a/0000:3b:00.0/class", "0x020000\n"),
    (
        "sys/devices/pci0000:3a/0000:3b:00.0/iommu_group/type",
        "identity\n",
    ),
    ("sys/class/infiniband/mlx5_0/fw_ver", "28.39.1002\n"),
    ("sys/class/infiniband/mlx5_0/board_id", "MT_0000000838\n"),
    (
        "sys/class/infiniband/mlx5_0/node_guid",
        "946d:ae03:00c1:7a2e\n",
    ),
    ("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
    (
        "sys/class/infiniband/mlx5_0/ports/1/phys_state",
        "5: LinkUp\n",
    ),
    (
        "sys/class/infiniband/mlx5_0/ports/1/link_layer",
        "Ethernet\n",
    ),
    (
        "sys/class/infiniband/mlx5_0/ports/1/rate",
        "400 Gb/sec (4X NDR)\n",
    ),
    (
        "sys/class/infiniband/mlx5_0/ports/1/gids/0",
        "fe80:0000:0000:0000:966d:aeff:fec1:7a2e\n",
    ),
    (
        "sys/class/infiniband/mlx5_0/ports/1/gids/1",
        "0000:0000:0000:0000:0000:0000:0000:0000\n",
    ),
    (
        "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0",
        "ens1np0\n",
    ),
    ("sys/class/infiniband/rxe0/fw_ver", "\n"),
    ("sys/class/infiniband/rxe0/parent", "eth0\n"),
];

fn host() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in HOST {
        write(root.path(), path, text);
    }
    let sys = root.path().join("sys");
    fs::create_dir_all(sys.join("bus/pci/devices")).unwrap();
    symlink(
        "../../../devices/pci0000:3a/0000:3b:00.0",
        sys.join("bus/pci/devices/0000:3b:00.0"),
    )
    .unwrap();
    symlink(
        "../../../devices/pci0000:3a/0000:3b:00.0",
        sys.join("class/infiniband/mlx5_0/device"),
    )
    .unwrap();
    let driver = sys.join("devices/pci0000:3a/0000:3b:00.0/driver");
    fs::create_dir_all(&driver).unwrap();
    symlink("../../../../module/mlx5_core", driver.join("module")).unwrap();
    root
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn scanned(root: &Path) -> Inventory {
    let roots = Roots {
        proc: root.join("proc"),
        sys: root.join("sys"),
        kernel_log: root.join("kmsg"),
    };
    let drivers = DriverNames::from([("rxe0".to_owned(), "rdma_rxe".to_owned())]);
    let clock = ClockPair {
        boottime_ns: 5_000_000_000,
        realtime_ns: 1_800_000_005_000_000_000,
    };
    scan(&roots, &drivers, &clock)
}

#[test]
fn a_host_with_a_nic_a_gpu_and_ofed() {
    let root = host();
    let mut inventory = scanned(root.path());
    inventory.kernel.as_mut().unwrap().machine = "(as built)".to_owned();
    inventory.id = String::new();
    insta::assert_debug_snapshot!(inventory);
}

#[test]
fn devices_are_found_by_name() {
    let root = host();
    let devices = Devices::of_inventory(&scanned(root.path()).devices);
    assert_eq!(
        devices.get("mlx5_0"),
        Some(&DeviceFacts {
            netdev: "ens1np0".to_owned(),
            pci_address: "0000:3b:00.0".to_owned(),
            driver: "mlx5_ib".to_owned(),
        })
    );
    assert_eq!(devices.drivers(), ["mlx5_ib", "rdma_rxe"]);
    assert_eq!(devices.get("mlx5_9"), None);
}

#[test]
fn a_link_that_went_down_is_another_inventory() {
    let root = host();
    let before = scanned(root.path()).id;
    assert_eq!(scanned(root.path()).id, before);
    write(
        root.path(),
        "sys/class/infiniband/mlx5_0/ports/1/state",
        "1: DOWN\n",
    );
    assert_ne!(scanned(root.path()).id, before);
}

#[test]
fn a_host_that_tells_nothing_has_an_inventory_all_the_same() {
    let root = tempfile::tempdir().unwrap();
    let inventory = scanned(root.path());
    assert!(inventory.devices.is_empty() && inventory.gpu.is_none());
    assert_eq!(inventory.id.len(), 32);
}

//! RDMA devices as sysfs and the kernel's netlink tell them.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::path::Path;

use rdmesh_proto::tracer::v1::{RdmaDevice, RdmaPort};

use super::nldev::DriverNames;
use super::roots::{Roots, link_name, names, number, text};

/// GID slots that are looked at per port: the kernel's tables have 256 at most
/// on the devices of the field.
const GID_SLOTS: usize = 1024;

/// Addresses of a port that are told: the contract's bound. A port has one for each of its
/// network interface's addresses.
const ADDRESSES: usize = 64;

/// Network driver → RDMA driver, for where the kernel does not tell the second
/// by netlink. Left: module that owns the PCI device. Right: the module that
/// registers with ib_core (Kconfig of drivers/infiniband/hw).
const RDMA_MODULE_OF: [(&str, &str); 10] = [
    ("mlx5_core", "mlx5_ib"),
    ("mlx4_core", "mlx4_ib"),
    ("bnxt_en", "bnxt_re"),
    ("ice", "irdma"),
    ("i40e", "irdma"),
    ("idpf", "irdma"),
    ("mana", "mana_ib"),
    ("hns3", "hns_roce_hw_v2"),
    ("cxgb4", "iw_cxgb4"),
    ("qede", "qedr"),
];

/// Where a device is and who drives it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Network device of its first port that has one; empty: none.
    pub netdev: String,
    /// PCI address; empty: a software device.
    pub pci_address: String,
    /// Kernel module that registered it; empty: not known.
    pub driver: String,
}

/// The devices of the host by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    by_name: BTreeMap<String, DeviceFacts>,
}

impl Devices {
    /// The devices of an inventory.
    #[must_use]
    pub fn of_inventory(devices: &[RdmaDevice]) -> Self {
        let facts = |d: &RdmaDevice| DeviceFacts {
            netdev: d
                .ports
                .iter()
                .map(|p| p.netdev.clone())
                .find(|n| !n.is_empty())
                .unwrap_or_default(),
            pci_address: d.pci_address.clone(),
            driver: d.driver.clone(),
        };
        Self {
            by_name: devices.iter().map(|d| (d.name.clone(), facts(d))).collect(),
        }
    }

    /// What is known of a device.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&DeviceFacts> {
        self.by_name.get(name)
    }

    /// The device that a line names: itself, its network device, or its place on the PCI bus.
    #[must_use]
    pub fn named_in(&self, line: &str) -> Option<&str> {
        let words = line.split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '(' | ')'));
        let mut words = words
            .map(|word| word.trim_end_matches(':'))
            .filter(|w| !w.is_empty());
        words.find_map(|word| {
            let named = |(name, facts): &(&String, &DeviceFacts)| {
                *name == word || facts.netdev == word || facts.pci_address == word
            };
            self.by_name
                .iter()
                .find(named)
                .map(|(name, _)| name.as_str())
        })
    }

    /// Drivers with a device, each once, sorted.
    #[must_use]
    pub fn drivers(&self) -> Vec<String> {
        let mut drivers: Vec<String> = self
            .by_name
            .values()
            .map(|d| d.driver.clone())
            .filter(|d| !d.is_empty())
            .collect();
        drivers.sort();
        drivers.dedup();
        drivers
    }
}

/// Reads all devices, in order of their names.
pub(super) fn read(roots: &Roots, drivers: &DriverNames) -> Vec<RdmaDevice> {
    let class = roots.sys.join("class/infiniband");
    names(&class)
        .iter()
        .map(|name| device(roots, &class.join(name), name, drivers))
        .collect()
}

fn device(roots: &Roots, dir: &Path, name: &str, drivers: &DriverNames) -> RdmaDevice {
    // A software device has no parent device.
    let pci_address = link_name(&dir.join("device"))
        .filter(|a| is_pci_address(a))
        .unwrap_or_default();
    let driver = drivers
        .get(name)
        .cloned()
        .unwrap_or_else(|| driver_by_parent(dir));
    RdmaDevice {
        name: name.to_owned(),
        driver_version: driver_version(roots, &driver),
        driver,
        firmware_version: text(&dir.join("fw_ver")),
        pci_address,
        board_id: text(&dir.join("board_id")),
        node_guid: text(&dir.join("node_guid")),
        ports: ports(&dir.join("ports")),
    }
}

fn driver_by_parent(dir: &Path) -> String {
    let parent = link_name(&dir.join("device/driver/module")).unwrap_or_default();
    let rdma = RDMA_MODULE_OF.iter().find(|(owner, _)| *owner == parent);
    rdma.map_or(parent.clone(), |(_, rdma)| (*rdma).to_owned())
}

/// What an out-of-tree module says about itself, or the digest of its sources;
/// an in-tree module without either is as old as the kernel.
fn driver_version(roots: &Roots, driver: &str) -> String {
    if driver.is_empty() {
        return String::new();
    }
    let module = roots.sys.join("module").join(driver);
    let version = text(&module.join("version"));
    if version.is_empty() {
        text(&module.join("srcversion"))
    } else {
        version
    }
}

fn ports(dir: &Path) -> Vec<RdmaPort> {
    let mut ports: Vec<RdmaPort> = names(dir)
        .iter()
        .filter_map(|name| Some(port(&dir.join(name), name.parse().ok()?)))
        .collect();
    ports.sort_by_key(|p| p.number);
    ports
}

fn port(dir: &Path, number_of_port: u32) -> RdmaPort {
    let ndevs = dir.join("gid_attrs/ndevs");
    let slots = names(&dir.join("gids"));
    let gid = |slot: &String| {
        let gid: Ipv6Addr = text(&dir.join("gids").join(slot)).parse().ok()?;
        (!gid.is_unspecified()).then_some(gid)
    };
    let gids: Vec<Ipv6Addr> = slots.iter().take(GID_SLOTS).filter_map(gid).collect();
    let mut addresses = gids.clone();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.truncate(ADDRESSES);
    RdmaPort {
        number: number_of_port,
        state: after_colon(&text(&dir.join("state"))),
        physical_state: after_colon(&text(&dir.join("phys_state"))),
        link_layer: text(&dir.join("link_layer")),
        netdev: names(&ndevs)
            .iter()
            .map(|slot| text(&ndevs.join(slot)))
            .find(|n| !n.is_empty())
            .unwrap_or_default(),
        rate_bps: rate_bps(&text(&dir.join("rate"))),
        gids: u32::try_from(gids.len()).unwrap_or(u32::MAX),
        addresses: addresses.iter().map(|gid| gid.octets().to_vec()).collect(),
    }
}

/// "4: ACTIVE" → "ACTIVE".
fn after_colon(text: &str) -> String {
    text.split_once(':')
        .map_or(text, |(_, state)| state)
        .trim()
        .to_owned()
}

/// "100 Gb/sec (4X EDR)", "2.5 Gb/sec (1X SDR)" → bits per second; 0: not known.
fn rate_bps(text: &str) -> u64 {
    let Some((number, _)) = text.split_once(" Gb/sec") else {
        return 0;
    };
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    match (whole.parse::<u64>(), tenths.parse::<u64>()) {
        (Ok(whole), Ok(tenths)) if tenths < 10 => whole
            .saturating_mul(1_000_000_000)
            .saturating_add(tenths * 100_000_000),
        _ => 0,
    }
}

/// "0000:3b:00.0": domain, bus, device and function.
fn is_pci_address(name: &str) -> bool {
    let parts: Vec<&str> = name.split([':', '.']).collect();
    parts.len() == 4
        && parts
            .iter()
            .all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// All PCI devices: address and directory.
pub(super) fn pci_devices(roots: &Roots) -> Vec<(String, std::path::PathBuf)> {
    let dir = roots.sys.join("bus/pci/devices");
    names(&dir)
        .into_iter()
        .map(|name| {
            let path = dir.join(&name);
            (name, path)
        })
        .collect()
}

/// The IOMMU group's kind of translation, of one device.
pub(super) fn iommu_type(roots: &Roots, pci_address: &str) -> Option<String> {
    let group = roots
        .sys
        .join("bus/pci/devices")
        .join(pci_address)
        .join("iommu_group/type");
    Some(text(&group)).filter(|t| !t.is_empty())
}

/// Class code of a PCI device.
pub(super) fn class_of(path: &Path) -> Option<u32> {
    let class = text(&path.join("class"));
    u32::from_str_radix(class.strip_prefix("0x")?, 16).ok()
}

/// A number that is 0 where the kernel does not tell it.
pub(super) fn count(path: &Path) -> u64 {
    number(path).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_with_and_without_a_fraction() {
        assert_eq!(rate_bps("100 Gb/sec (4X EDR)"), 100_000_000_000);
        assert_eq!(rate_bps("2.5 Gb/sec (1X SDR)"), 2_500_000_000);
        assert_eq!(rate_bps("fast"), 0);
    }

    #[test]
    fn addresses_are_told_from_other_parents() {
        assert!(is_pci_address("0000:3b:00.0"));
        assert!(!is_pci_address("virtio0"));
        assert!(!is_pci_address("mlx5_core.rdma.0"));
    }
}
